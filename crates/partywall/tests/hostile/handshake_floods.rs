// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which peers stall at any frame, flood the listener with connections, send too many or
//! too few descriptors, or claim another identity. Meanwhile all other peers are served, deadlines
//! hold, and the listener keeps no descriptor of them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    AcceptError, Admission, Config, ConnectError, FallbackReason, HandshakeError, Refusal,
    SendError, Transport, TransportPolicy,
};
use partywall_layout::Geometry;
use partywall_layout::hello::{
    FEATURE_SHM, FEATURE_SOCKET, Hello, Offer, REGION_ALONE, REGION_AND_DOORBELLS, REJECT_TAG,
    ROLE_CONNECTOR, Ready, TRANSPORT_SOCKET,
};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Doorbell, PidFd, connect_unix_path};
use partywall_testkit::hostile::channel::{BOTH, Foe, Wire, hello, region, small_geometry};
use partywall_testkit::hostile::home::{DESCRIPTOR, HUNG_UP, Home, VIOLATION, pipe};
use partywall_testkit::{Footprint, Watchdog, millis, within};
use std::io::{ErrorKind, IoSlice, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

const TIMED_OUT: u32 = 201;
const NOT_ADMITTED: u32 = 206;
const NO_TRANSPORT: u32 = 208;

#[test]
fn a_stall_at_any_byte_holds_up_nobody_and_ends_in_time() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("stalls", Duration::from_secs(120));
    let mut home = Home::new(Config::default().handshake_timeout(millis(300)));
    let hello = hello(BOTH);
    let offer = Offer::socket(1);
    let ready = Ready::new(TRANSPORT_SOCKET, 1);
    let stalls: [(&str, &[&[u8]]); 8] = [
        ("at the first byte", &[]),
        ("within the tag", &[&hello.as_bytes()[..3]]),
        ("within the preamble", &[&hello.as_bytes()[..15]]),
        ("within HELLO", &[&hello.as_bytes()[..127]]),
        ("before OFFER", &[hello.as_bytes()]),
        ("within OFFER", &[hello.as_bytes(), &offer.as_bytes()[..63]]),
        ("before READY", &[hello.as_bytes(), offer.as_bytes()]),
        ("within READY", &[hello.as_bytes(), offer.as_bytes(), &ready.as_bytes()[..39]]),
    ];
    for (what, frames) in stalls {
        let wire = home.wire();
        for frame in frames {
            assert!(wire.send(frame, &[]));
            assert!(home.go_on().is_none());
        }
        // Another peer can connect while the first one stalls.
        home.serves();
        let started = Instant::now();
        let reason = home.reason();
        assert_eq!(reason.0, TIMED_OUT, "{what}: {reason:?}");
        assert!(started.elapsed() < Duration::from_secs(3), "{what}: {:?}", started.elapsed());
    }
}

#[test]
fn oldest_silent_peer_is_dropped_for_one_that_sends() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("silent peers", Duration::from_secs(60));
    // The handshake time-out is longer than the test, so no silent peer is dropped because of it.
    let config = Config::default().handshake_timeout(Duration::from_secs(600)).handshakes_max(4);
    let mut home = Home::new(config);
    let silent: Vec<Wire> = (0..4).map(|_| home.wire()).collect();
    assert!(home.go_on().is_none());
    home.serves();
    assert_eq!(home.listener.refused(), 1);
    let (frame, _) = silent[0].receive();
    assert!(frame.starts_with(&REJECT_TAG) && frame[16] == Refusal::Busy.number() as u8);
    for wire in &silent[1..] {
        let read = wire.socket.read(&mut [0; 1], true);
        assert_eq!(read.unwrap_err().kind(), ErrorKind::WouldBlock, "given up without need");
    }
}

#[test]
fn whoever_has_sent_a_byte_keeps_its_place() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("a byte", Duration::from_secs(60));
    let config = Config::default().handshake_timeout(Duration::from_secs(600)).handshakes_max(1);
    let mut home = Home::new(config);
    let slow = home.wire();
    assert!(home.go_on().is_none());
    // A peer that has sent a byte is not silent. The listener must read the byte before it drops a
    // silent peer to make room for another connection.
    assert!(slow.send(b"P", &[]));
    let next = home.wire();
    assert!(next.send_hello(&hello(BOTH)));
    assert!(next.send(Offer::socket(1).as_bytes(), &[]));
    let result = home.listener.accept_deadline(within(millis(250)));
    assert!(matches!(result, Err(AcceptError::TimedOut)), "{result:?}");
    assert_eq!(home.listener.refused(), 0);
    drop(slow);
    assert_eq!(home.reason().0, HUNG_UP);
    let (frame, _) = next.receive();
    assert!(Hello::read_from_bytes(&frame).is_ok(), "now it is its turn");
}

#[test]
fn external_event_loop_is_woken_at_handshake_timeout() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default().handshake_timeout(millis(50)));
    let _silent = home.wire();
    while home.listener.refused() == 0 {
        let mut events = [PollFd::new(&home.listener, PollFlags::IN)];
        let ready = poll::wait(&mut events, Some(within(Duration::from_secs(10)))).unwrap();
        assert_eq!(ready, 1, "the listener has something to do, and does not say so");
        assert!(home.listener.try_accept().is_err());
    }
    assert_eq!(home.reason().0, TIMED_OUT);
}

#[test]
fn connecting_to_one_that_stalls_ends_in_time() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("stalling listener", Duration::from_secs(60));
    let place = partywall_testkit::Directory::new();
    let silent = UnixListener::bind(place.path("silent")).unwrap();
    let config = Config::default().handshake_timeout(millis(100));
    for bytes in [&b""[..], b"PARTYWAL", &hello(BOTH).as_bytes()[..100]] {
        let started = Instant::now();
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = silent.accept().unwrap().0;
                // Writing to the listener's end of the connection fails only if the connecting side
                // has given up, as the test expects.
                let _ = stream.write_all(bytes);
                // The listener's end of the connection stays open until the connecting side closes
                // its end.
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            });
            partywall::connect_with(place.address("silent"), &config)
        });
        assert!(
            matches!(result, Err(ConnectError::Handshake(HandshakeError::TimedOut { .. }))),
            "{result:?}"
        );
        assert!(started.elapsed() < Duration::from_secs(3));
    }
}

#[test]
fn a_flood_of_connections_does_not_outlast_the_deadline_of_an_accept() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("flood of connections", Duration::from_secs(60));
    let mut home = Home::new(Config::default());
    let path = home.place.path("home");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    // The peer sends one byte, so that the listener counts an attempt, and closes
                    // the connection.
                    if let Ok(socket) = connect_unix_path(&path, Some(within(millis(50)))) {
                        let _ = socket.write(&[IoSlice::new(b"P")], true);
                    }
                }
            });
        }
        for _ in 0..10 {
            let started = Instant::now();
            let result = home.listener.accept_deadline(within(millis(30)));
            assert!(matches!(result, Err(AcceptError::TimedOut)), "{result:?}");
            assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        }
        home.serves();
        over.store(true, Ordering::Relaxed);
    });
    println!("{} refused", home.listener.refused());
}

#[test]
fn descriptors_with_every_byte_are_not_collected() {
    let _alone = partywall_testkit::alone();
    let mut home = Home::new(Config::default());
    let wire = home.wire();
    let own = PidFd::of_self().unwrap();
    let before = Footprint::now().descriptors;
    let mut most = 0;
    for byte in hello(BOTH).as_bytes() {
        if !wire.send(&[*byte], &[own.as_fd(); 8]) {
            break;
        }
        assert!(home.go_on().is_none());
        most = most.max(Footprint::now().descriptors);
    }
    assert!(most < before + 16, "{before} descriptors, then {most}");
    assert_eq!(home.listener.refused(), 1);
    home.serves();
}

#[test]
fn too_many_too_few_and_wrong_descriptors_are_named() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let geometry = small_geometry();
    let doorbell = Doorbell::new().unwrap();
    let pipe = pipe();
    // A doorbell without O_NONBLOCK, which the listener must refuse. The flag belongs to the open
    // file description, so clearing it through the duplicate `alias` clears it for `blocking`, too.
    let blocking = Doorbell::new().unwrap();
    let alias = UnixStream::from(blocking.as_fd().try_clone_to_owned().unwrap());
    alias.set_nonblocking(false).unwrap();
    let (doorbell, pipe, blocking) = (doorbell.as_fd(), pipe.as_fd(), blocking.as_fd());
    let cases: [(&str, &[u8], Vec<BorrowedFd<'_>>, u32); 6] = [
        ("no doorbells", REGION_AND_DOORBELLS, vec![], VIOLATION),
        ("one doorbell", REGION_AND_DOORBELLS, vec![doorbell], VIOLATION),
        ("doorbells that are not listed", REGION_ALONE, vec![doorbell, doorbell], VIOLATION),
        ("three doorbells", REGION_AND_DOORBELLS, vec![doorbell, doorbell, doorbell], VIOLATION),
        ("pipes for doorbells", REGION_AND_DOORBELLS, vec![pipe, pipe], DESCRIPTOR),
        ("blocking doorbells", REGION_AND_DOORBELLS, vec![blocking, doorbell], DESCRIPTOR),
    ];
    for (what, kinds, doorbells, code) in cases {
        let (wire, session_id) = home.greeted(&hello(BOTH));
        let region = region(&geometry, session_id, ROLE_CONNECTOR);
        let offer = Offer::shm(geometry.region_bytes, kinds);
        let mut descriptors = vec![region.as_fd()];
        descriptors.extend(doorbells);
        wire.send(offer.as_bytes(), &descriptors);
        let reason = home.reason();
        assert_eq!(reason.0, code, "{what}: {reason:?}");
    }
    let (wire, session_id) = home.greeted(&hello(BOTH));
    let region = region(&geometry, session_id, ROLE_CONNECTOR);
    wire.send(Offer::shm(geometry.region_bytes, &[]).as_bytes(), &[]);
    assert_eq!(home.reason().0, VIOLATION, "no region in the list");
    drop(region);
    let (wire, _) = home.greeted(&hello(BOTH));
    wire.send(Offer::shm(geometry.region_bytes, REGION_ALONE).as_bytes(), &[]);
    assert_eq!(home.reason().0, VIOLATION, "no region");
    let (wire, _) = home.greeted(&hello(BOTH));
    wire.send(Offer::socket(1).as_bytes(), &[doorbell]);
    assert_eq!(home.reason().0, VIOLATION, "a descriptor for the socket");
    home.serves();
}

#[test]
fn nobody_is_admitted_for_whoever_ends_its_hello() {
    let _together = partywall_testkit::together();
    // The admission rule refuses this process and admits all others, such as the shell.
    let own_pid = std::process::id() as i32;
    let rule = move |who: &partywall::Credentials| {
        if who.pid == own_pid { Err("not the shell".to_owned()) } else { Ok(()) }
    };
    let mut home = Home::new(Config::default().admit(Admission::callback(rule)));
    let wire = home.wire();
    let mut bytes = hello(FEATURE_SOCKET);
    bytes.length = U32::new(129);
    assert!(wire.send(bytes.as_bytes(), &[]));
    let shared = wire.socket.as_fd().try_clone_to_owned().unwrap();
    let shell = Command::new("sh").args(["-c", "printf x"]).stdout(Stdio::from(shared)).status();
    assert!(shell.unwrap().success());
    let reason = home.reason();
    assert_eq!(reason.0, VIOLATION, "{reason:?}");

    let wire = home.wire();
    assert!(wire.send_hello(&hello(BOTH)));
    assert_eq!(home.reason().0, NOT_ADMITTED);
}

#[test]
fn odd_limits_in_hello_lead_to_small_channels() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("odd limits", Duration::from_secs(60));
    let mut home = Home::new(Config::default());
    let path = home.place.path("home");
    let before = Footprint::now().resident_bytes;
    for map_max in [0, 1, (128 << 10) - 1] {
        let mut own = hello(BOTH);
        own.map_max = U64::new(map_max);
        let wire = home.wire();
        assert!(wire.send_hello(&own));
        wire.send(Offer::socket(1).as_bytes(), &[]);
        assert!(home.go_on().is_none());
        wire.send(Ready::new(TRANSPORT_SOCKET, 1).as_bytes(), &[]);
        let mut channel = home.listener.accept_deadline(within(Duration::from_secs(5))).unwrap();
        assert_eq!(channel.transport(), Transport::Socket(FallbackReason::Limits));
        channel.send_deadline(&[1; 40], within(millis(20))).unwrap();
    }
    let changes: [&dyn Fn(&mut Hello); 6] = [
        &|hello| hello.map_max = U64::new(128 << 10),
        &|hello| hello.map_max = U64::new((128 << 10) + 1),
        &|hello| hello.map_max = U64::new(u64::MAX),
        &|hello| hello.segments_max = U32::new(0),
        &|hello| hello.segments_max = U32::new(1),
        &|hello| hello.segments_max = U32::new(u32::MAX),
    ];
    for change in changes {
        let mut own = hello(BOTH);
        change(&mut own);
        let (_foe, mut channel) = Foe::meet(&mut home.listener, &path, &own);
        assert_eq!(channel.transport(), Transport::SharedMemory);
        channel.send_deadline(&[1; 40], within(millis(20))).unwrap();
        let result = channel.send_deadline(&[1; 300_000], within(millis(20)));
        assert!(
            matches!(result, Ok(()) | Err(SendError::TooLarge(_) | SendError::TimedOut)),
            "{result:?}"
        );
    }
    for entries in [8, 1 << 16, 1 << 20] {
        let mut own = hello(BOTH);
        own.peer_blocks_max = U64::new(entries);
        let geometry = Geometry::new(4096, entries, 0).unwrap();
        let (_foe, mut channel) = Foe::meet_with(&mut home.listener, &path, &own, geometry);
        channel.send_deadline(&[1; 3000], within(millis(20))).unwrap();
    }
    for message_max in [0, 39, 40, u64::MAX] {
        let mut own = hello(BOTH);
        own.message_max = U64::new(message_max);
        let (_foe, mut channel) = Foe::meet(&mut home.listener, &path, &own);
        let result = channel.send_deadline(&[1; 40], within(millis(20)));
        assert_eq!(matches!(result, Err(SendError::TooLarge(_))), message_max < 40, "{result:?}");
    }
    let after = Footprint::now().resident_bytes;
    assert!(after < before + (32 << 20), "{before} bytes, then {after}");
}

#[test]
fn one_that_gives_up_after_its_ready_only_hangs_up() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default().handshake_timeout(millis(50)));
    let (wire, _) = home.greeted(&hello(FEATURE_SOCKET));
    wire.send(Offer::socket(1).as_bytes(), &[]);
    assert!(home.go_on().is_none());
    wire.receive();
    wire.receive();
    let (frame, _) = wire.receive();
    assert!(Ready::read_from_bytes(&frame).is_ok());
    assert_eq!(home.reason().0, TIMED_OUT);
    // The listener sends nothing after its READY: the peer would take it for bytes of the
    // transport.
    assert_eq!(wire.receive().0, b"");
    let gone = wire.socket.read(&mut [0; 1], true);
    assert!(matches!(&gone, Ok(0)) || gone.is_err_and(|e| e.kind() == ErrorKind::ConnectionReset));
}

#[test]
fn a_shm_that_one_side_demands_is_not_replaced() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default().transport(TransportPolicy::SharedMemory));
    let wire = home.wire();
    wire.send_hello(&hello(FEATURE_SOCKET));
    let reason = home.reason();
    assert_eq!(reason.0, NO_TRANSPORT, "{reason:?}");
    let (wire, _) = home.greeted(&hello(FEATURE_SHM | FEATURE_SOCKET));
    wire.send(Offer::socket(4).as_bytes(), &[]);
    let reason = home.reason();
    assert!(reason.0 == NO_TRANSPORT && reason.1.contains("memory"), "{reason:?}");
}

#[test]
fn a_socket_that_one_side_has_ruled_out_is_refused_even_if_that_side_names_it() {
    let _together = partywall_testkit::together();
    let mut home = Home::new(Config::default());
    let refused = |wire: &Wire| {
        let (frame, _) = wire.receive();
        frame.starts_with(&REJECT_TAG) && frame[16] == Refusal::Transport.number() as u8
    };
    // The peer has ruled the socket out by its HELLO, and names it in its OFFER. The listener,
    // which has not sent READY, refuses the peer by REJECT.
    let (wire, _) = home.greeted(&hello(FEATURE_SHM));
    wire.send(Offer::socket(4).as_bytes(), &[]);
    assert_eq!(home.reason().0, NO_TRANSPORT);
    assert!(refused(&wire));
    // The peer has ruled the socket out by its HELLO, and names it in its READY. The listener,
    // which has sent READY, closes the connection without REJECT.
    let (wire, session_id) = home.greeted(&hello(FEATURE_SHM));
    let geometry = small_geometry();
    let region = region(&geometry, session_id, ROLE_CONNECTOR);
    let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
    wire.send(offer.as_bytes(), &[region.as_fd()]);
    assert!(home.go_on().is_none());
    wire.send(Ready::new(TRANSPORT_SOCKET, 7).as_bytes(), &[]);
    assert_eq!(home.reason().0, NO_TRANSPORT);
    wire.receive();
    wire.receive();
    assert!(Ready::read_from_bytes(&wire.receive().0).is_ok());
    assert_eq!(wire.receive().0, b"", "nothing follows READY");
    home.serves();
}
