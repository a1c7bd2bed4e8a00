// SPDX-License-Identifier: MIT OR Apache-2.0
//! The header page of a link's file, which never changes (SPEC 13.1).
//!
//! The header page names the link and gives the offsets of the file's parts. A file gets its name
//! only after this page is complete.

use super::checksum::crc32c;
use super::fault::FileFault;
use super::{CONSUMED_SLOT, CONSUMED_SLOT_STRIDE, LINK_CONTROL_OFFSET, OWNER_OFFSET};
use super::{PAGE_SLOT_STRIDE, PARTS_OFFSET, STATE_OFFSET};
use crate::fnv;
use crate::record_ring::{RING_BYTES_MAX, RING_BYTES_MIN, RingSize, SLOT_BYTES};
use crate::segment::{GRAIN_BYTES, PAGE_BYTES, RELEASE_ENTRIES_MAX, RELEASE_ENTRIES_MIN};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes of every link's file.
pub const LINK_MAGIC: [u8; 8] = *b"PWLINK\x00\x01";

/// The version of the file format that this crate describes.
pub const LINK_VERSION: u32 = 1;

/// Length in bytes of the longest name of an end or a link: its length is stored in one byte.
pub const NAME_BYTES_MAX: usize = 255;

/// The names of the header fields that hold the names of the link and its two ends, in their order;
/// error texts use them.
pub const NAME_FIELDS: [&str; 3] = ["local", "remote", "link"];

/// Hash of the rules of this file format. A file with another hash is not opened, even if its
/// version is the same. The header of a region has such a hash, too (SPEC 3.2).
pub const LINK_LAYOUT_HASH: u64 = {
    let rules: [u64; 14] = [
        LINK_VERSION as u64,
        PAGE_BYTES,
        OWNER_OFFSET,
        STATE_OFFSET,
        LINK_CONTROL_OFFSET,
        PARTS_OFFSET,
        PAGE_SLOT_STRIDE,
        CONSUMED_SLOT,
        CONSUMED_SLOT_STRIDE,
        size_of::<LinkHeader>() as u64,
        size_of::<super::OwnerRecord>() as u64,
        size_of::<super::StateImage>() as u64,
        size_of::<super::ConsumedRecord>() as u64,
        crate::segment::LAYOUT_HASH,
    ];
    fnv::of_numbers(&rules)
};

/// The header of a link's file, which fills a whole page.
///
/// Each field after its offset in bytes; sizes of longer fields in parentheses:
/// ```text
///  0    magic            8   version   12  header size    16  layout hash   24  file size
///  32   ring offset      40  ring size                    48  release offset
///  56   peer blocks max  64  slab offset                  72  slab size
///  80   store id (16)    96  created
///  104  lengths of the names (3), zero (5)
///  112  local name (256)     368  remote name (256)       624  link name (256)
///  880  zero (3212)          4092 crc32c of bytes 0..4091
/// ```
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LinkHeader {
    /// The first eight bytes of the file, always [`LINK_MAGIC`].
    pub magic: [u8; 8],
    /// The version of the file format, always [`LINK_VERSION`].
    pub version: U32,
    /// Size of the header page in bytes.
    pub header_size: U32,
    /// The hash of the rules of the format, always [`LINK_LAYOUT_HASH`].
    pub layout_hash: U64,
    /// Size of the link's file in bytes.
    pub file_size: U64,
    /// Offset of the record ring in the file, in bytes.
    pub ring_offset: U64,
    /// Size of the record ring in bytes.
    pub ring_size: U64,
    /// Offset of the release ring in the file, in bytes.
    pub release_offset: U64,
    /// Number of entries in the release ring, eight bytes each. The peer never has more blocks in
    /// flight.
    pub peer_blocks_max: U64,
    /// Offset of the slab in the file, in bytes.
    pub slab_offset: U64,
    /// Size of the slab in bytes; 0 if the file has no slab.
    pub slab_size: U64,
    /// The store id, a random number: a file that replaces a lost file has another store id.
    pub store_id: [u8; 16],
    /// When the file was made, in nanoseconds since 1970. The value is for an operator.
    pub created_ns: U64,
    /// Lengths in bytes of the local name, the remote name and the name of the link, each at
    /// least 1.
    pub name_lengths: [u8; 3],
    /// A reserved field of the file header, always 0.
    pub zero: [u8; 5],
    /// The local, the remote and the link name, each followed by zeros.
    pub names: [[u8; 256]; 3],
    /// A reserved field of the file header, always 0.
    pub zeros: [u8; 3212],
    /// The crc32c of all bytes of the header page before this field.
    pub crc: U32,
}

const _: () = {
    assert!(size_of::<LinkHeader>() as u64 == PAGE_BYTES);
    assert!(core::mem::offset_of!(LinkHeader, version) == 8);
    assert!(core::mem::offset_of!(LinkHeader, header_size) == 12);
    assert!(core::mem::offset_of!(LinkHeader, layout_hash) == 16);
    assert!(core::mem::offset_of!(LinkHeader, file_size) == 24);
    assert!(core::mem::offset_of!(LinkHeader, ring_offset) == 32);
    assert!(core::mem::offset_of!(LinkHeader, ring_size) == 40);
    assert!(core::mem::offset_of!(LinkHeader, release_offset) == 48);
    assert!(core::mem::offset_of!(LinkHeader, peer_blocks_max) == 56);
    assert!(core::mem::offset_of!(LinkHeader, slab_offset) == 64);
    assert!(core::mem::offset_of!(LinkHeader, slab_size) == 72);
    assert!(core::mem::offset_of!(LinkHeader, store_id) == 80);
    assert!(core::mem::offset_of!(LinkHeader, created_ns) == 96);
    assert!(core::mem::offset_of!(LinkHeader, name_lengths) == 104);
    assert!(core::mem::offset_of!(LinkHeader, zero) == 107);
    assert!(core::mem::offset_of!(LinkHeader, names) == 112);
    assert!(core::mem::offset_of!(LinkHeader, zeros) == 880);
    assert!(core::mem::offset_of!(LinkHeader, crc) == 4092);
};

impl LinkHeader {
    /// Makes the header of a new link file; returns `None` if a name is empty or longer than
    /// [`NAME_BYTES_MAX`].
    #[must_use]
    pub fn new(
        geometry: &LinkGeometry,
        names: [&str; 3],
        store_id: [u8; 16],
        created_ns: u64,
    ) -> Option<Self> {
        let mut header = Self {
            magic: LINK_MAGIC,
            version: U32::new(LINK_VERSION),
            header_size: U32::new(HEADER_BYTES),
            layout_hash: U64::new(LINK_LAYOUT_HASH),
            file_size: U64::new(geometry.file_bytes),
            ring_offset: U64::new(geometry.ring_offset),
            ring_size: U64::new(geometry.ring.bytes()),
            release_offset: U64::new(geometry.release_offset),
            peer_blocks_max: U64::new(geometry.peer_blocks_max),
            slab_offset: U64::new(geometry.slab_offset),
            slab_size: U64::new(geometry.slab_bytes),
            store_id,
            created_ns: U64::new(created_ns),
            ..Self::new_zeroed()
        };
        for (index, name) in names.into_iter().enumerate() {
            if name.is_empty() || name.len() > NAME_BYTES_MAX {
                return None;
            }
            header.name_lengths[index] = u8::try_from(name.len()).ok()?;
            header.names[index][..name.len()].copy_from_slice(name.as_bytes());
        }
        Some(header.sealed())
    }

    /// Returns the header with its field `crc` set to the checksum of all other fields.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        let crc = self.checksum();
        self.crc = U32::new(crc);
        self
    }

    /// The three names in a checked header of a link's file: local, remote and link name.
    #[must_use]
    pub fn names(&self) -> [&str; 3] {
        [0, 1, 2].map(|index| self.name(index).unwrap_or_default())
    }

    fn name(&self, index: usize) -> Option<&str> {
        let length = usize::from(self.name_lengths[index]);
        let (name, rest) = self.names[index].split_at(length);
        let is_clean = length > 0 && rest.iter().all(|byte| *byte == 0);
        core::str::from_utf8(name).ok().filter(|_| is_clean)
    }

    fn checksum(&self) -> u32 {
        let bytes = self.as_bytes();
        crc32c(&bytes[..bytes.len() - size_of::<U32>()])
    }
}

/// Returns the header of a link's file of any layout of this version, if its checksum is right. All
/// of these layouts have the same header page, so the names can be read even if the file is
/// refused.
#[must_use]
pub fn of_any_layout(pages: &[u8]) -> Option<LinkHeader> {
    let (header, _) = LinkHeader::read_from_prefix(pages).ok()?;
    let is_ours = pages.starts_with(&LINK_MAGIC) && header.version.get() == LINK_VERSION;
    let is_whole = header.crc.get() == header.checksum();
    let is_named = (0..NAME_FIELDS.len()).all(|index| header.name(index).is_some());
    (is_ours && is_whole && is_named).then_some(header)
}

/// Checks the header of a link's file, which is `file_bytes` bytes long (SPEC 13.6). If `names` is
/// given, the file must be that of the link with these names.
///
/// # Errors
/// A [`FileFault`], the first rule that the header breaks.
pub fn check(
    pages: &[u8],
    file_bytes: u64,
    names: Option<[&str; 3]>,
) -> Result<(LinkHeader, LinkGeometry), FileFault> {
    let known = pages.len().min(LINK_MAGIC.len());
    if pages[..known] != LINK_MAGIC[..known] {
        return Err(FileFault::Foreign);
    }
    let Ok((header, _)) = LinkHeader::read_from_prefix(pages) else {
        return Err(FileFault::Truncated { expected: PARTS_OFFSET, actual: file_bytes });
    };
    match header.version.get() {
        LINK_VERSION => {}
        version if version < LINK_VERSION => return Err(FileFault::Older { version }),
        version => return Err(FileFault::Newer { version }),
    }
    if header.crc.get() != header.checksum() {
        return Err(FileFault::HeaderDamaged);
    }
    if header.layout_hash.get() != LINK_LAYOUT_HASH {
        return Err(FileFault::OtherLayout { found: header.layout_hash.get() });
    }
    if header.header_size.get() != HEADER_BYTES {
        let found = header.header_size.get().into();
        return Err(FileFault::Geometry { field: "header size", found });
    }
    let expected = header.file_size.get();
    if file_bytes < expected {
        return Err(FileFault::Truncated { expected, actual: file_bytes });
    }
    if file_bytes > expected {
        return Err(FileFault::TooLong { expected, actual: file_bytes });
    }
    for (index, which) in NAME_FIELDS.into_iter().enumerate() {
        if header.name(index).is_none() {
            return Err(FileFault::Name { which });
        }
    }
    if names.is_some_and(|names| names != header.names()) {
        return Err(FileFault::OtherLink);
    }
    let geometry = LinkGeometry::check(&header)?;
    Ok((header, geometry))
}

/// The offsets and sizes of the parts of a link's file, in bytes from the file's start. Every value
/// has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkGeometry {
    /// Size of the whole file in bytes: a multiple of [`GRAIN_BYTES`].
    pub file_bytes: u64,
    /// Offset of the record ring in the file, in bytes.
    pub ring_offset: u64,
    /// Size of the record ring in bytes.
    pub ring: RingSize,
    /// Offset of the release ring in the file, in bytes.
    pub release_offset: u64,
    /// Number of entries in the release ring: a power of two.
    pub peer_blocks_max: u64,
    /// Offset of the slab in the file, in bytes.
    pub slab_offset: u64,
    /// Size of the slab in bytes; 0 if the file has no slab.
    pub slab_bytes: u64,
}

impl LinkGeometry {
    /// Lays out a link's file with a record ring of `ring_bytes`, a release ring of
    /// `peer_blocks_max` entries, and *at least* `slab_bytes` of slab.
    ///
    /// Returns `None` if a size is not within the bounds of SPEC 3.2.
    #[must_use]
    pub const fn new(ring_bytes: u64, peer_blocks_max: u64, slab_bytes: u64) -> Option<Self> {
        let Some(ring) = RingSize::new(ring_bytes) else { return None };
        if ring_bytes < RING_BYTES_MIN
            || ring_bytes > RING_BYTES_MAX
            || !is_entries(peer_blocks_max)
            || slab_bytes > 1 << 40
        {
            return None;
        }
        let release_offset = PARTS_OFFSET + ring_bytes;
        let slab_offset = (release_offset + peer_blocks_max * 8).next_multiple_of(PAGE_BYTES);
        let file_bytes = (slab_offset + slab_bytes).next_multiple_of(GRAIN_BYTES);
        Some(Self {
            file_bytes,
            ring_offset: PARTS_OFFSET,
            ring,
            release_offset,
            peer_blocks_max,
            slab_offset,
            slab_bytes: file_bytes - slab_offset,
        })
    }

    fn check(header: &LinkHeader) -> Result<Self, FileFault> {
        let bad = |field, found| Err(FileFault::Geometry { field, found });
        let file_bytes = header.file_size.get();
        if file_bytes % GRAIN_BYTES != 0 {
            return bad("file size", file_bytes);
        }
        let ring_bytes = header.ring_size.get();
        let ring = match RingSize::new(ring_bytes) {
            Some(ring) if (RING_BYTES_MIN..=RING_BYTES_MAX).contains(&ring_bytes) => ring,
            _ => return bad("ring size", ring_bytes),
        };
        let peer_blocks_max = header.peer_blocks_max.get();
        if !is_entries(peer_blocks_max) {
            return bad("release entries", peer_blocks_max);
        }
        let (release_offset, slab_offset) = (header.release_offset.get(), header.slab_offset.get());
        let (ring_offset, slab_bytes) = (header.ring_offset.get(), header.slab_size.get());
        let parts = [
            ("ring offset", ring_offset, ring_bytes),
            ("release offset", release_offset, peer_blocks_max * 8),
            ("slab offset", slab_offset, slab_bytes),
        ];
        let mut free_from = PARTS_OFFSET;
        for (field, offset, size) in parts {
            let end = offset.checked_add(size).filter(|end| *end <= file_bytes);
            let (Some(end), 0) = (end, offset % PAGE_BYTES) else { return bad(field, offset) };
            if offset < free_from {
                return bad(field, offset);
            }
            free_from = end;
        }
        Ok(Self {
            file_bytes,
            ring_offset,
            ring,
            release_offset,
            peer_blocks_max,
            slab_offset,
            slab_bytes,
        })
    }
}

const fn is_entries(entries: u64) -> bool {
    entries.is_power_of_two() && entries >= RELEASE_ENTRIES_MIN && entries <= RELEASE_ENTRIES_MAX
}

/// The hash that the name of a link's file contains. It is computed over the three names of the
/// link, each preceded by its length (SPEC 13.1).
#[must_use]
pub fn file_name_hash(names: [&str; 3]) -> u64 {
    names.into_iter().fold(fnv::BASIS, |hash, name| {
        // The hash contains the length of each name as one byte. Names of links and of their ends
        // have at most 255 bytes. A longer name belongs to no link file, and is hashed with the
        // length 255, so that the function needs no error.
        let length = u8::try_from(name.len()).unwrap_or(u8::MAX);
        fnv::of_bytes(fnv::of_bytes(hash, &[length]), name.as_bytes())
    })
}

#[expect(clippy::cast_possible_truncation, reason = "4096")]
const HEADER_BYTES: u32 = PAGE_BYTES as u32;

const _: () = assert!(SLOT_BYTES == 64);
