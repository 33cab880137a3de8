//! Report of the demo: table, JSON and plot.

use std::fmt::Write;
use std::path::Path;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::load::{Burst, Part, Platform};
use super::worker::PERIOD;
use crate::failure::{Error, Result};
use crate::picture::{self, Bar, Curve, RGBColor};
use crate::verdict;

/// Largest ratio of P99 to P50 alone, and of the P99 of one round to that of another, on a machine whose figures mean something: all
/// requests of the demo are alike.
const STEADY: f64 = 1.5;

/// Figures of one of the three situations, over all rounds.
#[derive(Debug)]
pub(super) struct Situation {
    latency_ns: Histogram<u64>,
    /// P99 latency of each round, in ms.
    p99_of_rounds_ms: Vec<f64>,
    kernels: u64,
    seconds: f64,
}

impl Situation {
    /// Makes an empty situation.
    pub(super) fn new() -> Result<Self> {
        let latency_ns = Histogram::new_with_bounds(1, 600_000_000_000, 3).map_err(Error::environment)?;
        Ok(Situation { latency_ns, p99_of_rounds_ms: Vec::new(), kernels: 0, seconds: 0.0 })
    }

    /// Adds the latencies of one round.
    pub(super) fn add_latencies(&mut self, all_ns: &[u64]) {
        let mut sorted = all_ns.to_vec();
        sorted.sort_unstable();
        if let Some(p99) = sorted.get((sorted.len() * 99).div_ceil(100).saturating_sub(1)) {
            self.p99_of_rounds_ms.push(*p99 as f64 / 1e6);
        }
        for &ns in all_ns {
            self.latency_ns.saturating_record(ns);
        }
    }

    /// Adds the best-effort work of one round.
    pub(super) fn add_work(&mut self, kernels: u64, seconds: f64) {
        self.kernels += kernels;
        self.seconds += seconds;
    }

    fn quantile_ms(&self, q: f64) -> f64 {
        self.latency_ns.value_at_quantile(q) as f64 / 1e6
    }

    fn best_effort_per_s(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.kernels as f64 / self.seconds)
    }

    /// Points of the distribution: latency in ms, and percent of the requests.
    fn curve(&self) -> Vec<(f64, f64)> {
        let mut points = Vec::new();
        let mut below = 0.0;
        for step in self.latency_ns.iter_recorded() {
            let ms = step.value_iterated_to() as f64 / 1e6;
            points.push((ms, below));
            below = step.quantile() * 100.0;
            points.push((ms, below));
        }
        points
    }
}

/// Figures of all three situations.
#[derive(Debug)]
pub(super) struct Report {
    /// Vendor interface.
    pub(super) platform: Platform,
    /// Name of the device.
    pub(super) device: String,
    /// Latency-critical program alone.
    pub(super) alone: Situation,
    /// The two programs together, without xsched.
    pub(super) native: Situation,
    /// The two programs together, under xsched.
    pub(super) xsched: Situation,
}

#[derive(Serialize)]
struct Json<'a> {
    platform: &'a str,
    device: &'a str,
    /// Reason for which the figures are to be taken with care; none = the machine was steady.
    noise: Option<String>,
    alone: JsonSituation,
    native: JsonSituation,
    xsched: JsonSituation,
}

#[derive(Serialize)]
struct JsonSituation {
    p50_ms: f64,
    p99_ms: f64,
    worst_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_effort_per_s: Option<f64>,
    /// Ratio of its work to its work without xsched.
    #[serde(skip_serializing_if = "Option::is_none")]
    best_effort_kept: Option<f64>,
}

impl Report {
    /// Work of the best-effort program, relative to its work without xsched.
    fn kept(&self, s: &Situation) -> Option<f64> {
        Some(s.best_effort_per_s()? / self.native.best_effort_per_s()?)
    }

    /// Sign in the figures of a cause that can only be the machine, if there is one.
    fn noise(&self) -> Option<String> {
        let spread = self.alone.quantile_ms(0.99) / self.alone.quantile_ms(0.5);
        let rounds = &self.alone.p99_of_rounds_ms;
        let (least, most) =
            (rounds.iter().copied().fold(f64::MAX, f64::min), rounds.iter().copied().fold(0.0, f64::max));
        let faster = self.xsched.quantile_ms(0.99) / self.alone.quantile_ms(0.99);
        if spread > STEADY {
            Some(format!("alone, P99 is {spread:.1} times P50, above the bound of {STEADY}"))
        } else if most > STEADY * least {
            Some(format!(
                "alone, P99 is {least:.2} ms in one round and {most:.2} ms in another, above the bound of {STEADY} times"
            ))
        } else if faster < 1.0 / STEADY {
            Some(format!("P99 is {faster:.2} of what it is alone, and it cannot be better than alone"))
        } else {
            None
        }
    }

    /// One sentence of result, with its doubt.
    fn verdict(&self) -> String {
        let figures = |s: &Situation| verdict::Figures {
            requests: s.latency_ns.len() as usize,
            p99_ms: s.quantile_ms(0.99),
            p99_of_rounds_ms: s.p99_of_rounds_ms.clone(),
            work_per_s: s.best_effort_per_s(),
        };
        let (alone, native, xsched) = (figures(&self.alone), figures(&self.native), figures(&self.xsched));
        let (urgent, other) = ("the urgent program", "the best-effort one");
        let measured = verdict::Measured { alone: &alone, native: &native, xsched: &xsched, urgent, other };
        let noise = self.noise().map(|why| format!("too noisy here, take these with care: {why}"));
        verdict::verdict(&measured, noise, Vec::new())
    }

    fn rows(&self) -> [(&'static str, &Situation, RGBColor); 3] {
        [
            ("alone", &self.alone, picture::ALONE),
            ("together, without xsched", &self.native, picture::NATIVE),
            ("together, under xsched", &self.xsched, picture::XSCHED),
        ]
    }

    /// Report as a table.
    pub(super) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = writeln!(
            out,
            "{} ({}), {} requests each: {}, every {} ms\nbest-effort: {} and again\n",
            self.device,
            self.platform.name(),
            self.alone.latency_ns.len(),
            Burst::of(self.platform, Part::Critical),
            PERIOD.as_millis(),
            Burst::of(self.platform, Part::BestEffort),
        );
        let _ = writeln!(
            out,
            "{:<24}{:>8}{:>8}{:>10}{:>10}{:>14}{:>6}",
            "", "P50 ms", "P99 ms", "P99/alone", "worst ms", "best-effort/s", "kept"
        );
        for (name, s, _) in self.rows() {
            let ratio = s.quantile_ms(0.99) / self.alone.quantile_ms(0.99);
            let work = s.best_effort_per_s().map_or("-".to_owned(), |w| format!("{w:.0}"));
            let kept = self.kept(s).map_or("-".to_owned(), |part| format!("{:.0} %", part * 100.0));
            let _ = writeln!(
                out,
                "{name:<24}{:>8.2}{:>8.2}{:>10}{:>10.2}{work:>14}{kept:>6}",
                s.quantile_ms(0.5),
                s.quantile_ms(0.99),
                format!("{ratio:.2}x"),
                s.quantile_ms(1.0),
            );
        }
        let _ = writeln!(out, "\n{}", self.verdict());
        out
    }

    /// Report as JSON.
    pub(super) fn json(&self) -> Result<String> {
        let of = |s: &Situation| JsonSituation {
            p50_ms: s.quantile_ms(0.5),
            p99_ms: s.quantile_ms(0.99),
            worst_ms: s.quantile_ms(1.0),
            best_effort_per_s: s.best_effort_per_s(),
            best_effort_kept: self.kept(s),
        };
        let json = Json {
            platform: self.platform.name(),
            device: &self.device,
            noise: self.noise(),
            alone: of(&self.alone),
            native: of(&self.native),
            xsched: of(&self.xsched),
        };
        serde_json::to_string_pretty(&json).map(|s| s + "\n").map_err(Error::environment)
    }

    /// Draws the three distributions in one picture.
    pub(super) fn plot(&self, file: &Path) -> Result<()> {
        let curve = |(name, s, color): (&str, &Situation, RGBColor)| {
            let (p50, p99, worst) = (s.quantile_ms(0.5), s.quantile_ms(0.99), s.quantile_ms(1.0));
            let label = format!("{name}: P50 {p50:.2}, P99 {p99:.2}, worst {worst:.2} ms");
            let bar =
                |kept: f64| Bar { label: format!("best-effort {:.0} % of without xsched", kept * 100.0), part: kept };
            Curve {
                label,
                color,
                lowest: s.quantile_ms(0.0),
                worst,
                requests: s.latency_ns.len(),
                points: s.curve(),
                work: self.kept(s).map(bar),
            }
        };
        let caption = format!("Latency on {} ({})", self.device, self.platform.name());
        let x_desc = "latency from the time a request was due, ms";
        picture::draw(file, &caption, x_desc, &self.rows().map(curve))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let situation = |scale: u64, work: u64| {
            let mut s = Situation::new().unwrap();
            s.add_latencies(&(1..=1000).map(|i| i * scale).collect::<Vec<_>>());
            if work > 0 {
                s.add_work(work, 2.0);
            }
            s
        };
        Report {
            platform: Platform::Sim,
            device: "d <1>".into(),
            alone: situation(10_000, 0),
            native: situation(30_000, 800),
            xsched: situation(11_000, 700),
        }
    }

    #[test]
    fn json_has_the_published_shape() {
        let v: serde_json::Value = serde_json::from_str(&report().json().unwrap()).unwrap();
        let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&v), ["alone", "device", "native", "noise", "platform", "xsched"]);
        assert_eq!(keys(&v["alone"]), ["p50_ms", "p99_ms", "worst_ms"]);
        assert_eq!(keys(&v["native"]), ["best_effort_kept", "best_effort_per_s", "p50_ms", "p99_ms", "worst_ms"]);
        assert_eq!(keys(&v["xsched"]), keys(&v["native"]));
        assert_eq!(
            (&v["native"]["best_effort_per_s"], &v["xsched"]["best_effort_kept"]),
            (&400.0.into(), &0.875.into())
        );
        assert!(v["noise"].as_str().unwrap().starts_with("alone, P99 is 2.0 times P50"), "{v}");
        assert!((v["alone"]["p50_ms"].as_f64().unwrap() - 5.0).abs() < 0.01);
        assert!((v["xsched"]["p99_ms"].as_f64().unwrap() - 10.89).abs() < 0.02);
    }

    #[test]
    fn a_machine_that_is_not_steady_is_told() {
        let with = |rounds: &[&[u64]], xsched_us: u64| {
            let mut alone = Situation::new().unwrap();
            rounds.iter().for_each(|ms| alone.add_latencies(&ms.iter().map(|ms| ms * 1_000_000).collect::<Vec<_>>()));
            let mut xsched = Situation::new().unwrap();
            xsched.add_latencies(&[xsched_us * 1000; 100]);
            Report { alone, xsched, ..report() }
        };
        assert_eq!(with(&[&[10; 100], &[14; 100]], 11_000).noise(), None);
        let spread = with(&[&[[10; 98].as_slice(), &[16, 16]].concat()], 11_000);
        assert!(
            spread.table().contains("Doubt: too noisy here, take these with care: alone, P99 is 1.6 times P50, above")
        );
        let rounds = with(&[&[10; 1], &[16; 100]], 11_000).noise().unwrap();
        assert!(rounds.contains("10.00 ms in one round and 16.00 ms in another"), "{rounds}");
        assert!(with(&[&[10; 100]], 4_900).noise().unwrap().starts_with("P99 is 0.49 of"));
    }

    #[test]
    fn the_table_has_a_ratio_for_each() {
        let text = report().table();
        assert!(text.contains("worst ms") && text.contains("30.0"), "{text}");
        assert!(text.contains("1.00x") && text.contains("3.00x") && text.contains("1.10x"), "{text}");
        assert!(text.trim_end().lines().last().unwrap().starts_with("Verdict: "), "{text}");
        assert!(text.contains("100 %") && text.contains("  88 %"), "{text}");
        assert!(text.lines().skip(3).take(4).all(|line| line.len() <= 80), "{text}");
    }

    #[test]
    fn the_plot_has_three_curves_and_says_what_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.svg");
        report().plot(&file).unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        assert!(svg.contains("under xsched: P50") && svg.contains("without xsched: P50") && svg.contains("alone: P50"));
        assert!(svg.contains("d &lt;1&gt;"), "names are escaped");
        for color in ["#5A5A5A", "#C83C28", "#1E6EBE"] {
            assert!(svg.contains(&format!("stroke=\"{color}\"")), "{color}");
        }
    }
}
