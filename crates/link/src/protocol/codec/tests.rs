// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the codec: frames survive encoding and decoding, changed frames are refused, and the
//! specification's test vectors decode as their table says.

use super::*;
use crate::protocol::samples::{self, position, range, sides, stream};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::fs;
use std::path::PathBuf;

fn decisions() -> impl Strategy<Value = Decision> {
    let digest_at =
        |at: Position, digest: u32| RecordDigest(if at == Position::START { 0 } else { digest });
    prop_oneof![
        position().prop_map(Decision::Resume),
        (range(), any::<u32>()).prop_map(move |(range, digest)| Decision::Gap {
            range,
            digest: digest_at(range.to(), digest)
        }),
        (stream(), range(), position(), any::<u32>()).prop_map(
            move |(of, range, resume, digest)| {
                Decision::Lost { of, range, resume, digest: digest_at(resume, digest) }
            }
        ),
        samples::impossible().prop_map(Decision::Impossible),
        any::<u64>().prop_map(|epoch| Decision::NewEpoch(Epoch(epoch))),
    ]
}

/// Generates a text of at least `least` characters, and at most as long as a refusal's text may be.
fn text(least: usize) -> impl Strategy<Value = String> {
    let long = vec(prop::sample::select(vec!["a", "ß", "€"]), least..86);
    prop_oneof![long.prop_map(|parts| parts.concat()), Just("x".repeat(255))]
}

fn login() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..40), Just(vec![7; LOGIN_BYTES_MAX])]
}

fn refusals() -> impl Strategy<Value = Refusal> {
    prop_oneof![
        any::<u64>().prop_map(|number| Refusal::Stale(ConnectionNumber(number))),
        (1..=u64::MAX).prop_map(|number| Refusal::Fenced(Incarnation(number))),
        Just(Refusal::Quarantined),
        text(0).prop_map(Refusal::Unknown),
        text(0).prop_map(Refusal::Rejected),
        text(0).prop_map(Refusal::TooLarge),
        text(0).prop_map(Refusal::Busy),
        (1_u16.., 1_u16..).prop_map(|(a, b)| Refusal::Version(a.min(b), a.max(b))),
    ]
}

fn frames() -> impl Strategy<Value = Frame> {
    let nonce = || any::<u64>().prop_map(Nonce);
    let names = (text(1), text(1), text(1)).prop_map(|(client, server, link)| Names {
        client,
        server,
        link,
    });
    prop_oneof![
        (sides(), names, login()).prop_map(|(attach, names, login)| Frame::Attach {
            attach,
            names,
            login
        }),
        (sides(), nonce(), decisions(), login()).prop_map(|(attach, echo, decision, login)| {
            Frame::Attached { attach, echo, decision, login }
        }),
        (nonce(), refusals()).prop_map(|(echo, refusal)| Frame::Refuse { echo, refusal }),
        (nonce(), decisions(), position()).prop_map(|(echo, decision, tail)| Frame::Confirm {
            echo,
            decision,
            tail
        }),
        (option::of(stream()), position(), position()).prop_map(|(stream, consumed, tail)| {
            let consumed = if stream.is_some() { consumed } else { Position::START };
            Frame::Begin { stream, consumed, tail }
        }),
        (stream(), position()).prop_map(|(stream, consumed)| Frame::Ack { stream, consumed }),
        Just(Frame::Leave),
        Just(Frame::Share),
    ]
}

fn encoded(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, &mut bytes);
    bytes
}

fn decoded(bytes: &[u8]) -> Result<Frame, FrameFault> {
    let (header, body) = bytes.split_first_chunk().unwrap();
    decode(header, body)
}

proptest! {
    #[test]
    fn frames_are_read_as_they_were_written(frame in frames()) {
        let mut bytes = vec![1, 2, 3];
        encode(&frame, &mut bytes);
        let bytes = &bytes[3..];
        let (header, body) = bytes.split_first_chunk().unwrap();
        prop_assert_eq!(body_bytes(header), Ok(body.len()));
        prop_assert!(body.len() <= FRAME_BODY_MAX && bytes[0] & 1 == 0);
        prop_assert_eq!(decode(header, body), Ok(frame));
    }

    #[test]
    fn no_changed_bit_is_overlooked(frame in frames(), at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let mut bytes = encoded(&frame);
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(decoded(&bytes).is_err(), "byte {} of {:?}", at, frame);
    }

    /// Rule: if a changed frame is decoded without a fault, encoding the result gives the same
    /// bytes again. The test corrects the checksum of each changed frame, so that decoding reaches
    /// every field.
    #[test]
    fn what_is_taken_is_written_the_same(
        frame in frames(), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
    ) {
        let mut bytes = encoded(&frame);
        let kind = read_header(bytes.first_chunk().unwrap()).check().unwrap().0;
        let (header, body) = bytes.split_at_mut(FRAME_HEADER_BYTES);
        if !body.is_empty() {
            changes.iter().for_each(|(at, value)| body[at.index(body.len())] = *value);
        }
        header.copy_from_slice(FrameHeader::new(kind, body).as_bytes());
        if let Ok(taken) = decoded(&bytes) {
            let written = encoded(&taken);
            // A changed ATTACH frame may offer versions that only a newer client has. Encoding
            // writes only the versions of this implementation, so for ATTACH only the bytes after
            // the versions are compared.
            let is_same = written == bytes || kind == FrameKind::Attach && written[28..] == bytes[28..];
            prop_assert!(is_same, "{:?}", taken);
        }
    }
}

#[test]
fn a_text_is_cut_between_characters() {
    let refusal = Refusal::Busy("€".repeat(100));
    let frame = decoded(&encoded(&Frame::Refuse { echo: Nonce(1), refusal })).unwrap();
    let refusal = Refusal::Busy("€".repeat(85));
    assert_eq!(frame, Frame::Refuse { echo: Nonce(1), refusal });
}

/// Rule: each test vector that the layout crate generates is accepted or refused as its row says
/// (SPEC 15.5).
#[test]
fn the_files_of_the_specification_are_taken_or_refused_as_their_rows_say() {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/link-frames");
    let text = fs::read_to_string(directory.join("INDEX.md")).unwrap();
    let (mut taken, mut refused) = (0, 0);
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> =
            line.split(" | ").map(|cell| cell.trim_matches(['|', ' ', '`'])).collect();
        let bytes = fs::read(directory.join(cells[0])).unwrap();
        match decoded(&bytes) {
            Ok(frame) => {
                assert!(cells[3].parse::<u32>().is_err(), "{}: {frame:?}", cells[0]);
                let is_ours = cells[0] != "link-frame-attach-later.bin";
                assert_eq!(encoded(&frame) == bytes, is_ours, "{}", cells[0]);
                taken += 1;
            }
            Err(fault) => {
                assert_eq!(fault.code().to_string(), cells[3], "{}: {fault}", cells[0]);
                refused += 1;
            }
        }
    }
    assert!(taken > 10 && refused > 30, "{taken} taken, {refused} refused");
}
