// SPDX-License-Identifier: MIT OR Apache-2.0
//! Line charts as SVG. No other file uses the plotting library.

use anyhow::Result;
use plotters::prelude::{
    ChartBuilder, Circle, Color, IntoDrawingArea, IntoLogRange, LineSeries, PathElement, RGBColor,
    SVGBackend, SeriesLabelPosition, WHITE,
};

/// A chart of lines on logarithmic axes.
#[derive(Clone, Debug)]
pub struct LineChart {
    /// The title that stands above the chart.
    pub title: &'static str,
    /// The name of the chart's horizontal axis.
    pub x_label: &'static str,
    /// The name of the chart's vertical axis.
    pub y_label: &'static str,
    /// The factor between two marks of the horizontal axis, which is logarithmic.
    pub x_base: f64,
    /// Formats a number for a mark of the horizontal axis.
    pub x_name: fn(f64) -> String,
    /// Formats a number for a mark of the vertical axis.
    pub y_name: fn(f64) -> String,
    /// The lines of the plot, one per transport. Lines without points are left out.
    pub series: Vec<Series>,
}

/// A line of the chart, with its points.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name of the line, for the legend of the chart.
    pub name: String,
    /// The points of the line from left to right. Only points with positive numbers are drawn.
    pub points: Vec<(f64, f64)>,
}

impl LineChart {
    /// Whether the chart has no points.
    pub fn is_empty(&self) -> bool {
        self.points().next().is_none()
    }

    /// The chart as a whole SVG document.
    pub fn to_svg(&self) -> Result<String> {
        let mut svg = String::new();
        self.draw(SVGBackend::with_string(&mut svg, (WIDTH, HEIGHT)))?;
        Ok(svg)
    }

    fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.series.iter().flat_map(Series::visible)
    }

    fn draw(&self, backend: SVGBackend<'_>) -> Result<()> {
        let area = backend.into_drawing_area();
        area.fill(&WHITE)?;
        let x_range = padded(self.points().map(|(x, _)| x));
        let y_range = padded(self.points().map(|(_, y)| y));
        let mut chart = ChartBuilder::on(&area)
            .caption(self.title, (FONT, TITLE_SIZE))
            .margin(MARGIN)
            .x_label_area_size(X_LABELS)
            .y_label_area_size(Y_LABELS)
            .build_cartesian_2d(x_range.log_scale().base(self.x_base), y_range.log_scale())?;
        chart
            .configure_mesh()
            .x_desc(self.x_label)
            .y_desc(self.y_label)
            .x_label_formatter(&|x| (self.x_name)(*x))
            .y_label_formatter(&|y| (self.y_name)(*y))
            .light_line_style(WHITE)
            .draw()?;
        for (series, color) in self.series.iter().zip(COLORS.iter().cycle()) {
            let points: Vec<(f64, f64)> = series.visible().collect();
            if points.is_empty() {
                continue;
            }
            let key =
                |(x, y)| PathElement::new([(x, y), (x + KEY_WIDTH, y)], color.stroke_width(3));
            chart
                .draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?
                .label(series.name.as_str())
                .legend(key);
            chart.draw_series(points.into_iter().map(|at| Circle::new(at, 3, color.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.8))
            .border_style(COLORS[0].mix(0.3))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

impl Series {
    /// The points of the line that are drawn: those of which both coordinates are positive, because
    /// the axes are logarithmic.
    fn visible(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().copied().filter(|&(x, y)| x > 0.0 && y > 0.0)
    }
}

/// Returns the range of an axis: it contains all `values`, with a margin at both ends.
fn padded(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (low, high) = values.fold((f64::MAX, 0.0_f64), |(low, high), v| (low.min(v), high.max(v)));
    if low > high { 1.0..10.0 } else { low / PADDING..high * PADDING }
}

const WIDTH: u32 = 900;
const HEIGHT: u32 = 520;
const MARGIN: u32 = 14;
const X_LABELS: u32 = 44;
const Y_LABELS: u32 = 84;
const KEY_WIDTH: i32 = 18;
const TITLE_SIZE: u32 = 20;
const FONT: &str = "sans-serif";
const PADDING: f64 = 1.3;

/// Colours that people with colour blindness can distinguish (after Okabe and Ito).
const COLORS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(110, 110, 110),
    RGBColor(0, 0, 0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chart_as_svg_has_its_title_and_legend() {
        let chart = LineChart {
            title: "round trip",
            x_label: "size",
            y_label: "time",
            x_base: 10.0,
            x_name: |x| format!("{x}"),
            y_name: |y| format!("{y}"),
            series: vec![Series {
                name: "ours".to_owned(),
                points: vec![(8.0, 285.0), (1e6, 92e3), (0.0, -1.0)],
            }],
        };
        let svg = chart.to_svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("round trip") && svg.contains("ours"));
    }
}
