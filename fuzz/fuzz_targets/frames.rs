// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses any bytes as a handshake frame. The result is a frame or a violation (SPEC 2.2).
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_layout::hello::{self, FRAME_BYTES_MAX, Frame, PREAMBLE_BYTES, REJECT_TEXT_MAX};

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.first_chunk::<PREAMBLE_BYTES>().map(hello::frame_length);
    if let Some(Ok(length)) = length {
        assert!((PREAMBLE_BYTES..=FRAME_BYTES_MAX).contains(&length));
        // A frame that was read from a socket has the length that its header announces. So the
        // input is cut to that length, if it is long enough.
        if let Some(frame) = bytes.get(..length) {
            check(frame);
        }
    }
    if let Ok(frame) = hello::parse(bytes) {
        assert_eq!(length, Some(Ok(bytes.len())), "{frame:?} has another length than it says");
    }
});

fn check(bytes: &[u8]) {
    match hello::parse(bytes) {
        Ok(Frame::Hello(hello)) => assert!(hello.version_min <= hello.version_max),
        Ok(Frame::Reject(_, text)) => assert!(text.len() <= REJECT_TEXT_MAX),
        Ok(_) => {}
        Err(violation) => assert_eq!(violation.code(), 15),
    }
}
