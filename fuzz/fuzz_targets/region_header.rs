// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks any bytes as a region header. The result is parts that follow each other within the
//! region, or a violation (SPEC 3.2). A tool reads the same bytes as an identity: its texts are
//! bounded and printable (SPEC 3.4).
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::identity::{
    ADDRESS, CHANGED, IDENTITY_BYTES, LAST_ERROR, PROGRAM, RegionIdentity, STATE, TEXT_BYTES_MAX,
};
use partywall_layout::segment::{CONTROL_OFFSET, GRAIN_BYTES, PAGE_BYTES};
use partywall_layout::{Geometry, RegionHeader};
use zerocopy::{FromBytes, IntoBytes};

const SESSION: [u8; 16] = *b"0123456789abcdef";

fuzz_target!(|bytes: &[u8]| {
    identity(bytes);
    let Ok((mut header, rest)) = RegionHeader::read_from_prefix(bytes) else { return };
    let Some((choice, _)) = rest.split_first() else { return };
    let region_bytes = (1 + u64::from(*choice)) * GRAIN_BYTES;
    if choice % 2 == 0 {
        // The fuzzer changes only the geometry of this valid header, because it could not guess the
        // session id.
        let good = Geometry::new(4096, 8, 0).map(|good| good.header(SESSION, 1, 1));
        let Some(good) = good else { return };
        header = RegionHeader {
            region_size: region_bytes.into(),
            ring_offset: header.ring_offset,
            ring_size: header.ring_size,
            release_offset: header.release_offset,
            peer_blocks_max: header.peer_blocks_max,
            slab_offset: header.slab_offset,
            slab_size: header.slab_size,
            ..good
        };
    }
    match Geometry::check(&header, region_bytes, &SESSION, 1) {
        Ok(geometry) => {
            assert!(geometry.ring_offset >= CONTROL_OFFSET + PAGE_BYTES);
            assert!(geometry.release_offset >= geometry.ring_offset + geometry.ring.bytes());
            let release_end = geometry.release_offset + 8 * geometry.peer_blocks_max;
            assert!(geometry.slab_offset >= release_end);
            assert!(geometry.slab_offset + geometry.slab_bytes <= region_bytes);
        }
        Err(violation) => assert_eq!(violation.code(), 1),
    }
});

/// Reads `bytes` as a region's identity, the fields that name its owner. First the bytes replace
/// the whole header; then they fill only the identity's fields of an otherwise valid header.
fn identity(bytes: &[u8]) {
    if let Ok(identity) = RegionIdentity::read(bytes) {
        assert_printable(&identity);
    }
    let Some(good) = Geometry::new(4096, 8, 0).map(|good| good.header(SESSION, 1, 1)) else {
        return;
    };
    let mut pages = [0; IDENTITY_BYTES];
    // The input fills the region's identity: fields of the header, address, program, then the words
    // of state and last error.
    let places = [108, ADDRESS, CONTROL_OFFSET + PROGRAM, CONTROL_OFFSET + STATE];
    let sizes = [12, TEXT_BYTES_MAX + 2, TEXT_BYTES_MAX + 2, 24];
    pages[..size_of::<RegionHeader>()].copy_from_slice(good.as_bytes());
    let mut rest = bytes;
    for (place, size) in places.into_iter().zip(sizes) {
        let (part, after) = rest.split_at(size.min(rest.len()));
        pages[place as usize..][..part.len()].copy_from_slice(part);
        rest = after;
    }
    let identity = RegionIdentity::read(&pages).expect("the header is valid");
    assert_printable(&identity);
    let word = |offset| identity.word(offset);
    assert_eq!(identity.state(), word(STATE));
    assert_eq!((identity.last_error(), identity.changed_ns()), (word(LAST_ERROR), word(CHANGED)));
}

fn assert_printable(identity: &RegionIdentity<'_>) {
    for text in [identity.address(), identity.program()] {
        assert!(text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control));
    }
}
