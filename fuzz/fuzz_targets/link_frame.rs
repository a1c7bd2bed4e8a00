// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decodes any bytes as a link frame. The result is a frame that encodes to the same bytes, or a
//! fault (SPEC 15). Half of the inputs get a valid checksum, so that the later checks are reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_link::protocol::codec::{
    FRAME_BODY_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameKind, body_bytes, decode, encode,
};
use partywall_link::protocol::frame::Frame;
use zerocopy::IntoBytes;

fuzz_target!(|bytes: &[u8]| {
    let Some((choice, rest)) = bytes.split_first() else { return };
    let Some((mut header, body)) = rest.split_first_chunk().map(|(h, b)| (*h, b)) else { return };
    if choice & 1 == 0 {
        let body = &body[..body.len().min(FRAME_BODY_MAX)];
        header.copy_from_slice(FrameHeader::new(kind(choice >> 1), body).as_bytes());
    }
    let announced = body_bytes(&header);
    assert!(announced.is_err() || announced.is_ok_and(|bytes| bytes <= FRAME_BODY_MAX));
    match decode(&header, body) {
        Ok(frame) => {
            assert_eq!(announced, Ok(body.len()));
            let mut written = Vec::new();
            encode(&frame, &mut written);
            // A decoded ATTACH frame may offer versions of the protocol that only later clients
            // have. Encoding the frame again replaces them by the versions of this crate. All other
            // bytes must be equal.
            let versions = if matches!(frame, Frame::Attach { .. }) { 12 } else { 0 };
            assert!(written[FRAME_HEADER_BYTES + versions..] == body[versions..], "{frame:?}");
            let (header, body) = written.split_first_chunk().expect("a frame has a header");
            assert_eq!(decode(header, body), Ok(frame));
        }
        Err(fault) => assert!((1..=7).contains(&fault.code()), "{fault}"),
    }
});

fn kind(number: u8) -> FrameKind {
    match number % 8 {
        0 => FrameKind::Attach,
        1 => FrameKind::Attached,
        2 => FrameKind::Refuse,
        3 => FrameKind::Confirm,
        4 => FrameKind::Begin,
        5 => FrameKind::Ack,
        6 => FrameKind::Leave,
        _ => FrameKind::Share,
    }
}
