// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link files that were last used before a reboot (SPEC 13.8). A power loss may have taken any page
//! written since the last sync, so the file is examined before it is trusted, adopted or refused.
//!
//! ```text
//!   last owner in this boot ─────────────────────────────────────────▶ believed, as after a kill
//!   last owner in another boot
//!     ├ closed, and tail, consumed position and state are as closed ─▶ believed
//!     └ anything else ─▶ policy ─ Refuse ──────────────▶ an error that says what is proven
//!                               └ AdoptProven ─ cut behind the last whole record ─▶ two events
//! ```
//!
//! A page that was never written holds zeros, and a slot that begins with 0 is the end of the
//! stream. So a reader can distinguish a hole (a lost page) from the end only if the owner has
//! closed the file.
//!
//! # Invariants
//!
//! - A file that is refused is not changed.
//! - No record behind a hole is kept in an adopted file: the slot behind the last whole record
//!   holds 0 afterwards.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use partywall_layout::link::Image;
use partywall_layout::record_ring;
use partywall_reconcile::{Position, RecordDigest, StreamId};
use partywall_ring::{OwnMem, Writable};
use partywall_sys::FileMap;

use super::evidence::Evidence;
use super::file::Cut;
use crate::retained::{Boundary, Proven, proven};

/// Policy for a link file that was last owned before a reboot. It does not apply if the owner
/// closed the file and all its contents are still there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterReboot {
    /// Refuse the file and change nothing in it. The error says how many messages are proven whole,
    /// and how an operator can continue with them.
    #[default]
    Refuse,
    /// Continue with the messages that the file proves whole, from the first kept one on; give up
    /// the messages after them. The events [`LossPossible`](crate::Event::LossPossible) and
    /// [`RepeatPossible`](crate::Event::RepeatPossible) report the adoption to the application.
    AdoptProven,
}

/// Examines a file whose last owner is gone, and changes nothing. `image` has the contents of its
/// first pages.
pub(super) fn examine(file: &File, image: &Image) -> io::Result<Evidence> {
    let (geometry, state) = (&image.geometry, &image.state);
    let bytes = usize::try_from(geometry.file_bytes).map_err(io::Error::other)?;
    let memory = OwnMem::new(Box::new(Mapped(FileMap::writable(file.as_fd(), bytes)?)));
    let Cut { ring, slab, .. } = Cut::new(memory, geometry);
    let base = Boundary {
        position: Position(state.sending_base.get()),
        digest: RecordDigest(state.sending_digest.get()),
    };
    let found = match StreamId::new(state.sending_stream.get()) {
        None => Ok(Proven { tail: base, messages: 0, damage: None }),
        Some(stream) => proven(&ring, geometry.ring, &slab, stream, base),
    };
    let nothing = |damage| Proven { tail: base, messages: 0, damage: Some(damage) };
    let (Proven { tail, messages, damage: flaw }, is_judged) = match found {
        Ok(found) => (found, true),
        Err(damage) => (nothing(damage), false),
    };
    let acked = state.sending_acked.get();
    let damage = match flaw {
        Some(flaw) if !is_judged || flaw.is_without_end() => Some(flaw.to_string()),
        _ if acked > tail.position.0 => {
            Some(format!("they end before position {acked}, which the peer has acknowledged"))
        }
        _ => None,
    };
    let closing = &image.owner.closing;
    let consumed = image.consumed_to();
    let is_as_closed = closing.is_closed()
        && closing.state_sequence == state.sequence
        && (closing.tail.get(), closing.tail_digest.get()) == (tail.position.0, tail.digest.0)
        && (closing.consumed.get(), closing.consumed_digest.get()) == consumed;
    let slot = geometry.ring.offset(record_ring::Position(tail.position.0));
    Ok(Evidence {
        is_closed: closing.is_closed(),
        messages,
        from: base.position.0,
        to: tail.position.0,
        consumed: consumed.0,
        is_whole: is_as_closed && flaw.is_none() && damage.is_none(),
        cut_at: flaw.filter(|_| damage.is_none()).map(|_| geometry.ring_offset + slot),
        damage,
    })
}

/// Zeroes the slot after the last whole record of a file, which ends the stream there: no bytes
/// behind that record are ever read again.
pub(super) fn cut(file: &File, evidence: &Evidence) -> io::Result<()> {
    evidence.cut_at.map_or(Ok(()), |offset| file.write_all_at(&[0; 8], offset))
}

/// The mapped memory of a link file that is examined after a reboot, and not changed.
struct Mapped(FileMap);

impl Writable for Mapped {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}
