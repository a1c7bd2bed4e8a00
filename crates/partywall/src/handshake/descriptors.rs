// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assigns the file descriptors that arrive during a handshake to the frames that list them (SPEC
//! 2.2).
//!
//! ```text
//!   HELLO: pidfd   OFFER: region, records, room        kinds, as the frames list them
//!     │              │       │        │
//!     1st            2nd     3rd      4th               in the order of arrival
//! ```
//!
//! Several frames may come in one message, whose descriptors all arrive with its first byte. A
//! descriptor of an unknown kind is closed.

use partywall_layout::Violation;
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, DESCRIPTOR_RECORDS, DESCRIPTOR_REGION, DESCRIPTOR_ROOM, Descriptors,
};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;

/// Received descriptors that no frame has listed yet, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Arrived {
    unclaimed: VecDeque<OwnedFd>,
    /// Number of descriptors that the peer has sent so far in this handshake.
    count: usize,
    /// Whether the kernel dropped descriptors, because this process could hold no more.
    is_truncated: bool,
}

/// The descriptors of one frame, by kind.
#[derive(Debug, Default)]
pub(super) struct Claimed {
    pub pidfd: Option<OwnedFd>,
    pub region: Option<OwnedFd>,
    pub records: Option<OwnedFd>,
    pub room: Option<OwnedFd>,
    /// Whether the kernel dropped some of the descriptors that the frame lists, because this
    /// process could hold no more.
    pub is_truncated: bool,
}

impl Arrived {
    /// Adds the descriptors that arrived with received bytes. Fails if the peer has sent more than
    /// `HANDSHAKE_MAX`.
    pub(super) fn add(&mut self, fds: Vec<OwnedFd>, is_truncated: bool) -> Result<(), Violation> {
        self.count += fds.len();
        self.is_truncated |= is_truncated;
        self.unclaimed.extend(fds);
        if self.count <= HANDSHAKE_MAX {
            return Ok(());
        }
        // A hostile peer could attach descriptors to each byte of a frame, so their number is
        // bounded.
        Err(number_is_wrong(self.count))
    }

    /// Takes the descriptors that a frame lists, the oldest first, and returns them by kind.
    pub(super) fn claim(&mut self, list: &Descriptors) -> Result<Claimed, Violation> {
        let mut claimed = Claimed::default();
        for kind in list.kinds() {
            let Some(descriptor) = self.unclaimed.pop_front() else {
                claimed.is_truncated = true;
                break;
            };
            match *kind {
                DESCRIPTOR_PIDFD => claimed.pidfd = Some(descriptor),
                DESCRIPTOR_REGION => claimed.region = Some(descriptor),
                DESCRIPTOR_RECORDS => claimed.records = Some(descriptor),
                DESCRIPTOR_ROOM => claimed.room = Some(descriptor),
                _ => {}
            }
        }
        if claimed.is_truncated && !self.is_truncated {
            return Err(number_is_wrong(self.count));
        }
        Ok(claimed)
    }

    pub(super) fn check_none_left(&self) -> Result<(), Violation> {
        if self.unclaimed.is_empty() { Ok(()) } else { Err(number_is_wrong(self.count)) }
    }
}

const fn number_is_wrong(found: usize) -> Violation {
    Violation::Frame { what: "number of descriptors", found: found as u64 }
}

/// Most descriptors that one side may send in a whole handshake. The four known kinds need at most
/// four; later versions may add kinds, whose descriptors are closed.
const HANDSHAKE_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_layout::hello::REGION_AND_DOORBELLS;
    use partywall_sys::Socket;

    fn descriptors(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| Socket::pair().unwrap().0.into_fd()).collect()
    }

    #[test]
    fn descriptors_of_two_frames_in_one_message_are_separated() {
        let mut arrived = Arrived::default();
        arrived.add(descriptors(4), false).unwrap();
        let hello = arrived.claim(&Descriptors::of(&[DESCRIPTOR_PIDFD])).unwrap();
        assert!(hello.pidfd.is_some() && hello.region.is_none());
        assert!(arrived.check_none_left().is_err());
        let offer = arrived.claim(&Descriptors::of(REGION_AND_DOORBELLS)).unwrap();
        assert!(offer.region.is_some() && offer.records.is_some() && offer.room.is_some());
        arrived.check_none_left().unwrap();
    }

    #[test]
    fn unknown_kind_is_closed_and_keeps_the_order() {
        let mut arrived = Arrived::default();
        arrived.add(descriptors(2), false).unwrap();
        let claimed = arrived.claim(&Descriptors::of(&[200, DESCRIPTOR_REGION])).unwrap();
        assert!(claimed.region.is_some() && claimed.pidfd.is_none());
        arrived.check_none_left().unwrap();
    }

    #[test]
    fn missing_descriptor_is_a_violation_unless_the_kernel_dropped_some() {
        let list = Descriptors::of(REGION_AND_DOORBELLS);
        for is_truncated in [false, true] {
            let mut arrived = Arrived::default();
            arrived.add(descriptors(1), is_truncated).unwrap();
            assert_eq!(arrived.claim(&list).is_ok(), is_truncated);
        }
    }
}
