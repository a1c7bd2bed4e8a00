// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measurements of one task in one language, over a channel and over a socket.

use crate::pair::{Carrier, Pair};

/// A task that the benchmark measures, with messages of one size.
pub struct Task {
    /// The name of the task in the commands that the client process receives.
    pub name: &'static str,
    /// The length of a message in bytes.
    pub size: usize,
    /// The title of the task in the table of results.
    pub title: &'static str,
}

/// All tasks, in the order of the table's columns.
pub const TASKS: [Task; 4] = [
    Task { name: "trip", size: 64, title: "round trip, 64 B" },
    Task { name: "trip", size: 64 << 10, title: "round trip, 64 KiB" },
    Task { name: "way", size: 64, title: "one way, 64 B" },
    Task { name: "way", size: 64 << 10, title: "one way, 64 KiB" },
];

/// The measurements of one task: for each round and each transport, the time of one message in
/// nanoseconds.
pub struct Series {
    task: &'static Task,
    /// Number of messages in each round, over the channel and over the socket.
    counts: [u64; 2],
    ours: Vec<f64>,
    socket: Vec<f64>,
}

impl Series {
    /// Performs each task in one language until its code is compiled and in the caches, and chooses
    /// how many messages the task has in a round.
    ///
    /// # Errors
    /// If the programs fail.
    pub fn begin(pair: &mut Pair) -> Result<Vec<Self>, String> {
        let mut all = Vec::new();
        for task in &TASKS {
            let mut counts = [0; 2];
            for (carrier, found) in [Carrier::Ours, Carrier::Socket].into_iter().zip(&mut counts) {
                let mut count = 50;
                for _ in 0..WARM_UPS {
                    let time_ns = pair.time_ns(carrier, task.name, task.size, count)?;
                    count = ((ROUND_NS / time_ns.max(1.0)) as u64).clamp(20, 1_000_000);
                }
                *found = count;
            }
            all.push(Self { task, counts, ours: Vec::new(), socket: Vec::new() });
        }
        Ok(all)
    }

    /// Measures the task once over the channel and once over the socket; if `socket_first`, the
    /// socket is measured first.
    ///
    /// # Errors
    /// If the programs fail.
    pub fn measure(&mut self, pair: &mut Pair, socket_first: bool) -> Result<(), String> {
        let Task { name, size, .. } = self.task;
        let [ours, socket] = self.counts;
        if socket_first {
            self.socket.push(pair.time_ns(Carrier::Socket, name, *size, socket)?);
        }
        self.ours.push(pair.time_ns(Carrier::Ours, name, *size, ours)?);
        if !socket_first {
            self.socket.push(pair.time_ns(Carrier::Socket, name, *size, socket)?);
        }
        Ok(())
    }

    /// The median time of one message over the channel, in nanoseconds.
    pub fn ours_ns(&self) -> f64 {
        Spread::of(self.ours.iter().copied()).median
    }

    /// The spread of the ratio of the channel's time to the socket's time, over all rounds.
    pub fn ratio(&self) -> Spread {
        Spread::of(self.ours.iter().zip(&self.socket).map(|(ours, socket)| ours / socket))
    }
}

/// The median, the least and the greatest of several measurements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// The least of the measurements.
    pub least: f64,
    /// The median of the measurements.
    pub median: f64,
    /// The greatest of the measurements.
    pub greatest: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self { least: at(0), median: at(last / 2), greatest: at(last) }
    }
}

/// The time that each task should take in one round, in nanoseconds; it determines the number of
/// messages.
const ROUND_NS: f64 = 40e6;
/// Number of times that each task is performed before the first measured round.
const WARM_UPS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_is_the_one_in_the_middle() {
        let spread = Spread::of([3.0, 1.0, 2.0].into_iter());
        assert_eq!(spread, Spread { least: 1.0, median: 2.0, greatest: 3.0 });
    }

    #[test]
    fn ratio_is_of_the_same_round() {
        let series = Series {
            task: &TASKS[0],
            counts: [1, 1],
            ours: vec![1.0, 4.0],
            socket: vec![2.0, 4.0],
        };
        assert_eq!(series.ratio(), Spread { least: 0.5, median: 0.5, greatest: 1.0 });
        assert_eq!(series.ours_ns(), 1.0);
    }
}
