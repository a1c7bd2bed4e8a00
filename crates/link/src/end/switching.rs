// SPDX-License-Identifier: MIT OR Apache-2.0
//! Another address for a link that may be attached: the next connection is made before the present one is given up.
//!
//! ```text
//!   attached to A ── switch_to(B) ──▶ dialing B, attached to A ── attached to B ──▶ A ends, replaced
//!                                          └ fails: tries again, still attached to A
//! ```
//!
//! For the protocol it is a connection like any other: a higher generation, the same streams, at a position both agree on.

use super::dialer::Phase;
use super::{Endpoint, Locked};
use crate::error::{Stopped, SwitchError};
use crate::link_state::End;
use partywall::Address;

impl Endpoint {
    /// Connects there from now on.
    pub(crate) fn switch_to(&self, address: Address) -> Result<(), SwitchError> {
        let mut state = self.lock()?;
        if let Some(stopped) = state.stopped() {
            return Err(stopped.into());
        }
        if state.dialer.is_none() {
            return Err(SwitchError::Served);
        }
        self.give_up_others(&mut state);
        if let Some(dialer) = &mut state.dialer {
            dialer.turn_to(address);
        }
        self.dial(&mut state);
        self.set_timer(&mut state);
        drop(state);
        // Nobody may be waiting, and so nobody connecting.
        self.group.reactor.try_turn(crate::drive::Before::Looking).map_err(Stopped::from)?;
        Ok(())
    }

    /// What was on its way to where it goes no longer.
    fn give_up_others(&self, state: &mut Locked<'_>) {
        let phase = state.dialer.as_mut().map(|dialer| &mut dialer.phase);
        let phase = phase.map(|phase| std::mem::replace(phase, Phase::Reached));
        if let Some(Phase::Connecting { begun, token, .. }) = phase {
            self.group.reactor.unwatch(&begun, token);
        }
        while let Some(index) = state.wires.iter().position(|wire| !wire.conn.is_active()) {
            self.end(state, index, End::Broken("the link goes to another address".to_owned()));
        }
    }
}
