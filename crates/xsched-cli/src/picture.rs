//! Distributions of latencies in one picture, as SVG.

use std::path::Path;

use plotters::prelude::*;

pub(crate) use plotters::style::RGBColor;

use crate::failure::{Error, Result};

/// What stands for a program alone,
pub(crate) const ALONE: RGBColor = RGBColor(90, 90, 90);
/// beside another without xsched,
pub(crate) const NATIVE: RGBColor = RGBColor(200, 60, 40);
/// and under it.
pub(crate) const XSCHED: RGBColor = RGBColor(30, 110, 190);

/// One distribution.
pub(crate) struct Curve {
    /// What it is, with its figures.
    pub(crate) label: String,
    pub(crate) color: RGBColor,
    /// The shortest latency, in ms.
    pub(crate) lowest: f64,
    /// The longest, in ms.
    pub(crate) worst: f64,
    /// Steps: ms, percent of the requests that took no longer.
    pub(crate) points: Vec<(f64, f64)>,
}

/// Steps of the distribution of some latencies in ms, sorted.
pub(crate) fn steps(sorted_ms: &[f64]) -> Vec<(f64, f64)> {
    let percent = |n: usize| n as f64 * 100.0 / sorted_ms.len() as f64;
    sorted_ms.iter().enumerate().flat_map(|(n, &ms)| [(ms, percent(n)), (ms, percent(n + 1))]).collect()
}

/// Draws curves over a logarithmic axis of ms.
///
/// # Errors
/// When the file cannot be written.
pub(crate) fn draw(file: &Path, caption: &str, x_desc: &str, curves: &[Curve]) -> Result<()> {
    plot(file, caption, x_desc, curves).map_err(|e| Error::environment(format!("cannot draw {}: {e}", file.display())))
}

fn plot(
    file: &Path,
    caption: &str,
    x_desc: &str,
    curves: &[Curve],
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let lowest = curves.iter().map(|c| c.lowest).fold(f64::MAX, f64::min);
    let highest = curves.iter().map(|c| c.worst).fold(0.0, f64::max);
    let (left, right) = (lowest * 0.9, highest * 1.1);
    let root = SVGBackend::new(file, (960, 540)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(caption, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(48)
        .y_label_area_size(64)
        .build_cartesian_2d((left..right).log_scale().with_key_points(ticks(left, right)), 0.0..100.0)?;
    chart
        .configure_mesh()
        .x_desc(x_desc)
        .y_desc("requests done within, %")
        .axis_desc_style(("sans-serif", 16))
        .label_style(("sans-serif", 14))
        .y_label_formatter(&|percent| format!("{percent:.0}"))
        .x_label_formatter(&|ms| format!("{ms}"))
        .light_line_style(WHITE)
        .draw()?;
    chart.draw_series(DashedLineSeries::new(
        [(left, 99.0), (right, 99.0)],
        6,
        4,
        RGBColor(150, 150, 150).stroke_width(1),
    ))?;
    let note = ("sans-serif", 13).into_font().color(&RGBColor(120, 120, 120));
    chart.draw_series([Text::new("99 %", (left * 1.01, 98.0), note)])?;
    for curve in curves {
        let color = curve.color;
        chart.draw_series([Circle::new((curve.worst, 100.0), 4, color.filled())])?;
        chart
            .draw_series(LineSeries::new(curve.points.iter().copied(), color.stroke_width(2)))?
            .label(&curve.label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 24, y)], color.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::LowerRight)
        .legend_area_size(32)
        .margin(12)
        .label_font(("sans-serif", 15))
        .background_style(WHITE)
        .border_style(RGBColor(200, 200, 200))
        .draw()?;
    root.present()?;
    Ok(())
}

/// Round numbers between two, as close as a logarithmic axis has room for.
fn ticks(left: f64, right: f64) -> Vec<f64> {
    let steps: &[f64] = if right / left < 20.0 { &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0] } else { &[1.0, 2.0, 5.0] };
    let decades = (-6..=6).map(|power: i32| 10f64.powi(power));
    // By way of text, so that 0.3 does not come out as 0.30000000000000004.
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
}
