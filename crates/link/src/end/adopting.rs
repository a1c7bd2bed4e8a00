// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server's end of a link comes by a connection: of the door, which has read ATTACH.
//!
//! ```text
//!   greeting ─▶ what it shows, mapped ─▶ may it go otherwise? ─▶ core ─ answered ─▶ a wire that attaches
//!                                            └ no: refused              └ refused ─▶ REFUSE, closed
//! ```

use crate::greeting::{Greeting, refuse};
use crate::link_state::{Answer, End};
use crate::protocol::frame::Attach;
use partywall_wait::deadline_after;

use super::Endpoint;
use super::wire::Wire;

impl Endpoint {
    /// A client's connection, of which ATTACH was read and may be answered with `login`. What follows it is in `input`.
    pub(crate) fn adopt(&self, greeting: Greeting, token: u64, attach: Attach, login: Vec<u8>) {
        let peer = greeting.peer();
        let Greeting { socket, input, descriptors, .. } = greeting;
        // Mapped before the link is locked; too much is no more than that.
        let found = attach.shares.then_some(descriptors).filter(|_| self.may_share(&socket));
        let found = found.and_then(|descriptors| self.shown(descriptors));
        if let Err(refusal) = self.config.judge_transport(found.is_some()) {
            // The connection that there is stays.
            refuse(&socket, attach.nonce, refusal);
            return self.group.reactor.unwatch(&socket, token);
        }
        let mut state = self.monitor.lock();
        if state.core.is_none() {
            return self.group.reactor.unwatch(&socket, token);
        }
        let candidates = state.wires.iter().filter(|wire| !wire.conn.is_active()).count();
        if candidates >= CANDIDATES_MAX {
            // The oldest said nothing for longest.
            let oldest = state.wires.iter().position(|wire| !wire.conn.is_active());
            let end = End::Broken("too many attach at once".to_owned());
            oldest.into_iter().for_each(|index| self.end(&mut state, index, end.clone()));
        }
        let (shown, doorbells) = found
            .and_then(|(shown, doorbell)| Some((shown, self.doorbells(&mut state, doorbell)?)))
            .map_or((None, None), |(shown, doorbells)| (Some(shown), Some(doorbells)));
        let Ok(core) = state.core() else {
            self.group.reactor.unwatch(&socket, token);
            return;
        };
        let deadline = deadline_after(self.config.handshake_timeout);
        let (conn, refused) = match core.answer_attach(attach, login, shown) {
            Answer::Attached(conn) => (conn, None),
            Answer::Refused(conn, end) => (conn, Some(end)),
        };
        let mut wire = Wire::new(socket, token, conn, input, peer, deadline);
        wire.doorbells = doorbells;
        state.wires.push(wire);
        let index = state.wires.len() - 1;
        match refused {
            Some(end) => self.end(&mut state, index, end),
            None => {
                self.group.reactor.reassign(token, self.me.clone());
                self.write(&mut state, index);
            }
        }
        self.set_timer(&mut state);
    }
}

/// Connections of one link that attach at a time.
const CANDIDATES_MAX: usize = 4;
