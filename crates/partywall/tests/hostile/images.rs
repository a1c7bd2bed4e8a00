// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that give the hostile images of the specification to the library. An image is a file with
//! the bytes of a region, a ring or a socket stream that break a rule. The library must refuse each
//! image with the violation that its row in `spec/hostile/INDEX.md` names.
//!
//! ```text
//!   region   a hostile listener offers it        ─▶ connect fails
//!   ring     a foe connects, publishes honest records up to `from`, then the image
//!   socket   a foe connects without shared memory, and writes the bytes
//! ```
//! The foe is a peer whose bytes the test writes itself, and `from` is a field of the image's row.
//! Images of frames are tested in `handshake.rs`, because their meaning depends on the frames
//! before them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    Channel, Config, ConnectError, Fault, HandshakeError, Listener, RecvError, TrustPolicy,
};
use partywall_layout::hello::{FEATURE_SOCKET, Hello, Offer, REGION_ALONE, Ready, TRANSPORT_SHM};
use partywall_layout::record_ring::Kind;
use partywall_layout::{Geometry, RegionHeader};
use partywall_sys::OwnMap;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_testkit::hostile::channel::{BOTH, Foe, Wire, hello};
use partywall_testkit::{Directory, Watchdog, within};
use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// Size in bytes of the record ring. SPEC 10 prescribes this value and the following ones for the
/// hostile images.
const RING_BYTES: u64 = 4096;
const PEER_BLOCKS_MAX: u64 = 8;
const REGION_BYTES: u64 = 128 << 10;
const SESSION: [u8; 16] = *b"0123456789abcdef";
const SEGMENT_BYTES: usize = 64 << 10;
const SEGMENTS: [u32; 2] = [1, 2];

fn reader() -> Config {
    Config::default().message_max(64 << 10).map_max(256 << 10).segments_max(2)
}

/// A hostile image: one row of `spec/hostile/INDEX.md`, with the bytes of the file that the row
/// names. The bytes are a region, ring records or a socket stream that break a rule.
struct Image {
    name: String,
    from: u64,
    code: u32,
    bytes: Vec<u8>,
}

fn images(kind: &str) -> Vec<Image> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/hostile");
    let index = fs::read_to_string(directory.join("INDEX.md")).unwrap();
    let rows = index.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.map(|row| row.split('|').map(|cell| cell.trim_matches([' ', '`'])));
    let images: Vec<Image> = cells
        .map(Vec::from_iter)
        .filter(|cells| cells[2] == kind)
        .map(|cells| Image {
            name: cells[1].to_owned(),
            from: cells[3].parse().unwrap(),
            code: cells[4].parse().unwrap(),
            bytes: fs::read(directory.join(cells[1])).unwrap(),
        })
        .collect();
    assert!(images.len() > 10, "{kind}: only {} images", images.len());
    images
}

/// Receives until the channel ends. Returns the code of the violation that ended it, or another
/// reason as text.
fn code(channel: &mut Channel) -> Result<u32, String> {
    loop {
        match channel.recv_deadline(within(Duration::from_secs(30))) {
            Ok(Some(_)) => {}
            Ok(None) => return Err(END.to_owned()),
            Err(RecvError::Fault(Fault::Violation { violation, .. })) => {
                return Ok(violation.code());
            }
            Err(other) => return Err(other.to_string()),
        }
    }
}

/// The text that [`code`] returns if the peer has finished sending, without a violation.
const END: &str = "end of the channel";

/// Ring images that contain records after a record CLOSE_WRITE, which the receiver never reads
/// (SPEC 7.1).
const BEHIND_THE_END: [&str; 2] = ["ring-close-data.bin", "ring-close-twice.bin"];

#[test]
fn rings() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("rings", Duration::from_secs(120));
    let place = Directory::new();
    let geometry = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, SEGMENT_BYTES as u64).unwrap();
    assert_eq!(geometry.region_bytes, REGION_BYTES);
    let own = Hello { peer_blocks_max: U64::new(PEER_BLOCKS_MAX), ..hello(BOTH) };
    for trust in [TrustPolicy::Trusted, TrustPolicy::Untrusted] {
        let config = reader().trust(trust);
        let mut listener = Listener::bind_with(place.address("ring"), &config).unwrap();
        for image in images("ring") {
            let path = place.path("ring");
            let (mut foe, mut channel) = Foe::meet_with(&mut listener, &path, &own, geometry);
            for number in SEGMENTS {
                let memory = OwnMap::create("foe-segment", SEGMENT_BYTES).unwrap();
                assert!(foe.send_segment(number, memory.as_fd()));
            }
            while foe.position < image.from {
                foe.publish(Kind::Data, b"");
                channel.recv().unwrap();
            }
            let at = geometry.ring_offset as usize;
            foe.region.as_mut_slice()[at..at + image.bytes.len()].copy_from_slice(&image.bytes);
            let expected = match &*image.name {
                name if BEHIND_THE_END.contains(&name) => Err(END.to_owned()),
                _ => Ok(image.code),
            };
            assert_eq!(code(&mut channel), expected, "{}, {trust:?}", image.name);
        }
    }
}

#[test]
fn sockets() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("sockets", Duration::from_secs(60));
    let place = Directory::new();
    let mut listener = Listener::bind_with(place.address("socket"), &reader()).unwrap();
    for image in images("socket") {
        let path = place.path("socket");
        let (foe, mut channel) = Foe::meet(&mut listener, &path, &hello(FEATURE_SOCKET));
        assert!(foe.wire.send(&image.bytes, &[]));
        drop(foe);
        assert_eq!(code(&mut channel), Ok(image.code), "{}", image.name);
    }
}

#[test]
fn regions() {
    let _together = partywall_testkit::together();
    let _watchdog = Watchdog::new("halves", Duration::from_secs(60));
    let place = Directory::new();
    let listener =
        partywall_sys::Listener::listen_unix_path(place.path("region"), 0o600, 8).unwrap();
    for image in images("region") {
        assert_eq!(image.bytes.len(), size_of::<RegionHeader>(), "{}", image.name);
        let result = std::thread::scope(|scope| {
            let address = place.address("region");
            let connecting = scope.spawn(move || partywall::connect_with(&address, &reader()));
            offer(&listener, &image.bytes);
            connecting.join().unwrap()
        });
        let Err(ConnectError::Handshake(HandshakeError::Violation { violation, .. })) = result
        else {
            panic!("{}: {result:?}", image.name);
        };
        assert_eq!(violation.code(), image.code, "{}", image.name);
    }
}

/// Acts as a hostile listener: accepts one connection, offers a region that begins with `header`,
/// and waits until the connecting side has closed the connection.
fn offer(listener: &partywall_sys::Listener, header: &[u8]) {
    let mut events = [PollFd::new(listener, PollFlags::IN)];
    poll::wait(&mut events, Some(within(Duration::from_secs(30)))).unwrap();
    let wire = Wire::new(listener.accept().unwrap().expect("somebody connects"));
    let (theirs, _) = wire.receive();
    let mut header = RegionHeader::read_from_bytes(header).unwrap();
    if header.session_id == SESSION {
        // The region's session id must be the nonce in the connector's HELLO, so that this field
        // breaks no rule.
        header.session_id = Hello::read_from_bytes(&theirs).unwrap().nonce;
    }
    let peer_blocks_max = U64::new(PEER_BLOCKS_MAX);
    assert!(wire.send_hello(&Hello { peer_blocks_max, ..hello(BOTH) }));
    let mut region = OwnMap::create("hostile-region", REGION_BYTES as usize).unwrap();
    region.as_mut_slice()[..size_of_val(&header)].copy_from_slice(header.as_bytes());
    wire.send(Offer::shm(REGION_BYTES, REGION_ALONE).as_bytes(), &[region.as_fd()]);
    wire.send(Ready::new(TRANSPORT_SHM, 0).as_bytes(), &[]);
    while !wire.receive().0.is_empty() {}
}
