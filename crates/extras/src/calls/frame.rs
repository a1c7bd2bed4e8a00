// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of each message in a stream of calls (`spec/CALLS.md`, section 2).
//!
//! ```text
//!  0      1            4             8                        16
//!  ┌──────┬────────────┬─────────────┬────────────────────────┬─────────┐
//!  │ u8   │ 3 zeros    │ u32 word    │ u64 id                 │ payload │   little-endian
//!  │ kind │            │             │                        │         │
//!  └──────┴────────────┴─────────────┴────────────────────────┴─────────┘
//!   1 CALL, 2 ONE_WAY   µs until the deadline; 0: no deadline
//!   3 CANCEL            0                                       empty
//!   4 ANSWER            0
//!   5 ERROR             the error code
//! ```
//!
//! The header has 16 bytes, so that the payload of a large message begins at a multiple of 16.

use super::serving::CallViolation;
use std::time::Duration;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length in bytes of the header of each message.
pub(crate) const HEADER_BYTES: usize = 16;

/// The first error code that is reserved for the protocol; handlers use smaller codes.
pub const CODES_RESERVED: u32 = 0xffff_ff00;
/// Error code: the server's queue of waiting calls is full.
pub const BUSY: u32 = 0xffff_ff01;
/// Error code: the deadline of the call passed before its handler ended.
pub const DEADLINE: u32 = 0xffff_ff02;
/// Error code: the server aborted the call, because its handler panicked.
pub const ABORTED: u32 = 0xffff_ff03;

/// The code of the reset with which a side ends the stream after a violation of the call protocol.
pub const VIOLATION: u32 = 0xca11_0001;

/// The decoded header of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    /// A call with the id `id`; if `one_way` is set, the call has no answer. `left_us` is the time
    /// until the deadline of the call in µs, or 0 without a deadline.
    Call { id: u64, one_way: bool, left_us: u32 },
    /// The client has cancelled call `id`, and ignores an answer that is under way.
    Cancel { id: u64 },
    /// An answer to the call `id`; the payload of the message is the answer.
    Answer { id: u64 },
    /// An error as the result of the call `id`; the payload of the message is the error's detail.
    Error { id: u64, code: u32 },
}

/// The bytes of a message's header, as they are in the message.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    kind: u8,
    zero: [u8; 3],
    word: U32,
    id: U64,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES);

const CALL: u8 = 1;
const ONE_WAY: u8 = 2;
const CANCEL: u8 = 3;
const ANSWER: u8 = 4;
const ERROR: u8 = 5;

impl Frame {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, word, id) = match self {
            Self::Call { id, one_way: false, left_us } => (CALL, left_us, id),
            Self::Call { id, one_way: true, left_us } => (ONE_WAY, left_us, id),
            Self::Cancel { id } => (CANCEL, 0, id),
            Self::Answer { id } => (ANSWER, 0, id),
            Self::Error { id, code } => (ERROR, code, id),
        };
        zerocopy::transmute!(Header { kind, zero: [0; 3], word: U32::new(word), id: U64::new(id) })
    }

    pub(crate) fn decode(message: &[u8]) -> Result<Self, CallViolation> {
        let Ok((header, payload)) = Header::read_from_prefix(message) else {
            return Err(CallViolation::Short { len: message.len() });
        };
        let Header { kind, zero, word, id } = header;
        let (id, word) = (id.get(), word.get());
        if zero != [0; 3] || id == 0 {
            return Err(CallViolation::Header { kind, id });
        }
        match kind {
            CALL | ONE_WAY => Ok(Self::Call { id, one_way: kind == ONE_WAY, left_us: word }),
            CANCEL if word == 0 && payload.is_empty() => Ok(Self::Cancel { id }),
            ANSWER if word == 0 => Ok(Self::Answer { id }),
            ERROR => Ok(Self::Error { id, code: word }),
            _ => Err(CallViolation::Header { kind, id }),
        }
    }
}

/// Encodes the time until a deadline in µs, rounded up, at least 1. No deadline, or a time that
/// does not fit, is encoded as 0.
pub(crate) fn left_us(left: Option<Duration>) -> u32 {
    let Some(left) = left else { return 0 };
    u32::try_from(left.as_nanos().div_ceil(1000).max(1)).unwrap_or(0)
}

/// Decodes the time in µs until a deadline; 0 means no deadline.
pub(crate) const fn left(left_us: u32) -> Option<Duration> {
    if left_us == 0 { None } else { Some(Duration::from_micros(left_us as u64)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The example headers of `spec/CALLS.md`, section 2, with their bytes, which the tests expect.
    const GOLDEN: [(Frame, [u8; 16]); 5] = [
        (
            Frame::Call { id: 1, one_way: false, left_us: 250_000 },
            [1, 0, 0, 0, 0x90, 0xd0, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            Frame::Call { id: 0x0102, one_way: true, left_us: 0 },
            [2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0],
        ),
        (Frame::Cancel { id: 1 }, [3, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        (Frame::Answer { id: 1 }, [4, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]),
        (
            Frame::Error { id: 1, code: BUSY },
            [5, 0, 0, 0, 1, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0, 0, 0, 0],
        ),
    ];

    #[test]
    fn the_bytes_are_those_of_the_specification() {
        for (frame, bytes) in GOLDEN {
            assert_eq!(frame.encode(), bytes, "{frame:?}");
            assert_eq!(Frame::decode(&bytes), Ok(frame));
        }
    }

    #[test]
    fn what_is_no_frame_is_refused() {
        assert_eq!(Frame::decode(&[1; 15]), Err(CallViolation::Short { len: 15 }));
        let good = Frame::Cancel { id: 1 }.encode();
        for (at, value) in [(0, 0), (0, 6), (1, 1), (3, 1), (4, 1), (8, 0)] {
            let mut bad = good;
            bad[at] = value;
            assert!(matches!(Frame::decode(&bad), Err(CallViolation::Header { .. })), "{at}");
        }
        let long = [&good[..], &[1]].concat();
        assert!(matches!(Frame::decode(&long), Err(CallViolation::Header { .. })));
    }

    #[test]
    fn times_are_rounded_up_and_long_ones_travel_as_none() {
        assert_eq!(left_us(None), 0);
        assert_eq!(left_us(Some(Duration::ZERO)), 1);
        assert_eq!(left_us(Some(Duration::from_nanos(1001))), 2);
        assert_eq!(left_us(Some(Duration::from_secs(4000))), 4_000_000_000);
        assert_eq!(left_us(Some(Duration::from_secs(5000))), 0);
        assert_eq!(left(0), None);
    }

    proptest! {
        /// Rule: any bytes are either refused, or decode to a message header that encodes to the
        /// same bytes.
        #[test]
        fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(&frame.encode()[..], &bytes[..HEADER_BYTES]);
            }
        }
    }
}
