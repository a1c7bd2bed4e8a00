// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which a peer breaks the rules of the handshake, frame by frame and descriptor by
//! descriptor. The listener names the broken rule, serves other peers, and keeps no descriptor and
//! no mapping of this peer.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{Config, FallbackReason, Transport};
use partywall_layout::RegionHeader;
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, DESCRIPTOR_REGION, Descriptors, Hello, Offer, REGION_ALONE,
    REGION_AND_DOORBELLS, REJECT_TAG, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready, RejectHead,
    TRANSPORT_SHM, TRANSPORT_SOCKET,
};
use partywall_sys::{Doorbell, OwnMap, PidFd, SIZE_GRANULE};
use partywall_testkit::hostile::channel::{BOTH, hello, region_with, small_geometry};
use partywall_testkit::hostile::home::{DESCRIPTOR, HUNG_UP, Home, NOT_PARTYWALL, VIOLATION, pipe};
use partywall_testkit::{Random, Second, Watchdog, millis, within};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Duration;
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

fn with(change: impl FnOnce(&mut Hello)) -> Vec<u8> {
    let mut own = hello(BOTH);
    change(&mut own);
    own.as_bytes().to_vec()
}

#[test]
fn a_hello_that_cannot_be_is_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("bad hello", Duration::from_secs(60));
    let mut home = Home::new(Config::default());
    let reject = RejectHead::new(99, 0).as_bytes().to_vec();
    let cases: &[(&str, Vec<u8>, u32, &str)] = &[
        ("another tag", b"GET / HTTP/1.1\r\n\r\n".to_vec(), NOT_PARTYWALL, "GET /"),
        ("almost our tag", b"PARTYWAX".to_vec(), NOT_PARTYWALL, "PARTYWAX"),
        ("zeros", vec![0; 16], NOT_PARTYWALL, "\\x00"),
        (
            "too short for its fields",
            with(|h| h.length = U32::new(100))[..100].to_vec(),
            VIOLATION,
            "HELLO length",
        ),
        ("length 0", with(|h| h.length = U32::new(0)), VIOLATION, "frame length"),
        ("length 15", with(|h| h.length = U32::new(15)), VIOLATION, "frame length"),
        ("length 1025", with(|h| h.length = U32::new(1025)), VIOLATION, "frame length"),
        ("length of all bits", with(|h| h.length = U32::new(u32::MAX)), VIOLATION, "frame length"),
        ("no version", with(|h| h.version_min.set(0)), VIOLATION, "version range"),
        ("versions upside down", with(|h| h.version_min.set(9)), VIOLATION, "version range"),
        ("service 0", with(|h| h.service = U32::new(0)), VIOLATION, "service"),
        ("a session", with(|h| h.service = U32::new(2)), 207, "asks for sessions"),
        ("entries 0", with(|h| h.peer_blocks_max = U64::new(0)), VIOLATION, "release entries"),
        ("entries 9", with(|h| h.peer_blocks_max = U64::new(9)), VIOLATION, "release entries"),
        (
            "entries 2^63",
            with(|h| h.peer_blocks_max = U64::new(1 << 63)),
            VIOLATION,
            "release entries",
        ),
        (
            "other versions",
            with(|h| {
                h.version_min.set(7);
                h.version_max.set(9);
            }),
            204,
            "7 to 9",
        ),
        ("a refusal", reject, 205, "99"),
        ("an OFFER first", Offer::socket(1).as_bytes().to_vec(), NOT_PARTYWALL, "PWOFFER"),
    ];
    for (what, bytes, code, text) in cases {
        let wire = home.wire();
        wire.send(bytes, &[]);
        let reason = home.reason();
        assert!(reason.0 == *code && reason.1.contains(text), "{what}: {reason:?}");
    }
    home.serves();
}

#[test]
fn service_version_and_descriptors_of_a_hello_are_named() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let cases: &[(&str, Vec<u8>, u32, &str)] = &[
        ("an unknown service", with(|h| h.service = U32::new(9)), 207, "service 9"),
        ("service of all bits", with(|h| h.service = U32::new(u32::MAX)), 207, "service"),
        (
            "more descriptors than a list can have",
            with(|h| h.descriptors.count = 8),
            VIOLATION,
            "descriptor count",
        ),
        (
            "two processes",
            with(|h| h.descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD, DESCRIPTOR_PIDFD])),
            VIOLATION,
            "kinds of descriptors",
        ),
        (
            "the handshake of version 1",
            with(|h| {
                h.version_min.set(1);
                h.version_max.set(1);
            }),
            204,
            "2 to 2",
        ),
    ];
    for (what, bytes, code, text) in cases {
        let wire = home.wire();
        wire.send(bytes, &[]);
        let reason = home.reason();
        assert!(reason.0 == *code && reason.1.contains(text), "{what}: {reason:?}");
        let (frame, _) = wire.receive();
        assert!(frame.starts_with(&REJECT_TAG), "{what}: {frame:?}");
        assert_eq!(frame[16] == 5, *code == 207, "{what}: REJECT is for the service or is not");
    }
    home.serves();
}

#[test]
fn frames_out_of_order_short_huge_and_repeated_are_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("order of frames", Duration::from_secs(60));
    let mut home = Home::new(Config::default());
    let ready = Ready::new(TRANSPORT_SOCKET, 1);
    let shm = Ready::new(TRANSPORT_SHM, 0);
    let offer = Offer::socket(1);
    let mut odd_offer = offer;
    odd_offer.transport = U32::new(3);
    let mut short_offer = offer;
    short_offer.length = U32::new(63);
    let mut odd_ready = ready;
    odd_ready.transport = U32::new(0);
    let mut reject = RejectHead::new(1, 100).as_bytes().to_vec();
    reject.truncate(24);
    reject[12..16].copy_from_slice(&24u32.to_le_bytes());
    let hello = hello(BOTH);
    let cases: &[(&str, Vec<&[u8]>, u32)] = &[
        ("READY for OFFER", vec![ready.as_bytes()], VIOLATION),
        ("HELLO twice", vec![hello.as_bytes()], VIOLATION),
        ("OFFER twice", vec![offer.as_bytes(), offer.as_bytes()], VIOLATION),
        ("HELLO for READY", vec![offer.as_bytes(), hello.as_bytes()], VIOLATION),
        ("an unknown transport", vec![odd_offer.as_bytes()], VIOLATION),
        ("an unknown answer", vec![offer.as_bytes(), odd_ready.as_bytes()], VIOLATION),
        ("OFFER too short", vec![short_offer.as_bytes()], VIOLATION),
        ("READY at once", vec![offer.as_bytes(), ready.as_bytes()], VIOLATION),
        ("no tag", vec![&[0; 64]], VIOLATION),
        ("a refusal with a lying length", vec![&reject], VIOLATION),
        ("READY for shared memory without any", vec![offer.as_bytes(), shm.as_bytes()], VIOLATION),
    ];
    for (what, frames, code) in cases {
        let (wire, _) = home.greeted(&hello);
        wire.send(&frames.concat(), &[]);
        let reason = home.reason();
        assert_eq!(reason.0, *code, "{what}: {reason:?}");
    }
    home.serves();
}

#[test]
fn a_pidfd_of_somebody_else_is_named() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let other = Second::spawn(Command::new("sleep").arg("60"));
    let others = PidFd::of_pid(other.pid()).unwrap();
    let own = PidFd::of_self().unwrap();
    let pipe = pipe();
    let bytes = with(|h| h.descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]));
    let offer = Offer::socket(1);
    let cases: [(&str, Vec<BorrowedFd<'_>>, u32); 5] = [
        ("another process", vec![others.as_fd()], DESCRIPTOR),
        ("no process", vec![pipe.as_fd()], DESCRIPTOR),
        ("none", vec![], VIOLATION),
        ("twice", vec![own.as_fd(), own.as_fd()], VIOLATION),
        ("eight", vec![own.as_fd(); 8], VIOLATION),
    ];
    for (what, descriptors, code) in cases {
        let wire = home.wire();
        wire.send(&[&bytes[..], offer.as_bytes()].concat(), &descriptors);
        let reason = home.reason();
        assert_eq!(reason.0, code, "{what}: {reason:?}");
    }
    let wire = home.wire();
    drop(other);
    wire.send(&bytes, &[others.as_fd()]);
    let reason = home.reason();
    assert!(reason.0 == HUNG_UP || reason.0 == DESCRIPTOR, "a dead one: {reason:?}");
    home.serves();
}

/// Offers `region` to the listener as a hostile peer. Returns code and text of the listener's
/// refusal.
fn offered(home: &mut Home, region: BorrowedFd<'_>, size: u64) -> (u32, String) {
    let (wire, _) = home.greeted(&hello(BOTH));
    let offer = Offer::shm(size, REGION_ALONE);
    wire.send(offer.as_bytes(), &[region]);
    home.reason()
}

#[test]
fn memory_that_is_not_as_it_must_be_is_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("bad memory", Duration::from_secs(60));
    let grain = SIZE_GRANULE as u64;
    let mut home = Home::new(Config::default().map_max(4 * grain));
    let sealed = OwnMap::create("foe", SIZE_GRANULE).unwrap();
    let large = OwnMap::create("foe", 5 * SIZE_GRANULE).unwrap();
    let file = File::create_new(home.place.path("file")).unwrap();
    file.set_len(grain).unwrap();
    let pipe = pipe();
    let doorbell = Doorbell::new().unwrap();
    let directory = File::open("/").unwrap();
    let cases: [(&str, BorrowedFd<'_>, u64, &str); 8] = [
        ("smaller than announced", sealed.as_fd(), 2 * grain, "131072"),
        ("larger than announced", large.as_fd(), grain, "65536"),
        ("of no size", sealed.as_fd(), 0, "0"),
        ("of an odd size", sealed.as_fd(), grain + 1, "65537"),
        ("a regular file", file.as_fd(), grain, ""),
        ("a pipe", pipe.as_fd(), grain, ""),
        ("an eventfd", doorbell.as_fd(), grain, ""),
        ("a directory", directory.as_fd(), grain, ""),
    ];
    for (what, descriptor, size, text) in cases {
        let reason = offered(&mut home, descriptor, size);
        assert!(reason.0 == DESCRIPTOR && reason.1.contains(text), "{what}: {reason:?}");
    }
    for (kind, text) in [("unsealed", "F_SEAL"), ("sparse", "allocated"), ("hugetlb", "")] {
        match made_elsewhere(kind) {
            Some(descriptor) => {
                let reason = offered(&mut home, descriptor.as_fd(), grain);
                assert_eq!(reason.0, DESCRIPTOR, "{kind}: {reason:?}");
                assert!(reason.1.contains(text), "{kind}: {reason:?}");
            }
            None => println!("skipped: {kind} memory cannot be made here"),
        }
    }
    home.serves();
}

/// Makes a descriptor of memory that this library refuses to make, such as a memfd without seals,
/// by a Python script. Returns `None` without Python.
fn made_elsewhere(kind: &str) -> Option<OwnedFd> {
    const SCRIPT: &str = "
import array, fcntl, os, socket, sys
kind = sys.argv[1]
flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | (os.MFD_HUGETLB if kind == 'hugetlb' else 0)
fd = os.memfd_create('foe', flags)
if kind != 'hugetlb':
    os.ftruncate(fd, 65536)
if kind == 'unsealed':
    os.posix_fallocate(fd, 0, 65536)
else:
    fcntl.fcntl(fd, 1033, 0x1 | 0x2 | 0x4 | 0x10)
wire = socket.socket(fileno=0)
wire.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
";
    let (ours, theirs) = partywall_sys::Socket::pair().unwrap();
    let status = Command::new("python3")
        .args(["-c", SCRIPT, kind])
        .stdin(Stdio::from(theirs.into_fd()))
        .stderr(Stdio::null())
        .status();
    if !status.is_ok_and(|status| status.success()) {
        return None;
    }
    ours.receive(&mut [0; 8], true).ok()?.fds.pop()
}

#[test]
fn region_beyond_the_limit_of_the_acceptor_leads_to_the_socket() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default().map_max(4 * SIZE_GRANULE as u64));
    let large = OwnMap::create("foe", 5 * SIZE_GRANULE).unwrap();
    let (wire, _) = home.greeted(&hello(BOTH));
    // A region above the listener's limit is no violation, because a connector makes its region
    // before it knows the limit.
    let offer = Offer::shm(5 * SIZE_GRANULE as u64, REGION_ALONE);
    wire.send(offer.as_bytes(), &[large.as_fd()]);
    assert!(home.go_on().is_none());
    wire.send(Ready::new(TRANSPORT_SOCKET, 6).as_bytes(), &[]);
    let channel = home.listener.accept_deadline(within(Duration::from_secs(10))).unwrap();
    assert_eq!(channel.transport(), Transport::Socket(FallbackReason::Limits));
}

/// Returns `frame` as a later version of the protocol may send it: longer, with unknown bytes at
/// its end.
fn longer(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.extend_from_slice(&[0xee; 24]);
    let length = u32::try_from(frame.len()).unwrap();
    frame[12..16].copy_from_slice(&length.to_le_bytes());
    frame
}

#[test]
fn longer_frames_and_descriptors_of_unknown_kinds_are_passed_over() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    let mut own = hello(BOTH);
    own.descriptors = Descriptors::of(&[200]);
    let region = region_with(
        geometry.region_bytes,
        &geometry.header(own.nonce, std::process::id(), ROLE_CONNECTOR),
    );
    let offer = Offer::shm(geometry.region_bytes, &[99, DESCRIPTOR_REGION]);
    let pipe = pipe();
    let wire = home.wire();
    let frames = [longer(own.as_bytes()), longer(offer.as_bytes())].concat();
    wire.send(&frames, &[pipe.as_fd(), pipe.as_fd(), region.as_fd()]);
    assert!(home.go_on().is_none());
    let mut ready = Ready::new(TRANSPORT_SHM, 0);
    ready.descriptors = Descriptors::of(&[77]);
    wire.send(&longer(ready.as_bytes()), &[pipe.as_fd()]);
    let channel = home.listener.accept_deadline(within(Duration::from_secs(10))).unwrap();
    assert_eq!(channel.transport(), Transport::SharedMemory);
}

#[test]
fn doorbells_that_nobody_offered_are_named() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    let (wire, session_id) = home.greeted(&hello(BOTH));
    let header = geometry.header(session_id, std::process::id(), ROLE_CONNECTOR);
    let region = region_with(geometry.region_bytes, &header);
    let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
    wire.send(offer.as_bytes(), &[region.as_fd()]);
    assert!(home.go_on().is_none());
    wire.send(Ready::new(TRANSPORT_SHM, 0).with_doorbells().as_bytes(), &[]);
    let reason = home.reason();
    assert!(reason.0 == VIOLATION && reason.1.contains("doorbells of READY"), "{reason:?}");
}

#[test]
fn descriptors_that_are_no_doorbells_are_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("bad doorbells", Duration::from_secs(60));
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    let (pipe, doorbell) = (pipe(), Doorbell::new().unwrap());
    let blocking = partywall_sys::eventfd::blocking_counter().unwrap();
    for (what, records, room, text) in [
        ("a pipe for records", pipe.as_fd(), doorbell.as_fd(), "not an eventfd"),
        ("a pipe for room", doorbell.as_fd(), pipe.as_fd(), "not an eventfd"),
        ("a blocking eventfd", doorbell.as_fd(), blocking.as_fd(), "O_NONBLOCK"),
    ] {
        let (wire, session_id) = home.greeted(&hello(BOTH));
        let header = geometry.header(session_id, std::process::id(), ROLE_CONNECTOR);
        let region = region_with(geometry.region_bytes, &header);
        let offer = Offer::shm(geometry.region_bytes, REGION_AND_DOORBELLS);
        wire.send(offer.as_bytes(), &[region.as_fd(), records, room]);
        let reason = home.reason();
        assert!(reason.0 == DESCRIPTOR && reason.1.contains(text), "{what}: {reason:?}");
    }
    home.serves();
}

type Tamper = fn(&mut RegionHeader);

#[test]
fn each_wrong_field_of_a_header_is_named() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("bad header", Duration::from_secs(60));
    let cases: &[(&str, Tamper)] = &[
        ("magic", |h| h.magic[7] = 2),
        ("version", |h| h.version = U32::new(2)),
        ("header size", |h| h.header_size = U32::new(4097)),
        ("layout hash", |h| h.layout_hash = U64::new(0)),
        ("region size", |h| h.region_size = U64::new(u64::MAX)),
        ("session id", |h| h.session_id[0] ^= 1),
        ("role", |h| h.role = U32::new(ROLE_ACCEPTOR)),
        ("role", |h| h.role = U32::new(2)),
        ("ring size", |h| h.ring_size = U64::new(0)),
        ("ring size", |h| h.ring_size = U64::new(4095)),
        ("ring size", |h| h.ring_size = U64::new(1 << 63)),
        ("release entries", |h| h.peer_blocks_max = U64::new(0)),
        ("release entries", |h| h.peer_blocks_max = U64::new(u64::MAX)),
        ("release entries", |h| h.peer_blocks_max = U64::new(512)),
        ("ring offset", |h| h.ring_offset = U64::new(0)),
        ("ring offset", |h| h.ring_offset = U64::new(u64::MAX - 4095)),
        ("release offset", |h| h.release_offset = U64::new(8192)),
        ("slab offset", |h| h.slab_offset = U64::new(1 << 40)),
        ("slab offset", |h| h.slab_size = U64::new(u64::MAX)),
    ];
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    for (field, tamper) in cases {
        let (wire, session_id) = home.greeted(&hello(BOTH));
        let mut header = geometry.header(session_id, 1, ROLE_CONNECTOR);
        tamper(&mut header);
        let region = region_with(geometry.region_bytes, &header);
        let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
        wire.send(offer.as_bytes(), &[region.as_fd()]);
        let reason = home.reason();
        assert!(reason.0 == VIOLATION && reason.1.contains(field), "{field}: {reason:?}");
        // The listener sends REJECT for each wrong header of the region.
        let (frame, _) = wire.receive();
        assert!(frame.starts_with(&REJECT_TAG), "{field}: {frame:?}");
    }
    home.serves();
}

#[test]
fn random_headers_never_panic() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("random headers", Duration::from_secs(60));
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    let mut let_in = 0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let (wire, session_id) = home.greeted(&hello(BOTH));
        let mut header = geometry.header(session_id, 1, ROLE_CONNECTOR);
        for _ in 0..=random.below(2) {
            let at = random.below(16) as usize * 8;
            let word = [0, 1, u64::MAX, 4096, 1 << 16, random.next()][random.below(6) as usize];
            header.as_mut_bytes()[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        let region = region_with(geometry.region_bytes, &header);
        let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
        wire.send(offer.as_bytes(), &[region.as_fd()]);
        assert!(home.go_on().is_none());
        wire.send(Ready::new(TRANSPORT_SHM, 0).as_bytes(), &[]);
        if let Some(mut channel) = home.go_on() {
            // The listener accepted the region: the random change hit an unused field, or gave a
            // part of the region another valid offset.
            let_in += 1;
            let _ = channel.try_recv();
            channel.send_deadline(&[1; 3000], within(millis(10))).unwrap();
        }
    }
    println!("{let_in} of 300 let in");
}
