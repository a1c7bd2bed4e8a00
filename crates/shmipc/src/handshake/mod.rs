// SPDX-License-Identifier: MIT OR Apache-2.0
//! Coming to terms: version 2 and version 3, as client and as server.
//!
//! ```text
//!   v2, files     client ── ShmByPath 2 {queue, buffer} ──────────────────▶ server maps; says nothing
//!
//!   v3, memfds    client ── ExchangeVersion 3 ────────────────────────────▶ server
//!                        ◀───────────────────────────── ExchangeVersion 3 ──
//!                        ── ShmByMemfd 3 {queue, buffer} ─────────────────▶
//!                        ◀────────────────────────────── AckReadyRecvFd 3 ──
//!                        ── one byte 0 + descriptors [buffer, queue] ─────▶ maps
//!                        ◀────────────────────────────────────── AckShm 3 ──
//!
//!   v3, files     as v3, with ShmByPath 3 instead of names and descriptors (as server only: no peer does it)
//! ```
//!
//! [`ClientHandshake`] and [`ServerHandshake`] are machines without socket, memory or clock. Their owner asks [`next`](Client::next)
//! for what to do until there is nothing, then reads exactly [`missing`](Client::missing) bytes and feeds them, until
//! it is told [`Step::Done`]. The deadline is the owner's, and so is the end of the connection: for what they
//! then say, `waiting_for` names what should have come.
//!
//! Invariants: never a byte more is asked for than belongs to the handshake, since established traffic may come
//! glued to it; no length is waited for that its message cannot have; every refusal says what was expected, and
//! what came.

mod client;
mod intake;
mod server;

pub use client::{ClientHandshake, Mapping};
pub use server::{HandshakeLimits, ServerHandshake};

use crate::frame::{FrameError, Kind, MAGIC};
use partywall::protocol::{ProtocolError, Recognition};

/// What the owner of a machine is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Write this one byte, and beside it the descriptors of the buffers and of the queue, in this order, in
    /// one control message. Peers expect exactly that.
    SendDescriptors {
        /// What to write; 0.
        byte: u8,
    },
    /// Map the descriptors that came, the buffers' first and the queue's second, then say `mapped`. The names tell
    /// people what it is; nothing is to be found by them.
    MapDescriptors {
        /// What the client calls the queue.
        queue_name: String,
        /// What the client calls the buffers.
        buffer_name: String,
    },
    /// Open and map these files, where they may lie, then say `mapped`.
    MapPaths {
        /// The queue's.
        queue: String,
        /// The buffers'.
        buffer: String,
    },
    /// Both sides are ready. All that comes from now on is established traffic.
    Done {
        /// What was agreed: 2 or 3. Our messages carry it.
        version: u8,
    },
}

/// Why nothing was agreed. The connection is closed then, at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// What came is no message.
    #[error("waiting for {waiting_for}: {fault}")]
    Frame {
        /// What should have come.
        waiting_for: &'static str,
        /// What is wrong with what came.
        fault: FrameError,
    },
    /// A message of another type.
    #[error("waiting for {waiting_for}: {found} came")]
    Kind {
        /// What should have come.
        waiting_for: &'static str,
        /// What came.
        found: Kind,
    },
    /// A message of another version.
    #[error("waiting for {waiting_for}: {kind} came with version {found}, not {expected}")]
    Version {
        /// What should have come.
        waiting_for: &'static str,
        /// What came.
        kind: Kind,
        /// Which versions could have stood there.
        expected: &'static str,
        /// Which did.
        found: u8,
    },
    /// A length that this message cannot have.
    #[error("waiting for {waiting_for}: {kind} has {least} to {most} bytes, this one says {found}")]
    Length {
        /// What should have come.
        waiting_for: &'static str,
        /// What came.
        kind: Kind,
        /// The shortest, in bytes.
        least: u32,
        /// The longest, in bytes.
        most: u32,
        /// What its header says.
        found: u32,
    },
    /// Names or paths that cannot be.
    #[error("the {what} in the client's message {fault}")]
    Name {
        /// Which of them.
        what: &'static str,
        /// What is wrong with it.
        fault: &'static str,
    },
    /// Not two descriptors.
    #[error("waiting for {waiting_for}: {found} descriptors came with the byte, not 2")]
    Descriptors {
        /// What should have come.
        waiting_for: &'static str,
        /// How many came.
        found: usize,
    },
    /// The client begins with version 4. It is closed at once, upon which it begins again with version 3.
    #[error(
        "the client offers version 4; it is turned away so that it begins again with version 3"
    )]
    Refused,
}

impl From<NegotiationError> for ProtocolError {
    fn from(error: NegotiationError) -> Self {
        let what = error.to_string();
        match error {
            NegotiationError::Refused => Self::Refused { what },
            _ => Self::Violation { what },
        }
    }
}

/// The longest path or name that is accepted, in bytes; also the system's limit for paths.
pub const PATH_BYTES_MAX: u16 = 4096;
/// The shortest message with two names: header, two lengths, and a byte each.
const NAMES_LENGTH_MIN: u32 = 14;
/// The longest.
const NAMES_LENGTH_MAX: u32 = 12 + 2 * PATH_BYTES_MAX as u32;

/// Whether a connection that begins with these bytes is a client's of shmipc, of any version.
///
/// A client begins with `ShmByPath`, `ExchangeVersion` or `Negotiation`, in lengths they can have. What is wrong with
/// it beyond that, its version for example, is for [`ServerHandshake`](Server) to say.
#[must_use]
pub fn recognises(first: &[u8]) -> Recognition {
    if let Some((header, _)) = first.split_first_chunk::<8>() {
        let [l0, l1, l2, l3, m0, m1, _, kind] = *header;
        let length = u32::from_be_bytes([l0, l1, l2, l3]);
        let is_plausible = match Kind::from_number(kind) {
            Some(Kind::ShmByPath) => (NAMES_LENGTH_MIN..=NAMES_LENGTH_MAX).contains(&length),
            Some(Kind::ExchangeVersion) => length == 8,
            Some(Kind::Negotiation) => (8..=NEGOTIATION_LENGTH_MAX).contains(&length),
            _ => false,
        };
        let is_ours = [m0, m1] == MAGIC && is_plausible;
        return if is_ours { Recognition::Yes } else { Recognition::No };
    }
    // All plausible lengths have two bytes.
    let expected = [Some(0), Some(0), None, None, Some(MAGIC[0]), Some(MAGIC[1]), None];
    let agrees = expected
        .iter()
        .zip(first)
        .all(|(expected, found)| expected.is_none_or(|byte| byte == *found));
    if agrees { Recognition::Incomplete } else { Recognition::No }
}

/// A negotiation is recognised up to this length. It is refused unread, so this only tells it from noise.
const NEGOTIATION_LENGTH_MAX: u32 = 0xffff;

#[cfg(test)]
mod tests;
