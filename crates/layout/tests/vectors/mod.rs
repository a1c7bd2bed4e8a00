// SPDX-License-Identifier: MIT OR Apache-2.0
//! The images of SPEC 10, files with which every implementation is tested: made byte by byte from
//! the types of this crate, with a reader for them.
//!
//! ```text
//!  writer.rs    a ring image, or a socket stream, as an honest sender leaves it
//!  golden.rs    images to be understood, each with the line that states its content
//!  hostile.rs   images to be refused, each with the code of the rule that it breaks
//!  handshakes.rs  transcripts of handshakes, for either role
//!  identity.rs  pages that tools read, of honest and hostile owners
//!  reader.rs    the receiving rules of SPEC 4, 5 and 8 for a channel, in the shortest form
//!  links.rs     files of links, valid and invalid, each with its content or the rule it breaks
//!  link_states.rs   a state with every field set, and states with contradictory fields
//!  link_frames.rs   frames of links, valid and invalid
//!  link_records.rs  records of links, valid and invalid
//!  sessions.rs  record sequences of sessions, those that SPEC 11 allows and those it forbids
//!  session_reader.rs   the rules of SPEC 11 for the records that one side receives
//!  index.rs     the files INDEX.md, whose tables have one row for each image
//! ```
//!
//! The example that writes the files and the tests that read them share this module.
#![allow(
    clippy::unwrap_used,
    reason = "the images are our own, and a wrong one must stop the test"
)]

pub mod golden;
pub mod handshakes;
pub mod hostile;
pub mod identity;
pub mod index;
pub mod link_frames;
pub mod link_records;
pub mod link_states;
pub mod links;
pub mod reader;
mod session_reader;
pub mod sessions;
pub mod writer;

/// Size in bytes of the record ring in the one region to which all test images of this crate
/// belong.
pub const RING_BYTES: u64 = 4096;
/// Number of entries of the release ring in the one region to which all test images of this crate
/// belong.
pub const PEER_BLOCKS_MAX: u64 = 8;
/// Size in bytes of the one region to which all test images of this crate belong; 112 KiB of it are
/// slab.
pub const REGION_BYTES: u64 = 128 << 10;
/// Session id of the one region to which all test images of this crate belong: the nonce in
/// `hello.bin`.
pub const SESSION: [u8; 16] = *b"0123456789abcdef";

/// One image, the content of a test file, with the columns of its row in INDEX.md.
pub struct Image {
    pub name: String,
    /// The kind of the file's content, which says how to read the file: `frame`, `identity`,
    /// `region`, `ring`, `session`, `socket`, `link`, `link frame` or `record`.
    pub kind: &'static str,
    /// The position in the ring at which the reader begins, if the image is a ring or a link
    /// record; 0 otherwise.
    pub from: u64,
    /// The expected result of the reader: the line that states the content, or the number of the
    /// broken rule.
    pub expected: String,
    /// The rule of SPEC or the case that the image shows, as text for its row in INDEX.md.
    pub about: &'static str,
    pub bytes: Vec<u8>,
}

/// Returns the `len` bytes 0, 1, 2 …. The reader prints the sum of such a payload, which shows
/// whether all its bytes arrived.
pub fn pattern(len: usize) -> Vec<u8> {
    (0..=255).cycle().take(len).collect()
}
