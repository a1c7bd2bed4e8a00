// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which a peer abuses the control socket, the doorbells, or the payload of messages that
//! it has already sent. Other tests abuse the records of a channel over the socket transport.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{Channel, Config, Fault, Listener, RecvError, Transport, Trust, TrustPolicy, Wait};
use partywall_layout::hello::{FEATURE_SOCKET, Ready, TRANSPORT_SHM};
use partywall_layout::record_ring::{self, Kind, WireHeader};
use partywall_layout::segment::{ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED};
use partywall_layout::{Position, RecordHeader};
use partywall_sys::{Doorbell, OwnMap, Socket};
use partywall_testkit::hostile::channel::{BOTH, Foe, blob, hello, small_geometry};
use partywall_testkit::hostile::home::pipe;
use partywall_testkit::{Directory, Footprint, Random, Watchdog, millis, until, within};
use std::io::{IoSlice, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Deadline of each call of this side, which no abuse by the peer may prolong.
const TIMEOUT: Duration = Duration::from_secs(30);

fn soon() -> Instant {
    within(TIMEOUT)
}

fn config() -> Config {
    Config::default().trust(TrustPolicy::Untrusted).segments_max(2).map_max(4 << 20)
}

fn meet(config: &Config, features: u64) -> (Foe, Channel) {
    let place = Directory::new();
    let mut listener = Listener::bind_with(place.address("home"), config).unwrap();
    Foe::meet(&mut listener, &place.path("home"), &hello(features))
}

fn code(channel: &mut Channel) -> u32 {
    loop {
        match channel.recv_deadline(soon()) {
            Ok(Some(_)) => {}
            Ok(None) => panic!("no violation: the channel ended"),
            Err(RecvError::Fault(Fault::Violation { violation, .. })) => return violation.code(),
            Err(other) => panic!("no violation: {other}"),
        }
    }
}

type Act = fn(&mut Foe);

fn stray_descriptor(foe: &mut Foe) {
    foe.wire.send(&[200, 0, 4, 0], &[pipe().as_fd()]);
}

#[test]
fn invalid_bytes_on_control_socket_are_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("control socket", Duration::from_secs(60));
    let cases: &[(&str, u32, Act)] = &[
        ("an unknown byte", 15, |foe| {
            foe.wire.send(&[9], &[]);
        }),
        ("a zero", 15, |foe| {
            foe.wire.send(&[1, 0], &[]);
        }),
        ("a late frame", 15, |foe| {
            foe.wire.send(hello(BOTH).as_bytes(), &[]);
        }),
        ("a descriptor with a notification", 15, |foe| {
            foe.wire.send(&[1], &[pipe().as_fd()]);
        }),
        ("descriptors with a segment", 15, |foe| {
            foe.wire.send(&[2, 1, 8, 0, 1, 0, 0, 0], &[pipe().as_fd(), pipe().as_fd()]);
        }),
        ("a segment that says two descriptors", 15, |foe| {
            foe.wire.send(&[2, 2, 8, 0, 1, 0, 0, 0], &[pipe().as_fd(), pipe().as_fd()]);
        }),
        ("a segment's frame of the old layout", 15, |foe| {
            foe.wire.send(&[2, 1, 0, 0, 0], &[pipe().as_fd()]);
        }),
        ("a frame of a reserved type", 15, |foe| {
            foe.wire.send(&[3, 1, 8, 0, 1, 0, 0, 0], &[pipe().as_fd()]);
        }),
        ("descriptors with a frame that has none", 15, stray_descriptor),
        ("a segment without descriptor", 13, |foe| {
            foe.wire.send(&[2, 1, 8, 0, 1, 0, 0, 0], &[]);
        }),
        ("a flood of segments", 12, |foe| {
            for number in 1..10 {
                foe.send_segment(number, pipe().as_fd());
            }
        }),
        ("another number", 13, |foe| {
            foe.send_segment(2, pipe().as_fd());
            foe.publish_segment(Kind::Segment, 1, 1 << 16);
            foe.wire.send(&[1], &[]);
        }),
        ("a pipe for a segment", 7, |foe| {
            foe.send_segment(1, pipe().as_fd());
            foe.publish_segment(Kind::Segment, 1, 1 << 16);
        }),
        ("a segment of another size", 7, |foe| {
            let memory = OwnMap::create("foe", 1 << 16).unwrap();
            foe.send_segment(1, memory.as_fd());
            foe.publish_segment(Kind::Segment, 1, 1 << 17);
        }),
        ("a segment of an odd size", 7, |foe| {
            let memory = OwnMap::create("foe", 1 << 16).unwrap();
            foe.send_segment(1, memory.as_fd());
            foe.publish_segment(Kind::Segment, 1, 65);
        }),
        ("a segment of no size", 7, |foe| {
            let memory = OwnMap::create("foe", 1 << 16).unwrap();
            foe.send_segment(1, memory.as_fd());
            foe.publish_segment(Kind::Segment, 1, 0);
        }),
    ];
    for (what, expected, act) in cases {
        let (mut foe, mut channel) = meet(&config(), BOTH);
        assert_eq!(channel.peer().trust, Trust::Untrusted);
        act(&mut foe);
        assert_eq!(code(&mut channel), *expected, "{what}");
    }
}

#[test]
fn half_a_frame_on_control_socket_blocks_no_message() {
    let _together = partywall_testkit::together();
    let (mut foe, mut channel) = meet(&config(), BOTH);
    foe.wire.send(&[2, 1, 0], &[pipe().as_fd()]);
    foe.publish(Kind::Data, b"all the same");
    assert_eq!(channel.recv().unwrap().unwrap(), b"all the same");
    let result = channel.recv_deadline(within(millis(30)));
    assert!(matches!(result, Err(RecvError::TimedOut)), "{result:?}");
}

#[test]
fn a_flood_of_doorbells_only_wakes() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("flood of doorbells", Duration::from_secs(60));
    for trust in [TrustPolicy::Trusted, TrustPolicy::Untrusted] {
        let (mut foe, mut channel) = meet(&config().trust(trust).wait(Wait::Park), BOTH);
        let over = AtomicBool::new(false);
        let flooding = foe.wire.socket.try_clone().unwrap();
        // At its fifth sleep, the receiver makes an epoll set, which takes a descriptor, and uses
        // it for all later sleeps. So the descriptors are counted afterwards. A wait whose deadline
        // passes before it sleeps counts as no sleep.
        let without_set = Footprint::now().descriptors;
        until("the receiver has an epoll set", || {
            let result = channel.recv_deadline(within(millis(1)));
            assert!(matches!(result, Err(RecvError::TimedOut)), "{trust:?} {result:?}");
            Footprint::now().descriptors > without_set
        });
        let before = Footprint::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let _ = flooding.write(&[IoSlice::new(&[1; 4096])], true);
                }
            });
            for number in 0..50_u64 {
                let result = channel.recv_deadline(within(millis(2)));
                assert!(matches!(result, Err(RecvError::TimedOut)), "{trust:?} {result:?}");
                foe.publish(Kind::Data, &number.to_le_bytes());
                let message = channel.recv_deadline(soon()).unwrap().unwrap();
                assert_eq!(message, number.to_le_bytes());
                channel.send_deadline(b"back", soon()).unwrap();
            }
            over.store(true, Ordering::Relaxed);
        });
        let after = Footprint::now();
        assert!(after.resident_bytes < before.resident_bytes + (4 << 20), "{before:?} {after:?}");
        assert_eq!(after.descriptors, before.descriptors);
    }
}

/// Returns the number of this process's descriptors that refer to the eventfd of `doorbell`.
fn holders(doorbell: &Doorbell) -> usize {
    let id = |number: i32| {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{number}")).ok()?;
        let line = info.lines().find(|line| line.starts_with("eventfd-id:"))?;
        Some(line.to_owned())
    };
    let wanted = id(doorbell.as_fd().as_raw_fd());
    if wanted.is_none() {
        println!("skipped: this kernel does not number eventfds");
        return 1;
    }
    let all = partywall_sys::process::open_descriptors(partywall_sys::process::Process::Own);
    all.unwrap().into_iter().filter(|(number, _)| id(*number) == wanted).count()
}

/// Fills the eventfd `doorbell` to its maximum and clears O_NONBLOCK, which belongs to the open
/// file description. So notifying would block every holder of the doorbell.
fn fill_and_block(doorbell: &Doorbell) {
    let file = doorbell.as_fd().try_clone_to_owned().unwrap();
    std::fs::File::from(file).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
    let file = doorbell.as_fd().try_clone_to_owned().unwrap();
    UnixStream::from(file).set_nonblocking(false).unwrap();
}

#[test]
fn full_blocking_doorbells_of_an_untrusted_peer_never_block_us() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("blocking doorbells", Duration::from_secs(60));
    let (mut foe, mut channel) = meet(&config(), BOTH);
    assert_eq!(channel.transport(), Transport::SharedMemory);
    assert!(foe.doorbells.is_empty(), "it has no doorbell of ours");
    for doorbell in &foe.own_doorbells {
        assert_eq!(holders(doorbell), 1, "only itself holds its doorbells");
        fill_and_block(doorbell);
    }
    // Before each message the peer declares again that it sleeps, so each send and receive of this
    // side notifies it. The peer reads no doorbell byte, so the control socket fills up.
    for epoch in 1..20_000_u64 {
        foe.write_control(ASLEEP_RECORDS, epoch);
        foe.write_control(ASLEEP_ROOM, epoch);
        channel.send_deadline(&[1; 40], soon()).unwrap();
        foe.write_control(CONSUMED, epoch * 64);
        foe.publish(Kind::Data, &[2; 40]);
        assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), [2; 40]);
    }
}

#[test]
fn doorbells_that_were_handed_out_in_vain_are_not_used() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("doorbells handed out", Duration::from_secs(30));
    let place = Directory::new();
    let config = Config::default().trust(TrustPolicy::Trusted).wait(Wait::Park);
    let mut listener = Listener::bind_with(place.address("home"), &config).unwrap();
    // Both sides offer doorbells, but the peer's READY does not confirm them. So this side must
    // notify by bytes on the control socket.
    let (path, hello, geometry) = (place.path("home"), hello(BOTH), small_geometry());
    let unconfirmed = Ready::new(TRANSPORT_SHM, 0);
    let (mut foe, mut channel) =
        Foe::meet_as(&mut listener, &path, &hello, geometry, Some(unconfirmed));
    assert_eq!(foe.doorbells.len(), 2);
    for doorbell in &foe.doorbells {
        fill_and_block(doorbell);
    }
    for number in 0..10_u64 {
        foe.wire.send(&[1], &[]);
        let result = channel.recv_deadline(within(millis(5)));
        assert!(matches!(result, Err(RecvError::TimedOut)), "{result:?}");
        foe.publish(Kind::Data, &number.to_le_bytes());
        assert_eq!(channel.recv().unwrap().unwrap(), number.to_le_bytes());
    }
}

#[test]
fn what_an_untrusted_peer_changes_afterwards_changes_no_message() {
    let _together = partywall_testkit::together();
    let (mut foe, mut channel) = meet(&config(), BOTH);
    let ring = foe.geometry.ring_offset as usize;
    let slab = foe.geometry.slab_offset as usize;
    foe.region.as_mut_slice()[slab..slab + 4096].fill(1);
    foe.publish(Kind::Data, &[1; 48]);
    foe.publish(Kind::Data, &[1; 200]);
    foe.publish(Kind::Data, &[1; 48]);
    foe.publish_blob(5, 0, 0, 4096);
    let messages = [channel.recv().unwrap().unwrap(), channel.recv().unwrap().unwrap()];
    {
        let borrowed = channel.recv_ref().unwrap().unwrap();
        foe.region.as_mut_slice()[ring + 16..ring + 640].fill(2);
        assert_eq!(&*borrowed, [1; 48]);
    }
    // The hostile peer has overwritten the header of its BLOB, too, so it publishes the header
    // again.
    foe.position -= 64;
    foe.publish_blob(5, 0, 0, 4096);
    let large = channel.recv().unwrap().unwrap();
    foe.region.as_mut_slice()[slab..].fill(2);
    assert!(!large.is_zero_copy());
    assert_eq!(large, [1; 4096]);
    assert_eq!(messages[0], [1; 48]);
    assert_eq!(messages[1], [1; 200]);
}

#[test]
fn payload_that_changes_all_the_time_is_read_once() {
    let _together = partywall_testkit::together();
    let (mut foe, mut channel) = meet(&config(), BOTH);
    let slab = foe.geometry.slab_offset as usize;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (over, foe) = (&over, &mut foe);
        scope.spawn(move || {
            for round in 0_u64.. {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                foe.region.as_mut_slice()[slab..slab + 8192].fill(round as u8);
                let consumed = foe.theirs.as_ref().unwrap().load(4096 + CONSUMED as usize);
                if foe.position < consumed + 2048 {
                    foe.publish_blob(round, 0, 0, 8192);
                }
            }
        });
        for _ in 0..2000 {
            let message = channel.recv_deadline(soon()).unwrap().unwrap();
            let first = message.to_vec();
            std::thread::yield_now();
            assert!(message == first, "it changed under us");
        }
        over.store(true, Ordering::Relaxed);
    });
}

fn wire(position: u64, kind: Kind, len: u32) -> WireHeader {
    RecordHeader { position: Position(position), kind, len, stream: 0 }.to_wire()
}

fn bytes(header: WireHeader, body: &[u8]) -> Vec<u8> {
    [header.as_bytes(), body].concat()
}

#[test]
fn records_on_a_socket_that_cannot_be_are_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("bad records", Duration::from_secs(60));
    let word = |word: u64| [word.to_le_bytes(), [0; 8]].concat();
    let large = |block, offset, length| {
        let body = blob(block, 0, offset, length);
        bytes(wire(0, Kind::Blob, 32), body.as_bytes())
    };
    let after = |bytes_before: Vec<u8>, more: Vec<u8>| [bytes_before, more].concat();
    let one = bytes(wire(0, Kind::Data, 3), b"abc");
    let cases: Vec<(&str, u32, Vec<u8>)> = vec![
        ("no word", 2, word(0)),
        ("all bits", 2, word(u64::MAX)),
        ("an uncommitted word", 2, word(2)),
        ("another position", 2, bytes(wire(64, Kind::Data, 0), b"")),
        ("the same position again", 2, after(one.clone(), one.clone())),
        ("kind 0", 3, word(1)),
        ("kind 30", 3, word(30 << 1 | 1)),
        ("a pad", 4, bytes(wire(0, Kind::Pad, 0), b"")),
        ("a part", 4, bytes(wire(0, Kind::FragmentFirst, 8), &[0; 8])),
        ("a segment", 4, bytes(wire(0, Kind::Segment, 16), &[0; 16])),
        ("a session's kind", 4, bytes(wire(0, Kind::Open, 0), b"")),
        ("DATA beyond 64 KiB", 5, bytes(wire(0, Kind::Data, 65_537), b"")),
        ("DATA of all bytes there are", 5, bytes(wire(0, Kind::Data, u32::MAX), b"")),
        ("a message longer than agreed", 11, bytes(wire(0, Kind::Data, 60_001), b"")),
        ("a large one longer than agreed", 11, large(0, 0, 60_001)),
        ("a large one of all bytes", 11, large(0, 0, u64::MAX)),
        ("a blob with a block", 7, large(1, 0, 100)),
        ("a blob with an offset", 7, large(0, 1, 100)),
        ("a short blob", 7, bytes(wire(0, Kind::Blob, 31), &[0; 31])),
        ("an endless blob", 7, bytes(wire(0, Kind::Blob, u32::MAX), &[0; 31])),
        ("an end with a body", 7, bytes(wire(0, Kind::CloseWrite, 1), b"x")),
    ];
    for trust in [TrustPolicy::Trusted, TrustPolicy::Untrusted] {
        for (what, expected, bytes) in &cases {
            let config = config().trust(trust).message_max(60_000);
            let (foe, mut channel) = meet(&config, FEATURE_SOCKET);
            assert!(matches!(channel.transport(), Transport::Socket(_)));
            foe.wire.send(bytes, &[]);
            assert_eq!(code(&mut channel), *expected, "{what}");
            assert!(channel.send(b"x").is_err(), "{what}");
        }
    }
}

#[test]
fn announced_but_unsent_bytes_take_no_memory() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("announced bytes", Duration::from_secs(60));
    let announced = blob(0, 0, 0, 64 << 20);
    let before = Footprint::now().resident_bytes;
    let mut all: Vec<(Foe, Channel)> = Vec::new();
    for _ in 0..20 {
        let (foe, mut channel) = meet(&Config::default(), FEATURE_SOCKET);
        foe.wire.send(&bytes(wire(0, Kind::Blob, 32), announced.as_bytes()), &[]);
        foe.wire.send(&[0; 1000], &[]);
        let result = channel.recv_deadline(within(millis(5)));
        assert!(matches!(result, Err(RecvError::TimedOut)), "{result:?}");
        all.push((foe, channel));
    }
    // Over shared memory, the peer announces a long message by its first fragment, and sends no
    // other. This side must allocate little more memory than has arrived.
    for _ in 0..20 {
        let (mut foe, mut channel) = meet(&Config::default(), BOTH);
        foe.publish(Kind::FragmentFirst, &(64_u64 << 20).to_le_bytes());
        foe.publish(Kind::FragmentMid, &[0; 500]);
        let result = channel.recv_deadline(within(millis(5)));
        assert!(matches!(result, Err(RecvError::TimedOut)), "{result:?}");
        all.push((foe, channel));
    }
    let after = Footprint::now().resident_bytes;
    let grown = after.saturating_sub(before);
    println!("{} MiB for {} announced", grown >> 20, all.len() * 64);
    assert!(grown < 100 << 20, "{grown} bytes");
}

#[test]
fn random_bytes_on_a_socket_never_panic_or_hang() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("random bytes", Duration::from_secs(120));
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let (foe, mut channel) = meet(&config(), FEATURE_SOCKET);
        let mut position = 0;
        for _ in 0..random.below(20) {
            let kind = Kind::from_number([1, 1, 1, 2, 10, 31][random.below(6) as usize]).unwrap();
            let len = [0, 3, 32, 65_536, random.below(300) as u32][random.below(5) as usize];
            let body: Vec<u8> = (0..random.below(400)).map(|_| random.next() as u8).collect();
            foe.wire.send(&bytes(wire(position, kind, len), &body), &[]);
            position += record_ring::HEADER_BYTES + 48 + u64::from(len) / 64 * 64;
        }
        let started = Instant::now();
        for _ in 0..20 {
            match channel.recv_deadline(within(millis(1))) {
                Ok(Some(_)) | Err(RecvError::TimedOut) => {}
                Ok(None)
                | Err(RecvError::Disconnected | RecvError::Fault(Fault::Violation { .. })) => break,
                Err(other) => panic!("{other}"),
            }
        }
        let _ = channel.send_deadline(&[1; 100], within(millis(1)));
        assert!(started.elapsed() < TIMEOUT);
    }
}

#[test]
fn a_peer_that_never_reads_only_makes_its_own_messages_wait() {
    let _alone = partywall_testkit::alone();
    let (foe, mut channel) = meet(&Config::default(), FEATURE_SOCKET);
    let before = Footprint::now().resident_bytes;
    let soon = within(millis(100));
    let result =
        std::iter::repeat_with(|| channel.send_deadline(&[0; 9000], soon)).find(Result::is_err);
    assert!(matches!(result, Some(Err(partywall::SendError::TimedOut))), "{result:?}");
    assert!(Footprint::now().resident_bytes < before + (16 << 20));
    let _: &Socket = &foe.wire.socket;
}
