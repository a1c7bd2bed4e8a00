// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with clients that follow the rules until the handshake is over, and break them afterwards.
//! These clients corrupt words of rings and lists, elements of the ring and frames on the socket,
//! and truncate memory.
//!
//! Each session of the server continues or ends with a report of the damage. The server's process
//! lives, serves other sessions, and keeps no descriptor or mapping.

use crate::support_foe;

use partywall_shmipc::regions::{Element, Queue};
use partywall_shmipc::wire::encode;
use partywall_testkit::Random;
use std::time::Instant;
use support_foe::{Foe, Home, Memory, alone, any_word, assert_footprint, footprint, until};

/// Connects a hostile client, opens one stream, and lets the server echo one message on it.
fn begin(home: &Home) -> Foe {
    let mut foe = Foe::client(&home.path());
    foe.say(2, b"hello");
    assert_eq!(foe.hear(), (2, Some(b"hello".to_vec())));
    foe
}

fn assert_serves(home: &Home) {
    drop(begin(home));
    home.end();
}

/// Returns why the server's session ends after the hostile client has performed `act`.
fn end_after<T>(home: &Home, act: impl FnOnce(&mut Foe) -> T) -> String {
    let mut foe = begin(home);
    act(&mut foe);
    let end = home.end();
    foe.wire.hears_the_end();
    end
}

#[test]
fn elements_that_name_no_message_end_the_session_and_say_so() {
    let _alone = alone();
    let home = Home::new();
    type Act = fn(&mut Foe) -> bool;
    let lies: [(Act, &str); 9] = [
        (|foe| foe.put(2, 0, 0), "no slice begins"),
        (|foe| foe.put(2, u32::MAX, 0), "no slice begins"),
        (|foe| foe.put(2, u32::MAX - 19, 0), "no slice begins"),
        (|foe| foe.put(2, 45, 0), "no slice begins"),
        (|foe| foe.put(3, 1 << 20, 0), "no slice begins"),
        (
            |foe| {
                let offset = foe.memory.message(b"round");
                foe.memory.buffer_map.store(offset as usize + 12, offset);
                foe.memory.buffer_map.store_byte(offset as usize + 16, 3);
                foe.put(2, offset, 0)
            },
            "in use on this side",
        ),
        (
            |foe| {
                let offset = foe.memory.message(b"too long");
                foe.memory.buffer_map.store(offset as usize + 4, 0x7fff_ffff);
                foe.put(2, offset, 0)
            },
            "longer than the slice",
        ),
        (
            |foe| {
                let offset = foe.memory.message(b"begins late");
                foe.memory.buffer_map.store(offset as usize + 8, u32::MAX);
                foe.put(2, offset, 0)
            },
            "longer than the slice",
        ),
        (
            |foe| {
                let offset = foe.memory.message(b"another capacity");
                foe.memory.buffer_map.store(offset as usize, 4096);
                foe.put(2, offset, 0)
            },
            "another capacity",
        ),
    ];
    for (act, expected) in lies {
        let end = end_after(&home, act);
        assert!(end.contains(expected), "{expected}: {end}");
    }
    assert_serves(&home);
}

#[test]
fn a_slice_that_is_being_read_is_not_taken_a_second_time() {
    let _alone = alone();
    let home = Home::new();
    // The client adds many elements with the same message to the ring before the server reads. When
    // the server takes one of the later elements, the message's slice is already free, or in use
    // for another message. The server must never use the slice for two messages.
    for _ in 0..50 {
        let mut foe = begin(&home);
        let offset = foe.memory.message(&[7; 4096]);
        for _ in 0..20 {
            foe.put(2, offset, 0);
        }
        drop(foe);
        home.end();
    }
    assert_serves(&home);
}

#[test]
fn statuses_that_nobody_knows_are_given_back_and_the_session_goes_on() {
    let _alone = alone();
    let home = Home::new();
    let mut foe = begin(&home);
    let before = foe.memory.region.free_counts();
    for status in [2, 3, 0x7f, 0xff, 0xffff_ff02].repeat(10) {
        let offset = foe.memory.message(b"of no stream");
        until("there is room", || foe.put(9, offset, status));
    }
    // Only the low eight bits of an element's status have a meaning. Here they are 0, so the
    // element announces data.
    let offset = foe.memory.message(b"data");
    assert!(foe.put(2, offset, 0xabcd_ef00));
    assert_eq!(foe.hear(), (2, Some(b"data".to_vec())));
    // The server's cache keeps a few slices for its next messages, so the test accepts that up to
    // 15 slices of each list are missing.
    until("the slices are back", || {
        let free = foe.memory.region.free_counts();
        free.iter().zip(&before).all(|(free, before)| free + 15 >= *before)
    });
    // Input: an element that closes a stream that was never open, and whose offset is out of range.
    // Expected: the server ignores the element.
    assert!(foe.put(77, u32::MAX, 1));
    foe.say(2, b"still here");
    assert_eq!(foe.hear(), (2, Some(b"still here".to_vec())));
}

#[test]
fn counters_of_the_ring_that_cannot_be_end_the_session() {
    let _alone = alone();
    let home = Home::new();
    let half = Queue::size_bytes(64).unwrap() / 2;
    for (at, value) in
        [(12, 70), (12, u32::MAX), (12, 1 << 31), (12, 0), (half + 4, 1 << 31), (half + 4, 1 << 30)]
    {
        let end = end_after(&home, |foe| {
            foe.memory.queue_map.store(at, value);
            foe.wire.send(&encode::polling(3));
            // The message arrives on the socket, and the server echoes it through the ring. For
            // that the server reads the ring's corrupted counters.
            foe.wire.send(&[&encode::fallback_header(3, 2, 1)[..], b"x"].concat());
        });
        assert!(end.contains("more elements than it can"), "{value:#x} at {at}: {end}");
    }
    assert_serves(&home);
}

#[test]
fn geometry_is_not_read_twice() {
    let _alone = alone();
    let home = Home::new();
    let mut foe = begin(&home);
    let half = Queue::size_bytes(64).unwrap() / 2;
    for base in [0, half] {
        foe.memory.queue_map.store(base, 0);
    }
    // Offsets of words that the server must read only once: the number of lists, and the capacities
    // and slice counts of lists.
    for at in [0, 4, 8 + 4, 8 + 16] {
        foe.memory.buffer_map.store(at, u32::MAX);
    }
    for round in 0..200_u32 {
        foe.say(2, &round.to_le_bytes());
        assert_eq!(foe.hear(), (2, Some(round.to_le_bytes().to_vec())));
    }
}

#[test]
fn frames_that_cannot_be_end_the_session_and_say_so() {
    let _alone = alone();
    let home = Home::new();
    let frame = |length: u32, version: u8, kind: u8| {
        [&length.to_be_bytes()[..], &[0x77, 0x58, version, kind]].concat()
    };
    let mut lies = vec![
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ""),
        (b"\0\0\0\x08\x77\x59\x03\x01".to_vec(), ""),
        (frame(8, 0, 1), ""),
        (frame(12, 4, 2), ""),
    ];
    for kind in [0, 4, 5, 6, 7, 10, 11, 255] {
        lies.push((frame(8, 3, kind), ""));
        lies.push((frame(u32::MAX, 3, kind), ""));
    }
    for kind in [2, 3, 8, 9] {
        for length in [0, 1, 7, 8, 9, 11, 13, 15, 17, 1 << 31, u32::MAX] {
            let is_right = match kind {
                2 => length == 12,
                3 => (16..=32 << 20).contains(&length),
                _ => length == 16,
            };
            if !is_right {
                lies.push((frame(length, 3, kind), ""));
            }
        }
    }
    lies.push((frame(0, 3, 1), ""));
    lies.push((frame(7, 3, 1), ""));
    lies.push((frame((32 << 20) + 1, 3, 3), ""));
    for (bytes, expected) in lies {
        let end = end_after(&home, |foe| foe.wire.send(&bytes));
        assert!(end.contains(expected) && end.contains("broke a rule"), "{bytes:x?}: {end}");
    }
    assert_serves(&home);
}

#[test]
fn frames_that_mean_nothing_here_are_passed_over() {
    let _alone = alone();
    let home = Home::new();
    let mut foe = begin(&home);
    foe.wire.send(&encode::hot_restart(3, u64::MAX));
    foe.wire.send(&encode::hot_restart_ack(3, 0));
    foe.wire.send(&encode::stream_close(3, 4711));
    foe.wire.send(&encode::fallback_header(3, 12, 0));
    for _ in 0..1000 {
        foe.wire.send(&encode::polling(3));
    }
    foe.say(2, b"still here");
    assert_eq!(foe.hear(), (2, Some(b"still here".to_vec())));
}

#[test]
fn endless_sender_blocks_no_other_call() {
    let _alone = alone();
    let home = Home::new();
    let stream_of_frames = |frame: Vec<u8>| {
        let foe = begin(&home);
        let many = frame.repeat(4096);
        std::thread::scope(|scope| {
            scope.spawn(|| while foe.wire.send(&many) {});
            for _ in 0..20 {
                drop(begin(&home));
                home.end();
            }
            foe.wire.socket.shutdown_both().unwrap();
        });
        home.end();
    };
    stream_of_frames(encode::polling(3).to_vec());
    stream_of_frames(encode::stream_close(3, 99).to_vec());
    stream_of_frames(encode::hot_restart(3, 1).to_vec());
    stream_of_frames(encode::fallback_header(3, 99, 0).to_vec());
}

#[test]
fn small_fallback_data_that_nobody_reads_is_bounded_with_all_that_it_takes() {
    let _alone = alone();
    let config = partywall_shmipc::Config::default()
        .fallback_message_max(1 << 20)
        .fallback_unread_max(4 << 20);
    // Input: a client that does not take the echoed messages from the ring, so the echoes fill the
    // ring.
    let home = Home::with(config, partywall::Config::default());
    let foe = begin(&home);
    let before = footprint().2;
    let many = [&encode::fallback_header(3, 2, 1)[..], b"x"].concat().repeat(4096);
    std::thread::scope(|scope| {
        let sending = scope.spawn(|| while foe.wire.send(&many) {});
        let deadline = Instant::now() + std::time::Duration::from_secs(2);
        while Instant::now() < deadline {
            let grown = footprint().2.saturating_sub(before);
            assert!(grown < 48 << 20, "{grown} bytes for what nobody reads");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        foe.wire.socket.shutdown_both().unwrap();
        sending.join().unwrap();
    });
    home.end();
}

#[test]
fn streams_without_end_end_the_session() {
    let _alone = alone();
    let home = Home::with(
        partywall_shmipc::Config::default(),
        partywall::Config::default().streams_max(100),
    );
    let before = footprint().2;
    let foe = Foe::client(&home.path());
    for stream in 2.. {
        if !foe.wire.send(&[&encode::fallback_header(3, stream, 1)[..], b"x"].concat()) {
            break;
        }
        assert!(stream < 1 << 20, "it bears a million streams");
    }
    let end = home.end();
    assert!(end.contains("beyond the most streams") || end.contains("broke"), "{end}");
    assert!(footprint().2 < before + (64 << 20));
    assert_serves(&home);
}

#[test]
fn memory_that_is_taken_away_ends_the_session_and_says_so() {
    let _alone = alone();
    let home = Home::new();
    for (buffer, queue) in [(true, false), (false, true), (true, true)] {
        for talks_by_ring in [true, false] {
            let mut foe = Foe::client_with(&home.path(), Memory::client(1 << 20, 64, false));
            foe.say(2, b"hello");
            assert_eq!(foe.hear(), (2, Some(b"hello".to_vec())));
            if talks_by_ring {
                let offset = foe.memory.message(&[7; 40_000]);
                foe.memory.truncate(buffer, queue);
                let _ = foe.memory.producer.put(Element { stream: 2, offset, status: 0 });
            } else {
                foe.memory.truncate(buffer, queue);
            }
            foe.wire.send(&encode::polling(3));
            foe.wire.send(&[&encode::fallback_header(3, 2, 1)[..], b"x"].concat());
            let end = home.end();
            assert!(end.contains("truncated"), "{buffer} {queue} {talks_by_ring}: {end}");
        }
    }
    assert_serves(&home);
}

/// Connects a client that writes random words into queue and buffer region during traffic, and
/// waits until the server has refused it or ended its session.
fn scribbled(home: &Home, random: &mut Random, is_sealed: bool) {
    let mut foe = Foe::client_with(&home.path(), Memory::client(1 << 20, 64, is_sealed));
    let queue_words = foe.memory.queue_map.len() / 4;
    for round in 0..random.below(200) {
        let word = any_word(random);
        match random.below(8) {
            0 => {
                let at = random.below(queue_words as u64) as usize * 4;
                foe.memory.queue_map.store(at, word);
            }
            1 => {
                let at = [0, 4, 8, 12, 16, 20][random.below(6) as usize];
                let half = random.below(2) as usize * queue_words * 2;
                foe.memory.queue_map.store(half + at, word);
            }
            2 => foe.memory.buffer_map.store(random.below(20) as usize * 4, word),
            3 => {
                // The offset of a random word in the header of a random slice.
                let at = 44 + random.below(127) as usize * 4116 + random.below(5) as usize * 4;
                foe.memory.buffer_map.store(at, word);
            }
            4 => {
                let frame = encode::fallback_header(3, word % 8, 3);
                foe.wire.send(&[&frame[..], b"abc"].concat());
            }
            _ => {
                let stream = 2 + random.below(4) as u32;
                let offset = if random.below(2) == 0 {
                    word
                } else {
                    let slices = foe.memory.region.reserve_chain(1 + random.below(9000) as usize);
                    slices.and_then(|slices| foe.memory.region.send(slices)).unwrap_or(word)
                };
                let status = if random.below(8) == 0 { word } else { 0 };
                let _ = foe.memory.producer.put(Element { stream, offset, status });
            }
        }
        if round % 4 == 0 && !foe.wire.send(&encode::polling(3)) {
            break;
        }
        if random.below(4) == 0 {
            let _ = foe.memory.consumer.pop();
        }
    }
    if !is_sealed && random.below(2) == 0 {
        foe.memory.truncate(random.below(2) == 0, random.below(2) == 0);
    }
    drop(foe);
    // The server refuses a client that corrupted the regions before the server first checked them,
    // and ends the session of a client that corrupted them later.
    home.is_rid_of_one();
}

#[test]
fn sessions_whose_peers_scribble_leave_nothing_behind() {
    let _alone = alone();
    let home = Home::new();
    for seed in 0..30 {
        scribbled(&home, &mut Random::new(seed), seed % 2 == 0);
    }
    let before = footprint();
    for seed in 100..300 {
        scribbled(&home, &mut Random::new(seed), seed % 2 == 0);
    }
    assert_footprint(before);
    assert_serves(&home);
}
