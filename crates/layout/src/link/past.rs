// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two streams of a link's previous epoch, as a side's file and its frames hold them (SPEC
//! 12.4, 13.4, 15.2).
//!
//! Each field after its offset in bytes:
//! ```text
//!  0  flags   8  epoch   16  sending stream   24  base   32  acked   40  tail
//!  48  receiving stream   56  consumed
//! ```
//!
//! This file does not decide which messages of the previous epoch each side reports as undelivered.

use crate::record_ring::SLOT_BYTES;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The two streams of the epoch before the current one: the sent and the received stream.
///
/// Each field after its offset in bytes:
/// ```text
///  0  flags   8  epoch   16  sending stream   24  base   32  acked   40  tail
///  48  receiving stream   56  consumed
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Previous {
    /// Flags of this summary of the previous epoch: 0 if there is no previous epoch; in that case
    /// all other fields are 0 as well. Otherwise [`PREVIOUS_THERE`], possibly with
    /// [`PREVIOUS_SETTLED`].
    pub flags: U64,
    /// The number of the previous epoch, lower than that of the current epoch.
    pub epoch: U64,
    /// Id of the stream that this side sent in the previous epoch; 0 if there was none.
    pub sending_stream: U64,
    /// The position of the first record that this side still keeps. It always equals `acked`: the
    /// receiver of a stream that has ended never asks for records below `acked`.
    pub base: U64,
    /// The position up to which the peer has consumed the sent stream, as far as this side knows.
    pub acked: U64,
    /// The position after the last record of the sent stream.
    pub tail: U64,
    /// Id of the stream that this side consumed in the previous epoch; 0 if there was none.
    pub receiving_stream: U64,
    /// The position up to which this side consumed the received stream.
    pub consumed: U64,
}

/// Flag of [`Previous::flags`]: there is a previous epoch.
pub const PREVIOUS_THERE: u64 = 1;
/// Flag of [`Previous::flags`]: this side has stored its reports of the messages that the end of
/// the previous epoch left undelivered.
pub const PREVIOUS_SETTLED: u64 = 2;

const _: () = {
    assert!(size_of::<Previous>() == 64);
    assert!(core::mem::offset_of!(Previous, epoch) == 8);
    assert!(core::mem::offset_of!(Previous, sending_stream) == 16);
    assert!(core::mem::offset_of!(Previous, base) == 24);
    assert!(core::mem::offset_of!(Previous, acked) == 32);
    assert!(core::mem::offset_of!(Previous, tail) == 40);
    assert!(core::mem::offset_of!(Previous, receiving_stream) == 48);
    assert!(core::mem::offset_of!(Previous, consumed) == 56);
};

impl Previous {
    /// Whether there is a previous epoch, which the fields of this summary describe; otherwise all
    /// fields are 0.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.flags.get() & PREVIOUS_THERE != 0
    }

    /// Whether this side has stored its reports of the messages that the previous epoch left
    /// undelivered.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.flags.get() & PREVIOUS_SETTLED != 0
    }

    /// Checks that this summary of a previous epoch is possible at a side that is now in `epoch`.
    ///
    /// # Errors
    /// A text that names the broken rule, and the value that breaks it.
    pub fn check(&self, epoch: u64) -> Result<(), (&'static str, u64)> {
        let flags = self.flags.get();
        if flags == 0 {
            let is_empty = self.as_bytes().iter().all(|byte| *byte == 0);
            return ensure(is_empty, "a previous epoch without its flag", self.epoch.get());
        }
        let is_known = flags & !PREVIOUS_SETTLED == PREVIOUS_THERE;
        ensure(is_known, "unknown flags of the previous epoch", flags)?;
        let own = self.epoch.get();
        ensure(own < epoch, "the previous epoch is not before this one", own)?;
        let positions = [
            ("an acknowledgement of the previous epoch that is not a position", self.acked),
            ("an end of the previous epoch that is not a position", self.tail),
            ("a consumed position of the previous epoch that is not a position", self.consumed),
        ];
        for (what, position) in positions {
            ensure(is_position(position), what, position.get())?;
        }
        let (acked, tail) = (self.acked.get(), self.tail.get());
        ensure(
            self.base.get() == acked,
            "a base of the previous epoch that is not its acknowledged position",
            self.base.get(),
        )?;
        ensure(acked <= tail, "the positions of the previous stream are not in order", tail)?;
        let is_sending = self.sending_stream.get() != 0;
        ensure(is_sending || tail == 0, "a previous end without a stream", tail)?;
        let (stream, consumed) = (self.receiving_stream.get(), self.consumed.get());
        ensure(
            stream != 0 || consumed == 0,
            "a consumed position without a previous stream",
            consumed,
        )
    }
}

/// Whether a record can begin or end at `position`: only multiples of 64 bytes, the size of a slot,
/// are possible.
pub(super) fn is_position(position: U64) -> bool {
    position.get() % SLOT_BYTES == 0
}

pub(super) fn ensure(
    holds: bool,
    what: &'static str,
    found: u64,
) -> Result<(), (&'static str, u64)> {
    if holds { Ok(()) } else { Err((what, found)) }
}
