// SPDX-License-Identifier: MIT OR Apache-2.0
//! What happened in a run.

use super::oracle::Moment;
use std::fmt;
use std::time::Duration;

/// Counts of a whole run.
#[derive(Debug, Default)]
pub struct Figures {
    pub seed: u64,
    pub rounds: u64,
    /// By what the killed end was doing.
    pub by_moment: [u64; Moment::COUNT],
    /// Of these, both ends at once, and before the one before had recovered.
    pub both: u64,
    pub again: u64,
    pub stops: u64,
    pub cuts: u64,
    pub late: u64,
    pub delays: u64,
    pub connections: u64,
    /// How often an end was attached over shared memory.
    pub shared: u64,
    pub sent: u64,
    pub consumed: u64,
    pub again_received: u64,
    pub epochs: u64,
    pub reports: u64,
    pub time: Duration,
}

impl Figures {
    pub fn kills(&self) -> u64 {
        self.by_moment.iter().sum()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "seed {}, {} rounds, {:.1} s",
            self.seed,
            self.rounds,
            self.time.as_secs_f64()
        )?;
        write!(f, "kills        {}:", self.kills())?;
        for (name, count) in Moment::NAMES.iter().zip(self.by_moment) {
            write!(f, " {count} {name},")?;
        }
        writeln!(f, " of these {} of both ends, {} of one that recovered", self.both, self.again)?;
        writeln!(f, "stops        {}", self.stops)?;
        writeln!(
            f,
            "network      {} connections, {} ends of one shared memory, {} cuts, {} of them with bytes that came late, {} delays",
            self.connections, self.shared, self.cuts, self.late, self.delays
        )?;
        writeln!(
            f,
            "messages     {} sent, {} consumed, {} received again before",
            self.sent, self.consumed, self.again_received
        )?;
        writeln!(f, "epochs       {}, {} reports", self.epochs, self.reports)?;
        write!(f, "violations   0")
    }
}
