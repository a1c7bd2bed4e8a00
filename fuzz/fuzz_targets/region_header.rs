// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks any bytes as a region header. The result is parts that follow each other within the
//! region, or a violation (SPEC 3.2).
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::segment::{CONTROL_OFFSET, GRAIN_BYTES, PAGE_BYTES};
use partywall_layout::{Geometry, RegionHeader};
use zerocopy::FromBytes;

const SESSION: [u8; 16] = *b"0123456789abcdef";

fuzz_target!(|bytes: &[u8]| {
    let Ok((mut header, rest)) = RegionHeader::read_from_prefix(bytes) else { return };
    let Some((choice, _)) = rest.split_first() else { return };
    let region_bytes = (1 + u64::from(*choice)) * GRAIN_BYTES;
    if choice % 2 == 0 {
        // The fuzzer changes only the geometry in this valid header, because it could not guess the
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
