// SPDX-License-Identifier: MIT OR Apache-2.0
//! A channel's message that comes in fragments (SPEC 5.5). A session puts its own together, for each
//! stream apart.

use super::blob::Held;
use super::receiver::ShmReceiver;
use crate::transport::assembly::Assembly;
use partywall_layout::record_ring::{FRAGMENT_PREFIX_BYTES, Kind};
use partywall_layout::{RecordHeader, Violation};

impl ShmReceiver {
    /// Adds a fragment; the message, if it was the last.
    pub(super) fn assemble(&mut self, record: &RecordHeader) -> Result<Option<Held>, Violation> {
        let bad = |what| Violation::Fragment { position: record.position.0, what };
        let mut len = record.len as usize;
        let mut from = 0;
        if record.kind == Kind::FragmentAbort {
            return self.assembly.take().map(|_| None).ok_or_else(|| bad("ends no message"));
        }
        if record.kind == Kind::FragmentFirst {
            if self.assembly.is_some() {
                return Err(bad("begins a message within another"));
            }
            if record.len < 8 {
                let (position, found) = (record.position.0, record.len.into());
                return Err(Violation::Body { position, what: "length of a first part", found });
            }
            let mut total = [0; 8];
            self.consumer.copy(record, 0, &mut total);
            let total = u64::from_le_bytes(total);
            let max = self.shm.limits.message;
            if total > max {
                return Err(Violation::MessageLength { len: total, max });
            }
            self.assembly = Some(Assembly::begin(total));
            (from, len) = (8, len - 8);
        }
        const _: () = assert!(FRAGMENT_PREFIX_BYTES == 8);
        let assembly = self.assembly.as_mut().ok_or_else(|| bad("continues no message"))?;
        let room = assembly.room(len).ok_or_else(|| bad("exceeds the announced length"))?;
        self.consumer.copy(record, from, room);
        if record.kind != Kind::FragmentLast {
            return Ok(None);
        }
        let whole = self.assembly.take().and_then(Assembly::finish);
        let bytes = whole.ok_or_else(|| bad("ends before the announced length"))?;
        self.count(bytes.len() as u64);
        Ok(Some(Held::Whole(bytes)))
    }
}

/// Whether a record may come while the parts of a message do (SPEC 5.5): a part, or what concerns
/// memory. The end may too: an honest sender that gave up has room for nothing else if the ring is full.
pub(super) const fn may_interrupt(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::FragmentFirst
            | Kind::FragmentMid
            | Kind::FragmentLast
            | Kind::FragmentAbort
            | Kind::Segment
            | Kind::SegmentRetire
            // Ends an unfinished message as an abort would: there is always room for this record.
            | Kind::CloseWrite
    )
}
