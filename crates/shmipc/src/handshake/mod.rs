// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes of version 2 and version 3, as client and as server.
//!
//! ```text
//!   v2, files     client ── ShmByPath 2 {queue, buffer} ──────────────────▶ server maps; no answer
//!
//!   v3, memfds    client ── ExchangeVersion 3 ────────────────────────────▶ server
//!                        ◀───────────────────────────── ExchangeVersion 3 ──
//!                        ── ShmByMemfd 3 {queue, buffer} ─────────────────▶
//!                        ◀────────────────────────────── AckReadyRecvFd 3 ──
//!                        ── one byte 0 + descriptors [buffer, queue] ─────▶ maps
//!                        ◀────────────────────────────────────── AckShm 3 ──
//!
//!   v3, files     as v3, with ShmByPath 3 instead of names and descriptors (server only)
//! ```
//!
//! [`ClientHandshake`] and [`ServerHandshake`] are machines without socket, memory or clock. Their
//! owner calls [`next`](ClientHandshake::next) for steps until there is none. Then it reads exactly
//! [`missing`](ClientHandshake::missing) bytes and feeds them, until [`Step::Done`]. The owner also
//! handles the deadline and the end of the connection; for their errors, `waiting_for` names the
//! awaited message.
//!
//! The first bytes of a client decide whether a connection uses this protocol:
//!
//! ```text
//!   00 00 .. .. 77 58 .. 00 | 04 | 0a    length of two bytes, magic, any version, kind
//! ```
//!
//! A preamble of Partywall begins with a letter, so one byte distinguishes the two. Eight bytes
//! always decide; fewer decide against this protocol as soon as one of them is wrong.
//!
//! Invariants: no byte beyond the handshake is requested, since established traffic may follow at
//! once. No length is awaited that its message cannot have. Every refusal names what was expected,
//! and what was received.

mod client;
mod intake;
mod server;

pub use client::{ClientHandshake, Mapping};
pub use server::{HandshakeLimits, ServerHandshake};

use crate::frame::{FrameError, Kind, MAGIC};
use partywall::protocol::{ProtocolError, Recognition};

/// A step that the owner of a machine performs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Write this one byte, with the descriptors of the buffers and of the queue, in this order, in
    /// one control message. Peers expect exactly that.
    SendDescriptors {
        /// The byte: 0.
        byte: u8,
    },
    /// Map the received descriptors, of the buffers and then of the queue, and call `mapped`. The
    /// names are for error texts only.
    MapDescriptors {
        /// The client's name of the queue.
        queue_name: String,
        /// The client's name of the buffers.
        buffer_name: String,
    },
    /// Open and map these files if the rules allow them, and call `mapped`.
    MapPaths {
        /// Path of the queue.
        queue: String,
        /// Path of the buffers.
        buffer: String,
    },
    /// Both sides are ready. Everything that follows is established traffic.
    Done {
        /// The agreed version, 2 or 3, for our messages.
        version: u8,
    },
}

/// Why a handshake failed. The connection is closed at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// The bytes are no valid message.
    #[error("waiting for {waiting_for}: {fault}")]
    Frame {
        /// The awaited message.
        waiting_for: &'static str,
        /// The fault.
        fault: FrameError,
    },
    /// A message of another kind.
    #[error("waiting for {waiting_for}: {found} came")]
    Kind {
        /// The awaited message.
        waiting_for: &'static str,
        /// The received kind.
        found: Kind,
    },
    /// A message of another version.
    #[error("waiting for {waiting_for}: {kind} came with version {found}, not {expected}")]
    Version {
        /// The awaited message.
        waiting_for: &'static str,
        /// The received kind.
        kind: Kind,
        /// The expected versions.
        expected: &'static str,
        /// The received version.
        found: u8,
    },
    /// A length that is impossible for this kind.
    #[error("waiting for {waiting_for}: {kind} has {least} to {most} bytes, this one says {found}")]
    Length {
        /// The awaited message.
        waiting_for: &'static str,
        /// The received kind.
        kind: Kind,
        /// The least length, in bytes.
        least: u32,
        /// The greatest length, in bytes.
        most: u32,
        /// The length in the header.
        found: u32,
    },
    /// Impossible names or paths.
    #[error("the {what} in the client's message {fault}")]
    Name {
        /// Which of them.
        what: &'static str,
        /// The fault.
        fault: &'static str,
    },
    /// The number of descriptors is not two.
    #[error("waiting for {waiting_for}: {found} descriptors came with the byte, not 2")]
    Descriptors {
        /// The awaited message.
        waiting_for: &'static str,
        /// The received number.
        found: usize,
    },
    /// The client offers version 4. The connection is closed at once, and the client tries version
    /// 3.
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

/// The longest path or name, in bytes; also the system's limit for paths.
pub const PATH_BYTES_MAX: u16 = 4096;
/// The shortest message with two names: header, two lengths, and a byte each.
const NAMES_LENGTH_MIN: u32 = 14;
/// The longest message with two names.
const NAMES_LENGTH_MAX: u32 = 12 + 2 * PATH_BYTES_MAX as u32;

/// Whether a connection that begins with these bytes is that of a shmipc client, of any version.
///
/// A client begins with `ShmByPath`, `ExchangeVersion` or `Negotiation` of a possible length.
/// [`ServerHandshake`] checks the rest, such as the version.
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
    // All possible lengths have two bytes.
    let expected = [Some(0), Some(0), None, None, Some(MAGIC[0]), Some(MAGIC[1]), None];
    let agrees = expected
        .iter()
        .zip(first)
        .all(|(expected, found)| expected.is_none_or(|byte| byte == *found));
    if agrees { Recognition::Incomplete } else { Recognition::No }
}

/// A negotiation up to this length is recognised. It is refused unread, so the limit only separates
/// it from noise.
const NEGOTIATION_LENGTH_MAX: u32 = 0xffff;

#[cfg(test)]
mod tests;
