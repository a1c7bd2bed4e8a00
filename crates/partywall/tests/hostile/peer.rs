// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with a foe: a peer that has connected correctly and then overwrites every word of its
//! region. The calls of this side report the broken rule or continue correctly. They never panic,
//! hang or use more and more memory.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    Channel, Closed, Config, Fault, Listener, Message, RecvError, SendError, TrustPolicy,
    TryRecvError, Violation, Wait,
};
use partywall_layout::record_ring::{self, Kind};
use partywall_layout::segment::{
    ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, CONTROL_OFFSET, GONE, PAGE_BYTES, QUIET, RELEASED,
};
use partywall_layout::{Geometry, Position};
use partywall_testkit::hostile::channel::{BOTH, Foe, hello};
use partywall_testkit::{Directory, Footprint, Random, Watchdog, millis, within};
use std::time::{Duration, Instant};

const MESSAGE_MAX: u64 = 1 << 20;

/// A listener with small limits on ring, blocks, memory and segments, so that tests soon reach
/// them.
struct Home {
    place: Directory,
    listener: Listener,
}

impl Home {
    fn new(trust: TrustPolicy) -> Self {
        let place = Directory::new();
        let config = Config::default()
            .trust(trust)
            .wait(Wait::Park)
            .ring_bytes(4096)
            .inline_max(512)
            .peer_blocks_max(16)
            .memory_max(MESSAGE_MAX)
            .map_max(2 << 20)
            .segments_max(2);
        let listener = Listener::bind_with(place.address("home"), &config).unwrap();
        Self { place, listener }
    }

    fn meet(&mut self) -> (Foe, Channel) {
        Foe::meet(&mut self.listener, &self.place.path("home"), &hello(BOTH))
    }
}

fn violation(fault: Fault) -> Violation {
    match fault {
        Fault::Violation { violation, peer } => {
            assert!(!violation.to_string().is_empty() && !peer.is_empty());
            violation
        }
        other => panic!("neither a violation nor the end: {other}"),
    }
}

fn received(result: Result<Option<Message>, RecvError>) -> Result<Option<Message>, Violation> {
    match result {
        Ok(message) => Ok(message),
        Err(RecvError::TimedOut | RecvError::Disconnected) => Ok(None),
        Err(RecvError::Fault(fault)) => Err(violation(fault)),
        Err(other) => panic!("{other}"),
    }
}

fn sent(result: Result<(), SendError>) -> Result<(), Violation> {
    match result {
        Ok(()) | Err(SendError::TimedOut | SendError::Closed(_)) => Ok(()),
        Err(SendError::Fault(fault)) => Err(violation(fault)),
        Err(other) => panic!("{other}"),
    }
}

/// Sends, receives and reads every byte of a channel, as an application does. Returns the number of
/// received messages, or the violation that a call reported.
fn use_both_ways(channel: &mut Channel, timeout: Duration) -> Result<usize, Violation> {
    let started = Instant::now();
    let mut messages = Vec::new();
    for len in [40, 500, 3000, 100_000] {
        messages.extend(received(channel.recv_deadline(within(timeout)))?);
        sent(channel.send_deadline(&vec![len as u8; len], within(timeout)))?;
        messages.extend(match channel.try_recv() {
            Ok(message) => message,
            Err(TryRecvError::Empty | TryRecvError::Disconnected) => None,
            Err(TryRecvError::Fault(fault)) => return Err(violation(fault)),
            Err(other) => panic!("{other}"),
        });
    }
    // A received message must be readable as a whole, whatever length its record claims.
    let sum: u64 = messages.iter().flat_map(|message| message.iter()).map(|b| u64::from(*b)).sum();
    std::hint::black_box(sum);
    let _ = (channel.sender().stats(), channel.receiver().stats());
    assert!(started.elapsed() < timeout * 8 + Duration::from_secs(30), "deadlines are kept");
    Ok(messages.len())
}

/// Uses the channel until a call reports a violation by the hostile peer, and returns it; panics if
/// no call does.
fn symptom(channel: &mut Channel) -> Violation {
    noticed(channel).expect("the violation was not noticed")
}

fn noticed(channel: &mut Channel) -> Option<Violation> {
    for _ in 0..20 {
        if let Err(violation) = use_both_ways(channel, millis(1)) {
            // After a violation, every later call of both directions fails.
            assert!(matches!(channel.recv(), Err(RecvError::Fault(_))));
            assert!(matches!(channel.send(b"x"), Err(SendError::Fault(_))));
            return Some(violation);
        }
    }
    None
}

type Act = fn(&mut Foe);

/// Actions of the hostile peer: a name, the code of the violation that the action must cause, and
/// the action. Each violation that is possible after the handshake occurs at least once.
const CASES: &[(&str, u32, Act)] = &[
    ("a word of another position", 2, |foe| foe.write_word(foe.place(0), 64 | 3)),
    ("an uncommitted word", 2, |foe| foe.write_word(foe.place(0), 2)),
    ("all bits", 2, |foe| foe.write_word(foe.place(0), u64::MAX)),
    ("kind 0", 3, |foe| foe.write_word(foe.place(0), 1)),
    ("kind 16", 3, |foe| foe.write_word(foe.place(0), 16 << 1 | 1)),
    ("the end of a stream", 4, |foe| foe.write_word(foe.place(0), 15 << 1 | 1)),
    ("a session's kind", 4, |foe| foe.publish(Kind::Open, b"")),
    ("another session's kind", 4, |foe| foe.publish(Kind::Ping, b"")),
    ("a length beyond a quarter", 5, |foe| foe.publish_as(Kind::Data, 1009, b"")),
    ("the longest length", 5, |foe| foe.publish_as(Kind::Data, u32::MAX, b"")),
    ("a pad at the start", 6, |foe| foe.publish_as(Kind::Pad, 4080, b"")),
    ("a pad before the end", 6, |foe| {
        foe.publish(Kind::Data, b"");
        foe.publish(Kind::Pad, b"");
    }),
    ("a short blob", 7, |foe| foe.publish(Kind::Blob, &[0; 31])),
    ("a long blob", 7, |foe| foe.publish(Kind::Blob, &[0; 33])),
    ("a blob in no segment", 7, |foe| foe.publish_blob(1, 9, 0, 8)),
    ("a blob behind the slab", 7, |foe| foe.publish_blob(1, 0, 1 << 20, 8)),
    ("a blob that overflows", 7, |foe| foe.publish_blob(1, 0, u64::MAX, 8)),
    ("a blob longer than the slab", 7, |foe| foe.publish_blob(1, 0, 0, 500_000)),
    ("a blob longer than agreed", 11, |foe| foe.publish_blob(1, 0, 0, MESSAGE_MAX + 1)),
    ("a blob of all bytes there are", 11, |foe| foe.publish_blob(1, 0, 0, u64::MAX)),
    ("an end with a body", 7, |foe| foe.publish(Kind::CloseWrite, b"x")),
    ("a short segment", 7, |foe| foe.publish(Kind::Segment, &[0; 8])),
    ("segment 0", 7, |foe| foe.publish_segment(Kind::Segment, 0, 1 << 16)),
    ("a number twice", 7, |foe| {
        foe.add_segment(1 << 16);
        foe.publish_segment(Kind::Segment, 1, 1 << 16);
    }),
    ("the end of the slab", 7, |foe| foe.publish_segment(Kind::SegmentRetire, 0, 1 << 16)),
    ("the end of no segment", 7, |foe| foe.publish_segment(Kind::SegmentRetire, 5, 1 << 16)),
    ("the end of a segment of another size", 7, |foe| {
        foe.add_segment(1 << 16);
        foe.publish_segment(Kind::SegmentRetire, 1, 1 << 17);
    }),
    ("a segment retired twice", 7, |foe| {
        foe.add_segment(1 << 16);
        foe.publish_segment(Kind::SegmentRetire, 1, 1 << 16);
        foe.publish_segment(Kind::SegmentRetire, 1, 1 << 16);
    }),
    ("a blob in a retired segment", 7, |foe| {
        foe.add_segment(1 << 16);
        foe.publish_segment(Kind::SegmentRetire, 1, 1 << 16);
        foe.publish_blob(1, 1, 0, 8);
    }),
    ("more segments than agreed", 12, |foe| {
        for _ in 0..3 {
            foe.add_segment(1 << 16);
        }
    }),
    ("more memory than agreed", 12, |foe| {
        foe.add_segment(2 << 20);
    }),
    ("a segment of all bytes there are", 12, |foe| {
        foe.publish_segment(Kind::Segment, 1, u64::MAX);
    }),
    ("a segment without descriptor", 13, |foe| foe.publish_segment(Kind::Segment, 1, 1 << 16)),
    ("a last part of nothing", 14, |foe| foe.publish(Kind::FragmentLast, b"x")),
    ("the end of no message", 14, |foe| foe.publish(Kind::FragmentAbort, b"")),
    ("a first part without total", 7, |foe| foe.publish(Kind::FragmentFirst, b"1234567")),
    ("a total longer than agreed", 11, |foe| {
        foe.publish(Kind::FragmentFirst, &(MESSAGE_MAX + 1).to_le_bytes());
    }),
    ("a message within another", 14, |foe| {
        foe.publish(Kind::FragmentFirst, &100u64.to_le_bytes());
        foe.publish(Kind::FragmentFirst, &100u64.to_le_bytes());
    }),
    ("more than the total", 14, |foe| {
        foe.publish(Kind::FragmentFirst, &3u64.to_le_bytes());
        foe.publish(Kind::FragmentMid, b"1234");
    }),
    ("less than the total", 14, |foe| {
        foe.publish(Kind::FragmentFirst, &9u64.to_le_bytes());
        foe.publish(Kind::FragmentLast, b"1234");
    }),
    ("an abort with a body", 7, |foe| {
        foe.publish(Kind::FragmentFirst, &9u64.to_le_bytes());
        foe.publish(Kind::FragmentAbort, b"1234");
    }),
    ("a message between the parts", 14, |foe| {
        foe.publish(Kind::FragmentFirst, &9u64.to_le_bytes());
        foe.publish(Kind::Data, b"1234");
    }),
    ("consumed ahead", 8, |foe| foe.write_control(CONSUMED, 1 << 20)),
    ("consumed between slots", 8, |foe| foe.write_control(CONSUMED, 1)),
    ("consumed, all bits", 8, |foe| foe.write_control(CONSUMED, u64::MAX)),
    ("released ahead", 9, |foe| foe.write_control(RELEASED, 1 << 10)),
    ("released, all bits", 9, |foe| foe.write_control(RELEASED, u64::MAX)),
    ("a block that is not out", 10, |foe| {
        foe.write_word(foe.geometry.release_offset, 0xdead);
        foe.write_control(RELEASED, 1);
    }),
];

#[test]
fn each_rule_that_is_broken_is_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("each rule", Duration::from_secs(120));
    let mut wrong = Vec::new();
    for trust in [TrustPolicy::Trusted, TrustPolicy::Untrusted] {
        let mut home = Home::new(trust);
        for (what, code, act) in CASES {
            let (mut foe, mut channel) = home.meet();
            if *code == 9 || *code == 10 {
                // The violations with codes 9 and 10 concern blocks that the peer releases, so this
                // side sends a message in a block first.
                channel.send(&[1; 3000]).unwrap();
            }
            act(&mut foe);
            let found = noticed(&mut channel);
            if found.map(|violation| violation.code()) != Some(*code) {
                wrong.push(format!("{trust:?}, {what}: not code {code} but {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn consumed_and_released_that_go_back_are_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("going back", Duration::from_secs(60));
    let mut home = Home::new(TrustPolicy::Trusted);
    let (mut foe, mut channel) = home.meet();
    while channel.try_send(&[0; 500]).is_ok() {}
    foe.write_control(CONSUMED, 1152);
    channel.try_send(&[0; 500]).unwrap();
    while channel.try_send(&[0; 500]).is_ok() {}
    foe.write_control(CONSUMED, 576);
    assert_eq!(symptom(&mut channel).code(), 8);

    let (mut foe, mut channel) = home.meet();
    channel.send(&[1; 3000]).unwrap();
    // The id of the block is in the BLOB of this side, which the peer can read.
    let id = foe.first_block();
    foe.write_word(foe.geometry.release_offset, id);
    foe.write_control(RELEASED, 1);
    channel.send(&[2; 3000]).unwrap();
    foe.write_control(RELEASED, 0);
    assert_eq!(symptom(&mut channel).code(), 9);

    // The peer releases the same block of this side twice, which is the violation with code 10.
    let (mut foe, mut channel) = home.meet();
    channel.send(&[1; 3000]).unwrap();
    channel.send(&[1; 3000]).unwrap();
    let id = foe.first_block();
    for entry in 0..2 {
        foe.write_word(foe.geometry.release_offset + entry * 8, id);
    }
    foe.write_control(RELEASED, 2);
    assert_eq!(symptom(&mut channel).code(), 10);
}

/// Returns a random value for a word of the hostile peer's region: extreme, close to a correct one,
/// or any.
fn value(random: &mut Random, position: u64) -> u64 {
    let near = position.wrapping_add(random.below(8) * 64).wrapping_sub(random.below(4) * 64);
    match random.below(14) {
        0 => 0,
        1 => 1,
        2 => u64::MAX,
        3 => GONE - 1,
        4 => QUIET,
        5 => 1 << 31,
        6 => u64::from(u32::MAX),
        7 => near | 1 | random.below(32) << 1,
        8 => record_ring::word0(Position(near & !63), Kind::Data),
        9 => near & !63,
        10 => random.below(4096) / 64 * 64,
        11 => random.below(16),
        12 => record_ring::word1(random.below(1200) as u32, 0),
        _ => random.next(),
    }
}

/// Returns the offset of a random word of the hostile peer's region, most often one that this side
/// reads.
fn offset(random: &mut Random, geometry: &Geometry, position: u64) -> u64 {
    let ring = geometry.ring_offset + geometry.ring.offset(Position(position));
    match random.below(8) {
        0 => CONTROL_OFFSET + CONSUMED,
        1 => CONTROL_OFFSET + ASLEEP_RECORDS,
        2 => CONTROL_OFFSET + ASLEEP_ROOM,
        3 => CONTROL_OFFSET + RELEASED,
        4 => ring + random.below(2) * 8,
        5 => geometry.ring_offset + random.below(geometry.ring.bytes() / 8) * 8,
        6 => geometry.release_offset + random.below(16) * 8,
        _ => random.below(geometry.slab_offset / 8) * 8,
    }
}

/// Publishes, as the hostile peer, a record of a random kind. Its body is random, or has the fields
/// of its kind with random values.
fn publish_anything(foe: &mut Foe, random: &mut Random) {
    let kinds = [1, 2, 3, 4, 5, 6, 7, 8, 10, 31];
    let kind = Kind::from_number(kinds[random.below(10) as usize]).unwrap();
    let mut body: Vec<u8> = (0..random.below(60)).map(|_| random.next() as u8).collect();
    match kind {
        Kind::Blob => {
            let (number, offset) = (random.below(3) as u32, random.below(20_000));
            return foe.publish_blob(random.next(), number, offset, random.below(20_000));
        }
        Kind::Segment if random.below(2) == 0 => {
            foe.add_segment(1 << 16);
            return;
        }
        Kind::SegmentRetire => {
            return foe.publish_segment(kind, random.below(4) as u32, 1 << 16);
        }
        Kind::FragmentFirst => {
            body.splice(0..0, random.below(300).to_le_bytes());
        }
        Kind::FragmentAbort | Kind::CloseWrite => body.clear(),
        _ => {}
    }
    // `CASES` has a record that would exceed the end of the ring, so this function publishes none.
    let left = foe.geometry.ring.until_end(Position(foe.position));
    if body.len() as u64 + 16 <= left {
        foe.publish(kind, &body);
    }
}

#[test]
fn random_words_and_records_never_make_us_panic_hang_or_grow() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("random words", Duration::from_secs(240));
    let mut named = [0_u32; 16];
    let (mut rounds, mut correct) = (0, 0);
    for trust in [TrustPolicy::Trusted, TrustPolicy::Untrusted] {
        let mut home = Home::new(trust);
        let mut before = None;
        for seed in 0..400 {
            let mut random = Random::new(seed);
            let (mut foe, mut channel) = home.meet();
            let mut result = Ok(0);
            for _ in 0..random.below(20) + 1 {
                if random.below(2) == 0 {
                    publish_anything(&mut foe, &mut random);
                } else {
                    let at = offset(&mut random, &foe.geometry, foe.position);
                    let word = value(&mut random, foe.position);
                    foe.write_word(at, word);
                }
                result = use_both_ways(&mut channel, Duration::from_micros(200));
                if result.is_err() {
                    break;
                }
            }
            rounds += 1;
            match result {
                Ok(_) => correct += 1,
                Err(violation) => named[violation.code() as usize] += 1,
            }
            drop((foe, channel));
            if seed == 50 {
                before = Some(Footprint::now());
            }
        }
        let (before, after) = (before.unwrap(), Footprint::now());
        assert_eq!(after.descriptors, before.descriptors, "{trust:?}");
        assert_eq!(after.shared_mappings, before.shared_mappings, "{trust:?}");
        assert!(after.resident_bytes < before.resident_bytes + (16 << 20), "{before:?} {after:?}");
    }
    println!("{rounds} rounds, {correct} without a violation, by code: {named:?}");
}

#[test]
fn no_single_word_of_a_region_does_harm() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("every word", Duration::from_secs(240));
    let mut home = Home::new(TrustPolicy::Trusted);
    let (mut foe, mut channel) = home.meet();
    let end = foe.geometry.release_offset + 16 * 8;
    let (mut named, mut harmless) = (0, 0);
    for word in [1, 3, 65, u64::MAX, GONE - 1, 1 << 20] {
        for at in (0..end).step_by(8) {
            foe.write_word(at, word);
            let attempt = (|| {
                sent(channel.send_deadline(b"short", within(millis(1))))?;
                received(channel.recv_deadline(Instant::now()))
            })();
            // Whether this side reads the overwritten word at the offset `at`, on the control page.
            // After the handshake no code reads the header, the counters, or bytes outside the
            // parts of the region.
            let is_read = (CONTROL_OFFSET..CONTROL_OFFSET + 4 * 128).contains(&at);
            if at < CONTROL_OFFSET || (at > CONTROL_OFFSET + 4 * 128 && at < PAGE_BYTES * 2) {
                assert!(matches!(attempt, Ok(None)), "word {at}: {attempt:?}");
            }
            match attempt {
                Err(_) => named += 1,
                Ok(_) => harmless += 1,
            }
            if attempt.is_err() || is_read || at >= foe.geometry.ring_offset {
                (foe, channel) = home.meet();
            } else {
                foe.write_word(at, 0);
            }
        }
    }
    println!("{named} words named, {harmless} harmless");
    // The hostile peer has overwritten many words of its region, one after the other. Its direction
    // to this side still works.
    foe.publish(Kind::Data, b"honest after all");
    assert_eq!(channel.recv().unwrap().unwrap(), b"honest after all");
}

#[test]
fn gone_means_closed_for_sending_only() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(TrustPolicy::Trusted);
    let (mut foe, mut channel) = home.meet();
    foe.write_control(ASLEEP_RECORDS, GONE);
    foe.write_control(ASLEEP_ROOM, GONE);
    let result = (0..10).find_map(|_| channel.send_deadline(b"x", within(millis(50))).err());
    assert!(matches!(result, Some(SendError::Closed(Closed::Finished))), "{result:?}");
    foe.publish(Kind::Data, b"still here");
    assert_eq!(channel.recv().unwrap().unwrap(), b"still here");
    foe.publish(Kind::CloseWrite, b"");
    assert!(matches!(channel.recv(), Ok(None)));
    // After the end of the direction, the receiver must read no further word of the ring.
    foe.write_word(foe.place(foe.position), u64::MAX);
    assert!(matches!(channel.recv(), Ok(None)));
}
