// SPDX-License-Identifier: MIT OR Apache-2.0
//! Positions of the lists and slices in a buffer region. The region's creator plans them, and the
//! side that maps the region reads them once.
//!
//! ```text
//!   0        8                                     lists back to back, ascending by capacity
//!   ┌────────┬─────────────── list 0 ───────────────┬───────── list 1 ─────────┬ … ┬ unused ┐
//!   │ manager│ header 36 │ slice │ slice │ … │ slice │ header 36 │ slice │ …    │   │        │
//!   └────────┴───────────┴───────┴───────┴───┴───────┴───────────┴───────┴──────┴───┴────────┘
//!   manager   u16 lists │ u16 0 │ u32 end of the last list − 8
//!   list      i32 free │ u32 slices │ u32 head │ u32 tail │ u32 capacity
//!             i32 creator │ i32 mapper │ 8 unused
//!   slice     u32 capacity │ u32 size │ u32 start │ u32 next │ u8 flags │ 3 unused │ data
//! ```
//!
//! The manager is the header of the region. A list has a header of its own, and then its slices.
//! This file allocates and frees no slices: `list.rs` does, within this geometry.
//!
//! # Invariants
//!
//! - A [`Geometry`] is private memory: later writes of the peer to the headers change nothing.
//! - Every list is within the region, every offset in a list is a multiple of four, and the
//!   capacities of lists ascend and differ.

use super::Damage;
use partywall_sys::SharedMap;

/// A class of slices, which has one list in the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Capacity of each slice of the class, in bytes.
    pub size: u32,
    /// Share of the region that the class gets, in percent.
    pub percent: u32,
}

/// Default classes of slices in the other implementations of shmipc.
pub const CLASSES_DEFAULT: [Class; 3] = [
    Class { size: 8192 - SLICE_HEADER_BYTES, percent: 50 },
    Class { size: 32_768 - SLICE_HEADER_BYTES, percent: 30 },
    Class { size: 131_072 - SLICE_HEADER_BYTES, percent: 20 },
];

/// Position of one list of slices in the region, and number and capacity of its slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListGeometry {
    /// Offset in the region of the list's header.
    pub header: u32,
    /// Number of slices in the list.
    pub slices: u32,
    /// Capacity of each slice of the list, in bytes.
    pub capacity: u32,
}

impl ListGeometry {
    /// Distance from the start of one slice to the start of the next, in bytes.
    pub const fn stride(&self) -> u32 {
        self.capacity + SLICE_HEADER_BYTES
    }

    /// Offset in the region of the list's area: the memory of its slices, each with its header.
    pub const fn area(&self) -> u32 {
        self.header + LIST_HEADER_BYTES
    }

    /// Distance in bytes from the header of the list's first slice to the header of slice `index`.
    pub const fn relative(&self, index: u32) -> u32 {
        index * self.stride()
    }

    /// Index of the slice whose header lies `relative` bytes after the header of the list's first
    /// slice; `None` if no slice begins there.
    pub const fn index(&self, relative: u32) -> Option<u32> {
        let index = relative / self.stride();
        if relative % self.stride() == 0 && index < self.slices { Some(index) } else { None }
    }

    /// Offset in the region of the byte after the last slice of the list.
    pub const fn end(&self) -> u32 {
        self.area() + self.slices * self.stride()
    }
}

/// Positions of all lists of a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    lists: Vec<ListGeometry>,
}

impl Geometry {
    /// Plans a new region of `bytes` bytes for `classes`, whose sizes are rounded up to multiples
    /// of four.
    ///
    /// # Errors
    ///
    /// Fails for one of the reasons in [`PlanError`].
    pub fn plan(bytes: usize, classes: &[Class]) -> Result<Self, PlanError> {
        let size = u32::try_from(bytes).map_err(|_| PlanError::RegionSize { bytes })?;
        let count = u32::try_from(classes.len()).unwrap_or(u32::MAX);
        if !(1..=LISTS_MAX).contains(&count) {
            return Err(PlanError::ClassCount { count: classes.len() });
        }
        let percents: u64 = classes.iter().map(|class| u64::from(class.percent)).sum();
        if percents > 100 {
            return Err(PlanError::Percents { sum: percents });
        }
        let headers = MANAGER_BYTES + LIST_HEADER_BYTES * count;
        let room = size.checked_sub(headers).ok_or(PlanError::RegionSize { bytes })?;
        let mut sorted = classes.to_vec();
        for class in &mut sorted {
            let wrong = PlanError::SliceSize { size: class.size };
            class.size = class.size.checked_next_multiple_of(4).ok_or(wrong)?;
        }
        sorted.sort_by_key(|class| class.size);
        let mut lists = Vec::with_capacity(sorted.len());
        let mut header = MANAGER_BYTES;
        let mut before = 0;
        for Class { size, percent } in sorted {
            if size <= before || size > u32::MAX - SLICE_HEADER_BYTES {
                return Err(PlanError::SliceSize { size });
            }
            // The bytes of the class are calculated by a multiplication and then a division, in the
            // order of the other implementations, so that the rounding is the same.
            let share = u64::from(room) * u64::from(percent) / 100;
            let slices = u32::try_from(share / u64::from(size + SLICE_HEADER_BYTES)).unwrap_or(0);
            if slices < SLICES_MIN {
                return Err(PlanError::TooFew { size, percent, slices });
            }
            let list = ListGeometry { header, slices, capacity: size };
            // All lists together are no longer than the region. So the end of each list lies within
            // the region, below 4 GiB.
            header = list.end();
            before = size;
            lists.push(list);
        }
        Ok(Self { lists })
    }

    /// Reads the geometry of a region that the peer created.
    ///
    /// # Errors
    ///
    /// [`Damage`] if the geometry is impossible, or one with which other implementations corrupt
    /// memory.
    pub fn read(map: &SharedMap) -> Result<Self, Damage> {
        Self::read_words(map.len(), |at| map.load(at))
    }

    /// Reads the geometry of a region of `size` bytes, which the peer created. The function `word`
    /// loads the word of the region at a byte offset. Fails for the same reasons as
    /// [`read`](Self::read).
    pub(crate) fn read_words(size: usize, word: impl Fn(usize) -> u32) -> Result<Self, Damage> {
        let bytes = size as u64;
        if bytes < u64::from(MANAGER_BYTES) || bytes > u64::from(u32::MAX) {
            return Err(Damage::new("a buffer region cannot have this size", bytes));
        }
        // Words are little-endian on both processors that the protocol supports, x86-64 and arm64.
        let count = word(0) & 0xffff;
        if !(1..=LISTS_MAX).contains(&count) {
            return Err(Damage::new("a buffer region cannot have so many lists", count));
        }
        let used = u64::from(word(4)) + u64::from(MANAGER_BYTES);
        if used > bytes {
            return Err(Damage::new("the lists of the buffer region end behind it", used));
        }
        let mut lists: Vec<ListGeometry> = Vec::with_capacity(count as usize);
        let mut header = MANAGER_BYTES;
        for _ in 0..count {
            let list = read_list(bytes, header, &word)?;
            if lists.last().is_some_and(|before| before.capacity >= list.capacity) {
                let what = "slice capacities must ascend and differ, or slices come back to the wrong list";
                return Err(Damage::new(what, list.capacity));
            }
            header = list.end();
            lists.push(list);
        }
        Ok(Self { lists })
    }

    /// The lists of the region, ascending by capacity.
    pub fn lists(&self) -> &[ListGeometry] {
        &self.lists
    }

    /// Offset in the region of the byte after the last list.
    pub fn end(&self) -> u32 {
        self.lists.last().map_or(MANAGER_BYTES, ListGeometry::end)
    }

    /// Number of slices of all lists together.
    pub fn slices(&self) -> u64 {
        self.lists.iter().map(|list| u64::from(list.slices)).sum()
    }

    /// Index of the list whose area contains byte `offset` of the region, and index of the slice
    /// whose header begins at that byte; `None` if no slice begins there.
    #[inline]
    pub fn locate(&self, offset: u32) -> Option<(usize, u32)> {
        // A region has only a few lists, and most slices are in the first one, so this search is
        // short.
        let within = |list: &ListGeometry| (list.area()..list.end()).contains(&offset);
        let number = self.lists.iter().position(within)?;
        let list = &self.lists[number];
        Some((number, list.index(offset - list.area())?))
    }

    /// Writes the headers of a new region, in which all slices are free, into `map`. The memory
    /// must be zeroed.
    pub(crate) fn write(&self, map: &SharedMap) {
        for list in &self.lists {
            let area = list.area() as usize;
            for index in 0..list.slices {
                let slice = area + list.relative(index) as usize;
                map.store(slice + SLICE_CAPACITY, list.capacity);
                if index + 1 < list.slices {
                    map.store(slice + SLICE_NEXT, list.relative(index + 1));
                    map.store_byte(slice + SLICE_FLAGS, HAS_NEXT);
                }
            }
            let header = list.header as usize;
            map.store(header + LIST_FREE, list.slices);
            map.store(header + LIST_SLICES, list.slices);
            map.store(header + LIST_TAIL, list.relative(list.slices - 1));
            map.store(header + LIST_CAPACITY, list.capacity);
        }
        map.store(4, self.end() - MANAGER_BYTES);
        // The number of lists is at most LISTS_MAX, so it fits into the lower 16 bits of the
        // region's first word; the upper 16 bits are unused.
        map.store(0, u32::try_from(self.lists.len()).unwrap_or(LISTS_MAX));
    }
}

fn read_list(
    bytes: u64,
    header: u32,
    word: &impl Fn(usize) -> u32,
) -> Result<ListGeometry, Damage> {
    if u64::from(header) + u64::from(LIST_HEADER_BYTES) > bytes {
        return Err(Damage::new("a list header lies behind the buffer region", header));
    }
    let at = header as usize;
    let slices = word(at + LIST_SLICES);
    let capacity = word(at + LIST_CAPACITY);
    if slices == 0 {
        return Err(Damage::new("a list has no slices", header));
    }
    if capacity == 0 || capacity % 4 != 0 {
        let what = "a slice capacity must be a multiple of 4 (round up ShareMemory slice sizes on the peer)";
        return Err(Damage::new(what, capacity));
    }
    let stride = u64::from(capacity) + u64::from(SLICE_HEADER_BYTES);
    let area = u64::from(header) + u64::from(LIST_HEADER_BYTES);
    let end = area + u64::from(slices) * stride.min(1 << 32);
    if end > bytes {
        return Err(Damage::new("a list ends behind the buffer region", end));
    }
    // The offset after the list's last slice (`end`) fits into 32 bits. So no offset within the
    // list exceeds 32 bits either.
    Ok(ListGeometry { header, slices, capacity })
}

/// Why a region cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The region is too small for the headers, or has 4 GiB or more.
    #[error("a buffer region cannot have {bytes} bytes: choose from 1 MiB to less than 4 GiB")]
    RegionSize {
        /// The requested size of the region, in bytes.
        bytes: usize,
    },
    /// The settings have no class of slices, or too many classes.
    #[error("{count} slice classes: choose 1 to {LISTS_MAX}")]
    ClassCount {
        /// The requested number of classes of slices.
        count: usize,
    },
    /// The size of a class is 0, or equals that of another class.
    #[error(
        "slices of {size} bytes: sizes must be above 0 and differ, rounded up to multiples of 4"
    )]
    SliceSize {
        /// The requested size of the slices of the class, in bytes.
        size: u32,
    },
    /// The shares of the classes exceed 100 % together.
    #[error("the slice classes take {sum} percent of the buffer region: at most 100 are there")]
    Percents {
        /// The sum of the shares of all classes, in percent.
        sum: u64,
    },
    /// The share of a class has room for fewer than two slices. Such a class is useless, because a
    /// list never allocates its last free slice.
    #[error(
        "{percent} percent of the buffer region hold {slices} slices of {size} bytes, and it takes \
         {SLICES_MIN}: make the region larger, the slices smaller or the share larger"
    )]
    TooFew {
        /// Size of the slices of the refused class, in bytes.
        size: u32,
        /// Share of the refused class in the region, in percent.
        percent: u32,
        /// Number of slices that fit into the share of the refused class.
        slices: u32,
    },
}

/// Upper bound of the lists in a region, and so of every loop over them. With the default settings
/// a region has three lists.
pub const LISTS_MAX: u32 = 64;
/// Lower bound of the slices of a list: from a list with fewer slices, none can be allocated.
pub const SLICES_MIN: u32 = 2;

pub(crate) const MANAGER_BYTES: u32 = 8;
pub(crate) const LIST_HEADER_BYTES: u32 = 36;
/// Size in bytes of the header that precedes the data of every slice.
pub const SLICE_HEADER_BYTES: u32 = 20;

// Offsets of the words of a list header, from its start, in bytes.
pub(crate) const LIST_FREE: usize = 0;
pub(crate) const LIST_SLICES: usize = 4;
pub(crate) const LIST_HEAD: usize = 8;
pub(crate) const LIST_TAIL: usize = 12;
pub(crate) const LIST_CAPACITY: usize = 16;
pub(crate) const LIST_CREATOR: usize = 20;
pub(crate) const LIST_MAPPER: usize = 24;

// Offsets of the words of a slice header, from its start, in bytes.
pub(crate) const SLICE_CAPACITY: usize = 0;
pub(crate) const SLICE_SIZE: usize = 4;
pub(crate) const SLICE_START: usize = 8;
pub(crate) const SLICE_NEXT: usize = 12;
pub(crate) const SLICE_FLAGS: usize = 16;
pub(crate) const SLICE_DATA: usize = 20;

/// Flag of a slice: another slice follows in the list or message.
pub(crate) const HAS_NEXT: u8 = 1;
/// Flag of a slice: the slice is allocated. A process sets the flag only after it has removed the
/// slice from the list, so an allocated slice may briefly have a clear flag.
pub(crate) const IN_USE: u8 = 2;
