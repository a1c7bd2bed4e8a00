// SPDX-License-Identifier: MIT OR Apache-2.0
//! The neighbour's memory of a link, mapped to be read (SPEC 16.2).
//!
//! ```text
//!   descriptor ─▶ of our own user? ─▶ sealed (memfd): mapped as a half      ─▶ Shown ─▶ header: lineage and sizes as in
//!                                └▶ a file: mapped, guarded against SIGBUS ┘            ATTACH? ─▶ Neighbour
//! ```
//!
//! Whoever cannot map, or finds something else there than was said, goes on over the socket: nothing here is a violation.
//!
//! # Invariants
//!
//! - Nothing is written, and whatever the owner does to the file, this process lives on.

use std::cell::UnsafeCell;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use partywall_layout::link::{LINK_CONTROL_OFFSET, PARTS_OFFSET, header};
use partywall_layout::record_ring::RingSize;
use partywall_layout::segment::PAGE_BYTES;
use partywall_ring::{PeerMem, Readable};
use partywall_sys::kept_file::FileStat;
use partywall_sys::peer::own_euid;
use partywall_sys::sigbus::TableFull;
use partywall_sys::{FileView, MapError};

use super::protocol::frame::Attach;
use partywall_sys::memory::map_memory;

/// Memory of which nothing was read yet.
pub(crate) struct Shown {
    memory: PeerMem,
    bytes: u64,
    /// The view, if somebody could truncate what is behind it.
    view: Option<Arc<View>>,
}

/// Why what a neighbour shows is not mapped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShownFault {
    /// Of another user, who could write to it.
    #[error("the peer's memory belongs to user {owner}, this process runs as {user}")]
    NotOurs {
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// Neither file nor memfd, or not as large as a link's memory may be here.
    #[error("the peer's memory has {size} bytes, where {PARTS_OFFSET} to {limit} are taken")]
    Size {
        /// In bytes; 0 if it is no file.
        size: u64,
        /// In bytes.
        limit: u64,
    },
    /// The system refused.
    #[error("the peer's memory cannot be mapped: {0}")]
    Map(#[from] std::io::Error),
    /// A memfd that is not as it must be.
    #[error(transparent)]
    Memfd(#[from] MapError),
    /// Too many such mappings.
    #[error(transparent)]
    Unguarded(#[from] TableFull),
}

impl Shown {
    /// Maps what a neighbour shows, up to `limit` bytes. The descriptor may be closed afterwards.
    pub(crate) fn map(descriptor: BorrowedFd<'_>, limit: u64) -> Result<Self, ShownFault> {
        let FileStat { owner, is_regular, size, .. } = FileStat::of(descriptor)?;
        if owner != own_euid() {
            return Err(ShownFault::NotOurs { owner, user: own_euid() });
        }
        if !is_regular || size < PARTS_OFFSET || size > limit {
            return Err(ShownFault::Size { size: if is_regular { size } else { 0 }, limit });
        }
        match map_memory(descriptor, size, limit) {
            Ok(memory) => return Ok(Self { memory, bytes: size, view: None }),
            // A file: no memfd, or without seals.
            Err(MapError::NotMemfd { .. } | MapError::MissingSeals { .. }) => {}
            Err(fault) => return Err(fault.into()),
        }
        let len = usize::try_from(size).map_err(std::io::Error::other)?;
        let view = FileView::read_only(descriptor.as_fd(), len)?.guarded()?;
        let view = Arc::new(View(view));
        let memory = PeerMem::new(Arc::<View>::clone(&view));
        Ok(Self { memory, bytes: size, view: Some(view) })
    }

    /// The parts, if this is the memory that `attach` speaks of.
    pub(super) fn of(self, attach: &Attach) -> Option<PeerMemory> {
        // Copy once, check, then use.
        let mut page = vec![0; usize::try_from(PAGE_BYTES).ok()?];
        self.memory.copy(0, &mut page);
        let (header, geometry) = header::check(&page, self.bytes, None).ok()?;
        let is_it = header.store_id == attach.identity.store_id.0.to_le_bytes()
            && geometry.ring.bytes() == attach.window.ring_bytes
            && geometry.slab_bytes == attach.window.slab_bytes;
        let peer_memory = PeerMemory {
            control: self.memory.part(LINK_CONTROL_OFFSET, PAGE_BYTES)?,
            ring: self.memory.part(geometry.ring_offset, geometry.ring.bytes())?,
            slab: self.memory.part(geometry.slab_offset, geometry.slab_bytes)?,
            ring_size: geometry.ring,
            view: self.view,
        };
        is_it.then_some(peer_memory)
    }
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({} bytes)", self.bytes)
    }
}

/// The parts of a neighbour's memory. Its owner may change any byte at any time.
#[derive(Debug)]
pub(super) struct PeerMemory {
    pub(super) control: PeerMem,
    pub(super) ring: PeerMem,
    pub(super) slab: PeerMem,
    pub(super) ring_size: RingSize,
    view: Option<Arc<View>>,
}

impl PeerMemory {
    /// Whether zeros lie in the place of what was truncated. What was copied before this was asked may be of these.
    #[inline]
    pub(super) fn is_damaged(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.0.is_damaged())
    }
}

#[derive(Debug)]
struct View(FileView);

impl Readable for View {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        self.0.cells()
    }
}
