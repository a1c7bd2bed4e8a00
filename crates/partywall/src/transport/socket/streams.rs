// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the socket sender that sends for a session. Every record is written as a whole, so
//! that records of other streams can come in between (SPEC 8.2, 11).
//!
//! ```text
//!   message of up to 16 KiB ─▶ one DATA record
//!   longer message          ─▶ FRAGMENT_FIRST, FRAGMENT_MID …, FRAGMENT_LAST, of 32 KiB each
//!   bytes of a record that the kernel does not accept are kept, and written before anything else
//! ```

use super::sender::SocketSender;
use super::{DATA_BYTES_MAX, DATA_BYTES_SHOULD};
use crate::transport::{NotSent, Progress};
use partywall_layout::record_ring::FRAGMENT_PREFIX_BYTES;
use partywall_layout::{Kind, RecordHeader};
use std::io::IoSlice;
use zerocopy::IntoBytes;

/// Length in bytes of one fragment of a long message. A fragment and its prefix fit the longest
/// DATA record.
const PIECE_BYTES: usize = 32 << 10;
/// Most bytes not yet accepted by the kernel that the sender may keep when it writes another
/// control record. Above this number, the kernel must accept kept bytes first.
pub(super) const KEPT_BYTES_MAX: usize = 64 << 10;

const _: () = assert!(PIECE_BYTES as u64 + FRAGMENT_PREFIX_BYTES <= DATA_BYTES_MAX as u64);

impl SocketSender {
    /// Sends a whole message now, or nothing of it. Once the first record of the message was
    /// written, this sender keeps the bytes that the kernel does not accept, and writes them later.
    pub(super) fn try_send_on_stream(&mut self, payload: &[u8]) -> Result<(), NotSent> {
        let mut progress = Progress::default();
        match self.send_on_stream(payload, &mut progress) {
            Err(NotSent::Full) if progress.started => {
                while progress.sent < payload.len() {
                    let kind = self.begin_piece(payload, &progress);
                    let piece = piece(payload, &progress);
                    self.keep_record(kind, payload, &progress, piece);
                    progress.sent += piece;
                }
                self.count(payload.len());
                Ok(())
            }
            other => other,
        }
    }

    /// Sends as many fragments of a message as the socket has room for.
    pub(super) fn send_on_stream(
        &mut self,
        payload: &[u8],
        progress: &mut Progress,
    ) -> Result<(), NotSent> {
        self.check()?;
        if !progress.started {
            self.check_length(payload.len() as u64)?;
        }
        if payload.len() <= DATA_BYTES_SHOULD {
            self.write_record(Kind::Data, &[payload])?;
            self.count(payload.len());
            self.offer_boundary();
            return Ok(());
        }
        while progress.sent < payload.len() {
            let piece = piece(payload, progress);
            let bytes = &payload[progress.sent..progress.sent + piece];
            let total = (payload.len() as u64).to_le_bytes();
            match self.begin_piece(payload, progress) {
                Kind::FragmentFirst => self.write_record(Kind::FragmentFirst, &[&total, bytes])?,
                kind => self.write_record(kind, &[bytes])?,
            }
            progress.started = true;
            progress.sent += piece;
        }
        self.count(payload.len());
        self.offer_boundary();
        Ok(())
    }

    fn begin_piece(&self, payload: &[u8], progress: &Progress) -> Kind {
        match progress.sent + piece(payload, progress) == payload.len() {
            _ if progress.sent == 0 => Kind::FragmentFirst,
            true => Kind::FragmentLast,
            false => Kind::FragmentMid,
        }
    }

    fn keep_record(&mut self, kind: Kind, payload: &[u8], progress: &Progress, piece: usize) {
        let header = self.header(kind, piece);
        self.rest.extend_from_slice(header.to_wire().as_bytes());
        self.rest.extend_from_slice(&payload[progress.sent..progress.sent + piece]);
        self.position = self.position.plus(header.footprint());
    }

    /// Writes a whole record, or nothing of it. If the kernel accepts only some bytes, this sender
    /// keeps the others and writes them later.
    fn write_record(&mut self, kind: Kind, parts: &[&[u8]]) -> Result<(), NotSent> {
        self.write_rest()?;
        let header = self.header(kind, parts.iter().map(|part| part.len()).sum());
        let wire = header.to_wire();
        let mut slices = [IoSlice::new(wire.as_bytes()), IoSlice::new(&[]), IoSlice::new(&[])];
        for (slice, part) in slices[1..].iter_mut().zip(parts) {
            *slice = IoSlice::new(part);
        }
        let written = self.shared.socket.write(&slices, true);
        let mut taken = self.judge(written)?;
        self.position = self.position.plus(header.footprint());
        for bytes in std::iter::once(wire.as_bytes()).chain(parts.iter().copied()) {
            let skipped = taken.min(bytes.len());
            self.rest.extend_from_slice(&bytes[skipped..]);
            taken -= skipped;
        }
        Ok(())
    }

    #[expect(clippy::cast_possible_truncation, reason = "at most DATA_BYTES_MAX")]
    pub(super) const fn header(&self, kind: Kind, len: usize) -> RecordHeader {
        RecordHeader { position: self.position, kind, len: len as u32, stream: self.stream }
    }
}

/// Returns the length of the next fragment in bytes; the first fragment is never also the last one.
fn piece(payload: &[u8], progress: &Progress) -> usize {
    let left = payload.len() - progress.sent;
    PIECE_BYTES.min(if progress.sent == 0 { left - 1 } else { left })
}
