//! `xsched compare`: two commands of the user's, alone, together and together under xsched.

mod bursts;
mod program;
mod report;
mod stage;

use std::path::Path;
use std::time::Duration;

use xsched_proto::units;

use self::report::Report;
pub use self::stage::Wish;
use self::stage::{Case, Stage, Subject};
use crate::children;
use crate::failure::{Error, Result, say};
use crate::private::{writable, write};
use crate::progress::Progress;
use crate::{verdict, width};

/// Measures, writes the files that are wished for, and returns a table.
///
/// # Errors
/// One line. Exit code 2 where a file cannot be written, 3 where the machine does not allow it.
pub fn run(wish: Wish, rounds: u32, files: &Files<'_>) -> Result<String> {
    writable(files.all())?;
    children::catch_signals();
    let mut stage = Stage::new(wish).map_err(|why| why.within("compare"))?;
    let report = measure(&mut stage, rounds as usize).map_err(|why| why.within("compare"))?;
    let wish = &stage.wish;
    files.json.map_or(Ok(()), |file| write(file, &report.json(wish)?))?;
    files.write_drawn(&report, &wish.subject())?;
    Ok(width::of_output().fill_sentences(&report.table(wish)))
}

/// Files to be written.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files<'a> {
    /// Figures and all single values.
    pub json: Option<&'a Path>,
    /// Picture of the latency distributions.
    pub svg: Option<&'a Path>,
    /// Page with table and pictures.
    pub html: Option<&'a Path>,
}

impl<'a> Files<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Path> {
        self.json.into_iter().chain(self.svg).chain(self.html)
    }

    /// Draws the picture and the page, if they are wished for.
    fn write_drawn(&self, report: &Report, subject: &Subject) -> Result<()> {
        self.svg.map_or(Ok(()), |file| report.plot(subject, file))?;
        self.html.map_or(Ok(()), |file| write(file, &report.page(subject)?))
    }
}

/// Draws an earlier comparison from its JSON.
///
/// # Errors
/// One line. Exit code 2 where a file is no such JSON, or cannot be written.
pub fn redraw(from: &Path, files: &Files<'_>) -> Result<()> {
    writable(files.all())?;
    redraw_from(from, files).map_err(|why| why.within("compare"))
}

fn redraw_from(from: &Path, files: &Files<'_>) -> Result<()> {
    let text =
        std::fs::read_to_string(from).map_err(|e| Error::input(format!("cannot read {}: {e}", from.display())))?;
    let (subject, report) = Report::recorded(&text)
        .map_err(|why| Error::input(format!("{} is no report of compare --json: {why}", from.display())))?;
    files.write_drawn(&report, &subject)
}

/// First line: how long it takes.
fn about(wish: &Wish, rounds: usize) -> String {
    let cases = Case::ALL.len();
    // Where requests are busy spells, the high program also runs unwatched.
    let plays = rounds * (cases + usize::from(wish.requests.is_none()));
    let one = wish.warm_up + Duration::from_secs(wish.secs);
    let all = units::of(one * plays as u32);
    format!("plays {cases} situations in each of {rounds} rounds: {all} and, {plays} times, the start of the programs")
}

/// Says that a run will not tell what it is for, before it has taken its time.
fn note(line: Option<String>) {
    if let Some(line) = line {
        say(&format!("compare: note: {line}"));
    }
}

/// Note on a machine with other work.
fn busy_machine() -> Option<String> {
    let load: f64 = std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()?;
    busy(load, std::thread::available_parallelism().ok()?.get())
}

fn busy(load: f64, processors: usize) -> Option<String> {
    (load > processors as f64 / 2.0).then(|| {
        format!("the machine has other work (load {load:.1} on {processors} processors): figures will vary from round to round")
    })
}

/// Note on a number of requests in one round that is too small for a P99.
fn too_few(requests: usize, rounds: usize) -> Option<String> {
    let all = requests * rounds;
    (all < verdict::FEW).then(|| {
        let enough = (verdict::FEW as f64 / all.max(1) as f64).ceil();
        format!(
            "alone, {requests} requests in a round: P99 will rest on {all}, and be the worst of them; {enough:.0} times --secs \
             or --rounds give enough"
        )
    })
}

fn measure(stage: &mut Stage, rounds: usize) -> Result<Report> {
    let mut report = Report::default();
    let cases = Case::ALL.len();
    let progress = Progress::new("compare", Some(&about(&stage.wish, rounds)));
    note(busy_machine());
    for round in 0..rounds {
        for step in 0..cases {
            // Each round begins with another situation, so that drift of the machine hits all alike.
            let case = Case::ALL[(round + step) % cases];
            let at = format!("round {} of {rounds}, {} of {cases}", round + 1, step + 1);
            progress.show(&format!("{at}: {}", case.name()));
            let played = stage.play(case)?;
            if let Some(observed) = played.cost.filter(|_| stage.wish.requests.is_none()) {
                progress.show(&format!("{at}: alone, not watched"));
                report.add_cost(observed, stage.play_bare(observed)?);
            }
            if round == 0 && case == Case::Alone {
                note(too_few(played.latencies_ms.len(), rounds));
            }
            report.add(case, played);
        }
    }
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_run_cannot_tell_is_said_before_it_takes_its_time() {
        let line = too_few(17, 3).unwrap();
        assert!(
            line.starts_with("alone, 17 requests in a round: P99 will rest on 51") && line.contains("; 2 times --secs")
        );
        assert_eq!((too_few(34, 3), busy(0.9, 2)), (None, None));
        assert!(busy(1.1, 2).unwrap().starts_with("the machine has other work (load 1.1 on 2 processors)"));
    }

    #[test]
    fn the_duration_is_told_first() {
        let mut wish = Wish {
            high: "a".into(),
            low: "b".into(),
            requests: None,
            work: None,
            gap_us: 2_000,
            secs: 10,
            warm_up: Duration::from_secs(5),
            start: Duration::from_secs(1),
        };
        let line = about(&wish, 3);
        assert_eq!(line, "plays 4 situations in each of 3 rounds: 3 m 45 s and, 15 times, the start of the programs");
        wish.requests = regex_lite::Regex::new("(a)").ok();
        assert!(about(&wish, 1).contains(": 1 m and, 4 times,"));
    }
}
