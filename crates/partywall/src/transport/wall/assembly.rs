// SPDX-License-Identifier: MIT OR Apache-2.0
//! Putting a message together that comes in fragments (SPEC 5.5), in private memory that grows as bytes
//! arrive: what is announced is not believed at once.

use super::receiver::WallReceiver;
use crate::message::Message;
use partywall_layout::record::{FRAGMENT_PREFIX_BYTES, Kind};
use partywall_layout::{RecordHeader, Violation};

/// A message that comes in fragments.
#[derive(Debug)]
pub(super) struct Assembly {
    total: u64,
    bytes: Vec<u8>,
}

/// The first allocation for a message in fragments: what was announced is not believed at once.
const ASSEMBLY_BYTES_FIRST: u64 = 1 << 20;

impl WallReceiver {
    /// Adds a fragment; the message, if it was the last.
    pub(super) fn assemble(&mut self, record: &RecordHeader) -> Result<Option<Message>, Violation> {
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
            let max = self.wall.limits.message;
            if total > max {
                return Err(Violation::MessageLength { len: total, max });
            }
            let first = total.min(ASSEMBLY_BYTES_FIRST) as usize;
            self.assembly = Some(Assembly { total, bytes: Vec::with_capacity(first) });
            (from, len) = (8, len - 8);
        }
        const _: () = assert!(FRAGMENT_PREFIX_BYTES == 8);
        let assembly = self.assembly.as_mut().ok_or_else(|| bad("continues no message"))?;
        let had = assembly.bytes.len();
        if (had + len) as u64 > assembly.total {
            return Err(bad("exceeds the announced length"));
        }
        assembly.bytes.resize(had + len, 0);
        self.consumer.copy(record, from, &mut assembly.bytes[had..]);
        let is_whole = assembly.bytes.len() as u64 == assembly.total;
        if record.kind != Kind::FragmentLast {
            return Ok(None);
        }
        if !is_whole {
            return Err(bad("ends before the announced length"));
        }
        let bytes = self.assembly.take().map(|whole| whole.bytes).unwrap_or_default();
        self.count(bytes.len() as u64);
        Ok(Some(Message::from_vec(bytes)))
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
