// SPDX-License-Identifier: MIT OR Apache-2.0
//! How a BLOB becomes the current message (SPEC 5.2): a view of the neighbour's memory, or a copy if it is
//! isolated. In a session it may bring credit.
//!
//! ```text
//!   BLOB ─▶ hold ─▶ Held::View ──┐
//!   last FRAGMENT ─▶ Held::Whole ┴─▶ taken: Message
//! ```

use super::receiver::{BODY_MAX, ShmReceiver};
use super::segments::View;
use crate::error::Fault;
use crate::message::Message;
use partywall_layout::RecordHeader;
use partywall_layout::record_ring::{BlobBody, BlobCredit};
use partywall_layout::segment::receiving;
use zerocopy::FromBytes;

/// A message that does not lie inline, found and not taken yet.
#[derive(Debug)]
pub(super) enum Held {
    View(View),
    /// In private memory.
    Whole(Vec<u8>),
}

impl Held {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::View(view) => view.as_slice(),
            Self::Whole(bytes) => bytes,
        }
    }

    #[inline]
    pub(super) fn into_message(self) -> Message {
        match self {
            Self::View(view) => Message::from_view(view),
            Self::Whole(bytes) => Message::from_vec(bytes),
        }
    }
}

impl ShmReceiver {
    /// Makes a message of memory that a record refers to the current one.
    #[inline]
    pub(super) fn hold(&mut self, record: &RecordHeader) -> Result<(), Fault> {
        // A look that was forgotten, not dropped: what it showed has turned into this record.
        self.current = None;
        let mut body = [0; BODY_MAX];
        let mut body = self.small_body(record, &mut body)?;
        self.stream = record.stream;
        self.credit = None;
        if self.is_multiplexed {
            (body, self.credit) = split(body);
        }
        let held = self.segments.hold(&mut self.held, &self.shm, record, body);
        let len = held.map_err(|violation| self.shm.violated(violation))?;
        self.counters.add(receiving::BLOBS, 1);
        self.count(len);
        self.advance(record);
        Ok(())
    }
}

/// The body proper, and the credit behind it if there is some.
#[inline]
fn split(body: &[u8]) -> (&[u8], Option<u64>) {
    match body.split_at_checked(size_of::<BlobBody>()) {
        Some((blob, credit)) if credit.len() == size_of::<BlobCredit>() => {
            let credit = BlobCredit::read_from_bytes(credit);
            (blob, credit.ok().map(BlobCredit::get))
        }
        // Of a wrong length otherwise: whoever reads it says so.
        _ => (body, None),
    }
}
