// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that send handshake frames to a listener and to a connector: with changed bytes, cut
//! anywhere, and with any descriptors at any byte. Each attempt ends in a channel or in an error of
//! SPEC 17.3, and leaves no descriptor open.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{Begin, Channel, Config, ConnectError, HandshakeError, Listener};
use partywall_layout::hello::{
    Descriptors, Hello, Offer, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready, TRANSPORT_SHM,
    TRANSPORT_SOCKET,
};
use partywall_sys::process::Process;
use partywall_sys::{Doorbell, OwnMap, PidFd, Socket};
use partywall_testkit::hostile::Wire;
use partywall_testkit::hostile::channel::{BOTH, hello, region, small_geometry};
use partywall_testkit::hostile::home::pipe;
use partywall_testkit::{Directory, Random, Second, Watchdog, millis, soon, until, within};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Number of handshakes that are attempted against a listener, and against a connector.
const ATTEMPTS: u64 = 400;
/// Maximum number of descriptors that are sent with one piece of a frame.
const DESCRIPTORS_MAX: u64 = 8;

/// Descriptors that the attacking peer may send: a pidfd, a doorbell and a region, which a
/// handshake allows, and others, such as a pipe or a directory.
struct Table {
    fixed: Vec<OwnedFd>,
    _other: Second,
}

impl Table {
    fn new() -> Self {
        let other = Second::spawn(Command::new("sleep").arg("600"));
        let owned = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
        let fixed = vec![
            owned(PidFd::of_self().unwrap().as_fd()),
            owned(PidFd::of_pid(other.pid()).unwrap().as_fd()),
            owned(Doorbell::new().unwrap().as_fd()),
            owned(OwnMap::create("foe", 64 << 10).unwrap().as_fd()),
            owned(Socket::pair().unwrap().0.as_fd()),
            File::open("/").unwrap().into(),
            pipe(),
        ];
        Self { fixed, _other: other }
    }

    fn any(&self, random: &mut Random) -> Vec<BorrowedFd<'_>> {
        let count = random.below(DESCRIPTORS_MAX + 1);
        let mut pick = || self.fixed[random.below(self.fixed.len() as u64) as usize].as_fd();
        (0..count).map(|_| pick()).collect()
    }
}

/// Returns the frames HELLO, OFFER and READY of an honest peer, each with the descriptors that the
/// frame lists.
fn frames(random: &mut Random, table: &Table, own: &OwnMap) -> Vec<(Vec<u8>, Vec<OwnedFd>)> {
    let clone = |fd: BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let (pidfd, doorbell) = (table.fixed[0].as_fd(), table.fixed[2].as_fd());
    let hello = hello([BOTH, 1, 2, !0][random.below(4) as usize]);
    let hello = if random.below(2) == 0 {
        let descriptors = Descriptors::of(&[1]);
        (Hello { descriptors, ..hello }.as_bytes().to_vec(), vec![clone(pidfd)])
    } else {
        (hello.as_bytes().to_vec(), vec![])
    };
    let (offer, ready) = match random.below(3) {
        0 => ((Offer::socket(1).as_bytes().to_vec(), vec![]), Ready::new(TRANSPORT_SOCKET, 1)),
        1 => {
            let offer = Offer::shm(small_geometry().region_bytes, &[2]);
            ((offer.as_bytes().to_vec(), vec![clone(own.as_fd())]), Ready::new(TRANSPORT_SHM, 0))
        }
        _ => {
            let offer = Offer::shm(small_geometry().region_bytes, &[2, 3, 4]);
            let descriptors = vec![clone(own.as_fd()), clone(doorbell), clone(doorbell)];
            let ready = Ready::new(TRANSPORT_SHM, 0);
            let ready = if random.below(2) == 0 { ready.with_doorbells() } else { ready };
            ((offer.as_bytes().to_vec(), descriptors), ready)
        }
    };
    vec![hello, offer, (ready.as_bytes().to_vec(), vec![])]
}

/// Sends the frames of one attempt with random changes, in random pieces. Calls `between` after
/// each piece, so that a listener can handle it.
fn attack(
    wire: &Wire,
    random: &mut Random,
    table: &Table,
    own: &OwnMap,
    mut between: impl FnMut(),
) {
    let mut frames = frames(random, table, own);
    if random.below(8) == 0 {
        let at = random.below(frames.len() as u64) as usize;
        frames.remove(at);
    }
    // Half of the attempts change no byte, so that the handshake reaches its later frames.
    let changes = if random.below(2) == 0 { 0 } else { 1 + random.below(3) };
    for _ in 0..changes {
        let frame = random.below(frames.len() as u64) as usize;
        let bytes = &mut frames[frame].0;
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = [0, 1, 2, 0xff, random.next() as u8][random.below(5) as usize];
    }
    let strays = random.below(3) == 0;
    for (bytes, descriptors) in &frames {
        let mut rest = &bytes[..];
        let mut listed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        while !rest.is_empty() {
            let whole = random.below(2) == 0;
            let length =
                if whole { rest.len() } else { 1 + random.below(rest.len() as u64) as usize };
            let (piece, after) = rest.split_at(length);
            if strays && random.below(4) == 0 {
                listed = table.any(random);
            }
            if !wire.send(piece, &std::mem::take(&mut listed)) {
                return;
            }
            between();
            rest = after;
        }
    }
}

/// Sends and receives once on a channel whose handshake consisted of random frames: no call may
/// panic.
fn use_it(mut channel: Channel) {
    let _ = channel.try_send(b"hello?");
    let _ = channel.try_recv();
}

/// Checks that `code` is the number of a handshake error and that `text` has no control character,
/// and adds the number to `codes`.
fn note(codes: &mut BTreeSet<u32>, code: u32, text: &str) {
    assert!((201..=211).contains(&code), "{code}: {text}");
    assert!(!text.contains(char::is_control), "{text:?}");
    codes.insert(code);
}

/// The configuration of a connecting side that sends HELLO and OFFER together.
fn memory_first() -> Config {
    Config::default().begin(Begin::SharedMemory)
}

fn open_count() -> usize {
    partywall_testkit::descriptors(Process::Own)
}

#[test]
fn listener_ends_every_attempt_and_keeps_no_descriptor() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("random frames to a listener", Duration::from_secs(120));
    let (place, table) = (Directory::new(), Table::new());
    let (errors, refused) = mpsc::channel();
    let config = Config::default().on_refused(move |error: &HandshakeError| {
        let _ = errors.send((error.code(), error.to_string()));
    });
    let mut listener = Listener::bind_with(place.address("side"), &config).unwrap();
    let (mut codes, mut channels) = (BTreeSet::new(), 0);
    // The process opens the descriptors that it keeps when an honest peer connects. A listener that
    // finds nothing to do makes a region in advance, so each count of descriptors follows a
    // `try_accept` that finds nothing.
    let address = place.address("side");
    let honest = thread::spawn(move || partywall::connect_with(address, &memory_first()).unwrap());
    drop((listener.accept_deadline(soon()).unwrap(), honest.join().unwrap()));
    assert!(listener.try_accept().is_err());
    let before = open_count();
    for seed in 0..ATTEMPTS {
        let mut random = Random::new(seed);
        let wire = Wire::connect(&place.path("side"));
        let own = region(&small_geometry(), [7; 16], ROLE_CONNECTOR);
        let mut channel = None;
        attack(&wire, &mut random, &table, &own, || {
            channel = channel.take().or_else(|| listener.try_accept().ok());
        });
        drop(wire);
        let deadline = soon();
        while channel.is_none() {
            channel = listener.accept_deadline(within(millis(5))).ok();
            if let Ok((code, text)) = refused.try_recv() {
                note(&mut codes, code, &text);
                break;
            }
            assert!(Instant::now() < deadline, "attempt {seed} does not end");
        }
        channels += u32::from(channel.is_some());
        channel.into_iter().for_each(use_it);
        drop(own);
        assert!(listener.try_accept().is_err());
        assert_eq!(before, open_count(), "attempt {seed}");
    }
    assert!(channels > 50 && codes.len() >= 5, "{channels} channels, {codes:?}");
}

#[test]
fn connector_ends_every_attempt_and_keeps_no_descriptor() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("random frames to a connector", Duration::from_secs(120));
    let (place, table) = (Directory::new(), Table::new());
    let listener = partywall_sys::Listener::listen_unix_path(place.path("foe"), 0o600, 8).unwrap();
    let (mut codes, mut channels, mut before) = (BTreeSet::new(), 0, None);
    for seed in 0..ATTEMPTS {
        let mut random = Random::new(seed);
        let address = place.address("foe");
        let connecting = thread::spawn(move || partywall::connect_with(address, &memory_first()));
        let mut accepted = None;
        until("the connector comes", || {
            accepted = listener.accept().unwrap();
            accepted.is_some()
        });
        let wire = Wire::new(accepted.unwrap());
        let (first, _) = wire.receive();
        let session_id = first[64..80].try_into().unwrap();
        let own = region(&small_geometry(), session_id, ROLE_ACCEPTOR);
        attack(&wire, &mut random, &table, &own, || {});
        // The connector's answer is read first: closing a socket with unread bytes would discard
        // frames that were sent and not yet received.
        let _ = wire.receive();
        drop(wire);
        match connecting.join().unwrap() {
            Ok(channel) => {
                channels += 1;
                use_it(channel);
            }
            Err(ConnectError::Handshake(error)) => {
                note(&mut codes, error.code(), &error.to_string());
            }
            Err(other) => panic!("attempt {seed}: {other}"),
        }
        drop(own);
        assert_eq!(*before.get_or_insert_with(open_count), open_count(), "attempt {seed}");
    }
    assert!(channels > 50 && codes.len() >= 5, "{channels} channels, {codes:?}");
}
