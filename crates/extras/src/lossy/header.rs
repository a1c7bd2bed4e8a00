// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header of each record, which contains the number of records lost before it
//! (`spec/RECORDS.md`).
//!
//! ```text
//!  0         4         8                   16
//!  ┌─────────┬─────────┬───────────────────┬─────────┐
//!  │ u32     │ u32     │ u64 lost          │ payload │      little-endian
//!  │ kind    │ zero    │                   │         │      kind: 1 record, 2 report (no payload)
//!  └─────────┴─────────┴───────────────────┴─────────┘
//! ```

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header with which each message of a lossy sender begins, before the payload.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Header {
    kind: U32,
    zero: U32,
    lost: U64,
}

/// The meaning of a message that the lossy sender sent: a log record, or a report of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// The message is a log record. The value is the number of records lost before it.
    Record(u64),
    /// The message is a report without a log record. The value is the number of lost records.
    Report(u64),
}

/// Length in bytes of the header of each message.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();
const RECORD: u32 = 1;
const REPORT: u32 = 2;

const _: () = assert!(HEADER_BYTES == 16);

impl Header {
    pub(super) const fn record(lost: u64) -> Self {
        Self { kind: U32::new(RECORD), zero: U32::ZERO, lost: U64::new(lost) }
    }

    pub(super) const fn report(lost: u64) -> Self {
        Self { kind: U32::new(REPORT), zero: U32::ZERO, lost: U64::new(lost) }
    }
}

/// Decodes the header of a message. Returns `None` if the message is neither a log record nor a
/// report.
pub(super) fn meaning(bytes: &[u8]) -> Option<Meaning> {
    let (header, payload) = Header::read_from_prefix(bytes).ok()?;
    match (header.kind.get(), header.zero.get(), payload.is_empty()) {
        (RECORD, 0, _) => Some(Meaning::Record(header.lost.get())),
        (REPORT, 0, true) => Some(Meaning::Report(header.lost.get())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_bytes_match_specification() {
        let record = [1, 0, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0];
        assert_eq!(Header::record(0x103).as_bytes(), record);
        let report = [2, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(Header::report(7).as_bytes(), report);
        assert_eq!(meaning(&record), Some(Meaning::Record(0x103)));
        assert_eq!(meaning(&report), Some(Meaning::Report(7)));
    }

    #[test]
    fn other_message_is_no_record() {
        assert_eq!(meaning(&[]), None);
        assert_eq!(meaning(&[1; 15]), None);
        assert_eq!(meaning(&[3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(meaning(&[1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        assert_eq!(meaning(&[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]), None);
    }
}
