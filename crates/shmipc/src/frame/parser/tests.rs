// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the parser returns the messages that were encoded, however the bytes are cut. No
//! bytes make the parser panic.

use super::super::encode;
use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes_of(frame: &Frame, version: u8) -> Vec<u8> {
    match frame {
        Frame::Polling => encode::polling(version).to_vec(),
        Frame::StreamClose { stream } => encode::stream_close(version, *stream).to_vec(),
        Frame::Fallback { stream, status, payload } => {
            let length = u32::try_from(payload.len()).unwrap();
            let mut bytes = encode::fallback_header(version, *stream, length).to_vec();
            bytes[15] = *status;
            bytes.extend_from_slice(payload);
            bytes
        }
        Frame::HotRestart { epoch } => encode::hot_restart(version, *epoch).to_vec(),
        Frame::HotRestartAck { epoch } => encode::hot_restart_ack(version, *epoch).to_vec(),
    }
}

fn fallback(stream: u32, payload: Vec<u8>) -> Frame {
    Frame::Fallback { stream, status: 0, payload }
}

/// Feeds `bytes` to a parser in pieces of `piece_bytes` bytes. Returns the parsed frames, and the
/// error with which the parser stopped, if any.
fn parse(
    parser: &mut Parser,
    bytes: &[u8],
    piece_bytes: usize,
) -> (Vec<Frame>, Option<FrameError>) {
    let mut frames = Vec::new();
    for piece in bytes.chunks(piece_bytes) {
        let mut rest = piece;
        while !rest.is_empty() {
            let taken = parser.feed(rest);
            rest = &rest[taken..];
            loop {
                match parser.next() {
                    Ok(Some(frame)) => frames.push(frame),
                    Ok(None) => break,
                    Err(error) => return (frames, Some(error)),
                }
            }
            assert_ne!(taken, 0, "the parser takes nothing and says nothing");
        }
    }
    (frames, None)
}

fn error_of(bytes: &[u8]) -> String {
    let mut parser = Parser::new(100);
    assert_eq!(parser.feed(bytes), bytes.len());
    let error = parser.next().unwrap_err();
    assert_eq!(parser.next(), Err(error.clone()), "an error stays");
    error.to_string()
}

#[test]
fn golden_bytes_are_understood() {
    let bytes = b"\0\0\0\x08\x77\x58\x03\x01\
        \0\0\0\x0c\x77\x58\x03\x02\0\0\0\x02\
        \0\0\0\x15\x77\x58\x03\x03\0\0\0\x02\0\0\0\0hello\
        \0\0\0\x10\x77\x58\x02\x08\0\0\0\0\0\0\x04\x62\
        \0\0\0\x10\x77\x58\x02\x09\0\0\0\0\0\0\x04\x62\
        \0\0\0\x08\x77\x58\x02\x01";
    for piece_bytes in 1..bytes.len() {
        let (frames, error) = parse(&mut Parser::new(100), bytes, piece_bytes);
        assert_eq!(error, None);
        assert_eq!(
            frames,
            [
                Frame::Polling,
                Frame::StreamClose { stream: 2 },
                fallback(2, b"hello".to_vec()),
                Frame::HotRestart { epoch: 1122 },
                Frame::HotRestartAck { epoch: 1122 },
                Frame::Polling,
            ]
        );
    }
}

#[test]
fn only_eight_bits_of_a_status_count() {
    let mut parser = Parser::new(100);
    parser.feed(b"\0\0\0\x10\x77\x58\x03\x03\0\0\0\x02\xff\xff\xff\x01");
    let frame = Frame::Fallback { stream: 2, status: 1, payload: Vec::new() };
    assert_eq!(parser.next(), Ok(Some(frame)));
}

#[test]
fn versions_1_to_3_are_accepted_after_the_handshake() {
    for version in 1..=3 {
        let mut parser = Parser::new(100);
        parser.feed(&encode::polling(version));
        assert_eq!(parser.next(), Ok(Some(Frame::Polling)));
    }
    for version in [0, 4, 255] {
        let expected = format!(
            "a message of version {version} came; after the handshake they have version 1, 2 or 3"
        );
        assert_eq!(error_of(&encode::polling(version)), expected);
    }
}

#[test]
fn a_polling_is_its_header_whatever_length_it_says() {
    let mut parser = Parser::new(100);
    parser.feed(b"\0\0\0\x09\x77\x58\x03\x01\0\0\0\x08\x77\x58\x03\x01");
    assert_eq!(parser.next(), Ok(Some(Frame::Polling)));
    assert_eq!(parser.next(), Ok(Some(Frame::Polling)));
    assert_eq!(
        error_of(b"\0\0\0\x07\x77\x58\x03\x01"),
        "Polling (type 1) has 8 bytes at least, this one says 7"
    );
}

#[test]
fn each_length_is_checked() {
    for length in [8, 11, 13, u32::MAX] {
        let header = Header { length, version: 3, kind: Kind::StreamClose };
        let expected = format!("StreamClose (type 2) has 12 bytes, this one says {length}");
        assert_eq!(error_of(&header.to_bytes()), expected);
        for kind in [Kind::HotRestart, Kind::HotRestartAck] {
            let header = Header { length, version: 3, kind };
            let expected = format!("{kind} has 16 bytes, this one says {length}");
            assert_eq!(error_of(&header.to_bytes()), expected);
        }
    }
    for length in 8..16 {
        let header = Header { length, version: 3, kind: Kind::FallbackData };
        let expected =
            format!("FallbackData (type 3) has 16 bytes at least, this one says {length}");
        assert_eq!(error_of(&header.to_bytes()), expected);
    }
}

#[test]
fn more_data_than_the_limit_is_refused_before_it_comes() {
    for length in [117, u32::MAX] {
        let header = Header { length, version: 3, kind: Kind::FallbackData };
        let expected =
            format!("FallbackData (type 3) of {length} bytes came; at most 116 are accepted");
        assert_eq!(error_of(&header.to_bytes()), expected);
    }
    let mut parser = Parser::new(u32::MAX);
    parser.feed(&Header { length: u32::MAX, version: 3, kind: Kind::FallbackData }.to_bytes());
    assert_eq!(parser.next(), Ok(None), "the largest limit is the largest length");
    let mut parser = Parser::new(100);
    parser.feed(&bytes_of(&fallback(2, vec![7; 100]), 3));
    assert_eq!(parser.next(), Ok(Some(fallback(2, vec![7; 100]))));
}

#[test]
fn messages_of_the_handshake_are_out_of_place() {
    for number in [0, 4, 5, 6, 7, 10] {
        let kind = Kind::from_number(number).unwrap();
        let header = Header { length: 8, version: 3, kind };
        let expected = format!("{kind} came, which has no place after the handshake");
        assert_eq!(error_of(&header.to_bytes()), expected);
    }
    assert_eq!(
        error_of(b"\0\0\0\x08\x77\x58\x03\x2a"),
        "a message of type 42 came; types go from 0 to 10"
    );
}

#[test]
fn a_large_body_is_read_to_where_it_stays() {
    let payload: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_be_bytes()[3]).collect();
    let mut bytes = encode::polling(3).to_vec();
    bytes.extend_from_slice(&bytes_of(&fallback(9, payload.clone()), 3));
    bytes.extend_from_slice(&encode::polling(3));
    let mut parser = Parser::new(PAYLOAD_BYTES_MAX);
    assert_eq!(parser.feed(&bytes), BUFFER_BYTES);
    assert_eq!(parser.next(), Ok(Some(Frame::Polling)));
    assert_eq!(parser.next(), Ok(None));
    assert!(parser.is_within_message());
    let rest = payload.len() - (BUFFER_BYTES - 8 - FALLBACK_HEADER_BYTES);
    let wanted = parser.wanted();
    assert_eq!(wanted.len(), rest, "exactly what is missing of the body");
    let place = wanted.as_ptr_range().end;
    wanted[..1000].copy_from_slice(&bytes[BUFFER_BYTES..BUFFER_BYTES + 1000]);
    parser.filled(1000);
    assert_eq!(parser.next(), Ok(None));
    assert_eq!(parser.feed(&bytes[BUFFER_BYTES + 1000..]), rest - 1000);
    let Ok(Some(Frame::Fallback { payload: received, .. })) = parser.next() else { panic!() };
    assert!(received == payload);
    assert_eq!(received.as_ptr_range().end, place, "it was copied once more");
    assert!(!parser.is_within_message());
    parser.feed(&encode::polling(3));
    assert_eq!(parser.next(), Ok(Some(Frame::Polling)));
}

#[test]
#[should_panic(expected = "more than was wanted")]
fn more_than_was_wanted_cannot_be_filled() {
    Parser::new(100).filled(BUFFER_BYTES + 1);
}

fn frame() -> impl Strategy<Value = Frame> {
    prop_oneof![
        Just(Frame::Polling),
        any::<u32>().prop_map(|stream| Frame::StreamClose { stream }),
        any::<u64>().prop_map(|epoch| Frame::HotRestart { epoch }),
        any::<u64>().prop_map(|epoch| Frame::HotRestartAck { epoch }),
        (any::<u32>(), any::<u8>(), payload())
            .prop_map(|(stream, status, payload)| { Frame::Fallback { stream, status, payload } }),
    ]
}

fn payload() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![0..100_usize, 16_300..16_500_usize, 60_000..140_000_usize];
    (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn messages_come_out_as_they_went_in(
        frames in vec((frame(), 1..=3_u8), 0..12),
        piece_bytes in prop_oneof![1..64_usize, 1000..200_000_usize],
    ) {
        let bytes: Vec<u8> =
            frames.iter().flat_map(|(frame, version)| bytes_of(frame, *version)).collect();
        let mut parser = Parser::new(PAYLOAD_BYTES_MAX);
        let (received, error) = parse(&mut parser, &bytes, piece_bytes);
        prop_assert_eq!(error, None);
        prop_assert!(received.iter().eq(frames.iter().map(|(frame, _)| frame)));
        prop_assert!(!parser.is_within_message());
    }

    #[test]
    fn no_bytes_do_harm(
        raw in vec(any::<u8>(), 0..300),
        patches in vec((any::<u16>(), any::<u8>()), 0..8),
        frames in vec(frame(), 0..4),
        limit in 0..100_000_u32,
        piece_bytes in 1..1000_usize,
    ) {
        let mut bytes: Vec<u8> = frames.iter().flat_map(|frame| bytes_of(frame, 3)).collect();
        bytes.extend_from_slice(&raw);
        for (place, value) in patches {
            let place = usize::from(place) % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        let (received, _) = parse(&mut Parser::new(limit), &bytes, piece_bytes);
        for frame in received {
            if let Frame::Fallback { payload, .. } = frame {
                prop_assert!(payload.len() <= limit as usize);
            }
        }
    }
}
