//! Report of a comparison: table, JSON and picture.

use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::program::Cost;
use super::stage::{Case, Played, Subject, Wish};
use crate::failure::{Error, Result};
use crate::picture::{self, Bar, Curve, RGBColor};
use crate::verdict;

mod page;

/// Longest command in a caption, in characters.
const CAPTION: usize = 44;

/// Results of all rounds.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Rounds of each situation, in the order of [`Case::ALL`].
    rounds: [Vec<Played>; Case::ALL.len()],
    /// Resources that the high program used observed and not observed, in each round.
    observed: Vec<(Cost, Cost)>,
}

/// Figures of a situation over all rounds.
#[derive(Debug, Serialize)]
struct Figures {
    /// Number of requests of the high program.
    requests: usize,
    p50_ms: f64,
    p99_ms: f64,
    worst_ms: f64,
    /// Medians of the rounds' quantiles, in ms.
    p50_of_rounds_ms: f64,
    p99_of_rounds_ms: f64,
    /// Ratio of the P99 of all requests to that alone.
    p99_to_alone: f64,
    /// Median of the rounds' ratios.
    p99_to_alone_of_rounds: f64,
    /// Number of busy spells whose length is not known.
    missed: u64,
    /// Work of the low program; none for the high program alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    work: Option<Work>,
}

#[derive(Clone, Copy, Debug, Serialize)]
struct Work {
    per_s: f64,
    /// Ratio to the low program alone.
    to_alone: f64,
}

/// Cost of observing the high program: medians over the rounds.
#[derive(Clone, Copy, Debug, Serialize)]
struct Observing {
    /// Time from its start to its end, relative to the unobserved one; none = it does not end by itself.
    run_time: Option<f64>,
    /// Number of processors that it keeps busy while observed.
    processors: f64,
    /// Number of processors that it keeps busy unobserved.
    processors_bare: f64,
}

#[derive(Serialize)]
struct Json<'a> {
    /// Is [`VERSION`].
    version: u32,
    high: &'a str,
    low: &'a str,
    /// Source of requests: `bursts`, or the expression.
    requests: &'a str,
    /// Source of work: `launches`, or the expression.
    work: &'a str,
    gap_ms: f64,
    secs: u64,
    warm_up_s: f64,
    rounds: usize,
    alone: Figures,
    native: Figures,
    xsched: Figures,
    low_alone_per_s: f64,
    /// Part of the time (of 1) that the high program spends in requests when it runs alone.
    in_requests: f64,
    launches: u64,
    unscheduled: u64,
    observing: Option<Observing>,
    /// Number of times that programs ended and were started again.
    started_again: u64,
    /// Result in a sentence, with its doubt.
    verdict: String,
    raw: Vec<Raw<'a>>,
}

#[derive(Serialize)]
struct Raw<'a> {
    alone: RawPlayed<'a>,
    native: RawPlayed<'a>,
    xsched: RawPlayed<'a>,
    low_alone: RawPlayed<'a>,
}

#[derive(Serialize)]
struct RawPlayed<'a> {
    seconds: f64,
    latencies_ms: &'a [f64],
    work: f64,
}

/// Part of the JSON that a picture is drawn from.
#[derive(Deserialize)]
struct Recorded {
    high: String,
    low: String,
    requests: String,
    raw: Vec<RecordedRound>,
}

#[derive(Deserialize)]
struct RecordedRound {
    alone: RecordedPlayed,
    native: RecordedPlayed,
    xsched: RecordedPlayed,
    low_alone: RecordedPlayed,
}

#[derive(Deserialize)]
struct RecordedPlayed {
    seconds: f64,
    latencies_ms: Vec<f64>,
    work: f64,
}

/// Version of the JSON.
const VERSION: u32 = 1;
/// Value of `requests` in the JSON if requests are busy spells.
const BURSTS: &str = "bursts";

impl Report {
    /// Reads the rounds of an earlier comparison.
    ///
    /// # Errors
    /// Returns the missing parts of the text.
    pub(super) fn recorded(json: &str) -> std::result::Result<(Subject, Report), String> {
        let found: Recorded = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let mut report = Report::default();
        for round in found.raw {
            for (case, played) in [
                (Case::Alone, round.alone),
                (Case::Native, round.native),
                (Case::Xsched, round.xsched),
                (Case::LowAlone, round.low_alone),
            ] {
                let RecordedPlayed { seconds, latencies_ms, work } = played;
                if latencies_ms.is_empty() && case != Case::LowAlone {
                    return Err(format!("a round has no request {}", case.name()));
                }
                report.add(case, Played { seconds, latencies_ms, work, ..Played::default() });
            }
        }
        if report.of(Case::Alone).is_empty() {
            return Err("it has no round".into());
        }
        let requests_are_lines = found.requests != BURSTS;
        Ok((Subject { high: found.high, low: found.low, requests_are_lines }, report))
    }

    /// Adds the measurements of one situation in one round.
    pub(super) fn add(&mut self, case: Case, played: Played) {
        self.rounds[at(case)].push(played);
    }

    /// Adds the resources that the high program used, observed and not.
    pub(super) fn add_cost(&mut self, observed: Cost, bare: Cost) {
        self.observed.push((observed, bare));
    }

    fn of(&self, case: Case) -> &[Played] {
        &self.rounds[at(case)]
    }

    fn latencies(&self, case: Case) -> Vec<f64> {
        sorted(self.of(case).iter().flat_map(|played| played.latencies_ms.iter().copied()))
    }

    fn work_per_s(&self, case: Case) -> f64 {
        let (work, seconds) = self.of(case).iter().fold((0.0, 0.0), |sum, p| (sum.0 + p.work, sum.1 + p.seconds));
        work / seconds
    }

    fn figures(&self, case: Case) -> Figures {
        let all = self.latencies(case);
        let each = |case, q: f64| -> Vec<f64> {
            self.of(case).iter().map(|p| quantile(&sorted(p.latencies_ms.iter().copied()), q)).collect()
        };
        let ratios = each(case, 0.99).iter().zip(each(Case::Alone, 0.99)).map(|(here, alone)| here / alone).collect();
        let per_s = self.work_per_s(case);
        let work = Work { per_s, to_alone: per_s / self.work_per_s(Case::LowAlone) };
        Figures {
            requests: all.len(),
            p50_ms: quantile(&all, 0.5),
            p99_ms: quantile(&all, 0.99),
            worst_ms: quantile(&all, 1.0),
            p50_of_rounds_ms: median(each(case, 0.5)),
            p99_of_rounds_ms: median(each(case, 0.99)),
            p99_to_alone: quantile(&all, 0.99) / quantile(&self.latencies(Case::Alone), 0.99),
            p99_to_alone_of_rounds: median(ratios),
            missed: self.of(case).iter().map(|p| p.missed).sum(),
            work: (case != Case::Alone).then_some(work),
        }
    }

    fn in_requests(&self) -> f64 {
        let alone = self.of(Case::Alone);
        let busy_s: f64 = alone.iter().flat_map(|p| &p.latencies_ms).sum::<f64>() / 1e3;
        busy_s / alone.iter().map(|p| p.seconds).sum::<f64>()
    }

    fn observing(&self) -> Option<Observing> {
        if self.observed.is_empty() {
            return None;
        }
        let each = |of: fn(&(Cost, Cost)) -> f64| median(self.observed.iter().map(of).collect());
        let ended = self.observed.iter().all(|(o, b)| o.finished && b.finished);
        Some(Observing {
            run_time: ended.then(|| each(|(observed, bare)| observed.run_s / bare.run_s)),
            processors: each(|(observed, _)| observed.processor_s / observed.run_s),
            processors_bare: each(|(_, bare)| bare.processor_s / bare.run_s),
        })
    }

    fn launches(&self) -> (u64, u64) {
        let all = self.of(Case::Xsched).iter();
        all.fold((0, 0), |sum, p| (sum.0 + p.launches, sum.1 + p.unscheduled))
    }

    fn again(&self) -> u64 {
        self.rounds.iter().flatten().map(|played| played.again).sum()
    }

    /// One sentence of result, with its doubt.
    fn verdict(&self) -> String {
        let figures = |case: Case| {
            let f = self.figures(case);
            let p99 = |p: &Played| quantile(&sorted(p.latencies_ms.iter().copied()), 0.99);
            verdict::Figures {
                requests: f.requests,
                p99_ms: f.p99_ms,
                p99_of_rounds_ms: self.of(case).iter().map(p99).collect(),
                work_per_s: f.work.map(|work| work.per_s),
            }
        };
        let (alone, native, xsched) = (figures(Case::Alone), figures(Case::Native), figures(Case::Xsched));
        let (launches, unscheduled) = self.launches();
        let mut doubts = Vec::new();
        if unscheduled * 100 > launches {
            doubts.push(format!(
                "{:.0} % of the launches went unscheduled",
                unscheduled as f64 * 100.0 / launches as f64
            ));
        }
        if self.again() > 0 {
            doubts.push(
                "programs ended and were started again, so that each was alone for a part of the time".to_owned(),
            );
        }
        let (urgent, other) = ("the high program", "the low program");
        let measured = verdict::Measured { alone: &alone, native: &native, xsched: &xsched, urgent, other };
        verdict::verdict(&measured, None, doubts)
    }

    /// Report as a table.
    pub(super) fn table(&self, wish: &Wish) -> String {
        let mut out = String::new();
        let requests = match &wish.requests {
            None => {
                let gap = wish.gap_us as f64 / 1e3;
                format!("a request: the high program keeps the device busy, with pauses shorter than {gap} ms")
            }
            Some(expression) => format!("a request: a line of the high program that '{expression}' matches"),
        };
        let work = match &wish.work {
            None => "launches of the low program".to_owned(),
            Some(expression) => format!("lines of the low program that '{expression}' matches, by their numbers"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "high: {}\nlow:  {}\n{requests}\nwork: {work}", wish.high, wish.low);
        let _ = writeln!(out, "rounds of {} s each: {}\n", wish.secs, self.of(Case::Alone).len());
        let _ = writeln!(
            out,
            "{:<26}{:>9}{:>10}{:>10}{:>10}{:>13}{:>17}{:>12}{:>14}",
            "", "requests", "P50 ms", "P99 ms", "worst ms", "P99 / alone", "rounds' median", "work/s", "work / alone"
        );
        for case in [Case::Alone, Case::Native, Case::Xsched] {
            let f = self.figures(case);
            let (per_s, part) = f.work.map_or(("-".to_owned(), "-".to_owned()), |w| {
                (format!("{:.1}", w.per_s), format!("{:.0} %", w.to_alone * 100.0))
            });
            let _ = writeln!(
                out,
                "{:<26}{:>9}{:>10.2}{:>10.2}{:>10.2}{:>13}{:>17}{per_s:>12}{part:>14}",
                case.name(),
                f.requests,
                f.p50_ms,
                f.p99_ms,
                f.worst_ms,
                format!("{:.2}x", f.p99_to_alone),
                format!("{:.2} ms, {:.2}x", f.p99_of_rounds_ms, f.p99_to_alone_of_rounds),
            );
        }
        let _ = writeln!(out, "{:<95}{:>12.1}{:>14}", Case::LowAlone.name(), self.work_per_s(Case::LowAlone), "100 %");
        let _ = writeln!(
            out,
            "\nalone, the high program is in requests for {:.0} % of the time",
            self.in_requests() * 100.0
        );
        if let Some(o) = self.observing() {
            let run = o.run_time.map_or(String::new(), |r| format!("its run time is {r:.2}x, "));
            let (with, without) = (o.processors * 100.0, o.processors_bare * 100.0);
            let _ = writeln!(
                out,
                "without xsched it is watched through open gates: {run}it keeps a processor busy for {with:.1} % of the time, \
                 unwatched for {without:.1} %"
            );
        }
        let missed: u64 = [Case::Alone, Case::Native, Case::Xsched].into_iter().map(|c| self.figures(c).missed).sum();
        if missed > 0 {
            let _ = writeln!(out, "busy spells of unknown length, left out: {missed}");
        }
        let (launches, unscheduled) = self.launches();
        if unscheduled > 0 {
            let _ = writeln!(out, "unscheduled: {unscheduled} of {launches} launches under xsched");
        }
        let again = self.again();
        if again > 0 {
            let times = if again == 1 { "once" } else { "times in all" };
            let count = if again == 1 { String::new() } else { format!("{again} ") };
            let _ = writeln!(out, "programs that ended while they were measured were started again, {count}{times}");
        }
        let _ = writeln!(out, "\n{}", self.verdict());
        out
    }

    /// Report as JSON.
    pub(super) fn json(&self, wish: &Wish) -> Result<String> {
        fn raw(played: &Played) -> RawPlayed<'_> {
            RawPlayed { seconds: played.seconds, latencies_ms: &played.latencies_ms, work: played.work }
        }
        let round = |n: usize| Raw {
            alone: raw(&self.of(Case::Alone)[n]),
            native: raw(&self.of(Case::Native)[n]),
            xsched: raw(&self.of(Case::Xsched)[n]),
            low_alone: raw(&self.of(Case::LowAlone)[n]),
        };
        let rounds = self.of(Case::Alone).len();
        let (launches, unscheduled) = self.launches();
        let json = Json {
            version: VERSION,
            high: &wish.high,
            low: &wish.low,
            requests: wish.requests.as_ref().map_or(BURSTS, |r| r.as_str()),
            work: wish.work.as_ref().map_or("launches", |r| r.as_str()),
            gap_ms: wish.gap_us as f64 / 1e3,
            secs: wish.secs,
            warm_up_s: wish.warm_up.as_secs_f64(),
            rounds,
            alone: self.figures(Case::Alone),
            native: self.figures(Case::Native),
            xsched: self.figures(Case::Xsched),
            low_alone_per_s: self.work_per_s(Case::LowAlone),
            in_requests: self.in_requests(),
            launches,
            unscheduled,
            observing: self.observing(),
            started_again: self.again(),
            verdict: self.verdict(),
            raw: (0..rounds).map(round).collect(),
        };
        serde_json::to_string_pretty(&json).map(|s| s + "\n").map_err(Error::environment)
    }

    /// Draws the three distributions in one picture.
    pub(super) fn plot(&self, subject: &Subject, file: &Path) -> Result<()> {
        let cannot = |why: &dyn std::fmt::Display| Error::environment(format!("cannot draw {}: {why}", file.display()));
        std::fs::write(file, self.distributions(subject)?).map_err(|e| cannot(&e))
    }

    /// Picture of the three distributions, as SVG.
    fn distributions(&self, subject: &Subject) -> Result<String> {
        let curve = |(case, color): (Case, RGBColor)| {
            let (f, all) = (self.figures(case), self.latencies(case));
            let bar = |w: Work| Bar { label: format!("work {:.0} % of alone", w.to_alone * 100.0), part: w.to_alone };
            Curve {
                label: format!("{}: P50 {:.2}, P99 {:.2}, worst {:.2} ms", case.name(), f.p50_ms, f.p99_ms, f.worst_ms),
                color,
                lowest: quantile(&all, 0.0),
                worst: f.worst_ms,
                requests: all.len() as u64,
                points: picture::steps(&all),
                work: f.work.map(bar),
            }
        };
        let cases = [(Case::Alone, picture::ALONE), (Case::Native, picture::NATIVE), (Case::Xsched, picture::XSCHED)];
        let caption = format!("{} beside {}", short(&subject.high), short(&subject.low));
        let x_desc = match subject.requests_are_lines {
            false => "time that the device is busy with a request, ms",
            true => "latency as the program prints it, ms",
        };
        picture::distributions(&caption, x_desc, &cases.map(curve)).map_err(Error::environment)
    }
}

fn at(case: Case) -> usize {
    Case::ALL.iter().position(|&c| c == case).unwrap_or(0)
}

fn short(command: &str) -> String {
    match command.char_indices().nth(CAPTION) {
        None => command.to_owned(),
        Some((at, _)) => format!("{}…", &command[..at]),
    }
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Value that this part of the sorted values does not exceed.
fn quantile(sorted: &[f64], q: f64) -> f64 {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

/// Median: the middle value, or the mean of the two in the middle.
fn median(values: Vec<f64>) -> f64 {
    let all = sorted(values.into_iter());
    let (low, high) = (all[(all.len() - 1) / 2], all[all.len() / 2]);
    (low + high) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    pub(super) fn wish() -> Wish {
        let (start, warm_up) = (Duration::from_secs(1), Duration::from_secs(2));
        let (high, low) = ("serve <x>".into(), "train ".repeat(20));
        Wish { high, low, requests: None, work: None, gap_us: 2_000, secs: 10, warm_up, start }
    }

    pub(super) fn report() -> Report {
        let mut report = Report::default();
        for round in 0..3 {
            for (case, scale, work) in [
                (Case::Alone, 1.0, 0.0),
                (Case::Native, 3.0, 80.0),
                (Case::Xsched, 1.1, 70.0),
                (Case::LowAlone, 0.0, 100.0),
            ] {
                // In the last round everything takes twice as long.
                let scale = if round == 2 { 2.0 * scale } else { scale };
                let latencies_ms =
                    if scale > 0.0 { (1..=100).map(|i| f64::from(i) * scale).collect() } else { Vec::new() };
                report.add(case, Played { seconds: 10.0, latencies_ms, work, launches: 5, ..Played::default() });
            }
            let cost = |run_s, processor_s| Cost { run_s, processor_s, finished: round < 2 };
            report.add_cost(cost(11.0, 2.0), cost(10.0, 1.0));
        }
        report
    }

    #[test]
    fn requests_are_pooled_and_rounds_have_medians() {
        let alone = report().figures(Case::Alone);
        assert_eq!((alone.requests, alone.p50_ms, alone.worst_ms), (300, 60.0, 200.0));
        assert_eq!((alone.p50_of_rounds_ms, alone.p99_of_rounds_ms, alone.p99_to_alone), (50.0, 99.0, 1.0));
        assert!(alone.work.is_none());
        let native = report().figures(Case::Native);
        assert!((native.p99_to_alone - 3.0).abs() < 1e-9 && (native.p99_to_alone_of_rounds - 3.0).abs() < 1e-9);
        let work = native.work.unwrap();
        assert_eq!((work.per_s, work.to_alone), (8.0, 0.8));
    }

    #[test]
    fn observing_is_compared_by_run_time_only_where_all_runs_end_by_themselves() {
        let observing = report().observing().unwrap();
        assert_eq!((observing.run_time, observing.processors_bare), (None, 0.1));
        assert!((observing.processors - 2.0 / 11.0).abs() < 1e-9);
        let mut ends = report();
        ends.observed.truncate(2);
        assert_eq!(ends.observing().unwrap().run_time, Some(1.1));
        assert!(Report::default().observing().is_none());
    }

    #[test]
    fn the_table_has_a_line_for_each_situation() {
        let text = report().table(&wish());
        let line = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        assert!(line("alone ").contains("1.00x"));
        assert!(
            line("together, without xsched").contains("3.00x") && line("together, without xsched").ends_with("80 %")
        );
        assert!(line("together, under xsched").contains("1.10x"));
        assert!(line("the low program alone").ends_with("100 %"));
        assert!(text.trim_end().lines().last().unwrap().starts_with("Verdict: "), "{text}");
        assert!(text.contains("for 18.2 % of the time, unwatched for 10.0 %"), "{text}");
    }

    /// Fails unless an answer obeys the published schema, and has every field of it and no other.
    #[track_caller]
    fn obeys(answer: &serde_json::Value) {
        let text = include_str!("../../../../docs/reference/compare.schema.json");
        let schema: serde_json::Value = serde_json::from_str(text).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let faults: Vec<_> = validator.iter_errors(answer).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(faults.is_empty(), "{faults:?}");
        let mut open = vec![(&schema, answer)];
        while let Some((schema, value)) = open.pop() {
            if let (Some(named), Some(fields)) = (schema["properties"].as_object(), value.as_object()) {
                let missing: Vec<_> = fields.keys().filter(|name| !named.contains_key(*name)).collect();
                assert!(missing.is_empty(), "not in the schema: {missing:?}");
                open.extend(fields.iter().map(|(name, field)| (&named[name], field)));
            }
            open.extend(value.as_array().into_iter().flatten().map(|item| (&schema["items"], item)));
        }
    }

    #[test]
    fn json_has_the_published_shape() {
        let v: serde_json::Value = serde_json::from_str(&report().json(&wish()).unwrap()).unwrap();
        obeys(&v);
        let with_lines = Report { observed: Vec::new(), ..report() };
        obeys(&serde_json::from_str(&with_lines.json(&wish()).unwrap()).unwrap());
        assert_eq!(v["raw"].as_array().unwrap().len(), 3);
        assert_eq!(v["raw"][0]["xsched"]["latencies_ms"].as_array().unwrap().len(), 100);
        assert_eq!((&v["launches"], &v["requests"], &v["work"]), (&15.into(), &"bursts".into(), &"launches".into()));
    }

    #[test]
    fn the_picture_says_what_the_curves_are() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.svg");
        report().plot(&wish().subject(), &file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(svg.starts_with("<svg") && svg.contains("serve &lt;x&gt; beside train"), "{svg}");
        for part in ["alone: P50", "without xsched: P50", "under xsched: P50", "work 80 %", "tr…"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn a_picture_from_the_json_is_the_picture_of_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("1.svg"), dir.path().join("2.svg"));
        report().plot(&wish().subject(), &first).unwrap();
        let (subject, again) = Report::recorded(&report().json(&wish()).unwrap()).unwrap();
        again.plot(&subject, &second).unwrap();
        assert_eq!(std::fs::read_to_string(first).unwrap(), std::fs::read_to_string(second).unwrap());
    }

    #[test]
    fn json_without_requests_is_refused() {
        let mut bad: serde_json::Value = serde_json::from_str(&report().json(&wish()).unwrap()).unwrap();
        bad["raw"][1]["xsched"]["latencies_ms"] = serde_json::json!([]);
        assert!(Report::recorded(&bad.to_string()).unwrap_err().contains("no request together, under xsched"));
        bad["raw"] = serde_json::json!([]);
        assert_eq!(Report::recorded(&bad.to_string()).unwrap_err(), "it has no round");
        assert!(Report::recorded("{}").unwrap_err().contains("high"));
    }
}
