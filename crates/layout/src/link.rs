// SPDX-License-Identifier: MIT OR Apache-2.0
//! One file of a link: the half that outlives its process (SPEC 13).
//!
//! ```text
//!  0       header page    header.rs    LinkHeader; written once, before the file has its name
//!  4096    owner page     owner.rs     OwnerRecord, two slots: at 0 and at 2048
//!  8192    state page     state.rs     StateImage, two slots: at 0 and at 2048; past.rs skip.rs parts of it, which
//!                                      frames have, too
//!  12288   control page   consumed.rs  as that of a half (SPEC 3.3); in the line of `consumed`, from 16 and from 64,
//!                                      two slots, each a ConsumedRecord and a word
//!  ring_offset      record ring   ┐
//!  release_offset   release ring  ├ where the header says, each at a multiple of 4096, not before 16384
//!  slab_offset      slab          ┘
//! ```
//!
//! What two ends say to each other beside their records is in `frame.rs` (SPEC 15).
//! What lies in the ring, and goes over sockets too, are records that prove themselves: `record.rs`, and `compact.rs` for those
//! without a prefix (SPEC 14).
//!
//! What changes lies in pairs of slots (`slot.rs`), so that a process killed between any two stores leaves the
//! image before. What a file can say that is not true is a [`FileFault`]. Nothing here reads a file, knows who
//! lives, or repairs anything.

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
pub use owner::OwnerRecord;
pub use past::Previous;
pub use record::{LinkBlob, LinkPrefix, LinkRecord, RecordFault};
pub use skip::SkipFields;
pub use slot::{Slot, in_force};
pub use state::{Report, StateImage};

use crate::segment::ASLEEP_ROOM;

/// Where the owner page begins.
pub const OWNER_OFFSET: u64 = 4096;
/// Where the state page begins.
pub const STATE_OFFSET: u64 = 8192;
/// Where the control page begins.
pub const LINK_CONTROL_OFFSET: u64 = 12288;
/// Ring, release ring and slab lie from here on.
pub const PARTS_OFFSET: u64 = 16384;

/// How far the second slot of the owner page, and of the state page, lies behind the first.
pub const PAGE_SLOT_STRIDE: u64 = 2048;
/// Where the first slot lies in the control page.
pub const CONSUMED_SLOT: u64 = 16;
/// How far the second lies behind it.
pub const CONSUMED_SLOT_STRIDE: u64 = 48;

/// Where in the control page it says of which stream the records in the ring are.
pub const SENDING_STREAM: u64 = ASLEEP_ROOM + 64;

/// Where in the control page it says how far messages were handed to the application.
pub const DELIVERED: u64 = 112;
/// Where it says of which stream.
pub const DELIVERED_STREAM: u64 = 120;

const _: () = assert!(CONSUMED_SLOT + 2 * CONSUMED_SLOT_STRIDE == DELIVERED);

/// What is in force in a file, all of it checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// What was written once.
    pub header: LinkHeader,
    /// Where ring, release ring and slab lie.
    pub geometry: LinkGeometry,
    /// Who owns it, or did last.
    pub owner: OwnerRecord,
    /// The streams.
    pub state: StateImage,
    /// How far the neighbour's stream was consumed.
    pub consumed: Consumed,
}

impl Image {
    /// Judges the first [`PARTS_OFFSET`] bytes of a file of `file_bytes`, in the order of SPEC 13.6. With `names`, it
    /// must be the file of that link. Fewer bytes are those of a file that has no more.
    ///
    /// # Errors
    /// The first rule that is broken.
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

    /// How far the neighbour's stream was consumed, and the proof of that place: what the state says, or what was
    /// consumed of the same stream since (SPEC 13.5).
    #[must_use]
    pub fn consumed_to(&self) -> (u64, u32) {
        self.consumed.with(&self.state)
    }
}
