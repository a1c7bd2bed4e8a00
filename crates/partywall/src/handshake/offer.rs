// SPDX-License-Identifier: MIT OR Apache-2.0
//! Judging what the peer offers: its half, and the bells that come with it (SPEC 2.2, 2.8, 3.1).
//!
//! ```text
//!   OFFER ─▶ as many descriptors as it says? ─▶ half: check, map ─▶ bells: eventfds, or bytes
//!            a rule broken: violation · a lack of means: no wall, and why
//! ```

use super::{Known, Pending};
use crate::error::HandshakeError;
use crate::transport::shm::{Doorbells, PeerRegion, PeerRegionError};
use partywall_layout::hello::{
    OFFER_DOORBELLS, Offer, ROLE_ACCEPTOR, ROLE_CONNECTOR, TRANSPORT_SHM,
};
use partywall_layout::{FallbackReason, Violation};
use partywall_sys::{Doorbell, DoorbellError};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Pending {
    /// Looks at what the peer offers; a reason if there will be no wall.
    pub(super) fn judge_offer(
        &self,
        offer: &Offer,
        descriptors: Vec<OwnedFd>,
    ) -> Result<Result<(PeerRegion, Doorbells), FallbackReason>, HandshakeError> {
        let is_shared_memory = offer.transport.get() == TRANSPORT_SHM;
        let has_doorbells = offer.flags.get() & OFFER_DOORBELLS != 0;
        let expected = match (is_shared_memory, has_doorbells) {
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
            Ok(_) if !is_shared_memory => {
                return Ok(Err(FallbackReason::from_number(offer.reason.get())
                    .unwrap_or(FallbackReason::Policy)));
            }
            Ok(offered) => offered,
        };
        if descriptors.len() < expected {
            if self.is_truncated {
                return Ok(Err(FallbackReason::Descriptors));
            }
            let found = descriptors.len() as u64;
            let what = "number of descriptors with OFFER";
            return Err(self.violation(Violation::Frame { what, found }));
        }
        let mut descriptors = descriptors.into_iter();
        let (region, records, space) = (descriptors.next(), descriptors.next(), descriptors.next());
        let Some(region) = region else { return Ok(Err(FallbackReason::Descriptors)) };
        let peer_region = match self.accept_region(known, offer, region.as_fd())? {
            Ok(peer_region) => peer_region,
            Err(reason) => return Ok(Err(reason)),
        };
        let doorbells = match (records, space) {
            (Some(records), Some(space)) if offered.doorbells_attached => Doorbells::Eventfd {
                records: self.doorbell(records)?,
                space: self.doorbell(space)?,
            },
            // One of us does not trust the other: bells go over the socket.
            _ => Doorbells::Byte,
        };
        Ok(Ok((peer_region, doorbells)))
    }

    fn accept_region(
        &self,
        known: &Known,
        offer: &Offer,
        descriptor: BorrowedFd<'_>,
    ) -> Result<Result<PeerRegion, FallbackReason>, HandshakeError> {
        let role = if self.is_acceptor { ROLE_CONNECTOR } else { ROLE_ACCEPTOR };
        let size = offer.region_size.get();
        let limit = self.config.map_max_effective();
        match PeerRegion::accept(descriptor, size, limit, &known.session_id, role) {
            Ok(region) => {
                let (found, said) =
                    (region.geometry.peer_blocks_max, known.hello.peer_blocks_max.get());
                if found >= said {
                    return Ok(Ok(region));
                }
                let field = "release entries";
                Err(self.violation(Violation::RegionHeader { field, found }))
            }
            Err(PeerRegionError::Violation(violation)) => Err(self.violation(violation)),
            Err(PeerRegionError::Map(error)) if error.is_violation() => {
                Err(self.bad_descriptor(error.to_string()))
            }
            Err(PeerRegionError::Map(_)) => Ok(Err(FallbackReason::Map)),
        }
    }

    fn doorbell(&self, descriptor: OwnedFd) -> Result<Doorbell, HandshakeError> {
        Doorbell::from_peer(descriptor).map_err(|error| match error {
            DoorbellError::Unverifiable { source } => self.system("checking a bell", source),
            other => self.bad_descriptor(other.to_string()),
        })
    }
}
