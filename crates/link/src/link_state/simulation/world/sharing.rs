// SPDX-License-Identifier: MIT OR Apache-2.0
//! The steps of a wire over which the two sides map each other's files.

use super::{CLIENT, SERVER, World};
use crate::link_state::{Answer, Conn};
use crate::protocol::codec;
use crate::protocol::frame::Frame;

impl World {
    /// The server reads the first frame, if it is complete. Sometimes a side cannot map the peer's
    /// file.
    pub(super) fn accept(&mut self, wire: usize) {
        let (server_maps, client_maps) = (self.below(8) > 0, self.below(8) > 0);
        let shares = self.wires[wire].shares;
        let [client, server] = &mut self.sides;
        let (this, Some(core)) = (&mut self.wires[wire], &mut server.core) else { return };
        let input = &mut this.input[SERVER];
        let len = codec::whole_bytes(input).unwrap();
        if input.len() < len {
            return;
        }
        let frame = codec::read(&input.split_to(len)).unwrap();
        let Frame::Attach { attach, .. } = frame else { panic!("{frame:?}") };
        assert_eq!(attach.shares, shares);
        let mapping = (shares && server_maps).then(|| client.kept.mapping());
        let (Answer::Attached(conn) | Answer::Refused(conn, _)) =
            core.answer_attach(attach, Vec::new(), mapping);
        if let (true, true, Some(asked)) =
            (conn.descriptor().is_some(), client_maps, &mut this.conns[CLIENT])
        {
            asked.set_peer_mapping(server.kept.mapping());
        }
        this.conns[SERVER] = Some(conn);
        this.is_accepted = true;
    }

    /// Pulls one message from the peer's file, if the present connection is over shared memory.
    pub(super) fn pull(&mut self, side: usize) {
        let is_present = |conn: &Option<Conn>| conn.as_ref().is_some_and(Conn::is_active);
        let Some(wire) = self.wires.iter().position(|wire| is_present(&wire.conns[side])) else {
            return;
        };
        let (Some(core), Some(conn)) =
            (&mut self.sides[side].core, &mut self.wires[wire].conns[side])
        else {
            return;
        };
        match core.pull(conn) {
            Ok(found) => {
                assert!(!found || conn.is_shared());
                self.pulled += u64::from(found);
            }
            Err(end) => self.over(wire, side, end),
        }
    }

    /// Polls how far the peer consumed.
    pub(super) fn hear(&mut self, side: usize) {
        let Some(core) = &mut self.sides[side].core else { return };
        core.poll_acked();
    }
}
