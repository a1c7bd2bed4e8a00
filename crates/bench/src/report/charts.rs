// SPDX-License-Identifier: MIT OR Apache-2.0
//! The plots of a report: for each plot, the axes and the measurements that its lines show.
//!
//! ```text
//! ping-by-size         p50 of the round trip, over the message size
//! ping-tail            all percentiles of the round trip of 64-byte messages
//! throughput-by-size   bytes per second, over the message size
//! parallel-by-size     time per round trip of many streams, over the message size
//! rate-latency         p50 of the latency, over messages per second
//! rate-cpu             CPU time of the receiver, over messages per second
//! ```
//! A plot without points is left out.

use super::plot::{LineChart, Series};
use crate::figure::quantity::{decimal_bandwidth_name, exact_size_name, ns_name, rate_name};
use crate::harness::cell::{Cell, Scenario};
use crate::harness::round::ratio;
use crate::outcome::{Metric, Outcome};
use crate::plan::TINY;

/// Makes all plots of a report, each with the name of its file without extension.
pub fn all(outcomes: &[Outcome]) -> Vec<(&'static str, LineChart)> {
    let charts = [
        ("ping-by-size", ping_by_size(outcomes)),
        ("ping-tail", ping_tail(outcomes)),
        ("throughput-by-size", throughput_by_size(outcomes)),
        ("parallel-by-size", parallel_by_size(outcomes)),
        ("rate-latency", rate_latency(outcomes)),
        ("rate-cpu", rate_cpu(outcomes)),
    ];
    charts.into_iter().filter(|(_, chart)| !chart.is_empty()).collect()
}

fn ping_by_size(outcomes: &[Outcome]) -> LineChart {
    LineChart {
        title: "Round trip: median over message size",
        x_label: "message size",
        y_label: "round trip",
        x_base: 8.0,
        x_name: whole_size_name,
        y_name: ns_name,
        series: lines(outcomes, Scenario::Ping, size, |o| median(o, Metric::P50)),
    }
}

fn throughput_by_size(outcomes: &[Outcome]) -> LineChart {
    LineChart {
        title: "One way, as fast as possible: bytes per second over message size",
        x_label: "message size",
        y_label: "payload per second",
        x_base: 8.0,
        x_name: whole_size_name,
        y_name: decimal_bandwidth_name,
        series: lines(outcomes, Scenario::Throughput, size, |outcome| {
            Some(1e9 * size(outcome.cell) / median(outcome, Metric::NsPerOp)?)
        }),
    }
}

fn parallel_by_size(outcomes: &[Outcome]) -> LineChart {
    LineChart {
        title: "Many streams at once: time per round trip of any of them over message size",
        x_label: "message size",
        y_label: "time per operation",
        x_base: 8.0,
        x_name: whole_size_name,
        y_name: ns_name,
        series: lines(outcomes, Scenario::Parallel, size, |o| median(o, Metric::NsPerOp)),
    }
}

fn rate_latency(outcomes: &[Outcome]) -> LineChart {
    LineChart {
        title: "One way at a fixed rate: median latency from the intended send time",
        x_label: "messages per second",
        y_label: "latency",
        x_base: 10.0,
        x_name: rate_name,
        y_name: ns_name,
        series: lines(outcomes, Scenario::Rate, rate, |o| median(o, Metric::P50)),
    }
}

fn rate_cpu(outcomes: &[Outcome]) -> LineChart {
    LineChart {
        title: "One way at a fixed rate: CPU time of the receiver",
        x_label: "messages per second",
        y_label: "CPU time over elapsed time",
        x_base: 10.0,
        x_name: rate_name,
        y_name: |share| format!("{:.2} %", share * 100.0),
        series: lines(outcomes, Scenario::Rate, rate, |o| median(o, Metric::ReceiverCores)),
    }
}

/// The plot `ping-tail` of the round trips of small messages. A point (x, y) says that one message
/// in x takes longer than y.
fn ping_tail(outcomes: &[Outcome]) -> LineChart {
    let is_small = |cell: Cell| cell.scenario == Scenario::Ping && cell.size == TINY;
    let series = outcomes.iter().filter(|outcome| is_small(outcome.cell)).filter_map(|outcome| {
        let pooled = outcome.pooled()?;
        let reached = TAIL.iter().filter(|one_in| pooled.latency.len() >= **one_in * 10);
        let point = |&one_in: &u64| {
            let quantile = 1.0 - 1.0 / ratio(one_in, 1);
            (ratio(one_in, 1), ratio(pooled.latency.value_at_quantile(quantile), 1))
        };
        Some(Series { name: line_name(outcome.cell), points: reached.map(point).collect() })
    });
    LineChart {
        title: "Round trip, 64 B: tail",
        x_label: "one message in … is slower",
        y_label: "round trip",
        x_base: 10.0,
        x_name: |one_in| format!("{one_in:.0}"),
        y_name: ns_name,
        series: series.collect(),
    }
}

/// The lines of a plot: one line for each transport and wait strategy, through the results of
/// `scenario`.
fn lines(
    outcomes: &[Outcome],
    scenario: Scenario,
    x: fn(Cell) -> f64,
    y: impl Fn(&Outcome) -> Option<f64>,
) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for outcome in outcomes.iter().filter(|outcome| outcome.cell.scenario == scenario) {
        let Some(y) = y(outcome) else { continue };
        let name = line_name(outcome.cell);
        let known = lines.iter().position(|line| line.name == name);
        let index = known.unwrap_or_else(|| {
            lines.push(Series { name, points: Vec::new() });
            lines.len() - 1
        });
        lines[index].points.push((x(outcome.cell), y));
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

fn line_name(cell: Cell) -> String {
    let name = cell.transport.name();
    let waits = cell.wait.map_or_else(String::new, |wait| format!(" {}", wait.name()));
    let unread = if cell.unread > 0 { ", one unread" } else { "" };
    let placed = if cell.is_on_one_cpu() { ", one CPU" } else { "" };
    format!("{name}{waits}{unread}{placed}")
}

fn median(outcome: &Outcome, metric: Metric) -> Option<f64> {
    outcome.spread(metric).map(|spread| spread.median)
}

fn size(cell: Cell) -> f64 {
    ratio(cell.size as u64, 1)
}

fn rate(cell: Cell) -> f64 {
    ratio(cell.rate.unwrap_or(0), 1)
}

/// The label of a mark on a logarithmic axis, rounded to a whole number of bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a label; positive")]
fn whole_size_name(size: f64) -> String {
    exact_size_name(size.round() as usize)
}

/// The positions on the horizontal axis of the plot `ping-tail`: the slowest message in 2 (the
/// median), in 10, and so on.
const TAIL: [u64; 7] = [2, 10, 100, 1_000, 10_000, 100_000, 1_000_000];
