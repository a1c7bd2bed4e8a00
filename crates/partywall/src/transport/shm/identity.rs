// SPDX-License-Identifier: MIT OR Apache-2.0
//! The part of the control page in which this side states its program and the state of its
//! connection, for tools (SPEC 3.4).
//!
//! ```text
//!   opening ──▶ open ──▶ broken (last error) ──▶ closed
//!                └──────────────────────────────────▲
//! ```
//!
//! The path of messages never enters this file: each change of state is one call, at the start or
//! the end of a connection. No code of this side reads these words back, and the peer decides
//! nothing by them.

use crate::peer::Trust;
use partywall_layout::identity::{
    CHANGED, IdentityText, LAST_ERROR, PROGRAM, STATE, STATE_BROKEN, STATE_CLOSED, STATE_OPEN,
};
use partywall_ring::OwnMem;
use partywall_sys::clock::unix_time_ns;
use partywall_sys::process::own_program;
use zerocopy::IntoBytes;

/// The identity of this process and the state of its connection, in this side's own region: from
/// the state word to the end of the control page.
#[derive(Debug)]
pub(crate) struct OwnIdentity(OwnMem);

impl OwnIdentity {
    /// Makes the identity from `memory`, the part of the control page that begins at the state
    /// word. All bytes of `memory` are zero.
    pub(super) const fn new(memory: OwnMem) -> Self {
        Self(memory)
    }

    /// Writes into this side's region that the connection is open. Also writes the path of this
    /// program if the peer is trusted, because only a trusted peer may read it.
    pub(super) fn open(&mut self, peer: Trust) {
        if peer == Trust::Trusted {
            self.0.write(place(PROGRAM), IdentityText::new(own_program()).as_bytes());
        }
        self.store_state(STATE_OPEN);
    }

    /// Writes into this side's region that the connection ended by an error with the stable number
    /// `error` (SPEC 17). Only the first error is written, because later errors follow from it. An
    /// error after the close is not written: a thread that still waits for room may find the peer
    /// gone.
    pub(super) fn broke(&mut self, error: u32) {
        let is_closed = self.0.load(place(STATE)) == STATE_CLOSED;
        if !is_closed && self.0.load(place(LAST_ERROR)) == 0 {
            self.0.store(place(LAST_ERROR), error.into());
            self.store_state(STATE_BROKEN);
        }
    }

    /// Writes into this side's region that this side has closed both directions. An error that was
    /// written before stays readable.
    pub(super) fn close(&mut self) {
        self.store_state(STATE_CLOSED);
    }

    fn store_state(&mut self, state: u64) {
        self.0.store(place(CHANGED), unix_time_ns());
        self.0.store(place(STATE), state);
    }
}

/// Converts the offset of a value in the control page to its offset in the part of the page that
/// `OwnIdentity` holds.
#[expect(clippy::cast_possible_truncation, reason = "within a page")]
const fn place(offset: u64) -> usize {
    (offset - STATE) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_layout::segment::PAGE_BYTES;
    use partywall_ring::mem::pair;

    fn identity() -> OwnIdentity {
        let (page, _) = pair(usize::try_from(PAGE_BYTES).unwrap());
        OwnIdentity::new(page.split_at(usize::try_from(STATE).unwrap()).1)
    }

    fn program(identity: &OwnIdentity) -> String {
        let bytes = identity.0.slice(place(PROGRAM), size_of::<IdentityText>());
        let text: IdentityText = zerocopy::FromBytes::read_from_bytes(bytes).unwrap();
        text.printable().to_owned()
    }

    fn words(identity: &OwnIdentity) -> (u64, u64) {
        (identity.0.load(place(STATE)), identity.0.load(place(LAST_ERROR)))
    }

    #[test]
    fn program_is_written_for_a_trusted_peer_only() {
        let mut known = identity();
        known.open(Trust::Trusted);
        assert_eq!(program(&known), own_program());
        assert!(program(&known).starts_with('/'));
        let mut private = identity();
        private.open(Trust::Untrusted);
        assert_eq!(program(&private), "");
        assert_eq!(words(&private), (STATE_OPEN, 0));
    }

    #[test]
    fn first_error_stays_until_and_after_the_close() {
        let mut identity = identity();
        identity.open(Trust::Trusted);
        identity.broke(102);
        identity.broke(10);
        assert_eq!(words(&identity), (STATE_BROKEN, 102));
        identity.close();
        assert_eq!(words(&identity), (STATE_CLOSED, 102));
        assert!(identity.0.load(place(CHANGED)) > 0);
    }

    #[test]
    fn error_after_the_close_is_not_stated() {
        let mut identity = identity();
        identity.open(Trust::Trusted);
        identity.close();
        identity.broke(10);
        assert_eq!(words(&identity), (STATE_CLOSED, 0));
    }
}
