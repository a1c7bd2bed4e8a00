// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads any bytes as the pages of a link file. The result is an `Image`, the checked content of
//! the file, or a fault (SPEC 13.6). Half of the inputs get valid checksums, so that the later
//! checks are reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::link::slot::{SEAL_BYTES, seal};
use partywall_layout::link::{
    CONSUMED_SLOT, Image, LINK_CONTROL_OFFSET, LinkGeometry, LinkHeader, OWNER_OFFSET,
    PARTS_OFFSET, STATE_OFFSET,
};
use zerocopy::{FromBytes, IntoBytes};

const NAMES: [&str; 3] = ["alice", "bob", "orders"];

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let Some(geometry) = LinkGeometry::new(4096, 8, 0) else { return };
    let Some(header) = LinkHeader::new(&geometry, NAMES, [1; 16], 0) else { return };
    let size = usize::try_from(PARTS_OFFSET).unwrap_or(0);
    let mut pages = vec![0; size];
    pages[..4096].copy_from_slice(header.as_bytes());
    // The fuzzer's bytes either overwrite the header of the file or begin after the header page.
    let start = if choice & 2 == 0 { 0 } else { 4096 };
    let len = rest.len().min(size - start);
    pages[start..start + len].copy_from_slice(&rest[..len]);
    if choice & 1 == 0 {
        if let Ok((header, _)) = LinkHeader::read_from_prefix(&pages) {
            pages[..4096].copy_from_slice(header.sealed().as_bytes());
        }
        for (offset, len) in slots() {
            let sealed = seal(&pages[offset..offset + len - SEAL_BYTES]);
            let end = offset + len;
            pages[end - SEAL_BYTES..end].copy_from_slice(&sealed.to_le_bytes());
        }
    }
    match Image::check(&pages, geometry.file_bytes, Some(NAMES)) {
        Ok(image) => {
            assert_eq!(image.header.names(), NAMES);
            assert!(image.geometry.ring_offset >= PARTS_OFFSET);
            assert!(image.geometry.slab_offset + image.geometry.slab_bytes <= geometry.file_bytes);
            assert!(image.state.sending_base <= image.state.sending_acked);
            assert!(image.consumed_to().0 % 64 == 0);
        }
        Err(fault) => assert!((1..=14).contains(&fault.code()), "{fault}"),
    }
});

/// Offset and length, in bytes, of each slot of a link file.
fn slots() -> [(usize, usize); 6] {
    let at = |offset: u64| usize::try_from(offset).unwrap_or(0);
    let (owner, state) = (at(OWNER_OFFSET), at(STATE_OFFSET));
    let consumed = at(LINK_CONTROL_OFFSET + CONSUMED_SLOT);
    [
        (owner, 128),
        (owner + 2048, 128),
        (state, 2048),
        (state + 2048, 2048),
        (consumed, 40),
        (consumed + 48, 40),
    ]
}
