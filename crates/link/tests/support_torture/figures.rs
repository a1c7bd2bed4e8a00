// SPDX-License-Identifier: MIT OR Apache-2.0
//! The figures of a torture run of links: counts of kills, cuts and messages, and recovery times.

use super::oracle::Moment;
use std::fmt;
use std::time::Duration;

#[derive(Debug, Default)]
pub struct Figures {
    pub seed: u64,
    pub rounds: u64,
    /// The number of kills, by the operation that the client or server was making when it was
    /// killed.
    pub by_moment: [u64; Moment::COUNT],
    /// Counts of two kinds of kills: of client and server at once (`both`), and of a process that
    /// had not yet recovered from the kill of its predecessor (`again`).
    pub both: u64,
    pub again: u64,
    pub stops: u64,
    pub cuts: u64,
    pub late: u64,
    pub delays: u64,
    pub connections: u64,
    /// Number of times in one run that client and server connected, and agreed to use shared
    /// memory.
    pub shared: u64,
    pub sent: u64,
    pub consumed: u64,
    pub again_received: u64,
    pub epochs: u64,
    pub reports: u64,
    pub time: Duration,
    /// For runs of cuts: times from the instant at which a new connection is possible, until a
    /// message arrives over one.
    pub recoveries: Vec<Recovery>,
    /// Round-trip time through the relay, without links. A recovery should take at most 50 ms
    /// longer.
    pub round_trip: Duration,
}

/// A measured recovery of a link after a cut of the network: its time, and what may have delayed
/// it.
#[derive(Clone, Copy, Debug)]
pub struct Recovery {
    pub time: Duration,
    pub circumstances: Circumstances,
}

/// A cause, besides the cut itself, that may have delayed a recovery. The figures list the recovery
/// times for each variant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Circumstances {
    Undisturbed,
    /// Client or server begin epochs in this round. Beginning an epoch ends the connection, as a
    /// cut does.
    Epochs,
    /// The machine was so busy during the recovery that the test's main thread was kept waiting.
    Busy,
}

impl Figures {
    pub fn kills(&self) -> u64 {
        self.by_moment.iter().sum()
    }

    /// The time within which an undisturbed link should recover from a cut.
    pub fn recovery_bound(&self) -> Duration {
        self.round_trip + Duration::from_millis(50)
    }

    /// The recovery times that were measured under the given circumstances, in ascending order.
    fn times(&self, circumstances: Circumstances) -> Vec<Duration> {
        let chosen = self.recoveries.iter().filter(|one| one.circumstances == circumstances);
        let mut times: Vec<Duration> = chosen.map(|one| one.time).collect();
        times.sort_unstable();
        times
    }

    /// Whether all recovery times were within the bound, under whatever circumstances.
    pub fn are_in_time(&self) -> bool {
        self.recoveries.iter().all(|one| one.time <= self.recovery_bound())
    }

    fn write_recoveries(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bound, trip) = (self.recovery_bound(), self.round_trip);
        writeln!(f, "recoveries   round trip {trip:.1?} through the relay; due within 50 ms more")?;
        let all = [
            (Circumstances::Undisturbed, "undisturbed"),
            (Circumstances::Epochs, "where epochs begin"),
            (Circumstances::Busy, "while the machine was busy"),
        ];
        for (circumstances, name) in all {
            let times = self.times(circumstances);
            let (Some(last), count) = (times.last(), times.len()) else { continue };
            let late = times.iter().filter(|time| **time > bound).count();
            let (half, most) = (times[count / 2], times[(count * 99).div_ceil(100) - 1]);
            writeln!(
                f,
                "             {count} {name}: median {half:.1?}, 99 % {most:.1?}, longest {last:.1?}, {late} late"
            )?;
        }
        Ok(())
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
        if !self.recoveries.is_empty() {
            self.write_recoveries(f)?;
        }
        write!(f, "violations   0")
    }
}
