// SPDX-License-Identifier: MIT OR Apache-2.0
//! Collects the bytes of a shmipc handshake until a header, a body, or the byte with descriptors is
//! complete.
//!
//! ```text
//!   expect(8) ── feed ── feed ──▶ the eight bytes ── expect(the rest) ── feed ──▶ …
//! ```
//!
//! This file does not interpret the bytes: the state machines of client and server do. Invariant:
//! the collector never holds more bytes than were expected.

use super::{NAMES_LENGTH_MAX, NAMES_LENGTH_MIN, NegotiationError};
use crate::frame::{HEADER_BYTES, Header, Kind};

#[derive(Debug)]
pub(super) struct Intake {
    bytes: Vec<u8>,
    expected: usize,
}

impl Intake {
    pub(super) const fn new(expected: usize) -> Self {
        Self { bytes: Vec::new(), expected }
    }

    pub(super) fn missing(&self) -> usize {
        self.expected - self.bytes.len()
    }

    /// Adds `bytes` to the collected ones. Once all expected bytes have arrived, returns them; from
    /// then on, `next` further bytes are expected.
    pub(super) fn feed(&mut self, bytes: &[u8], next: usize) -> Option<Vec<u8>> {
        assert!(bytes.len() <= self.missing(), "more bytes than were missing");
        self.bytes.extend_from_slice(bytes);
        if self.missing() > 0 {
            return None;
        }
        self.expected = next;
        Some(std::mem::take(&mut self.bytes))
    }

    pub(super) const fn expect(&mut self, bytes: usize) {
        self.expected = bytes;
    }
}

/// Parses the header of a handshake message. An error contains `waiting_for`, the name of the
/// message that the handshake expected.
pub(super) fn header(bytes: &[u8], waiting_for: &'static str) -> Result<Header, NegotiationError> {
    let mut array = [0; HEADER_BYTES];
    array.copy_from_slice(bytes);
    Header::read(array).map_err(|fault| NegotiationError::Frame { waiting_for, fault })
}

pub(super) fn check(
    header: Header,
    kind: Kind,
    is_version: bool,
    expected: &'static str,
    waiting_for: &'static str,
) -> Result<(), NegotiationError> {
    if header.kind != kind {
        return Err(NegotiationError::Kind { waiting_for, found: header.kind });
    }
    if !is_version {
        let found = header.version;
        return Err(NegotiationError::Version { waiting_for, kind, expected, found });
    }
    check_length(header, waiting_for)
}

pub(super) fn check_length(
    header: Header,
    waiting_for: &'static str,
) -> Result<(), NegotiationError> {
    let (least, most) = match header.kind {
        Kind::ShmByPath | Kind::ShmByMemfd => (NAMES_LENGTH_MIN, NAMES_LENGTH_MAX),
        _ => (8, 8),
    };
    let (kind, found) = (header.kind, header.length);
    if (least..=most).contains(&found) {
        Ok(())
    } else {
        Err(NegotiationError::Length { waiting_for, kind, least, most, found })
    }
}

/// Parses the two names in the body of a message: first that of the queue, then that of the
/// buffers.
pub(super) fn names(body: &[u8], bytes_max: u16) -> Result<(String, String), NegotiationError> {
    let (queue, rest) = name(body, "queue's name", bytes_max)?;
    let what = "buffers' name";
    let (buffer, rest) = name(rest, what, bytes_max)?;
    if !rest.is_empty() {
        return Err(NegotiationError::Name { what, fault: "ends before the message does" });
    }
    if queue == buffer {
        return Err(NegotiationError::Name { what, fault: "is the queue's as well" });
    }
    Ok((queue, buffer))
}

fn name<'a>(
    bytes: &'a [u8],
    what: &'static str,
    bytes_max: u16,
) -> Result<(String, &'a [u8]), NegotiationError> {
    let refuse = |fault| Err(NegotiationError::Name { what, fault });
    let Some((length, rest)) = bytes.split_first_chunk::<2>() else {
        return refuse("has no length");
    };
    let length = u16::from_be_bytes(*length);
    let Some((name, rest)) = rest.split_at_checked(length.into()) else {
        return refuse("is longer than the message");
    };
    if length == 0 {
        return refuse("is empty");
    }
    if length > bytes_max {
        return refuse("is longer than is accepted");
    }
    if name.contains(&0) {
        return refuse("contains a zero");
    }
    match std::str::from_utf8(name) {
        Ok(name) => Ok((name.to_owned(), rest)),
        Err(_) => refuse("is not UTF-8"),
    }
}
