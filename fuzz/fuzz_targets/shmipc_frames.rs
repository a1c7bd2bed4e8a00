// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses any bytes, in any pieces, as established shmipc traffic. The result is messages or one
//! error, whatever the division into pieces, and never uses more memory than the limit.
//!
//! ```text
//!  input:  limit on a message's bytes (2) | length of the pieces (1) | steps
//!  step:   action (1) | length (2) | as many bytes as the length says
//!  The action appends to the traffic
//!    0  the bytes as they are
//!    1  a header of any kind and length, then the bytes
//!    2  a message with a valid header
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall_shmipc::wire::{Frame, FrameError, Header, Kind, Parser, encode};

fuzz_target!(|input: &[u8]| {
    let [low, high, piece, steps @ ..] = input else { return };
    let limit = u32::from(u16::from_le_bytes([*low, *high])) << 2;
    let stream = stream(steps);
    let whole = parse(limit, &stream, stream.len().max(1));
    let pieces = parse(limit, &stream, usize::from(*piece) * 37 + 1);
    assert_eq!(whole, pieces, "it depends on how the bytes are cut");
});

fn stream(mut rest: &[u8]) -> Vec<u8> {
    let mut stream = Vec::new();
    while let [step, low, high, after @ ..] = rest {
        let length = u16::from_le_bytes([*low, *high]);
        let (bytes, after) = after.split_at(after.len().min(usize::from(length) % 512));
        match step % 3 {
            0 => stream.extend_from_slice(bytes),
            1 => {
                let kind = Kind::from_number(step >> 4).unwrap_or(Kind::Polling);
                let length = u32::from(length) << (step >> 2 & 3);
                stream.extend_from_slice(&Header { length, version: step >> 6, kind }.to_bytes());
                stream.extend_from_slice(bytes);
            }
            _ => {
                // Appends to the stream under test a frame with a valid header, whose payload is
                // one message. Some payloads are so long that the parser copies them directly into
                // the message's memory, not through its own buffer.
                let count = bytes.len() << (step >> 2 & 15);
                let count = count.min(STREAM_BYTES_MAX);
                let id = u32::from(length);
                stream.extend_from_slice(&encode::fallback_header(3, id, count as u32));
                stream.resize(stream.len() + count, *step);
            }
        }
        rest = after;
        if stream.len() > STREAM_BYTES_MAX {
            break;
        }
    }
    stream
}

fn parse(limit: u32, stream: &[u8], piece_bytes: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut parser = Parser::new(limit);
    let mut frames = Vec::new();
    for piece in stream.chunks(piece_bytes) {
        let mut rest = piece;
        while !rest.is_empty() {
            assert!(parser.wanted().len() <= limit.max(64 << 10) as usize);
            let taken = parser.feed(rest);
            assert_ne!(taken, 0, "it takes nothing and says nothing");
            rest = &rest[taken..];
            loop {
                match parser.next() {
                    Ok(Some(frame)) => frames.push(checked(frame, limit)),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(!error.to_string().is_empty());
                        assert_eq!(parser.next(), Err(error.clone()));
                        return (frames, Some(error));
                    }
                }
            }
        }
    }
    (frames, None)
}

fn checked(frame: Frame, limit: u32) -> Frame {
    if let Frame::Fallback { payload, .. } = &frame {
        assert!(payload.len() <= limit as usize, "more than was allowed");
    }
    frame
}

/// Maximum length in bytes of the parsed traffic, enough to fill the parser's buffer several times.
const STREAM_BYTES_MAX: usize = 300 << 10;
