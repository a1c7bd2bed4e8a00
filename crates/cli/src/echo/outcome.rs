// SPDX-License-Identifier: MIT OR Apache-2.0
//! The outcome of `echo run` for one endpoint, with counts and times, and the table that compares
//! the outcomes of several endpoints.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::endpoint::Endpoint;
use partywall_bench::figure::quantity::{
    bandwidth_name, counted, per_second, rate_name, time_name,
};

/// The counts and times that `echo run` measured with one endpoint.
pub struct Outcome {
    /// The endpoint whose echoes were measured.
    pub endpoint: Endpoint,
    /// The transport of the connection, and the reason why this transport was chosen.
    pub transport: String,
    /// Number of messages that were sent to the endpoint.
    pub sent: u64,
    /// Number of echoes that were received and verified.
    pub received: u64,
    /// Size of each message in bytes.
    pub size: usize,
    /// Time from the first message sent to the last echo received.
    pub time: Duration,
    /// Time from each message to its echo, in nanoseconds.
    pub round_trips: Histogram<u64>,
}

impl Outcome {
    /// The outcome of one endpoint as a paragraph of text.
    pub fn text(&self) -> String {
        let bytes = self.received * self.size as u64;
        format!(
            "{}\n  transport   {}\n  sent        {} of {}\n  received    {}, all verified\n  \
             time        {}\n  rate        {}, {} each way\n  round trip  mean {}, p50 {}, p99 {}, max {}\n",
            self.endpoint,
            self.transport,
            counted(self.sent, "message"),
            counted(self.size as u64, "byte"),
            if self.received == 1 {
                "1 echo".to_owned()
            } else {
                format!("{} echoes", self.received)
            },
            time_name(self.time),
            rate_name(self.rate()),
            bandwidth_name(bytes, self.time),
            time_name(self.mean()),
            time_name(self.quantile(0.5)),
            time_name(self.quantile(0.99)),
            time_name(Duration::from_nanos(self.round_trips.max())),
        )
    }

    fn rate(&self) -> f64 {
        per_second(self.received, self.time)
    }

    fn mean(&self) -> Duration {
        Duration::from_secs_f64((self.round_trips.mean() / 1e9).max(0.0))
    }

    fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.round_trips.value_at_quantile(quantile))
    }
}

/// A table of all outcomes, the fastest first, with the ratio of each time to that of the fastest.
pub fn table(outcomes: &[Outcome]) -> String {
    let mut order: Vec<&Outcome> = outcomes.iter().collect();
    order.sort_by_key(|outcome| outcome.time);
    let fastest = order.first().map_or(0.0, |outcome| outcome.time.as_secs_f64());
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    for outcome in &order {
        let factor = outcome.time.as_secs_f64() / fastest.max(1e-9);
        rows.push([
            outcome.endpoint.to_string(),
            outcome.received.to_string(),
            time_name(outcome.time),
            rate_name(outcome.rate()),
            time_name(outcome.mean()),
            time_name(outcome.quantile(0.5)),
            time_name(outcome.quantile(0.99)),
            format!("{factor:.2}×"),
        ]);
    }
    let mut text = aligned(&rows);
    if let (Some(first), Some(last)) = (order.first(), order.last()) {
        let factor = last.time.as_secs_f64() / fastest.max(1e-9);
        text += &format!(
            "\n{} is the fastest: {factor:.2} times as fast as {}.\n",
            first.endpoint, last.endpoint
        );
    }
    text
}

/// Formats the rows of a table as lines of text: the first column is aligned left, the others
/// right.
fn aligned(rows: &[[String; COLUMNS]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..COLUMNS).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = format!("{:<1$}", row[0], widths[0]);
        for (cell, width) in row.iter().zip(&widths).skip(1) {
            line += &format!("  {cell:>width$}");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}

const COLUMNS: usize = 8;

const HEADINGS: [&str; COLUMNS] =
    ["endpoint", "echoes", "time", "rate", "mean", "p50", "p99", "÷ fastest"];

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(endpoint: &str, ms: u64) -> Outcome {
        let mut round_trips = Histogram::new(3).unwrap();
        round_trips.record(ms * 10_000).unwrap();
        Outcome {
            endpoint: endpoint.parse().unwrap(),
            transport: "some".to_owned(),
            sent: 100,
            received: 100,
            size: 8,
            time: Duration::from_millis(ms),
            round_trips,
        }
    }

    #[test]
    fn table_begins_with_the_fastest_and_has_the_ratios() {
        let text = table(&[outcome("plain:tcp:localhost:1", 300), outcome("unix:/a", 100)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("unix:/a ") && lines[1].ends_with("1.00×"), "{text}");
        assert!(lines[2].ends_with("3.00×"), "{text}");
        assert!(text.contains("unix:/a is the fastest: 3.00 times as fast as plain:tcp"), "{text}");
    }
}
