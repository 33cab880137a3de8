//! Outcomes as a picture: for each program the P50 and the P99 of its requests, and its share, side by side for each run.

use std::fmt::Write as _;

use xsched_proto::units;

use crate::outcome::{Outcome, ProgramOutcome};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 220.0;
const ROW: f64 = 18.0;
const BARS: f64 = 420.0;
/// Colours of runs, in their order.
const COLOURS: [&str; 6] = ["#4878a8", "#c4704f", "#5f9e6e", "#8c6bb1", "#a8934a", "#7f7f7f"];

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Place of a time on a scale by powers of ten, as a part of the bar's length.
fn part(ns: u64, range: (f64, f64)) -> f64 {
    ((ns.max(1) as f64).log10() - range.0) / (range.1 - range.0).max(1e-9)
}

/// The picture of some runs of a scenario.
pub fn picture(question: &str, runs: &[Outcome]) -> String {
    let times = |program: &ProgramOutcome| [program.requests.quantile_ns(0.5), program.requests.quantile_ns(0.99)];
    let all: Vec<u64> = runs.iter().flat_map(|run| run.programs.iter().flat_map(times).flatten()).collect();
    let low = (all.iter().min().copied().unwrap_or(1_000).max(1) as f64).log10().floor();
    let high = (all.iter().max().copied().unwrap_or(1_000_000).max(10) as f64).log10().ceil().max(low + 1.0);
    let kinds = runs.first().map_or(0, |run| run.programs.len());
    let height = 90.0 + kinds as f64 * (runs.len() as f64 * ROW + 14.0) + runs.len() as f64 * ROW;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"24\" font-size=\"15\">{}</text>\n",
        escaped(question)
    );
    let mut text = |x: f64, y: f64, anchor: &str, words: &str| {
        let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escaped(words));
    };
    text(LEFT, 48.0, "start", "request: P50 (bar) and P99 (line), by powers of ten");
    text(LEFT + BARS + 20.0, 48.0, "start", "per second, share of a device");
    let mut shapes = String::new();
    for power in low as i32..=high as i32 {
        let x = LEFT + BARS * (f64::from(power) - low) / (high - low);
        let _ = writeln!(
            shapes,
            "<line x1=\"{x:.1}\" y1=\"56\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>",
            height - 24.0 - runs.len() as f64 * ROW
        );
        text(x, 68.0, "middle", &units::of_ns(10_u64.pow(power.max(0) as u32)));
    }
    let mut y = 76.0;
    for kind in 0..kinds {
        y += 8.0;
        text(LEFT - 12.0, y + 13.0, "end", &runs[0].programs[kind].name);
        for (at, run) in runs.iter().enumerate() {
            let (program, colour) = (&run.programs[kind], COLOURS[at % COLOURS.len()]);
            if let [Some(p50), Some(p99)] = times(program) {
                let [p50, p99] = [p50, p99].map(|ns| LEFT + BARS * part(ns, (low, high)));
                let _ = writeln!(
                    shapes,
                    "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"12\" fill=\"{colour}\"/>\n<line x1=\"{p50:.1}\" y1=\"{:.1}\" x2=\"{p99:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"3\"/>",
                    (p50 - LEFT).max(0.0),
                    y + 6.0,
                    y + 6.0
                );
            }
            let line = format!("{:.1} /s, {:.0} %", program.per_second(run.time_ns), program.share_percent());
            text(LEFT + BARS + 20.0, y + 11.0, "start", &line);
            y += ROW;
        }
        y += 6.0;
    }
    for (at, run) in runs.iter().enumerate() {
        y += ROW;
        let colour = COLOURS[at % COLOURS.len()];
        let _ =
            writeln!(shapes, "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>", y - 10.0);
        let place = if run.placement.is_empty() { String::new() } else { format!(", {}", run.placement) };
        text(
            LEFT + 20.0,
            y,
            "start",
            &format!("{}{place}: devices work {:.0} %", run.policy, run.device_use_percent()),
        );
    }
    svg + &shapes + "</svg>\n"
}
