// SPDX-License-Identifier: MIT OR Apache-2.0
//! The layout of a region (SPEC 3).
//!
//! ```text
//!  0            header page    RegionHeader; written once, before the region is sealed
//!     +128        address of the listener, for tools (identity.rs)
//!  4096         control page   the owner's words, each group on its own 128 bytes:
//!     +0          consumed         position up to which the owner has consumed its peer's ring
//!     +128        asleep_records   0, or the epoch in which the owner sleeps until records arrive
//!     +256        asleep_room      0, or the epoch in which the owner sleeps until there is room
//!     +384        released         entries that the owner has written to its release ring
//!     +512        counters of the sender (statistics, never acted on)
//!     +640        counters of the receiver
//!     +768        state and last error; +1024 program: for tools (identity.rs)
//!  ring_offset     record ring      records of the owner
//!  release_offset  release ring     blocks of the peer's slab that the owner has released
//!  slab_offset     slab             segment 0: payloads too large for a record
//! ```
//!
//! The owner is the only writer of every byte; the peer maps the region read-only. This file
//! neither creates nor maps a region.

use crate::check::Violation;
use crate::record_ring::{RING_BYTES_MAX, RING_BYTES_MIN, RingSize};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of a region, which identify the memory format.
pub const REGION_MAGIC: [u8; 8] = *b"PWHALF\x00\x01";

/// Value of [`RegionHeader::kind`]: the region is the memory of one side of a connection, which one
/// peer reads.
pub const REGION_CONNECTION: u32 = 1;

/// The version of the memory format that this crate describes.
pub const FORMAT_VERSION: u32 = 1;

/// Size of the header page, and of the control page, in bytes.
pub const PAGE_BYTES: u64 = 4096;

/// Distance in bytes between words that different processes write or read: two cache lines, because
/// processors fetch lines in pairs.
pub const LINE_BYTES: u64 = 128;

/// Sizes of regions and segments are multiples of this many bytes.
pub const GRAIN_BYTES: u64 = 64 * 1024;

/// Offset of the control page in the region, in bytes.
pub const CONTROL_OFFSET: u64 = PAGE_BYTES;

/// Offset in the control page of the word `consumed`: the position up to which the owner of the
/// region has consumed its peer's ring.
pub const CONSUMED: u64 = 0;
/// Offset in the control page of the word `asleep_records`, which says whether the owner of the
/// region sleeps until records arrive.
pub const ASLEEP_RECORDS: u64 = LINE_BYTES;
/// Offset in the control page of the word `asleep_room`, which says whether the owner of the region
/// sleeps until there is room.
pub const ASLEEP_ROOM: u64 = 2 * LINE_BYTES;
/// Offset in the control page of the word `released`: the number of entries that the owner has
/// written to its release ring.
pub const RELEASED: u64 = 3 * LINE_BYTES;
/// Offset in the control page of the counters of the owner as a sender; see [`sending`].
pub const SENDING_COUNTERS: u64 = 4 * LINE_BYTES;
/// Offset in the control page of the counters of the owner as a receiver; see [`receiving`].
pub const RECEIVING_COUNTERS: u64 = 5 * LINE_BYTES;

/// Value of `asleep_records` of an owner that will never read records again (SPEC 6.5).
pub const GONE: u64 = u64::MAX;

/// Flag of the words `asleep_records` and `asleep_room`: the owner of the region polls for records
/// and room before long, so the peer need not notify it of ordinary stores (SPEC 6.4).
pub const QUIET: u64 = 1 << 63;

/// Counters of the sender: each constant is the index of a word, counted from [`SENDING_COUNTERS`].
pub mod sending {
    /// Index of the counter of messages that the sender has sent.
    pub const MESSAGES: u64 = 0;
    /// Index of the counter of payload bytes that the sender has sent.
    pub const BYTES: u64 = 1;
    /// Index of the counter of sent messages whose payload was in the slab or a segment.
    pub const BLOBS: u64 = 2;
    /// Index of the counter of messages that were too long for one record and had to be copied
    /// through the ring in fragments, because no block was free.
    pub const OVERFLOWS: u64 = 3;
    /// Index of the counter of notifications of records that the sender has sent to its peer.
    pub const DOORBELLS: u64 = 4;
    /// Index of the counter of the times that the sender slept because there was no room.
    pub const SLEEPS: u64 = 5;
    /// Index of the word with the present size of the sender's slab and segments, in bytes.
    pub const MEMORY: u64 = 6;
    /// Index of the word with the number of blocks that are allocated now, because the receiver has
    /// not released them yet.
    pub const BLOCKS_OUT: u64 = 7;
    /// Index of the word with the position after the last record that the sender published.
    pub const TAIL: u64 = 8;
    /// Number of words that the counters of a sender take.
    pub const COUNT: u64 = 9;
}

/// Counters of the receiver: each constant is the index of a word, counted from
/// [`RECEIVING_COUNTERS`].
pub mod receiving {
    /// Index of the counter of messages that the receiver has received.
    pub const MESSAGES: u64 = 0;
    /// Index of the counter of payload bytes that the receiver has received.
    pub const BYTES: u64 = 1;
    /// Index of the counter of received messages whose payload was in the slab or a segment.
    pub const BLOBS: u64 = 2;
    /// Index of the counter of notifications of room that the receiver has sent to its peer.
    pub const DOORBELLS: u64 = 3;
    /// Index of the counter of the times that the receiver slept because there were no records.
    pub const SLEEPS: u64 = 4;
    /// Index of the counter of the times that records arrived while the receiver spun, so that it
    /// did not sleep.
    pub const SPINS_PAID: u64 = 5;
    /// Number of words that the counters of a receiver take.
    pub const COUNT: u64 = 6;
}

const _: () = {
    assert!(sending::COUNT * 8 <= LINE_BYTES);
    assert!(receiving::COUNT * 8 <= LINE_BYTES);
    assert!(RECEIVING_COUNTERS + LINE_BYTES <= PAGE_BYTES);
};

/// Hash of the offsets and sizes of this memory format. Two sides with different hashes do not use
/// each other's memory, even if they have the same version number.
pub const LAYOUT_HASH: u64 = {
    let rules: [u64; 16] = [
        FORMAT_VERSION as u64,
        PAGE_BYTES,
        LINE_BYTES,
        GRAIN_BYTES,
        CONTROL_OFFSET,
        CONSUMED,
        ASLEEP_RECORDS,
        ASLEEP_ROOM,
        RELEASED,
        SENDING_COUNTERS,
        RECEIVING_COUNTERS,
        crate::record_ring::SLOT_BYTES,
        crate::record_ring::HEADER_BYTES,
        crate::record_ring::KIND_MASK,
        size_of::<crate::record_ring::BlobBody>() as u64,
        size_of::<RegionHeader>() as u64,
    ];
    crate::fnv::of_numbers(&rules)
};

/// The header at the start of a region.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0   magic              8   version   12  header size   16  layout hash
///  24  region size        32  ring offset                 40  ring size
///  48  release offset     56  peer blocks max             64  slab offset   72  slab size
///  80  session id (16)    96  owner pid 100 role          104 kind
///  108 service            112 created                     120 zero (8)
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RegionHeader {
    /// The first eight bytes of the region, always [`REGION_MAGIC`].
    pub magic: [u8; 8],
    /// The version of the memory format, always [`FORMAT_VERSION`].
    pub version: U32,
    /// Size of the header page in bytes.
    pub header_size: U32,
    /// The hash of the offsets and sizes of the memory format, always [`LAYOUT_HASH`].
    pub layout_hash: U64,
    /// Size of the region in bytes.
    pub region_size: U64,
    /// Offset of the record ring in the region, in bytes.
    pub ring_offset: U64,
    /// Size of the record ring in bytes.
    pub ring_size: U64,
    /// Offset of the release ring in the region, in bytes.
    pub release_offset: U64,
    /// Number of entries in the release ring, eight bytes each.
    pub peer_blocks_max: U64,
    /// Offset of the slab in the region, in bytes.
    pub slab_offset: U64,
    /// Size of the slab in bytes; 0 if the region has no slab.
    pub slab_size: U64,
    /// The session id, which both regions of the connection have in common: the nonce of the
    /// connector's HELLO.
    pub session_id: [u8; 16],
    /// The owner's process id in the owner's namespace. The value is for an operator; no code acts
    /// on it.
    pub owner_pid: U32,
    /// The role of the owner in the connection: 0 for the connector, 1 for the acceptor.
    pub role: U32,
    /// The kind of the region: [`REGION_CONNECTION`].
    pub kind: U32,
    /// The service of the connection, as in HELLO; 0 if the owner does not say (SPEC 3.4).
    pub service: U32,
    /// When the header was written, in nanoseconds since 1970; 0 if the owner does not say (SPEC
    /// 3.4).
    pub created_ns: U64,
    /// A reserved field of the region header, always 0.
    pub zero: [u8; 8],
}

const _: () = {
    assert!(size_of::<RegionHeader>() == 128);
    assert!(core::mem::offset_of!(RegionHeader, version) == 8);
    assert!(core::mem::offset_of!(RegionHeader, header_size) == 12);
    assert!(core::mem::offset_of!(RegionHeader, layout_hash) == 16);
    assert!(core::mem::offset_of!(RegionHeader, region_size) == 24);
    assert!(core::mem::offset_of!(RegionHeader, ring_offset) == 32);
    assert!(core::mem::offset_of!(RegionHeader, ring_size) == 40);
    assert!(core::mem::offset_of!(RegionHeader, release_offset) == 48);
    assert!(core::mem::offset_of!(RegionHeader, peer_blocks_max) == 56);
    assert!(core::mem::offset_of!(RegionHeader, slab_offset) == 64);
    assert!(core::mem::offset_of!(RegionHeader, slab_size) == 72);
    assert!(core::mem::offset_of!(RegionHeader, session_id) == 80);
    assert!(core::mem::offset_of!(RegionHeader, owner_pid) == 96);
    assert!(core::mem::offset_of!(RegionHeader, role) == 100);
    assert!(core::mem::offset_of!(RegionHeader, kind) == 104);
    assert!(core::mem::offset_of!(RegionHeader, service) == 108);
    assert!(core::mem::offset_of!(RegionHeader, created_ns) == 112);
    assert!(core::mem::offset_of!(RegionHeader, zero) == 120);
};

impl RegionHeader {
    /// Checks the fields of a region header that identify a region of this format.
    ///
    /// # Errors
    /// [`Violation::RegionHeader`], naming the first invalid field.
    pub(crate) fn check_format(&self) -> Result<(), Violation> {
        let bad = |field, found| Violation::RegionHeader { field, found };
        if self.magic != REGION_MAGIC {
            return Err(bad("magic", u64::from_le_bytes(self.magic)));
        }
        if self.version.get() != FORMAT_VERSION {
            return Err(bad("version", self.version.get().into()));
        }
        if u64::from(self.header_size.get()) != PAGE_BYTES {
            return Err(bad("header size", self.header_size.get().into()));
        }
        if self.layout_hash.get() != LAYOUT_HASH {
            return Err(bad("layout hash", self.layout_hash.get()));
        }
        Ok(())
    }
}

/// The offsets and sizes of a region's parts, in bytes from the region's start. Every value has
/// been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size of the whole region in bytes: a multiple of [`GRAIN_BYTES`].
    pub region_bytes: u64,
    /// Offset of the record ring in the region, in bytes.
    pub ring_offset: u64,
    /// Size of the record ring in bytes.
    pub ring: RingSize,
    /// Offset of the release ring in the region, in bytes.
    pub release_offset: u64,
    /// Number of entries in the release ring: a power of two.
    pub peer_blocks_max: u64,
    /// Offset of the slab in the region, in bytes.
    pub slab_offset: u64,
    /// Size of the slab in bytes; 0 if the region has no slab.
    pub slab_bytes: u64,
}

/// Smallest number of entries in a release ring. The peer may have as many blocks in flight as the
/// release ring has entries.
pub const RELEASE_ENTRIES_MIN: u64 = 8;
/// Largest number of entries in a release ring, eight bytes each.
pub const RELEASE_ENTRIES_MAX: u64 = 1 << 20;

impl Geometry {
    /// Lays out a region with a record ring of `ring_bytes`, a release ring of `peer_blocks_max`
    /// entries, and *at least* `slab_bytes` of slab. The remainder up to the next multiple of
    /// [`GRAIN_BYTES`] also goes to the slab.
    ///
    /// Returns `None` if a size is not within the bounds of SPEC 3.2.
    #[must_use]
    pub const fn new(ring_bytes: u64, peer_blocks_max: u64, slab_bytes: u64) -> Option<Self> {
        let Some(ring) = RingSize::new(ring_bytes) else { return None };
        if ring_bytes < RING_BYTES_MIN
            || !peer_blocks_max.is_power_of_two()
            || peer_blocks_max < RELEASE_ENTRIES_MIN
            || peer_blocks_max > RELEASE_ENTRIES_MAX
            || slab_bytes > 1 << 40
        {
            return None;
        }
        let ring_offset = CONTROL_OFFSET + PAGE_BYTES;
        let release_offset = ring_offset + ring_bytes;
        let slab_offset = (release_offset + peer_blocks_max * 8).next_multiple_of(PAGE_BYTES);
        let region_bytes = (slab_offset + slab_bytes).next_multiple_of(GRAIN_BYTES);
        Some(Self {
            region_bytes,
            ring_offset,
            ring,
            release_offset,
            peer_blocks_max,
            slab_offset,
            slab_bytes: region_bytes - slab_offset,
        })
    }

    /// Makes the region header that describes this geometry, without service and time of creation.
    #[must_use]
    pub fn header(&self, session_id: [u8; 16], owner_pid: u32, role: u32) -> RegionHeader {
        #[expect(clippy::cast_possible_truncation, reason = "4096")]
        let header_size = PAGE_BYTES as u32;
        RegionHeader {
            magic: REGION_MAGIC,
            version: U32::new(FORMAT_VERSION),
            header_size: U32::new(header_size),
            layout_hash: U64::new(LAYOUT_HASH),
            region_size: U64::new(self.region_bytes),
            ring_offset: U64::new(self.ring_offset),
            ring_size: U64::new(self.ring.bytes()),
            release_offset: U64::new(self.release_offset),
            peer_blocks_max: U64::new(self.peer_blocks_max),
            slab_offset: U64::new(self.slab_offset),
            slab_size: U64::new(self.slab_bytes),
            session_id,
            owner_pid: U32::new(owner_pid),
            role: U32::new(role),
            kind: U32::new(REGION_CONNECTION),
            service: U32::ZERO,
            created_ns: U64::ZERO,
            zero: [0; 8],
        }
    }

    /// Reads the geometry from the header of a peer's region whose descriptor has size
    /// `region_bytes`. The header must be a private copy, which the peer cannot change.
    ///
    /// # Errors
    /// [`Violation::RegionHeader`], naming the first invalid field.
    pub fn check(
        header: &RegionHeader,
        region_bytes: u64,
        session_id: &[u8; 16],
        role: u32,
    ) -> Result<Self, Violation> {
        let bad = |field, found| Violation::RegionHeader { field, found };
        header.check_format()?;
        if header.region_size.get() != region_bytes {
            return Err(bad("region size", header.region_size.get()));
        }
        if header.session_id != *session_id {
            return Err(bad("session id", u64::from_le_bytes(first_eight(&header.session_id))));
        }
        if header.role.get() != role {
            return Err(bad("role", header.role.get().into()));
        }
        if header.kind.get() != REGION_CONNECTION {
            return Err(bad("kind", header.kind.get().into()));
        }
        let ring_bytes = header.ring_size.get();
        let Some(ring) = RingSize::new(ring_bytes) else {
            return Err(bad("ring size", ring_bytes));
        };
        if !(RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) {
            return Err(bad("ring size", ring_bytes));
        }
        let entries = header.peer_blocks_max.get();
        if !entries.is_power_of_two()
            || !(RELEASE_ENTRIES_MIN..=RELEASE_ENTRIES_MAX).contains(&entries)
        {
            return Err(bad("release entries", entries));
        }
        let geometry = Self {
            region_bytes,
            ring_offset: header.ring_offset.get(),
            ring,
            release_offset: header.release_offset.get(),
            peer_blocks_max: entries,
            slab_offset: header.slab_offset.get(),
            slab_bytes: header.slab_size.get(),
        };
        geometry.check_order()?;
        Ok(geometry)
    }

    /// Checks that ring, release ring and slab follow each other on page boundaries, within the
    /// region.
    fn check_order(&self) -> Result<(), Violation> {
        let parts = [
            ("ring offset", self.ring_offset, self.ring.bytes()),
            ("release offset", self.release_offset, self.peer_blocks_max * 8),
            ("slab offset", self.slab_offset, self.slab_bytes),
        ];
        let mut free_from = CONTROL_OFFSET + PAGE_BYTES;
        for (field, offset, size) in parts {
            let end = offset.checked_add(size);
            if offset < free_from
                || offset % PAGE_BYTES != 0
                || end.is_none_or(|end| end > self.region_bytes)
            {
                return Err(Violation::RegionHeader { field, found: offset });
            }
            free_from = offset + size;
        }
        Ok(())
    }
}

fn first_eight(id: &[u8; 16]) -> [u8; 8] {
    let mut out = [0; 8];
    out.copy_from_slice(&id[..8]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: [u8; 16] = *b"sixteen bytes id";

    #[test]
    fn region_header_describes_region() {
        let geometry = Geometry::new(64 << 10, 1024, 100 << 10).unwrap();
        assert_eq!(geometry.region_bytes, 192 << 10);
        let header = geometry.header(SESSION, 42, 1);
        assert_eq!(Geometry::check(&header, 192 << 10, &SESSION, 1), Ok(geometry));
    }

    #[test]
    fn impossible_sizes_have_no_geometry() {
        assert!(Geometry::new(2048, 1024, 0).is_none());
        assert!(Geometry::new(5000, 1024, 0).is_none());
        assert!(Geometry::new(4096, 4, 0).is_none());
        assert!(Geometry::new(4096, 1000, 0).is_none());
        assert!(Geometry::new(4096, 8, 1 << 41).is_none());
    }

    type Tamper = fn(&mut RegionHeader);

    #[test]
    fn invalid_header_field_is_refused() {
        let geometry = Geometry::new(64 << 10, 1024, 100 << 10).unwrap();
        let cases: &[(&str, Tamper)] = &[
            ("magic", |h| h.magic[0] = b'X'),
            ("version", |h| h.version = U32::new(2)),
            ("header size", |h| h.header_size = U32::new(0)),
            ("layout hash", |h| h.layout_hash = U64::new(1)),
            ("region size", |h| h.region_size = U64::new(1)),
            ("session id", |h| h.session_id[15] ^= 1),
            ("role", |h| h.role = U32::new(0)),
            ("ring size", |h| h.ring_size = U64::new(12345)),
            ("ring size", |h| h.ring_size = U64::new(2048)),
            ("ring size", |h| h.ring_size = U64::new(1 << 31)),
            ("release entries", |h| h.peer_blocks_max = U64::new(3)),
            ("release entries", |h| h.peer_blocks_max = U64::new(1 << 40)),
            ("ring offset", |h| h.ring_offset = U64::new(4096)),
            ("ring offset", |h| h.ring_offset = U64::new(u64::MAX)),
            ("release offset", |h| h.release_offset = U64::new(8192)),
            ("release offset", |h| h.release_offset = U64::new(73729)),
            ("slab offset", |h| h.slab_offset = U64::new(180 << 10)),
            ("slab offset", |h| h.slab_size = U64::new(u64::MAX)),
        ];
        for (field, tamper) in cases {
            let mut header = geometry.header(SESSION, 42, 1);
            tamper(&mut header);
            match Geometry::check(&header, 192 << 10, &SESSION, 1) {
                Err(Violation::RegionHeader { field: found, .. }) => assert_eq!(found, *field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
