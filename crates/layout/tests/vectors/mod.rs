// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of SPEC 10, made byte by byte from the types of this crate, and a reader for them.
//!
//! ```text
//!  writer.rs    a ring image, or a socket stream, as an honest sender leaves it
//!  golden.rs    what must be understood, with the line it must be read as
//!  hostile.rs   what must be refused, with the code of the rule that it breaks
//!  reader.rs    SPEC 4, 5 and 8 for a channel, as short as they can be written down
//!  links.rs     files of links, good and bad, with what each must be read as
//!  link_states.rs   a state with everything in it, and the contradictions that one can have
//!  link_frames.rs   frames of links, good and bad
//!  link_records.rs  records of links, likewise
//!  index.rs     the tables that name the images
//! ```
//!
//! Shared by the example that writes the files and by the tests that read them.
#![allow(
    clippy::unwrap_used,
    reason = "the images are our own, and a wrong one must stop the test"
)]

pub mod golden;
pub mod hostile;
pub mod index;
pub mod link_frames;
pub mod link_records;
pub mod link_states;
pub mod links;
pub mod reader;
pub mod writer;

/// Size of the ring of the region that the images belong to, in bytes.
pub const RING_BYTES: u64 = 4096;
/// Entries of its release ring.
pub const PEER_BLOCKS_MAX: u64 = 8;
/// Size of the region, of which 112 KiB are slab.
pub const REGION_BYTES: u64 = 128 << 10;
/// The session: the nonce in `hello.bin`.
pub const SESSION: [u8; 16] = *b"0123456789abcdef";

/// One image and the row that its index has for it.
pub struct Image {
    /// Name of the file.
    pub name: String,
    /// `frame`, `region`, `ring`, `session`, `socket`, `link`, `link frame` or `record`: how to
    /// read it.
    pub kind: &'static str,
    /// The position at which the reader of a ring stands.
    pub from: u64,
    /// The line it must be read as, or the code of the violation.
    pub expected: String,
    /// The rule or case that the image shows.
    pub about: &'static str,
    /// The content of the file.
    pub bytes: Vec<u8>,
}

/// `len` bytes 0, 1, 2 ... whose sum says whether they arrived.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..=255).cycle().take(len).collect()
}
