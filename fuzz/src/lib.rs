// SPDX-License-Identifier: MIT OR Apache-2.0
//! The peer that the fuzzer plays: it makes the handshake frame by frame, and then sends whatever
//! the fuzzer chooses.
//!
//! ```text
//!   Listener (honest)                         ByHand (the fuzzer's)
//!    ◀── HELLO ── OFFER ── READY ──            connect: sends everything that awaits no response
//!    ──▶ channel                               socket, and its region if memory is shared
//! ```
//!
//! One thread runs both sides, so that a finding is reproducible.
#![forbid(unsafe_code)]

mod session;

pub use session::{SessionByHand, accept_session, connect_session};

use partywall::{Channel, Config, Listener, TransportPolicy, TrustPolicy};
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, Descriptors, FEATURE_MOVE, FEATURE_SHM, FEATURE_SOCKET, HELLO_BYTES, Hello,
    OFFER_BYTES, Offer, READY_BYTES, REGION_ALONE, REGION_AND_DOORBELLS, ROLE_CONNECTOR, Ready,
    TRANSPORT_SHM, TRANSPORT_SOCKET,
};
use partywall_layout::{FallbackReason, Geometry};
use partywall_sys::{Doorbell, OwnMap, PidFd, Socket};
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Maximum length of a message in bytes, and maximum memory of either side in bytes.
pub const BYTES_MAX: u64 = 256 << 10;
/// Maximum number of large messages that either side holds at a time.
pub const PEER_BLOCKS_MAX: u64 = 8;
/// Maximum number of segments that either side maps at a time.
pub const SEGMENTS_MAX: u32 = 2;
/// Size of the ring of either side, in bytes.
pub const RING_BYTES: u64 = 4096;

/// The configuration of the side under test, with small limits.
#[must_use]
pub fn config() -> Config {
    Config::default()
        .ring_bytes(RING_BYTES)
        .peer_blocks_max(PEER_BLOCKS_MAX)
        .memory_max(BYTES_MAX)
        .segments_max(SEGMENTS_MAX)
        .inline_max(256)
        .handshake_timeout(Duration::from_secs(60))
}

/// Returns an abstract address that no other process uses.
#[must_use]
pub fn address(name: &str) -> String {
    format!("unix:@partywall-fuzz-{}-{name}", std::process::id())
}

/// The end of a connection that the fuzzer plays: it has completed the handshake, and then sends
/// and writes whatever the fuzzer chooses.
pub struct ByHand {
    /// The control socket of shared memory, or the socket that carries the records.
    pub socket: Socket,
    /// The region that the fuzzer writes and the side under test maps; `None` if a socket carries
    /// the records.
    pub region: Option<(OwnMap, Geometry)>,
}

/// Makes the listener of the side under test. By [`connect_shm`] or [`connect_socket`] the fuzzer
/// connects to it, and plays the peer.
#[must_use]
pub fn listen(name: &str, trust: TrustPolicy, policy: TransportPolicy) -> Listener {
    let config = config().trust(trust).transport(policy);
    Listener::bind_with(address(name), &config).expect("the name is free")
}

/// Connects to `listener` as the peer. In the handshake both sides agree on the socket as the
/// transport.
#[must_use]
pub fn connect_socket(listener: &mut Listener, name: &str) -> (Channel, ByHand) {
    let socket = reach(name);
    send_hello(&socket, FEATURE_SOCKET);
    let reason = FallbackReason::Policy.number();
    send(&socket, Offer::socket(reason).as_bytes(), &[]);
    // `try_accept` returns no channel yet, but makes the listener read the frames HELLO and OFFER
    // and answer them.
    assert!(listener.try_accept().is_err());
    receive(&socket, HELLO_BYTES + OFFER_BYTES + READY_BYTES);
    send(&socket, Ready::new(TRANSPORT_SOCKET, reason).as_bytes(), &[]);
    let channel = accept(listener);
    (channel, ByHand { socket, region: None })
}

/// Connects to `listener` as the peer. The connection begins on the socket, and may move to shared
/// memory later.
#[must_use]
pub fn begin_on_socket(listener: &mut Listener, name: &str) -> (Channel, Socket) {
    let socket = reach(name);
    send(&socket, hello(FEATURE_SHM | FEATURE_SOCKET | FEATURE_MOVE).as_bytes(), &[]);
    let channel = accept(listener);
    receive(&socket, HELLO_BYTES);
    (channel, socket)
}

/// Makes the region of the peer, which is the connector. Also returns the size of the region in
/// bytes.
#[must_use]
pub fn region_by_hand() -> (OwnMap, u64) {
    let geometry = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, 4096).expect("possible sizes");
    let size = usize::try_from(geometry.region_bytes).expect("small");
    let mut region = OwnMap::create("by-hand", size).expect("memory");
    let header = geometry.header(hello(0).nonce, std::process::id(), ROLE_CONNECTOR);
    region.as_mut_slice()[..size_of_val(&header)].copy_from_slice(header.as_bytes());
    (region, geometry.region_bytes)
}

/// Connects to `listener` as the peer. In the handshake both sides agree on shared memory as the
/// transport.
#[must_use]
pub fn connect_shm(listener: &mut Listener, name: &str, with_doorbells: bool) -> (Channel, ByHand) {
    let socket = reach(name);
    let geometry = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, 4096).expect("possible sizes");
    let size = usize::try_from(geometry.region_bytes).expect("small");
    let mut region = OwnMap::create("by-hand", size).expect("memory");
    let header = geometry.header(hello(0).nonce, std::process::id(), ROLE_CONNECTOR);
    region.as_mut_slice()[..size_of_val(&header)].copy_from_slice(header.as_bytes());
    let doorbells = (Doorbell::new().expect("a doorbell"), Doorbell::new().expect("a doorbell"));
    let kinds = if with_doorbells { REGION_AND_DOORBELLS } else { REGION_ALONE };
    let descriptors = [region.fd(), doorbells.0.as_fd(), doorbells.1.as_fd()];
    send_hello(&socket, FEATURE_SHM);
    let offer = Offer::shm(geometry.region_bytes, kinds);
    send(&socket, offer.as_bytes(), &descriptors[..kinds.len()]);
    // `try_accept` returns no channel yet, but makes the listener read the frames HELLO and OFFER
    // and answer them.
    assert!(listener.try_accept().is_err());
    let theirs = receive(&socket, HELLO_BYTES + OFFER_BYTES + READY_BYTES);
    let theirs = Offer::read_from_bytes(&theirs[HELLO_BYTES..][..OFFER_BYTES]).expect("its length");
    let ready = Ready::new(TRANSPORT_SHM, 0);
    let can_notify = with_doorbells && theirs.descriptors.kinds() == REGION_AND_DOORBELLS;
    let ready = if can_notify { ready.with_doorbells() } else { ready };
    send(&socket, ready.as_bytes(), &[]);
    let channel = accept(listener);
    (channel, ByHand { socket, region: Some((region, geometry)) })
}

/// Makes the peer's frame HELLO, the first of a handshake.
#[must_use]
pub fn hello(features: u64) -> Hello {
    Hello {
        features: U64::new(features),
        map_max: U64::new(BYTES_MAX + (1 << 20)),
        message_max: U64::new(BYTES_MAX),
        peer_blocks_max: U64::new(PEER_BLOCKS_MAX),
        segments_max: U32::new(SEGMENTS_MAX),
        nonce: *b"made by hand....",
        ..Hello::new()
    }
}

/// Connects to the listener of this process that has the abstract address of `name`.
pub fn reach(name: &str) -> Socket {
    let address = address(name);
    let name = address.strip_prefix("unix:@").expect("made above");
    partywall_sys::connect_unix_abstract(name, None).expect("the listener listens")
}

fn send_hello(socket: &Socket, features: u64) {
    let process = PidFd::of_self().expect("a pidfd");
    let descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]);
    let frame = Hello { descriptors, ..hello(features) };
    let sent = socket.send(&[IoSlice::new(frame.as_bytes())], &[process.as_fd()], true, true);
    assert_eq!(sent.expect("room in the socket"), HELLO_BYTES);
}

fn send(socket: &Socket, frame: &[u8], descriptors: &[BorrowedFd<'_>]) {
    let sent = socket.send(&[IoSlice::new(frame)], descriptors, false, true);
    assert_eq!(sent.expect("room in the socket"), frame.len());
}

/// Receives exactly `count` bytes, which have already arrived, and closes the descriptors that came
/// with them.
fn receive(socket: &Socket, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    let mut had = 0;
    while had < count {
        let received = socket.receive(&mut bytes[had..], true).expect("the peer has responded");
        assert_ne!(received.bytes, 0, "the peer hung up");
        had += received.bytes;
    }
    bytes
}

fn accept(listener: &mut Listener) -> Channel {
    listener.try_accept().expect("an honest handshake")
}
