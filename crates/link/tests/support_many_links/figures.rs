// SPDX-License-Identifier: MIT OR Apache-2.0
//! The measured cost of a run of the tests with many links: resources, turns of the group, and
//! processor time.

use super::cost::Holdings;
use super::many::Kind;
use std::fmt;
use std::time::Duration;

/// Figures of one run, for a given number and kind of links. The tests compare the figures of a run
/// with few links and of one with many.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub links: u64,
    pub kind: Kind,
    /// Resources that the server's process and the client's process use.
    pub holdings: [Holdings; 2],
    pub idle: [Idle; 2],
    pub active: Active,
}

/// Figures of the phase in which no link has messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    pub turns: u64,
    pub sleeps: u64,
    pub events: u64,
}

/// Figures of the server in the phase in which the active links receive messages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Active {
    pub rounds: u64,
    pub messages: u64,
    pub turns: u64,
    /// Number of times that the group reported a link as having events.
    pub reported: u64,
    /// Processor time of the thread that polls the server's group.
    pub time: Duration,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.kind.is_kept { "in files" } else { "in memory" };
        let wire = if self.kind.is_shared { "shared memory" } else { "sockets" };
        writeln!(f, "{} links {kept}, over {wire}", self.links)?;
        for (side, name) in ["server", "client"].iter().enumerate() {
            let (holdings, idle) = (self.holdings[side], self.idle[side]);
            writeln!(
                f,
                "  {name}  {:.2} descriptors and {:.1} KiB a link; idle: {} turns, {} sleeps, {} events",
                holdings.descriptors as f64 / self.links as f64,
                holdings.resident_bytes as f64 / 1024.0 / self.links as f64,
                idle.turns,
                idle.sleeps,
                idle.events
            )?;
        }
        let active = self.active;
        let each = |count: u64| count as f64 / active.rounds as f64;
        write!(
            f,
            "  active  {:.1} messages a round: {:.2} turns, {:.2} links reported, {:.1?} of processor time",
            each(active.messages),
            each(active.turns),
            each(active.reported),
            active.time / u32::try_from(active.rounds).unwrap()
        )
    }
}
