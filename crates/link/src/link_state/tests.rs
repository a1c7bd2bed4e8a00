// SPDX-License-Identifier: MIT OR Apache-2.0
//! Methods of [`LinkState`] for the tests of this folder: they take messages from the peer's
//! memory, deliver them, and receive bytes, with simpler results than the methods for `end/`.

use bytes::BytesMut;

use super::{Conn, Delivered, DeliveryId, End, LinkState, Received};

#[derive(Clone, Debug)]
pub(in crate::link_state) struct Delivery {
    pub(in crate::link_state) bytes: bytes::Bytes,
    pub(in crate::link_state) token: DeliveryId,
    pub(in crate::link_state) attempt: u32,
}

impl LinkState {
    /// Delivers the next message that has arrived, if there is one.
    pub(in crate::link_state) fn next(&mut self) -> Option<Delivery> {
        self.offer(|payload, token, attempt| Delivery { bytes: payload.to_bytes(), token, attempt })
    }

    /// Delivers the next message straight from the peer's memory, if it is short and in a compact
    /// record.
    pub(in crate::link_state) fn next_short(&mut self) -> Option<Delivery> {
        let Delivered { bytes, token, attempt } = self.offer_short(false)?;
        let bytes = bytes::Bytes::copy_from_slice(bytes);
        Some(Delivery { bytes, token, attempt })
    }

    /// Takes a message from the peer's memory if `conn` is the present connection. If the result is
    /// an error, the connection has ended.
    pub(in crate::link_state) fn pull(&mut self, conn: &mut Conn) -> Result<bool, End> {
        if self.attachment.active != Some(conn.id()) {
            return Ok(false);
        }
        self.pull_present().map_err(|end| self.ended(conn, end))
    }

    /// Receives the bytes in `input`. On an error, the effects of the bytes before that error are
    /// not returned, because no test needs them.
    pub(in crate::link_state) fn receive(
        &mut self,
        conn: &mut Conn,
        input: &mut BytesMut,
    ) -> Result<Received, End> {
        let mut received = Received::default();
        self.receive_into(conn, input, &mut received).map(|()| received)
    }
}
