// SPDX-License-Identifier: MIT OR Apache-2.0
//! The file of one end of a link: a region that outlives the process that owns it (SPEC 13).
//!
//! ```text
//!  0       header page    header.rs    LinkHeader; written once, before the file gets its name
//!  4096    owner page     owner.rs     OwnerRecord, two slots: at 0 and at 2048
//!  8192    state page     state.rs     StateImage, two slots: at 0 and at 2048; past.rs and
//!                                      skip.rs are parts of a StateImage and of frames
//!  12288   control page   consumed.rs  as in a region (SPEC 3.3). After the word
//!                                      `consumed`, at 16 and 64, are two slots, each with
//!                                      a ConsumedRecord and a `since` word
//!  ring_offset      record ring   ┐
//!  release_offset   release ring  ├ offsets in the header: multiples of 4096, from 16384 on
//!  slab_offset      slab          ┘
//! ```
//!
//! `frame.rs` defines the frames that two ends exchange between their records (SPEC 15). The ring
//! holds, and sockets carry, records with their own checksum (SPEC 14): `record.rs` defines them,
//! and `compact.rs` defines the records without a prefix.
//!
//! Owner, state and consumed position are each replaced as a whole: the new content goes into the
//! other of two slots (`slot.rs`). So a process killed between any two stores leaves the previous
//! content intact. Invalid content of a file is a [`FileFault`]. This module reads no file, does
//! not know which process lives, and repairs nothing.

mod checksum;
pub mod compact;
pub mod consumed;
mod fault;
pub mod frame;
pub mod header;
pub mod owner;
pub mod past;
pub mod record;
pub mod skip;
pub mod slot;
pub mod state;

pub use consumed::{Consumed, ConsumedRecord};
pub use fault::FileFault;
pub use header::{LinkGeometry, LinkHeader, file_name_hash};
pub use owner::{Closing, OwnerRecord};
pub use past::Previous;
pub use record::{LinkBlob, LinkPrefix, LinkRecord, RecordFault};
pub use skip::SkipFields;
pub use slot::{Slot, in_force};
pub use state::{Report, StateImage};

use crate::segment::ASLEEP_ROOM;

/// Offset of the owner page in a link's file, in bytes.
pub const OWNER_OFFSET: u64 = 4096;
/// Offset of the state page in a link's file, in bytes.
pub const STATE_OFFSET: u64 = 8192;
/// Offset of the control page in a link's file, in bytes.
pub const LINK_CONTROL_OFFSET: u64 = 12288;
/// Lowest offset in a link's file at which its parts may begin, in bytes: the record ring, the
/// release ring and the slab.
pub const PARTS_OFFSET: u64 = 16384;

/// Distance between the two slots of the owner page, and of the state page, in bytes.
pub const PAGE_SLOT_STRIDE: u64 = 2048;
/// Offset in a link file's control page of the first slot for the consumed position, in bytes.
pub const CONSUMED_SLOT: u64 = 16;
/// Distance between the two slots of a link file's control page, in bytes.
pub const CONSUMED_SLOT_STRIDE: u64 = 48;

/// Offset in a link file's control page of the id of the stream whose records are in the ring.
pub const SENDING_STREAM: u64 = ASLEEP_ROOM + 64;

/// Offset in a link file's control page of the position up to which messages were delivered to the
/// application.
pub const DELIVERED: u64 = 112;
/// Offset in a link file's control page of the id of the stream to which the position at
/// [`DELIVERED`] belongs.
pub const DELIVERED_STREAM: u64 = 120;

const _: () = assert!(CONSUMED_SLOT + 2 * CONSUMED_SLOT_STRIDE == DELIVERED);

/// The checked contents of a link's file, except its ring and slab: header, owner, state and
/// consumed position. [`check`](Self::check) makes them from the first pages of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The header of the link's file, which is written once.
    pub header: LinkHeader,
    /// The offsets and sizes of the parts of the file: record ring, release ring and slab.
    pub geometry: LinkGeometry,
    /// The process that owns the file, or the last owner if no process owns it now.
    pub owner: OwnerRecord,
    /// The epoch, the positions of the sent and the received stream, and the reports.
    pub state: StateImage,
    /// The position up to which the owner's application has acknowledged the peer's stream.
    pub consumed: Consumed,
}

impl Image {
    /// Checks the first [`PARTS_OFFSET`] bytes of a link's file, which is `file_bytes` bytes long,
    /// in the order of SPEC 13.6. If `names` is given, the file must be that of the link with these
    /// names. If fewer than [`PARTS_OFFSET`] bytes are given, the file is truncated.
    ///
    /// # Errors
    /// A [`FileFault`], the first rule that the file breaks.
    pub fn check(
        pages: &[u8],
        file_bytes: u64,
        names: Option<[&str; 3]>,
    ) -> Result<Self, FileFault> {
        let (header, geometry) = header::check(pages, file_bytes, names)?;
        let page = |offset: u64| {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let short = FileFault::Truncated { expected: PARTS_OFFSET, actual: file_bytes };
            pages.get(start..start.saturating_add(4096)).ok_or(short)
        };
        let owner = owner::check(page(OWNER_OFFSET)?)?;
        let state = state::check(page(STATE_OFFSET)?)?;
        let consumed = consumed::check(page(LINK_CONTROL_OFFSET)?)?;
        Ok(Self { header, geometry, owner, state, consumed })
    }

    /// Returns the position up to which the file's owner has consumed the peer's stream, and the
    /// record digest at that position. The file has both in the consumed record and in the state
    /// image. The consumed record counts if it belongs to the present stream and is further along,
    /// otherwise the state image (SPEC 13.5).
    #[must_use]
    pub fn consumed_to(&self) -> (u64, u32) {
        self.consumed.with(&self.state)
    }
}
