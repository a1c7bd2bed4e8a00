// SPDX-License-Identifier: MIT OR Apache-2.0
//! When a receiver tells how far it has consumed, on a transport where the sender cannot look (SPEC 12.5).
//!
//! ```text
//!  told ─────────── consumed ───── received
//!  └ a quarter of the window: due ┘
//!  └ anything, and nothing is left to consume: due
//! ```
//!
//! It never waits for room for data. A sender whose window is full hears of it at the latest when its
//! receiver has consumed everything.

use crate::position::Position;

/// Whether an ACK is due.
///
/// `told` is what was told last on this connection, in the view or in an ACK or with a record; `window` is the sender's,
/// in bytes; `drained` says that nothing received is left to consume.
///
/// ```
/// use partywall_reconcile::{ack, Position};
/// assert!(!ack::is_due(4096, Position(0), Position(512), false));
/// assert!(ack::is_due(4096, Position(0), Position(1024), false));
/// assert!(ack::is_due(4096, Position(0), Position(64), true));
/// ```
#[must_use]
pub const fn is_due(window: u64, told: Position, consumed: Position, drained: bool) -> bool {
    let news = consumed.since(told);
    news > 0 && (drained || news >= window / QUARTER)
}

/// An acknowledgement of this part of the window does not wait for the end of a drain.
const QUARTER: u64 = 4;
