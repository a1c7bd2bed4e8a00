// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whose business a record is: the transport's, or that of the session above it.

use partywall_layout::stream::SESSION;
use partywall_layout::{Kind, RecordHeader};

/// Whether a session acts on a record of this kind, instead of the transport (SPEC 8.2, 11).
pub(super) const fn is_of_sessions(record: &RecordHeader) -> bool {
    match record.kind {
        Kind::CloseWrite => record.stream != SESSION,
        Kind::Data | Kind::Blob | Kind::Segment | Kind::SegmentRetire | Kind::Pad => false,
        _ => true,
    }
}
