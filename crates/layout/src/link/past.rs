// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a side left of the last epoch it left, in its file and on the wire (SPEC 12.4, 13.4, 15.2).
//!
//! ```text
//!  0  flags   8  epoch   16  sending stream   24  base   32  acked   40  tail   48  receiving stream   56  consumed
//! ```
//!
//! What becomes of it is not decided here.

use crate::record_ring::SLOT_BYTES;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The streams of the epoch before this one.
///
/// ```text
///  0  flags   8  epoch   16  sending stream   24  base   32  acked   40  tail   48  receiving stream   56  consumed
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Previous {
    /// 0: there is none, and all else is 0. Else [`PREVIOUS_THERE`], perhaps with [`PREVIOUS_SETTLED`].
    pub flags: U64,
    /// Its number.
    pub epoch: U64,
    /// What this side sent in it.
    pub sending_stream: U64,
    /// Of a stream that has ended nothing below `acked` is asked for: the same as that.
    pub base: U64,
    /// Up to here the neighbour had consumed it, as far as is known.
    pub acked: U64,
    /// Its end.
    pub tail: U64,
    /// What this side consumed in it.
    pub receiving_stream: U64,
    /// Up to where.
    pub consumed: U64,
}

/// Flag of a [`Previous`]: there is one.
pub const PREVIOUS_THERE: u64 = 1;
/// Flag of a [`Previous`]: its reports were stored.
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
    /// Whether there is a previous epoch.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.flags.get() & PREVIOUS_THERE != 0
    }

    /// Whether its reports were stored.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.flags.get() & PREVIOUS_SETTLED != 0
    }

    /// Whether this can be the past of a side that is now in `epoch`.
    ///
    /// # Errors
    /// What is wrong, and what was found.
    pub fn check(&self, epoch: u64) -> Result<(), (&'static str, u64)> {
        let flags = self.flags.get();
        if flags == 0 {
            let is_empty = self.as_bytes().iter().all(|byte| *byte == 0);
            return ensure(is_empty, "a previous epoch that is none", self.epoch.get());
        }
        let is_known = flags & !PREVIOUS_SETTLED == PREVIOUS_THERE;
        ensure(is_known, "a previous epoch of no kind", flags)?;
        let own = self.epoch.get();
        ensure(own < epoch, "the previous epoch is not before this one", own)?;
        let positions = [
            ("an acknowledgement of the previous epoch that is no position", self.acked),
            ("an end of the previous epoch that is no position", self.tail),
            ("a place in the previous epoch that is no position", self.consumed),
        ];
        for (what, position) in positions {
            ensure(is_position(position), what, position.get())?;
        }
        let (acked, tail) = (self.acked.get(), self.tail.get());
        ensure(self.base.get() == acked, "a base of the previous epoch", self.base.get())?;
        ensure(acked <= tail, "the previous stream's places are not in order", tail)?;
        let is_sending = self.sending_stream.get() != 0;
        ensure(is_sending || tail == 0, "a previous end without a stream", tail)?;
        let (stream, consumed) = (self.receiving_stream.get(), self.consumed.get());
        ensure(stream != 0 || consumed == 0, "consumed of no previous stream", consumed)
    }
}

/// Whether a record can begin or end there.
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
