//! Picture of latency distributions, as SVG, with the work of the other program below. It has the colours of the page that shows it: light
//! or dark.

use std::path::Path;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) use plotters::style::RGBColor;

use crate::failure::{Error, Result};

/// Colour of a program alone.
pub(crate) const ALONE: RGBColor = RGBColor(90, 90, 90);
/// Colour of a program beside another, without xsched.
pub(crate) const NATIVE: RGBColor = RGBColor(200, 60, 40);
/// Colour of a program beside another, under xsched.
pub(crate) const XSCHED: RGBColor = RGBColor(30, 110, 190);

const PAPER: RGBColor = WHITE;
const INK: RGBColor = RGBColor(36, 41, 47);
const FAINT: RGBColor = RGBColor(110, 119, 129);
const LINES: RGBColor = RGBColor(208, 215, 222);

/// Colours on a light page, each with its replacement on a dark one. The other pictures of the documents use them too, in
/// `benches/cuda/svg.py`.
const DARK: [(RGBColor, RGBColor); 7] = [
    (PAPER, RGBColor(22, 24, 28)),
    (INK, RGBColor(216, 222, 228)),
    (FAINT, RGBColor(139, 148, 158)),
    (LINES, RGBColor(58, 63, 70)),
    (ALONE, RGBColor(178, 178, 178)),
    (NATIVE, RGBColor(242, 120, 98)),
    (XSCHED, RGBColor(102, 176, 250)),
];

const WIDTH: u32 = 960;
const HEIGHT: u32 = 600;
/// Height of a bar, with the space around it, in px.
const BAR: u32 = 26;
/// Height of a line of the legend, in px.
const ROW: u32 = 22;

/// Curve of one distribution.
pub(crate) struct Curve {
    /// Name of the curve, with its figures.
    pub(crate) label: String,
    pub(crate) color: RGBColor,
    /// Shortest latency, in ms.
    pub(crate) lowest: f64,
    /// Longest latency, in ms.
    pub(crate) worst: f64,
    /// Number of requests.
    pub(crate) requests: u64,
    /// Steps of the distribution: ms, percent of the requests that took no longer.
    pub(crate) points: Vec<(f64, f64)>,
    /// Work of the other program in this situation; none = there is no other program.
    pub(crate) work: Option<Bar>,
}

/// Work of the other program.
pub(crate) struct Bar {
    /// Name of the bar, with its figures.
    pub(crate) label: String,
    /// Part of its work by itself, or in the situation that it is compared with.
    pub(crate) part: f64,
}

/// Steps of the distribution of sorted latencies, in ms.
pub(crate) fn steps(sorted_ms: &[f64]) -> Vec<(f64, f64)> {
    let percent = |n: usize| n as f64 * 100.0 / sorted_ms.len() as f64;
    sorted_ms.iter().enumerate().flat_map(|(n, &ms)| [(ms, percent(n)), (ms, percent(n + 1))]).collect()
}

/// Values of one situation, a value a round.
pub(crate) struct Round {
    pub(crate) label: String,
    pub(crate) color: RGBColor,
    pub(crate) values: Vec<f64>,
}

/// Draws curves over a logarithmic axis of ms, and bars below. Returns SVG.
///
/// # Errors
/// Returns the reason why the picture cannot be drawn.
pub(crate) fn distributions(caption: &str, x_desc: &str, curves: &[Curve]) -> std::result::Result<String, String> {
    let mut svg = String::new();
    plot(&mut svg, caption, x_desc, curves).map_err(|e| e.to_string())?;
    Ok(with_style(&svg))
}

/// Writes the picture of [`distributions`] to a file.
///
/// # Errors
/// Fails when the file cannot be written.
pub(crate) fn draw(file: &Path, caption: &str, x_desc: &str, curves: &[Curve]) -> Result<()> {
    let cannot = |why: &dyn std::fmt::Display| Error::environment(format!("cannot draw {}: {why}", file.display()));
    let svg = distributions(caption, x_desc, curves).map_err(|e| cannot(&e))?;
    std::fs::write(file, svg).map_err(|e| cannot(&e))
}

/// Draws the values of each round, with a line for each situation. Returns SVG.
///
/// # Errors
/// Returns the reason why the picture cannot be drawn.
pub(crate) fn rounds(y_desc: &str, situations: &[Round]) -> std::result::Result<String, String> {
    let mut svg = String::new();
    plot_rounds(&mut svg, y_desc, situations).map_err(|e| e.to_string())?;
    Ok(with_style(&svg))
}

fn hex(RGBColor(r, g, b): RGBColor) -> String {
    format!("#{r:02X}{g:02X}{b:02X}")
}

/// Adds a style sheet to the picture, which takes precedence over the colours of its elements.
fn with_style(svg: &str) -> String {
    let rule = |(light, dark): &(RGBColor, RGBColor)| {
        let (light, dark) = (hex(*light), hex(*dark));
        format!("[fill=\"{light}\"]{{fill:{dark}}}[stroke=\"{light}\"]{{stroke:{dark}}}")
    };
    let rules: String = DARK.iter().map(rule).collect();
    let style = format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n");
    let at = svg.find(">\n").map_or(svg.len(), |end| end + 2);
    format!("{}{style}{}", &svg[..at], &svg[at..])
}

/// Axis of percentages on which 90, 99 and 99.9 % have equal distances.
#[derive(Clone, Copy)]
struct Tail {
    /// Number of nines up to the end of the axis, where 100 % stands.
    nines: f64,
}

impl Tail {
    /// Makes the scale for this number of requests: the worst of all has a place of its own.
    fn of(requests: u64) -> Tail {
        Tail { nines: (requests as f64).log10().max(2.0) + 0.2 }
    }

    fn nines(self, percent: f64) -> f64 {
        if percent >= 100.0 { self.nines } else { (-(1.0 - percent / 100.0).log10()).min(self.nines) }
    }
}

impl Ranged for Tail {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, percent: &f64, (low, high): (i32, i32)) -> i32 {
        low + (f64::from(high - low) * self.nines(*percent) / self.nines).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        let all = [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999];
        all.into_iter().filter(|percent| self.nines(*percent) < self.nines).collect()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..100.0
    }
}

impl ValueFormatter<f64> for Tail {
    fn format(percent: &f64) -> String {
        percent.to_string()
    }
}

fn plot(
    svg: &mut String,
    caption: &str,
    x_desc: &str,
    curves: &[Curve],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let lowest = curves.iter().map(|c| c.lowest).fold(f64::MAX, f64::min);
    let highest = curves.iter().map(|c| c.worst).fold(0.0, f64::max);
    let (left, right) = (lowest * 0.9, highest * 1.1);
    let tail = Tail::of(curves.iter().map(|c| c.requests).max().unwrap_or(1));
    let root = SVGBackend::with_string(svg, (WIDTH, HEIGHT)).into_drawing_area();
    root.fill(&PAPER)?;
    let bars: Vec<(&Curve, &Bar)> = curves.iter().filter_map(|c| Some((c, c.work.as_ref()?))).collect();
    let room = if bars.is_empty() { 0 } else { BAR * bars.len() as u32 + 34 };
    let (above, below) = root.split_vertically(HEIGHT - room - ROW * curves.len() as u32 - 4);
    let font = |size: i32| ("sans-serif", size).into_font();
    let mut chart = ChartBuilder::on(&above)
        .caption(caption, font(22).color(&INK))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d((left..right).log_scale().with_key_points(ticks(left, right)), tail)?;
    chart
        .configure_mesh()
        .x_desc(x_desc)
        .y_desc("requests done within, %")
        .axis_desc_style(font(16).color(&INK))
        .label_style(font(14).color(&INK))
        .axis_style(INK)
        .bold_line_style(LINES)
        .light_line_style(PAPER)
        .x_label_formatter(&|ms| format!("{ms}"))
        .draw()?;
    chart.draw_series(DashedLineSeries::new([(left, 99.0), (right, 99.0)], 6, 4, FAINT.stroke_width(1)))?;
    chart.draw_series([Text::new("P99", (left * 1.01, 99.2), font(13).color(&FAINT))])?;
    for curve in curves {
        let color = curve.color;
        chart.draw_series([Circle::new((curve.worst, 100.0), 4, color.filled())])?;
        chart.draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))?;
    }
    let corner = font(14).color(&INK).pos(Pos::new(HPos::Right, VPos::Top));
    above.draw_text("← left is better", &corner, (WIDTH as i32 - 20, 20))?;
    let (legend, below) = below.split_vertically(ROW * curves.len() as u32 + 4);
    for (n, curve) in curves.iter().enumerate() {
        let y = ((n as u32 * ROW) + ROW / 2) as i32;
        legend.draw(&PathElement::new([(88, y), (112, y)], curve.color.stroke_width(3)))?;
        let style = font(15).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw_text(&curve.label, &style, (122, y))?;
    }
    draw_bars(&below, &bars)?;
    root.present()?;
    Ok(())
}

fn plot_rounds(
    svg: &mut String,
    y_desc: &str,
    situations: &[Round],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let values = || situations.iter().flat_map(|s| s.values.iter().copied());
    let (lowest, highest) = (values().fold(f64::MAX, f64::min) * 0.9, values().fold(0.0, f64::max) * 1.1);
    let rounds = situations.iter().map(|s| s.values.len()).max().unwrap_or(1);
    let height = 240 + ROW * situations.len() as u32;
    let root = SVGBackend::with_string(svg, (WIDTH, height)).into_drawing_area();
    root.fill(&PAPER)?;
    let (above, legend) = root.split_vertically(240);
    let font = |size: i32| ("sans-serif", size).into_font();
    let mut chart =
        ChartBuilder::on(&above).margin(16).x_label_area_size(44).y_label_area_size(72).build_cartesian_2d(
            0.7..rounds as f64 + 0.3,
            (lowest..highest).log_scale().with_key_points(ticks(lowest, highest)),
        )?;
    chart
        .configure_mesh()
        .x_desc("round")
        .y_desc(y_desc)
        .x_labels(rounds.min(20))
        .axis_desc_style(font(16).color(&INK))
        .label_style(font(14).color(&INK))
        .axis_style(INK)
        .bold_line_style(LINES)
        .light_line_style(PAPER)
        .x_label_formatter(&|round| if round.fract().abs() < 1e-6 { format!("{round:.0}") } else { String::new() })
        .y_label_formatter(&|ms| format!("{ms}"))
        .draw()?;
    for (n, situation) in situations.iter().enumerate() {
        let color = situation.color;
        let points = || situation.values.iter().enumerate().map(|(at, &value)| (at as f64 + 1.0, value));
        chart.draw_series(LineSeries::new(points(), color.stroke_width(2)))?;
        chart.draw_series(points().map(|point| Circle::new(point, 4, color.filled())))?;
        let y = (n as u32 * ROW + ROW / 2) as i32;
        legend.draw(&PathElement::new([(88, y), (112, y)], color.stroke_width(3)))?;
        let style = font(15).color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
        legend.draw_text(&situation.label, &style, (122, y))?;
    }
    root.present()?;
    Ok(())
}

/// Draws the work of the other program, with a bar for each situation.
fn draw_bars(
    area: &DrawingArea<SVGBackend<'_>, Shift>,
    bars: &[(&Curve, &Bar)],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (left, right) = (88, WIDTH as i32 - 320);
    let longest = bars.iter().map(|(_, bar)| bar.part).fold(1.0, f64::max);
    let text = ("sans-serif", 15).into_font().color(&INK).pos(Pos::new(HPos::Left, VPos::Center));
    if !bars.is_empty() {
        area.draw_text("work of the other program (longer is better)", &text, (left, 10))?;
    }
    for (n, (curve, bar)) in bars.iter().enumerate() {
        let top = 26 + n as i32 * BAR as i32;
        let end = left + ((right - left) as f64 * bar.part / longest).round() as i32;
        area.draw(&Rectangle::new([(left, top), (end, top + BAR as i32 - 8)], curve.color.filled()))?;
        area.draw_text(&bar.label, &text, (end + 10, top + 9))?;
    }
    Ok(())
}

/// Round numbers between two, as dense as a logarithmic axis allows.
fn ticks(left: f64, right: f64) -> Vec<f64> {
    let steps: &[f64] = if right / left < 20.0 { &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0] } else { &[1.0, 2.0, 5.0] };
    let decades = (-6..=6).map(|power: i32| 10f64.powi(power));
    // The detour over text avoids values such as 0.30000000000000004.
    let all = decades.flat_map(|decade| steps.iter().filter_map(move |s| format!("{:.7}", s * decade).parse().ok()));
    all.filter(|tick| (left..right).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(4.8, 12.5), [5.0, 6.0, 8.0, 10.0]);
        assert_eq!(ticks(0.25, 70.0), [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn a_distribution_rises_at_each_latency() {
        assert_eq!(steps(&[1.0, 4.0]), [(1.0, 0.0), (1.0, 50.0), (4.0, 50.0), (4.0, 100.0)]);
    }

    #[test]
    fn the_tail_has_as_much_room_as_the_rest() {
        let tail = Tail { nines: 4.0 };
        assert_eq!([0.0, 90.0, 99.0, 99.9, 100.0].map(|percent| tail.map(&percent, (400, 0))), [400, 300, 200, 100, 0]);
    }

    #[test]
    fn a_picture_has_every_colour_on_a_light_and_on_a_dark_page() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("p.svg");
        let curve = |color, lowest, part: Option<f64>| Curve {
            label: "a".into(),
            color,
            lowest,
            worst: 9.0,
            requests: 100,
            points: steps(&[lowest, 9.0]),
            work: part.map(|part| Bar { label: format!("{part} of it"), part }),
        };
        draw(&file, "c", "x", &[curve(ALONE, 1.0, None), curve(NATIVE, 2.0, Some(1.0)), curve(XSCHED, 1.5, Some(0.5))])
            .unwrap();
        let svg = std::fs::read_to_string(&file).unwrap();
        for part in ["left is better", "P99", "0.5 of it", "longer is better", "prefers-color-scheme:dark"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
        let (style, drawing) = svg.split_once("</style>").unwrap();
        assert!(style.starts_with("<svg"), "{style}");
        for word in drawing.split('"').filter(|word| word.starts_with('#')) {
            assert!(style.contains(&format!("[fill=\"{word}\"]")), "{word} stays as it is on a dark page");
        }
    }

    #[test]
    fn the_palette_is_that_of_the_other_pictures() {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../benches/cuda/svg.py");
        let python = std::fs::read_to_string(file).unwrap();
        let names = ["PAPER", "INK", "FAINT", "LINES", "ALONE", "NATIVE", "XSCHED"];
        for (name, (light, dark)) in names.into_iter().zip(DARK) {
            let (light, dark) = (hex(light).to_lowercase(), hex(dark).to_lowercase());
            let line = format!("{name} = (\"{light}\", \"{dark}\")");
            assert!(python.lines().any(|l| l == line), "svg.py lacks {line}");
        }
    }
}
