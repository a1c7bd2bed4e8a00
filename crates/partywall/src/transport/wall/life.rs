// SPDX-License-Identifier: MIT OR Apache-2.0
//! Whether anybody still receives: asked by a sender that hears nothing, or finds no room.
//!
//! ```text
//!   published, and the neighbour declared GONE ──▶ Finished       (sender.rs, each time)
//!   no room, and the neighbour declared GONE ────▶ Finished       full
//!   many commits, and nothing consumed ──────────▶ hung up? dead? listen_for_life
//! ```

use super::Wall;
use super::sender::WallSender;
use crate::error::Closed;
use crate::transport::Unsent;

/// After so many commits without a sign of life from an awake neighbour, ask the system.
pub(super) const UNHEARD_MAX: u32 = 256;

impl WallSender {
    /// Whether the neighbour has consumed anything lately, or at least lives.
    #[cold]
    pub(super) fn listen_for_life(&mut self) -> Result<(), Unsent> {
        let consumed = self.wall.glance().0[0];
        if consumed != self.heard_at {
            (self.heard_at, self.unheard) = (consumed, 0);
            return Ok(());
        }
        self.unheard %= UNHEARD_MAX;
        if self.wall.is_neighbour_gone() {
            self.end = Some(Wall::disconnected());
            return Err(Unsent::Closed(Wall::disconnected()));
        }
        Ok(())
    }

    /// There is no room: for now, or because nobody makes any.
    ///
    /// What is published tells of the end by itself; one who finds no room publishes nothing.
    #[cold]
    pub(crate) fn full(&mut self) -> Unsent {
        if self.wall.glance().is_gone() {
            self.end = Some(Closed::Finished);
            return Unsent::Closed(Closed::Finished);
        }
        Unsent::Full
    }
}
