// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judging what the peer offers: its half, and the bells that come with it (SPEC 2.2, 2.8, 3.1).
//!
//! ```text
//!   OFFER ─▶ as many descriptors as it says? ─▶ half: check, map ─▶ bells: eventfds, or bytes
//!            a rule broken: violation · a lack of means: no wall, and why
//! ```

use super::{Known, Pending};
use crate::error::HandshakeError;
use crate::half::{PeerHalf, PeerHalfError};
use crate::transport::wall::Bells;
use partywall_layout::hello::{OFFER_BELLS, Offer, ROLE_ACCEPTOR, ROLE_CONNECTOR, TRANSPORT_WALL};
use partywall_layout::{NoWall, Violation};
use partywall_sys::{Bell, BellError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Pending {
    /// Looks at what the peer offers; a reason if there will be no wall.
    pub(super) fn judge_offer(
        &self,
        offer: &Offer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Result<(PeerHalf, Bells), NoWall>, HandshakeError> {
        let is_wall = offer.transport.get() == TRANSPORT_WALL;
        let has_bells = offer.flags.get() & OFFER_BELLS != 0;
        let expected = match (is_wall, has_bells) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 3,
        };
        if descriptors.len() > expected {
            let found = descriptors.len() as u64;
            let what = "number of descriptors with OFFER";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let Some(known) = &self.known else {
            return Err(self.violation(Violation::Frame { what: "order of frames", found: 0 }));
        };
        let offered = match &known.offered {
            Err(reason) => return Ok(Err(*reason)),
            Ok(_) if !is_wall => {
                return Ok(Err(NoWall::from_number(offer.reason.get()).unwrap_or(NoWall::Policy)));
            }
            Ok(offered) => offered,
        };
        if descriptors.len() < expected {
            if self.is_truncated {
                return Ok(Err(NoWall::Descriptors));
            }
            let found = descriptors.len() as u64;
            let what = "number of descriptors with OFFER";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let mut descriptors = descriptors.into_iter();
        let (half, records, room) = (descriptors.next(), descriptors.next(), descriptors.next());
        let Some(half) = half else { return Ok(Err(NoWall::Descriptors)) };
        let neighbour = match self.accept_half(known, offer, half.as_fd())? {
            Ok(neighbour) => neighbour,
            Err(reason) => return Ok(Err(reason)),
        };
        let bells = match (records, room) {
            (Some(records), Some(room)) if offered.bells_attached => {
                Bells::Eventfd { records: self.bell(records)?, room: self.bell(room)? }
            }
            // One of us does not trust the other: bells go over the socket.
            _ => Bells::Byte,
        };
        Ok(Ok((neighbour, bells)))
    }

    fn accept_half(
        &self,
        known: &Known,
        offer: &Offer,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Result<PeerHalf, NoWall>, HandshakeError> {
        let role = if self.is_acceptor { ROLE_CONNECTOR } else { ROLE_ACCEPTOR };
        let size = offer.half_size.get();
        let limit = self.config.map_max_effective();
        match PeerHalf::accept(descriptor, size, limit, &known.session_id, role) {
            Ok(half) => {
                let (found, said) =
                    (half.geometry.release_entries, known.hello.release_entries.get());
                if found >= said {
                    return Ok(Ok(half));
                }
                let field = "release entries";
                Err(self.violation(Violation::HalfHeader { field, found }))
            }
            Err(PeerHalfError::Violation(violation)) => Err(self.violation(violation)),
            Err(PeerHalfError::Map(error)) if error.is_violation() => {
                Err(self.bad_descriptor(error.to_string()))
            }
            Err(PeerHalfError::Map(_)) => Ok(Err(NoWall::Map)),
        }
    }

    fn bell(&self, descriptor: OwnedFd) -> Result<Bell, HandshakeError> {
        Bell::from_peer(descriptor).map_err(|error| match error {
            BellError::Unverifiable { source } => self.system("checking a bell", source),
            other => self.bad_descriptor(other.to_string()),
        })
    }
}
