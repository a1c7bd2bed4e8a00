// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plot of all ratios of channel to socket, as SVG: a group of bars for each task, a bar for
//! each language, and a line at the ratio 1.

use std::fmt::Write;

use crate::series::{Series, TASKS};

/// Returns the plot of the ratios of all languages as SVG.
pub fn of(languages: &[(String, Vec<Series>)]) -> String {
    let greatest = languages.iter().flat_map(|(_, series)| series).map(|it| it.ratio().greatest);
    let scale = PLOT_HEIGHT / greatest.fold(1.2, f64::max);
    let mut bars = String::new();
    for (index, task) in TASKS.iter().enumerate() {
        let left = LEFT + index as f64 * GROUP_WIDTH;
        let middle = left + GROUP_WIDTH / 2.0;
        text(&mut bars, middle, TOP + PLOT_HEIGHT + 18.0, "middle", task.title);
        for (place, (_, series)) in languages.iter().enumerate() {
            bar(&mut bars, left + 8.0 + place as f64 * BAR_WIDTH, &series[index], scale, place);
        }
    }
    let one = TOP + PLOT_HEIGHT - scale;
    let right = LEFT + TASKS.len() as f64 * GROUP_WIDTH;
    let _ = writeln!(
        bars,
        r#"<line x1="{LEFT}" y1="{one:.1}" x2="{right}" y2="{one:.1}" stroke="black" stroke-dasharray="4 3"/>"#
    );
    text(&mut bars, LEFT - 6.0, one + 4.0, "end", "1");
    text(&mut bars, LEFT - 6.0, TOP + PLOT_HEIGHT + 4.0, "end", "0");
    for (place, (language, _)) in languages.iter().enumerate() {
        let (x, y) = (LEFT + place as f64 * 90.0, TOP + PLOT_HEIGHT + 34.0);
        let colour = COLOURS[place % COLOURS.len()];
        let _ = writeln!(bars, r#"<rect x="{x}" y="{y}" width="12" height="12" fill="{colour}"/>"#);
        text(&mut bars, x + 18.0, y + 11.0, "start", language);
    }
    let (width, height) = (right + 10.0, TOP + PLOT_HEIGHT + 56.0);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"18\">time over shared memory ÷ time over the language's own Unix \
         socket: less is better</text>\n{bars}</svg>\n"
    )
}

/// Draws the median ratio of a task in one language as a bar, and the spread of the ratio as a line
/// on the bar.
fn bar(target: &mut String, left: f64, series: &Series, scale: f64, place: usize) {
    let ratio = series.ratio();
    let y = |value: f64| TOP + PLOT_HEIGHT - value * scale;
    let (top, height) = (y(ratio.median), ratio.median * scale);
    let (middle, width) = (left + BAR_WIDTH / 2.0, BAR_WIDTH - 4.0);
    let colour = COLOURS[place % COLOURS.len()];
    let _ = writeln!(
        target,
        r#"<rect x="{left:.1}" y="{top:.1}" width="{width}" height="{height:.1}" fill="{colour}"/>"#
    );
    let _ = writeln!(
        target,
        r#"<line x1="{middle:.1}" y1="{:.1}" x2="{middle:.1}" y2="{:.1}" stroke="black"/>"#,
        y(ratio.greatest),
        y(ratio.least)
    );
    text(target, middle, y(ratio.greatest) - 4.0, "middle", &format!("{:.2}", ratio.median));
}

fn text(target: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let _ =
        writeln!(target, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{words}</text>"#);
}

const COLOURS: [&str; 6] = ["#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377"];
const LEFT: f64 = 40.0;
const TOP: f64 = 40.0;
const PLOT_HEIGHT: f64 = 220.0;
const BAR_WIDTH: f64 = 34.0;
const GROUP_WIDTH: f64 = 6.0 * BAR_WIDTH + 16.0;
