// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identity of a region's owner, for tools that read the region without asking its owner (SPEC
//! 3.4).
//!
//! ```text
//!  header page    108 service   112 created      128 address (512)   written with the header
//!  control page   768 state     776 last error   784 changed         written at each change
//!                 1024 program (512)                                 for a trusted peer only
//! ```
//!
//! Each value is a claim of the owner: no code decides anything by it. A value of 0 and an empty
//! text say nothing. This file neither opens nor maps a region; [`RegionIdentity`] reads a copy.

use crate::check::Violation;
use crate::segment::{
    CONTROL_OFFSET, LINE_BYTES, PAGE_BYTES, RECEIVING_COUNTERS, RegionHeader, SENDING_COUNTERS,
    receiving, sending,
};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Offset in a region's header page of the text with the listener's address, in bytes.
pub const ADDRESS: u64 = 128;
/// Offset in a region's control page of the word with the state of the owner's connection: one of
/// the `STATE_…` values.
pub const STATE: u64 = 6 * LINE_BYTES;
/// Offset in a region's control page of the word with the number of the connection's last error.
pub const LAST_ERROR: u64 = STATE + 8;
/// Offset in a region's control page of the word with the time at which the owner last stored the
/// state of its connection.
pub const CHANGED: u64 = STATE + 16;
/// Offset in a region's control page of the text with the path of the owner's program, in bytes.
pub const PROGRAM: u64 = 8 * LINE_BYTES;

/// Value of [`RegionIdentity::state`]: the handshake is under way, or the owner states nothing.
pub const STATE_OPENING: u64 = 0;
/// Value of [`RegionIdentity::state`]: the connection is open.
pub const STATE_OPEN: u64 = 1;
/// Value of [`RegionIdentity::state`]: the connection ended by an error, and the owner has not
/// closed it yet.
pub const STATE_BROKEN: u64 = 2;
/// Value of [`RegionIdentity::state`]: the owner has closed both directions of the connection.
pub const STATE_CLOSED: u64 = 3;

/// Length in bytes of the longest text that an [`IdentityText`] holds.
pub const TEXT_BYTES_MAX: usize = 510;

/// Length of the header page and the control page together, in bytes: the part of a region that
/// [`RegionIdentity::read`] reads.
pub const IDENTITY_BYTES: usize = 8192;

/// A text in shared memory: its length, then its bytes, then zeros.
///
/// ```text
///  0  length   2  text (510)
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct IdentityText {
    /// Length of the text in bytes, at most [`TEXT_BYTES_MAX`].
    pub length: U16,
    /// The bytes of the text. The owner writes UTF-8, but a reader must not rely on that.
    pub text: [u8; TEXT_BYTES_MAX],
}

const _: () = {
    assert!(size_of::<IdentityText>() == 512);
    assert!(core::mem::offset_of!(IdentityText, length) == 0);
    assert!(core::mem::offset_of!(IdentityText, text) == 2);
    assert!(size_of::<RegionHeader>() as u64 == ADDRESS);
    assert!(ADDRESS + size_of::<IdentityText>() as u64 <= PAGE_BYTES);
    assert!(RECEIVING_COUNTERS + LINE_BYTES == STATE && CHANGED + 8 <= STATE + LINE_BYTES);
    assert!(PROGRAM >= STATE + LINE_BYTES);
    assert!(PROGRAM + size_of::<IdentityText>() as u64 <= PAGE_BYTES);
    assert!(IDENTITY_BYTES as u64 == CONTROL_OFFSET + PAGE_BYTES);
};

impl IdentityText {
    /// Stores `text`. A text longer than [`TEXT_BYTES_MAX`] bytes loses characters at its start,
    /// because the end of a path says more than its start.
    #[must_use]
    pub fn new(text: &str) -> Self {
        let mut start = text.len().saturating_sub(TEXT_BYTES_MAX);
        while !text.is_char_boundary(start) {
            start += 1;
        }
        let kept = &text.as_bytes()[start..];
        let mut stored = Self::new_zeroed();
        stored.text[..kept.len()].copy_from_slice(kept);
        #[expect(clippy::cast_possible_truncation, reason = "at most TEXT_BYTES_MAX")]
        stored.length.set(kept.len() as u16);
        stored
    }

    /// The text up to the first byte that is not UTF-8, or to the first control character, which
    /// could change the state of a terminal.
    #[must_use]
    pub fn printable(&self) -> &str {
        let length = usize::from(self.length.get()).min(TEXT_BYTES_MAX);
        let bytes = &self.text[..length];
        let text = match core::str::from_utf8(bytes) {
            Ok(text) => text,
            Err(error) => core::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or(""),
        };
        text.split(char::is_control).next().unwrap_or("")
    }
}

/// A private copy of the first two pages of a region, with the identity of its owner and the state
/// of its connection.
///
/// ```
/// use partywall_layout::identity::{IDENTITY_BYTES, RegionIdentity};
///
/// let no_region = [0; IDENTITY_BYTES];
/// assert!(RegionIdentity::read(&no_region).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RegionIdentity<'a> {
    header: &'a RegionHeader,
    address: &'a IdentityText,
    program: &'a IdentityText,
    control: &'a [u8],
}

impl<'a> RegionIdentity<'a> {
    /// Reads a private copy of a region's first [`IDENTITY_BYTES`] bytes. The function does not
    /// check of which kind the region is, and to which session it belongs.
    ///
    /// # Errors
    /// [`Violation::RegionHeader`], if the copy is too short or is no region of this format.
    pub fn read(pages: &'a [u8]) -> Result<Self, Violation> {
        let found = pages.len() as u64;
        let short = || Violation::RegionHeader { field: "length", found };
        let (header, _) = RegionHeader::ref_from_prefix(pages).map_err(|_| short())?;
        header.check_format()?;
        let page = |from: u64| {
            let from = usize::try_from(from).ok()?;
            pages.get(from..)?.get(..usize::try_from(PAGE_BYTES).ok()?)
        };
        let (first, control) = page(0).zip(page(CONTROL_OFFSET)).ok_or_else(short)?;
        let (address, program) =
            text_at(first, ADDRESS).zip(text_at(control, PROGRAM)).ok_or_else(short)?;
        Ok(Self { header, address, program, control })
    }

    /// The kind of the region. This version makes only regions of connections, whose kind is 1.
    #[must_use]
    pub fn kind(&self) -> u32 {
        self.header.kind.get()
    }

    /// The id of the session, which both regions of one connection have in common.
    #[must_use]
    pub const fn session_id(&self) -> [u8; 16] {
        self.header.session_id
    }

    /// Size of the inspected region in bytes.
    #[must_use]
    pub fn region_bytes(&self) -> u64 {
        self.header.region_size.get()
    }

    /// The process id of the region's owner, in the owner's namespace.
    #[must_use]
    pub fn owner_pid(&self) -> u32 {
        self.header.owner_pid.get()
    }

    /// The role of the owner: 0 for the connector, 1 for the acceptor.
    #[must_use]
    pub fn role(&self) -> u32 {
        self.header.role.get()
    }

    /// The service of the connection, as in HELLO; 0 if the owner does not say.
    #[must_use]
    pub fn service(&self) -> u32 {
        self.header.service.get()
    }

    /// When the header was written, in nanoseconds since 1970; 0 if the owner does not say.
    #[must_use]
    pub fn created_ns(&self) -> u64 {
        self.header.created_ns.get()
    }

    /// The address of the listener, printable; empty if the owner does not say.
    #[must_use]
    pub fn address(&self) -> &'a str {
        self.address.printable()
    }

    /// The path of the owner's program, printable; empty if the owner states no path, as to a peer
    /// that it does not trust.
    #[must_use]
    pub fn program(&self) -> &'a str {
        self.program.printable()
    }

    /// The state of the connection as the region's owner states it, such as [`STATE_OPEN`].
    #[must_use]
    pub fn state(&self) -> u64 {
        self.word(STATE)
    }

    /// The number of the connection's last error as the region's owner states it (SPEC 17); 0 if
    /// there was none.
    #[must_use]
    pub fn last_error(&self) -> u64 {
        self.word(LAST_ERROR)
    }

    /// When the owner last stored the state of its connection, in nanoseconds since 1970; 0 if the
    /// owner does not say.
    #[must_use]
    pub fn changed_ns(&self) -> u64 {
        self.word(CHANGED)
    }

    /// The word at byte `offset` of the control page of the copied region; 0 if the page has no
    /// such word.
    #[must_use]
    pub fn word(&self, offset: u64) -> u64 {
        let bytes = usize::try_from(offset).ok().and_then(|offset| self.control.get(offset..));
        bytes.and_then(<[u8]>::first_chunk).map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }

    /// The value of one counter that the region's owner keeps as a sender. The index selects the
    /// counter, such as [`sending::MESSAGES`].
    #[must_use]
    pub fn sending(&self, index: u64) -> u64 {
        if index < sending::COUNT { self.word(SENDING_COUNTERS + 8 * index) } else { 0 }
    }

    /// The value of one counter that the region's owner keeps as a receiver. The index selects the
    /// counter, such as [`receiving::MESSAGES`].
    #[must_use]
    pub fn receiving(&self, index: u64) -> u64 {
        if index < receiving::COUNT { self.word(RECEIVING_COUNTERS + 8 * index) } else { 0 }
    }
}

fn text_at(page: &[u8], offset: u64) -> Option<&IdentityText> {
    let from = page.get(usize::try_from(offset).ok()?..)?;
    IdentityText::ref_from_prefix(from).ok().map(|(text, _)| text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{ASLEEP_RECORDS, Geometry};

    #[test]
    fn long_text_keeps_its_end_in_whole_characters() {
        assert_eq!(IdentityText::new("").printable(), "");
        let fits = "a".repeat(TEXT_BYTES_MAX);
        assert_eq!(IdentityText::new(&fits).printable(), fits);
        // The text is one byte longer than `TEXT_BYTES_MAX`. The cut at its start would fall within
        // `é`, a character of two bytes, so the whole character is dropped.
        let long = format!("é{}", "b".repeat(TEXT_BYTES_MAX - 1));
        assert_eq!(IdentityText::new(&long).printable(), "b".repeat(TEXT_BYTES_MAX - 1));
    }

    #[test]
    fn text_of_a_hostile_owner_is_cut_before_it_harms_a_terminal() {
        let mut text = IdentityText::new("unix:/run/a\u{1b}[2J");
        assert_eq!(text.printable(), "unix:/run/a");
        text = IdentityText::new("line\nline");
        assert_eq!(text.printable(), "line");
        text = IdentityText::new("c1\u{9b}31m");
        assert_eq!(text.printable(), "c1");
        text = IdentityText::new("abcdef");
        text.text[3] = 0xff;
        assert_eq!(text.printable(), "abc");
        text.length.set(u16::MAX);
        text.text = [b'x'; TEXT_BYTES_MAX];
        assert_eq!(text.printable().len(), TEXT_BYTES_MAX);
    }

    #[test]
    fn words_and_counters_are_those_of_the_control_page() {
        let geometry = Geometry::new(4096, 8, 0).unwrap();
        let mut pages = [0; IDENTITY_BYTES];
        let header = geometry.header(*b"sixteen bytes id", 42, 1);
        pages[..size_of::<RegionHeader>()].copy_from_slice(header.as_bytes());
        let mut put = |offset: u64, value: u64| {
            let at = usize::try_from(CONTROL_OFFSET + offset).unwrap();
            pages[at..at + 8].copy_from_slice(&value.to_le_bytes());
        };
        put(ASLEEP_RECORDS, 7);
        put(SENDING_COUNTERS + 8 * sending::TAIL, 640);
        put(RECEIVING_COUNTERS, 5);
        put(LAST_ERROR, 10);
        let identity = RegionIdentity::read(&pages).unwrap();
        assert_eq!((identity.word(ASLEEP_RECORDS), identity.last_error()), (7, 10));
        assert_eq!((identity.sending(sending::TAIL), identity.receiving(0)), (640, 5));
        assert_eq!((identity.sending(sending::COUNT), identity.receiving(u64::MAX)), (0, 0));
        assert_eq!((identity.word(PAGE_BYTES - 4), identity.word(u64::MAX)), (0, 0));
        assert_eq!((identity.role(), identity.owner_pid(), identity.state()), (1, 42, 0));
    }

    #[test]
    fn copy_that_is_too_short_is_refused() {
        let geometry = Geometry::new(4096, 8, 0).unwrap();
        let mut pages = [0; IDENTITY_BYTES];
        let header = geometry.header(*b"sixteen bytes id", 42, 1);
        pages[..size_of::<RegionHeader>()].copy_from_slice(header.as_bytes());
        assert!(RegionIdentity::read(&pages).is_ok());
        for length in [0, 127, 128, 4096, IDENTITY_BYTES - 1] {
            assert!(RegionIdentity::read(&pages[..length]).is_err(), "{length}");
        }
    }
}
