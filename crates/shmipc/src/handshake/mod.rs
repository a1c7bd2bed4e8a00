// SPDX-License-Identifier: MIT OR Apache-2.0
//! Handshakes of shmipc, version 2 and version 3, for client and server.
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
//! [`ClientHandshake`] and [`ServerHandshake`] are state machines without socket, memory or clock.
//! Their owner calls [`next`](ClientHandshake::next) and performs each step, until there is none.
//! Then the owner reads exactly [`missing`](ClientHandshake::missing) bytes and feeds them, until
//! [`Step::Done`]. The owner also handles the deadline and the end of the connection; for the error
//! text, `waiting_for` names the awaited message.
//!
//! The first bytes of a client decide whether a connection uses this protocol:
//!
//! ```text
//!   00 00 .. .. 77 58 .. 00 | 04 | 0a    length of two bytes, magic, any version, kind
//! ```
//!
//! A frame of Partywall begins with a letter, so one byte distinguishes the two protocols. Eight
//! bytes always decide; fewer bytes decide against shmipc as soon as one of them is wrong.
//!
//! Invariants: the machines request no byte beyond the handshake, since traffic of the established
//! connection may follow at once. They await no length that a message cannot have. Every refusal
//! names the expected and the received value.

mod client;
mod intake;
mod server;

pub use client::{ClientHandshake, Mapping};
pub use server::{HandshakeLimits, ServerHandshake};

use crate::frame::{FrameError, Kind, MAGIC};
use partywall::protocol::{ProtocolError, Recognition};

/// A step that the owner of a handshake's state machine performs on the socket or in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Write these bytes to the socket.
    Send(Vec<u8>),
    /// Write `byte`, and attach two descriptors to it in one control message: that of the buffers,
    /// then that of the queue. Other implementations accept the descriptors in no other form or
    /// order.
    SendDescriptors {
        /// The byte to write, which comes with the descriptors: 0.
        byte: u8,
    },
    /// Map the received descriptors, first that of the buffers, then that of the queue, and then
    /// call `mapped`. The names serve only error texts.
    MapDescriptors {
        /// The name that the client gave the queue's memfd.
        queue_name: String,
        /// The name that the client gave the buffers' memfd.
        buffer_name: String,
    },
    /// Open and map the client's files at the given paths, if the server's settings allow that, and
    /// then call `mapped`.
    MapPaths {
        /// Path of the file that holds the queue.
        queue: String,
        /// Path of the file that holds the buffers.
        buffer: String,
    },
    /// Both sides are ready. All later bytes are traffic of the established connection.
    Done {
        /// The agreed version, 2 or 3, for the messages that this side sends.
        version: u8,
    },
}

/// Why a handshake of shmipc failed. The owner of the state machine closes the connection at once.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NegotiationError {
    /// The received bytes are no valid message of shmipc.
    #[error("waiting for {waiting_for}: {fault}")]
    Frame {
        /// The message that the handshake waited for.
        waiting_for: &'static str,
        /// Why the received bytes are no valid message.
        fault: FrameError,
    },
    /// A message of another kind than the awaited one arrived.
    #[error("waiting for {waiting_for}: {found} came")]
    Kind {
        /// The message that the handshake waited for.
        waiting_for: &'static str,
        /// The kind of the message that arrived.
        found: Kind,
    },
    /// A message of another version than the expected ones arrived.
    #[error("waiting for {waiting_for}: {kind} came with version {found}, not {expected}")]
    Version {
        /// The message that the handshake waited for.
        waiting_for: &'static str,
        /// The kind of the message that arrived.
        kind: Kind,
        /// The versions that the message may have, as text.
        expected: &'static str,
        /// The version of the message that arrived.
        found: u8,
    },
    /// The length in a message's header is impossible for the message's kind.
    #[error("waiting for {waiting_for}: {kind} has {least} to {most} bytes, this one says {found}")]
    Length {
        /// The message that the handshake waited for.
        waiting_for: &'static str,
        /// The kind of the message with the impossible length.
        kind: Kind,
        /// The least possible length of a message of this kind, in bytes.
        least: u32,
        /// The greatest possible length of a message of this kind, in bytes.
        most: u32,
        /// The length in the header of the message that arrived, in bytes.
        found: u32,
    },
    /// A name or path that the client sent is impossible.
    #[error("the {what} in the client's message {fault}")]
    Name {
        /// The impossible name or path, in words: that of the queue or that of the buffers.
        what: &'static str,
        /// What is wrong with the name or path, as text.
        fault: &'static str,
    },
    /// The client sent a number of descriptors other than two.
    #[error("waiting for {waiting_for}: {found} descriptors came with the byte, not 2")]
    Descriptors {
        /// The message that the handshake waited for.
        waiting_for: &'static str,
        /// The number of descriptors that the client sent.
        found: usize,
    },
    /// The client offers version 4. The server closes the connection at once, so that the client
    /// tries version 3.
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

/// Length in bytes of the longest path or name that a handshake message may contain. The value is
/// also the system's limit for paths.
pub const PATH_BYTES_MAX: u16 = 4096;
/// Length in bytes of the shortest message with two names: header, two lengths, and one byte for
/// each name.
const NAMES_LENGTH_MIN: u32 = 14;
const NAMES_LENGTH_MAX: u32 = 12 + 2 * PATH_BYTES_MAX as u32;

/// Whether a connection whose first bytes are `first` is that of a shmipc client, of any version.
///
/// A client begins with `ShmByPath`, `ExchangeVersion` or `Negotiation` of a possible length.
/// [`ServerHandshake`] checks the rest of the client's message, such as the version.
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
    // Every length that a client's first message can have fits into two bytes, so the upper two
    // bytes of the length field are 0.
    let expected = [Some(0), Some(0), None, None, Some(MAGIC[0]), Some(MAGIC[1]), None];
    let agrees = expected
        .iter()
        .zip(first)
        .all(|(expected, found)| expected.is_none_or(|byte| byte == *found));
    if agrees { Recognition::Incomplete } else { Recognition::No }
}

/// Length in bytes of the longest `Negotiation` message that is recognised as a client's first
/// message. The server refuses the message without reading its body, so the limit only
/// distinguishes the message from random bytes.
const NEGOTIATION_LENGTH_MAX: u32 = 0xffff;

#[cfg(test)]
mod tests;
