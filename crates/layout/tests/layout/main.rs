// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the checks of `partywall_layout` against golden vectors (valid images), hostile images
//! (invalid ones) and arbitrary bytes.

#[allow(dead_code, reason = "the example that makes the vectors uses the rest")]
#[path = "../vectors/mod.rs"]
mod vectors;

mod arbitrary_bytes;
mod golden_vectors;
mod hostile_images;
mod link_files;
mod link_frames;
mod link_records;
mod session_images;
