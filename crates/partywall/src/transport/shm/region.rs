// SPDX-License-Identifier: MIT OR Apache-2.0
//! The two regions of a connection: this side creates its own, and checks and maps the peer's.
//!
//! ```text
//!  OwnRegion   blank memfd ─▶ header ─▶ cut into words, rings and slab, each with one owner
//!              the rest of the control page goes to identity.rs
//!  PeerRegion  check descriptor ─▶ map read-only ─▶ copy header ─▶ check copy ─▶ parts to read
//! ```

use super::identity::OwnIdentity;
use super::lock;
use partywall_layout::identity::{ADDRESS, IdentityText};
use partywall_layout::segment::{
    ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, CONTROL_OFFSET, LINE_BYTES, PAGE_BYTES,
    RECEIVING_COUNTERS, RELEASED, SENDING_COUNTERS,
};
use partywall_layout::{FallbackReason, Geometry, RegionHeader, Violation};
use partywall_ring::{OwnMem, PeerMem};
use partywall_sys::clock::unix_time_ns;
use partywall_sys::fork::own_pid;
use partywall_sys::memory::{create_memory, map_memory};
use partywall_sys::{Doorbell, MapError, MemfdError};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use zerocopy::{FromBytes, IntoBytes};

/// The region of this side, cut into parts, of which each belongs to one object, such as the
/// sender.
pub(crate) struct OwnRegion {
    /// The descriptor of the region's memfd, which is sent to the peer. The descriptor stays open
    /// as long as the region, for tools that examine the process.
    pub descriptor: Arc<OwnedFd>,
    pub geometry: Geometry,
    pub consumed: OwnMem,
    pub asleep_records: OwnMem,
    pub asleep_room: OwnMem,
    pub released: OwnMem,
    pub sending_counters: OwnMem,
    pub receiving_counters: OwnMem,
    pub identity: OwnIdentity,
    pub ring: OwnMem,
    pub release_ring: OwnMem,
    pub slab: OwnMem,
}

impl OwnRegion {
    /// Cuts the memory of a region into its parts; `None` if they exceed the memory.
    fn cut(geometry: Geometry, memory: OwnMem, descriptor: Arc<OwnedFd>) -> Option<Self> {
        let (_header_page, rest) = memory.split_at(size(CONTROL_OFFSET));
        let (control, rest) = rest.split_at(size(PAGE_BYTES));
        let mut done = CONTROL_OFFSET + PAGE_BYTES;
        let mut rest = Some(rest);
        let mut cut = |offset: u64, len: u64| {
            // The parts of a `Geometry` follow each other in memory, in the order in which `cut` is
            // called.
            let (_gap, from) = rest.take()?.split_at(size(offset - done));
            let (part, after) = from.split_at(size(len));
            (done, rest) = (offset + len, Some(after));
            Some(part)
        };
        let parts = (
            cut(geometry.ring_offset, geometry.ring.bytes()),
            cut(geometry.release_offset, geometry.peer_blocks_max * 8),
            cut(geometry.slab_offset, geometry.slab_bytes),
        );
        let (ring, release_ring, slab) = (parts.0?, parts.1?, parts.2?);
        let (words, rest) = lines(control);
        let [consumed, asleep_records, asleep_room, released, sending, receiving] = words;
        Some(Self {
            descriptor,
            geometry,
            consumed,
            asleep_records,
            asleep_room,
            released,
            sending_counters: sending,
            receiving_counters: receiving,
            identity: OwnIdentity::new(rest),
            ring,
            release_ring,
            slab,
        })
    }
}

/// The facts about a connection that a side writes into the header of its region.
pub(crate) struct Purpose<'a> {
    /// The nonce of the connector's HELLO, which identifies the connection.
    pub session_id: [u8; 16],
    /// The role of this side: 0 for the connector, 1 for the acceptor.
    pub role: u32,
    /// The number of the service in this side's HELLO.
    pub service: u32,
    /// The address at which the connector reached the listener, in the form that this side has.
    pub address: &'a str,
}

/// Memory and doorbells for a region that belongs to no connection yet. Seals of the kernel
/// (`F_SEAL_…`) fix the size of the memory.
pub(crate) struct BlankRegion {
    geometry: Geometry,
    memory: OwnMem,
    descriptor: Arc<OwnedFd>,
    doorbells: (Doorbell, Doorbell),
}

impl BlankRegion {
    /// Allocates the memory of a region, lets the kernel fix its size (`F_SEAL_…`), and makes the
    /// region's two doorbells.
    pub(crate) fn create(geometry: Geometry) -> Result<Self, FallbackReason> {
        let created = create_memory("partywall-region", geometry.region_bytes);
        let (memory, descriptor) = created.map_err(|error| match error {
            MemfdError::OutOfMemory { .. } | MemfdError::FileSizeLimit { .. } => {
                FallbackReason::Memory
            }
            MemfdError::DescriptorLimit { .. } => FallbackReason::Descriptors,
            _ => FallbackReason::Memfd,
        })?;
        let doorbell = || Doorbell::new().map_err(|_| FallbackReason::Descriptors);
        Ok(Self { geometry, memory, descriptor, doorbells: (doorbell()?, doorbell()?) })
    }

    /// Makes the region of a connection from this blank region: writes the header, and the address
    /// for tools.
    pub(crate) fn into_region(
        self,
        purpose: &Purpose<'_>,
    ) -> Result<(OwnRegion, (Doorbell, Doorbell)), FallbackReason> {
        let Self { geometry, mut memory, descriptor, doorbells } = self;
        let header = RegionHeader {
            service: purpose.service.into(),
            created_ns: unix_time_ns().into(),
            ..geometry.header(purpose.session_id, own_pid(), purpose.role)
        };
        memory.write(0, header.as_bytes());
        // The region may reach a peer that this side does not admit. Each side of a connection
        // knows the listener's address, so the text of that address reveals nothing new to such a
        // peer.
        memory.write(size(ADDRESS), IdentityText::new(purpose.address).as_bytes());
        let region = OwnRegion::cut(geometry, memory, descriptor).ok_or(FallbackReason::Memory)?;
        Ok((region, doorbells))
    }
}

/// A region that a listener makes while it has nothing else to do, so that the next peer need not
/// wait for it. `SpareRegion` is empty after a handshake has taken the region.
#[derive(Default)]
pub(crate) struct SpareRegion {
    state: Mutex<Spare>,
}

#[derive(Default)]
enum Spare {
    /// No region is made in advance, because no handshake has needed a region yet, or because the
    /// region was freed at a limit of descriptors or memory.
    #[default]
    Unused,
    Taken,
    Ready(BlankRegion),
}

impl SpareRegion {
    pub(crate) fn take(&self) -> Option<BlankRegion> {
        match std::mem::replace(&mut *lock(&self.state), Spare::Taken) {
            Spare::Ready(blank) => Some(blank),
            Spare::Unused | Spare::Taken => None,
        }
    }

    /// Frees the region that was made in advance, because a waiting connection needs its
    /// descriptors or its memory more. Until a handshake needs a region again, no other region is
    /// made in advance. Returns whether there was a region to free.
    pub(crate) fn give_up(&self) -> bool {
        matches!(std::mem::take(&mut *lock(&self.state)), Spare::Ready(_))
    }

    /// Makes a region in advance, if a handshake has taken the previous region. An error is
    /// ignored: the next handshake makes a region itself, and reports why it cannot.
    pub(crate) fn replenish(&self, geometry: Geometry) {
        let mut state = lock(&self.state);
        if let Spare::Taken = *state {
            if let Ok(blank) = BlankRegion::create(geometry) {
                *state = Spare::Ready(blank);
            }
        }
    }
}

/// Splits the control page into six cache lines, each with words or counters of its own, and the
/// rest of the page.
pub(super) fn lines(control: OwnMem) -> ([OwnMem; 6], OwnMem) {
    const _: () = {
        let lines = [CONSUMED, ASLEEP_RECORDS, ASLEEP_ROOM, RELEASED];
        let mut index = 0;
        while index < lines.len() {
            assert!(lines[index] == index as u64 * LINE_BYTES);
            index += 1;
        }
        assert!(SENDING_COUNTERS == 4 * LINE_BYTES && RECEIVING_COUNTERS == 5 * LINE_BYTES);
    };
    let line = size(LINE_BYTES);
    let (first, rest) = control.split_at(line);
    let (second, rest) = rest.split_at(line);
    let (third, rest) = rest.split_at(line);
    let (fourth, rest) = rest.split_at(line);
    let (fifth, rest) = rest.split_at(line);
    let (sixth, rest) = rest.split_at(line);
    ([first, second, third, fourth, fifth, sixth], rest)
}

/// The peer's region, checked and mapped read-only: this side never writes to it.
pub(crate) struct PeerRegion {
    pub geometry: Geometry,
    pub control: PeerMem,
    pub ring: PeerMem,
    pub release_ring: PeerMem,
    pub slab: PeerMem,
}

/// The reason why this side refuses the peer's region.
#[derive(Debug)]
pub(crate) enum PeerRegionError {
    /// The descriptor that the peer sent is unacceptable, or the kernel could not map its memory.
    Map(MapError),
    /// The header of the peer's region breaks a rule of the protocol.
    Violation(Violation),
}

impl PeerRegion {
    /// Maps the region behind `descriptor` and checks its header.
    pub(crate) fn accept(
        descriptor: BorrowedFd<'_>,
        announced: u64,
        limit: u64,
        session_id: &[u8; 16],
        role: u32,
    ) -> Result<Self, PeerRegionError> {
        let mapped = map_memory(descriptor, announced, limit);
        let memory = mapped.map_err(PeerRegionError::Map)?;
        // The header is copied once and checked, and only the copy is used: the peer could change
        // the original.
        let mut copy = [0; size_of::<RegionHeader>()];
        memory.copy(0, &mut copy);
        let wrong = |field| PeerRegionError::Violation(Violation::RegionHeader { field, found: 0 });
        let header = RegionHeader::read_from_bytes(&copy).map_err(|_| wrong("length"))?;
        let geometry = Geometry::check(&header, announced, session_id, role)
            .map_err(PeerRegionError::Violation)?;
        let part = |offset, len, field| memory.part(offset, len).ok_or_else(|| wrong(field));
        Ok(Self {
            geometry,
            control: part(CONTROL_OFFSET, PAGE_BYTES, "control page")?,
            ring: part(geometry.ring_offset, geometry.ring.bytes(), "ring size")?,
            release_ring: part(
                geometry.release_offset,
                geometry.peer_blocks_max * 8,
                "release entries",
            )?,
            slab: part(geometry.slab_offset, geometry.slab_bytes, "slab size")?,
        })
    }
}

/// Converts a number of bytes to `usize`. The caller has checked that this number lies within
/// mapped memory.
#[expect(clippy::cast_possible_truncation, reason = "64-bit machines; a bad size is refused above")]
const fn size(bytes: u64) -> usize {
    bytes as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_layout::hello::{ROLE_ACCEPTOR, ROLE_CONNECTOR};
    use std::os::fd::AsFd;

    #[test]
    fn spare_region_is_made_once_the_former_was_taken() {
        let geometry = Geometry::new(4096, 8, 0).unwrap();
        let spare = SpareRegion::default();
        spare.replenish(geometry);
        assert!(spare.take().is_none(), "no handshake has needed a region yet");
        assert!(spare.take().is_none());
        spare.replenish(geometry);
        spare.replenish(geometry);
        assert!(spare.take().is_some() && spare.take().is_none());
        spare.replenish(geometry);
        assert!(spare.give_up() && !spare.give_up());
        spare.replenish(geometry);
        assert!(spare.take().is_none(), "none is made until a handshake needs one");
        spare.replenish(geometry);
        assert!(spare.take().is_some());
    }

    #[test]
    fn blank_region_becomes_that_of_the_connection_that_takes_it() {
        let geometry = Geometry::new(4096, 8, 0).unwrap();
        let blank = BlankRegion::create(geometry).unwrap();
        let (session_id, role) = ([7; 16], ROLE_ACCEPTOR);
        let purpose = Purpose { session_id, role, service: 1, address: "unix:/a" };
        let (own, _doorbells) = blank.into_region(&purpose).unwrap();
        let accepted = |session_id, role| {
            let (descriptor, size) = (own.descriptor.as_fd(), geometry.region_bytes);
            PeerRegion::accept(descriptor, size, size, &session_id, role)
        };
        assert_eq!(accepted([7; 16], ROLE_ACCEPTOR).unwrap().geometry, geometry);
        assert!(accepted([8; 16], ROLE_ACCEPTOR).is_err());
        assert!(accepted([7; 16], ROLE_CONNECTOR).is_err());
    }
}
