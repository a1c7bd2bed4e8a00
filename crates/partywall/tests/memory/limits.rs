// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the limits of a channel's shared memory: an error names the limit that was reached, and
//! unused memory is freed.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall_testkit::alone;

use partywall::{BackPressure, Channel, Limit, Message, SendError, TooLarge, TrySendError};
use partywall_sys::process::{MappedRange, Process, mappings};
use partywall_testkit::{Kind, TIMEOUT, fill, is_pattern, pair, pattern, soon};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[test]
fn one_message_of_a_gibibyte_passes() {
    let _alone = alone();
    let available = partywall_sys::limits::memory_available().unwrap_or(0);
    if available < 4 << 30 {
        println!("SKIPPED: 4 GiB of free memory are needed, {} MiB are there", available >> 20);
        return;
    }
    const LEN: usize = 1 << 30;
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config.memory_max(1100 * MIB));
    let mut reserved = client.reserve(LEN).unwrap();
    fill(&mut reserved, 1);
    reserved.commit().unwrap();
    let message = server.recv_deadline(soon()).unwrap().unwrap();
    assert!(message.is_zero_copy());
    assert_eq!(message.len(), LEN);
    assert!(is_pattern(&message, 1));
    drop(message);
    client.sender().trim().unwrap();
    assert!(client.sender().stats().memory_bytes < MIB, "{:?}", client.sender().stats());
}

fn too_large(channel: &mut Channel, len: usize) -> TooLarge {
    let bytes = vec![0; len];
    let sent = channel.send_deadline(&bytes, soon());
    let Err(SendError::TooLarge(limit)) = sent else { panic!("{len} bytes: {sent:?}") };
    let reserved = channel.reserve(len).err();
    assert!(matches!(reserved, Some(SendError::TooLarge(same)) if same == limit), "{reserved:?}");
    let tried = channel.try_send(&bytes);
    assert!(matches!(tried, Err(TrySendError::TooLarge(same)) if same == limit), "{tried:?}");
    assert_eq!(limit.len, len as u64);
    limit
}

#[test]
fn error_of_too_large_message_names_limit_and_remedy() {
    let _alone = alone();
    let small = Kind::SharedMemory.config().memory_max(2 * MIB);
    let large = Kind::SharedMemory.config().memory_max(64 * MIB);
    for (client, server, limit, max, remedy) in [
        // This side's own limit applies, because the peer would accept longer messages. The error
        // must name this side's limit.
        (&small, &large, Limit::OwnMemory, 2 * MIB, "raise Config::memory_max on this side"),
        // The limits of both sides apply. The error names the peer's limit, and its remedy names
        // both sides, because raising only one limit would not help.
        (&small, &small, Limit::PeerMessage, 2 * MIB, "and Config::memory_max on this side"),
        // A limit of the peer applies, because this side could allocate more memory. The error must
        // name the peer's limit.
        (
            &large,
            &large.clone().map_max(3 * MIB),
            Limit::PeerMap,
            3 * MIB - (128 << 10),
            "Config::map_max at the peer",
        ),
        (
            &large,
            &large.clone().message_max(4 * MIB),
            Limit::PeerMessage,
            4 * MIB,
            "Config::message_max at the peer",
        ),
        // In the next two cases a setting of the peer is unusually low: it accepts only messages
        // shorter than some that fit into the ring, or it maps no segments. The error for a message
        // that is too long must name the limit of the peer.
        (
            &large,
            &large.clone().message_max(100),
            Limit::PeerMessage,
            100,
            "Config::message_max at the peer",
        ),
        (&large, &large.clone().segments_max(0), Limit::PeerMap, 0, "at the peer"),
    ] {
        let (mut channel, mut other) = pair(&Kind::SharedMemory.address(), client, server);
        let found = too_large(&mut channel, max.max(256 << 10) as usize + 1);
        assert_eq!(found.limit, limit);
        let text = found.to_string();
        assert!(text.contains(remedy) && text.contains(&found.max.to_string()), "{text}");
        if max > 0 {
            assert_eq!(found.max, max, "{text}");
            assert_eq!(too_large(&mut channel, max as usize + 1).max, max);
        }
        // A message of exactly the greatest length arrives.
        let longest = pattern(found.max as usize, 9);
        channel.send_deadline(&longest, soon()).unwrap();
        assert!(other.recv_deadline(soon()).unwrap().unwrap() == longest, "{limit:?}");
    }
}

/// Sends messages until one of them fails. Returns the error, and the received messages, which
/// occupy the sender's memory.
fn exhaust(client: &mut Channel, server: &mut Channel, len: usize) -> (Vec<Message>, SendError) {
    let mut held = Vec::new();
    loop {
        let seed = held.len() as u64;
        let deadline = Instant::now() + Duration::from_millis(30);
        match client.send_deadline(&pattern(len, seed), deadline) {
            Ok(()) => held.push(server.recv_deadline(soon()).unwrap().unwrap()),
            Err(error) => return (held, error),
        }
    }
}

fn check(held: &[Message], len: usize) {
    for (seed, message) in held.iter().enumerate() {
        assert!(message.len() == len && is_pattern(message, seed as u64), "message {seed}");
    }
}

#[test]
fn each_policy_at_the_end_of_memory_and_back() {
    let _alone = alone();
    const LEN: usize = 100_000;
    for policy in [BackPressure::Block, BackPressure::Error] {
        let (mut client, mut server) =
            Kind::SharedMemory.pair(|config| config.memory_max(MIB).back_pressure(policy));
        for _ in 0..3 {
            let (mut held, error) = exhaust(&mut client, &mut server, LEN);
            match policy {
                BackPressure::Block => assert!(matches!(error, SendError::TimedOut), "{error}"),
                _ => assert!(matches!(error, SendError::Full), "{error}"),
            }
            // The sender's memory of 1 MiB consists of segments of 256, 256 and 512 KiB, which hold
            // 2, 2 and 5 messages of 100,000 bytes. The slab of the sender's region, of 48 KiB, is
            // too small for such a message. A slab of 112 KiB would hold a tenth message, but would
            // cost each region 64 KiB more.
            assert!(held.len() >= 9, "a mebibyte holds more than {} messages", held.len());
            assert!(matches!(client.try_send(&[0; LEN]), Err(TrySendError::Full)));
            assert!(matches!(client.sender().try_reserve(LEN), Err(TrySendError::Full)));
            // Only the memory is exhausted, not the ring, so short messages can still be sent.
            client.send(b"small").unwrap();
            assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), b"small");
            check(&held, LEN);
            held.remove(3);
            client.try_send(&pattern(LEN, 3)).unwrap();
            let message = server.recv_deadline(soon()).unwrap().unwrap();
            assert!(message.is_zero_copy() && is_pattern(&message, 3));
        }
    }
}

#[test]
fn tenth_message_of_a_mebibyte_fits_with_128_kib_more() {
    let _alone = alone();
    let (mut client, mut server) =
        Kind::SharedMemory.pair(|config| config.memory_max(MIB + (128 << 10)));
    let (held, error) = exhaust(&mut client, &mut server, 100_000);
    assert!(matches!(error, SendError::TimedOut), "{error}");
    assert!(held.len() >= 10, "it holds {} messages", held.len());
}

#[test]
fn overflow_at_the_end_of_memory_and_back() {
    let _alone = alone();
    const LEN: usize = 100_000;
    let (client, server) = Kind::SharedMemory
        .pair(|config| config.memory_max(MIB).back_pressure(BackPressure::Overflow));
    let ((mut sender, _back), (_reply, mut receiver)) = (client.split(), server.split());
    for round in 0..3 {
        let before = sender.stats().overflows;
        let mut held: Vec<Message> = std::thread::scope(|scope| {
            scope.spawn(|| {
                for seed in 0..30 {
                    sender.send_deadline(&pattern(LEN, seed), soon()).unwrap();
                }
            });
            (0..30).map(|_| receiver.recv_deadline(soon()).unwrap().unwrap()).collect()
        });
        check(&held, LEN);
        let zero_copy = held.iter().take_while(|message| message.is_zero_copy()).count();
        // The sender's memory of 1 MiB consists of segments of 256, 256 and 512 KiB, which hold 2,
        // 2 and 5 messages of 100,000 bytes.
        assert!((9..30).contains(&zero_copy), "round {round}: {zero_copy} without a copy");
        assert_eq!(sender.stats().overflows - before, 30 - zero_copy as u64);
        held.remove(0);
        sender.send(&pattern(LEN, 7)).unwrap();
        let message = receiver.recv_deadline(soon()).unwrap().unwrap();
        assert!(message.is_zero_copy() && is_pattern(&message, 7), "round {round}");
    }
}

#[test]
fn as_many_blocks_as_the_receiver_can_hold() {
    let _alone = alone();
    const LEN: usize = 2000;
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config.peer_blocks_max(8));
    for _ in 0..50 {
        let (mut held, error) = exhaust(&mut client, &mut server, LEN);
        assert!(matches!(error, SendError::TimedOut), "{error}");
        assert_eq!(held.len(), 8);
        check(&held, LEN);
        held.truncate(4);
        for _ in 0..4 {
            client.try_send(&[1; LEN]).unwrap();
        }
        assert!(matches!(client.try_send(&[1; LEN]), Err(TrySendError::Full)));
        for _ in 0..4 {
            assert!(server.recv_deadline(soon()).unwrap().unwrap().is_zero_copy());
        }
    }
}

/// Returns how many segments this process, which is both sides of the channel, has mapped writable,
/// and how many read-only.
fn segments() -> (usize, usize) {
    let of = |write: char| {
        let is_one = |range: &&MappedRange| {
            range.name.contains("memfd:partywall-segment")
                && range.permissions.as_bytes()[1] == write as u8
        };
        mappings(Process::Own).unwrap().iter().filter(is_one).count()
    };
    (of('w'), of('-'))
}

/// Makes the sender add several segments, by sending messages that the receiver holds at the same
/// time. All are dropped before the call returns.
fn grow(client: &mut Channel, server: &mut Channel) {
    let held: Vec<Message> = (0..14)
        .map(|seed| {
            client.send_deadline(&pattern(1 << 20, seed), soon()).unwrap();
            server.recv_deadline(soon()).unwrap().unwrap()
        })
        .collect();
    check(&held, 1 << 20);
}

#[test]
fn trimmed_memory_goes_back_on_both_sides() {
    let _alone = alone();
    assert_eq!(segments(), (0, 0));
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config.memory_max(16 * MIB));
    let mut resident = Vec::new();
    for _ in 0..20 {
        grow(&mut client, &mut server);
        let (written, read) = segments();
        assert!(written >= 4 && read >= 4, "{written} and {read} segments");
        client.sender().trim().unwrap();
        assert_eq!(segments().0, 0, "trim() gives all idle memory back");
        // The receiver unmaps retired segments when it next polls the ring.
        assert!(server.try_recv().is_err());
        assert_eq!(segments(), (0, 0));
        assert!(client.sender().stats().memory_bytes < 256 << 10);
        resident.push(partywall_sys::process::resident_bytes(Process::Own).unwrap());
    }
    let (first, last) = (resident[2], resident[19]);
    assert!(last <= first + 2 * MIB, "resident memory grows: {resident:?}");
}

#[test]
fn idle_memory_goes_back_with_the_next_large_message() {
    let _alone = alone();
    let idle = Duration::from_millis(20);
    let (mut client, mut server) =
        Kind::SharedMemory.pair(|config| config.memory_max(16 * MIB).idle_memory_timeout(idle));
    grow(&mut client, &mut server);
    let until = Instant::now() + TIMEOUT;
    while segments() != (0, 0) {
        client.send_deadline(&[1; 5000], soon()).unwrap();
        drop(server.recv_deadline(soon()).unwrap().unwrap());
        assert!(Instant::now() < until, "{:?} segments stay for ever", segments());
        std::thread::yield_now();
    }
}

#[test]
fn many_small_segments_make_way_for_a_large_message() {
    let _alone = alone();
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config.memory_max(16 * MIB));
    grow(&mut client, &mut server);
    assert!(segments().0 >= 4);
    let large = pattern(16 << 20, 5);
    client.send_deadline(&large, soon()).unwrap();
    assert!(server.recv_deadline(soon()).unwrap().unwrap() == large);
}

#[test]
fn a_batch_that_needs_more_segments_than_it_can_tell_of_says_so() {
    let _alone = alone();
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config.memory_max(16 * MIB));
    grow(&mut client, &mut server);
    let large = pattern(16 << 20, 5);
    let mut batch = client.sender().batch_deadline(soon());
    batch.send(b"first").unwrap();
    let added = batch.send(&large);
    batch.commit().unwrap();
    assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), b"first");
    match added {
        Ok(()) => assert!(server.recv_deadline(soon()).unwrap().unwrap() == large),
        Err(SendError::TooLarge(limit)) => assert_eq!(limit.limit, Limit::Batch),
        Err(other) => panic!("{other}"),
    }
    client.send_deadline(&large, soon()).unwrap();
    assert!(server.recv_deadline(soon()).unwrap().unwrap() == large);
}

#[test]
fn half_a_message_is_never_seen() {
    let _alone = alone();
    let (client, server) = Kind::SharedMemory.pair(|config| {
        config.memory_max(MIB).message_max(8 * MIB).back_pressure(BackPressure::Overflow)
    });
    let ((mut sender, _back), (_reply, mut receiver)) = (client.split(), server.split());
    for seed in 0..20 {
        // The message is too long for the sender's memory. The ring takes some of its fragments,
        // and the receiver reads none.
        let sent =
            sender.send_deadline(&pattern(2 << 20, 99), Instant::now() + Duration::from_millis(5));
        assert!(matches!(sent, Err(SendError::TimedOut)), "{sent:?}");
        if seed % 2 == 0 {
            assert!(receiver.try_recv().is_err(), "a half message");
        }
        std::thread::scope(|scope| {
            scope.spawn(|| sender.send_deadline(&pattern(1 << 20, seed), soon()).unwrap());
            let message = receiver.recv_deadline(soon()).unwrap().unwrap();
            assert!(message.len() == 1 << 20 && is_pattern(&message, seed));
        });
    }
    let sent =
        sender.send_deadline(&pattern(2 << 20, 99), Instant::now() + Duration::from_millis(5));
    assert!(matches!(sent, Err(SendError::TimedOut)), "{sent:?}");
    drop(sender);
    let end = receiver.recv_deadline(soon());
    assert!(matches!(end, Ok(None)), "{end:?}");
}

#[test]
fn fragments_in_a_batch_come_whole_or_not_at_all() {
    let _alone = alone();
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| {
        let config = config.memory_max(256 << 10).message_max(8 * MIB).ring_bytes(64 << 10);
        config.back_pressure(BackPressure::Overflow)
    });
    // The receiver holds messages that fill the sender's memory for large messages. Then messages
    // of 900 bytes fill the ring.
    let mut held = Vec::new();
    while client.sender().stats().overflows == 0 {
        client.try_send(&pattern(12_000, held.len() as u64)).unwrap();
        held.push(server.recv_deadline(soon()).unwrap().unwrap());
    }
    // Arming makes the receiver report its position to the sender, which frees the ring bytes of
    // the received records.
    let _ = server.receiver().arm().unwrap();
    let mut queued = 0;
    while client.try_send(&[3; 900]).is_ok() {
        queued += 1;
    }
    // The receiver takes 11 messages. The freed ring bytes are enough for the first fragment of the
    // next message, but not for its second fragment.
    for _ in 0..11 {
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), [3; 900]);
        queued -= 1;
    }
    let _ = server.receiver().arm().unwrap();
    let whole = pattern(12_000, 77);
    let mut batch = client.sender().batch_deadline(Instant::now());
    let added = (0..3).filter(|_| batch.send(&whole).is_ok()).count();
    let committed = if batch.commit().is_ok() { added } else { 0 };
    for _ in 0..queued {
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), [3; 900]);
    }
    for _ in 0..committed {
        assert!(server.recv_deadline(soon()).unwrap().unwrap() == whole);
    }
    // The ring has room for this message, because the batch has left no fragments of unfinished
    // messages in it.
    client.send_deadline(&whole, soon()).unwrap();
    assert!(server.recv_deadline(soon()).unwrap().unwrap() == whole);
}

#[test]
fn a_batch_refuses_what_fits_neither_memory_nor_ring() {
    let _alone = alone();
    let (mut client, _server) = Kind::SharedMemory.pair(|config| {
        config.memory_max(MIB).message_max(8 * MIB).back_pressure(BackPressure::Overflow)
    });
    let mut batch = client.sender().batch_deadline(soon());
    let added = batch.send(&pattern(5 << 20, 1));
    let is_explained =
        matches!(&added, Err(SendError::TooLarge(found)) if found.limit == Limit::OwnMemory);
    assert!(is_explained, "{added:?}");
}

/// Returns the resident bytes of mapped regions, separately for writable and read-only mappings.
fn resident_of_regions() -> (u64, u64) {
    let text = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut written, mut read, mut current) = (0, 0, None);
    for line in text.lines() {
        if line.contains(" /memfd:partywall") {
            current = Some(line.split_whitespace().nth(1).is_some_and(|word| word.contains('w')));
        } else if line.contains('-') && !line.contains(": ") {
            current = None;
        } else if let (Some(is_written), Some(rest)) = (current, line.strip_prefix("Rss:")) {
            let kibibytes: u64 = rest.split_whitespace().next().unwrap().parse().unwrap();
            *(if is_written { &mut written } else { &mut read }) += kibibytes << 10;
        }
    }
    (written, read)
}

#[test]
fn an_idle_channel_takes_little() {
    let _alone = alone();
    let (mut client, mut server) = Kind::SharedMemory.pair(|config| config);
    client.send(b"hello").unwrap();
    assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), b"hello");
    let (written, read) = resident_of_regions();
    println!("resident per side: {} KiB written, {} KiB read", written >> 11, read >> 11);
    assert!(written > 0, "no region found");
    // This process is both sides of the channel, so half of the sum belongs to each side.
    assert!((written + read) / 2 <= 256 << 10, "{written} written, {read} read");
}
