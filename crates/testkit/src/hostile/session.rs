// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile peer of a session, on either side. It completes a handshake that keeps the rules, and
//! then writes any record, over a socket or shared memory.
//!
//! Tests number the streams as if the hostile peer (the foe) were the connector. The foe opens
//! streams with odd numbers, the attacked end (the victim) those with even numbers. A foe that is
//! the acceptor translates the numbers:
//!
//! ```text
//!   in the test                    0   1 (foe's)   2 (victim's)   3   4 …
//!   on the wire of an acceptor     0   2           1              4   3 …
//! ```

use super::channel::{BOTH, Pages, Wire, hello};
use partywall_layout::hello::{
    FEATURE_SOCKET, Hello, Offer, REGION_AND_DOORBELLS, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready,
    SERVICE_SESSION, TRANSPORT_SHM, TRANSPORT_SOCKET,
};
use partywall_layout::record_ring::{Kind, WireHeader, footprint};
use partywall_layout::segment::{CONTROL_OFFSET, LINE_BYTES, PAGE_BYTES};
use partywall_layout::stream::OpenHead;
use partywall_layout::{Geometry, Position, RecordHeader, RegionHeader};
use partywall_ring::{AppendError, Consumer, OwnMem, PeerMem, Producer, Writable};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Doorbell, Listener, OwnMap, PeerMap};
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// The side of a hostile peer, and the transport of its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// Whether the hostile peer accepts the connection, so that the attacked end connects.
    pub is_acceptor: bool,
    /// Whether the records of the session pass through shared memory.
    pub is_shared_memory: bool,
}

impl Role {
    /// All four combinations of the hostile peer's side and the transport.
    pub const ALL: [Self; 4] = [
        Self { is_acceptor: false, is_shared_memory: false },
        Self { is_acceptor: false, is_shared_memory: true },
        Self { is_acceptor: true, is_shared_memory: false },
        Self { is_acceptor: true, is_shared_memory: true },
    ];
}

/// A hostile peer of a session, after its handshake. The attacked end is a real `Session`.
pub struct SessionFoe {
    role: Role,
    wire: Wire,
    /// The position of the hostile peer's next record if records pass through a socket.
    position: Position,
    shm: Option<SharedMemory>,
}

/// A record that the attacked end sent.
#[derive(Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of the kind of the received record.
    pub kind: u64,
    /// The number of the record's stream, in the numbering of a hostile peer that connects.
    pub stream: u32,
    /// The body of the received record.
    pub body: Vec<u8>,
}

impl SessionFoe {
    /// Connects a hostile peer to the listener of the attacked end, and completes the handshake.
    pub fn connect(path: &Path, is_shared_memory: bool) -> Self {
        let role = Role { is_acceptor: false, is_shared_memory };
        Self::handshake(Wire::connect(path), role)
    }

    /// Accepts, as a hostile peer, the attacked end's next connection, and completes the handshake.
    pub fn accept(listener: &Listener, is_shared_memory: bool) -> Self {
        let deadline = Some(Instant::now() + TIMEOUT);
        let mut ready = [PollFd::new(listener, PollFlags::IN)];
        assert_ne!(poll::wait(&mut ready, deadline).unwrap(), 0, "no connection");
        let socket = listener.accept().unwrap().unwrap();
        Self::handshake(Wire::new(socket), Role { is_acceptor: true, is_shared_memory })
    }

    fn handshake(wire: Wire, role: Role) -> Self {
        let mut own = hello(if role.is_shared_memory { BOTH } else { FEATURE_SOCKET });
        own.service = U32::new(SERVICE_SESSION);
        own.stream_window = U64::new(1 << 20);
        own.streams_max = U32::new(100);
        let mut theirs = None;
        if role.is_acceptor {
            theirs = Some(Hello::read_from_bytes(&wire.receive().0).unwrap());
        }
        assert!(wire.send_hello(&own));
        let session_id = theirs.map_or(own.nonce, |theirs| theirs.nonce);
        let shm = if role.is_shared_memory {
            Some(SharedMemory::agree(&wire, role, session_id))
        } else {
            agree_on_socket(&wire, role);
            None
        };
        Self { role, wire, position: Position(0), shm }
    }

    /// Sends a record of the hostile peer on `stream`; returns `false` if the attacked end has
    /// closed the connection.
    pub fn send(&mut self, kind: Kind, stream: u32, body: &[u8]) -> bool {
        if let Some(shm) = &mut self.shm {
            let stream = shifted(self.role, stream);
            return shm.send(&self.wire, kind, stream, body);
        }
        self.send_with(kind, stream, body, &[])
    }

    /// Sends a record of the hostile peer over a socket, and the bytes `following` after it;
    /// `false` if the attacked end has closed the connection.
    pub fn send_with(&mut self, kind: Kind, stream: u32, body: &[u8], following: &[u8]) -> bool {
        let bytes = self.on_socket(kind, stream, body, following);
        self.send_bytes(&bytes)
    }

    /// The bytes of the hostile peer's next record as a socket carries them, followed by the bytes
    /// `following`.
    pub fn on_socket(&mut self, kind: Kind, stream: u32, body: &[u8], following: &[u8]) -> Vec<u8> {
        let stream = shifted(self.role, stream);
        let len = u32::try_from(body.len()).unwrap();
        let header = RecordHeader { position: self.position, kind, len, stream };
        self.position = self.position.plus(footprint(len.into()));
        [header.to_wire().as_bytes(), body, following].concat()
    }

    /// Sends raw bytes of the hostile peer on the socket; returns `false` if the attacked end has
    /// closed the connection.
    pub fn send_bytes(&self, bytes: &[u8]) -> bool {
        let mut sent = 0;
        while sent < bytes.len() {
            match self.wire.socket.write(&[IoSlice::new(&bytes[sent..])], false) {
                Ok(count) => sent += count,
                Err(_) => return false,
            }
        }
        true
    }

    /// Sends a record of the hostile peer for each of `bodies`, many records with one system call
    /// or one doorbell. `false` if the attacked end has closed the connection.
    pub fn flood(
        &mut self,
        kind: Kind,
        stream: u32,
        bodies: impl IntoIterator<Item = Vec<u8>>,
    ) -> bool {
        let mut bytes = Vec::new();
        for (index, body) in bodies.into_iter().enumerate() {
            let is_batch_full = index % FLOOD_RECORDS == FLOOD_RECORDS - 1;
            if let Some(shm) = &mut self.shm {
                if !shm.append(&self.wire, kind, shifted(self.role, stream), &body) {
                    return false;
                }
                if is_batch_full {
                    shm.publish();
                }
                continue;
            }
            bytes.extend(self.on_socket(kind, stream, &body, &[]));
            if is_batch_full && !self.send_bytes(&std::mem::take(&mut bytes)) {
                return false;
            }
        }
        match &mut self.shm {
            Some(shm) => {
                shm.publish();
                true
            }
            None => self.send_bytes(&bytes),
        }
    }

    /// Sends the record OPEN, which opens `stream` with the given metadata.
    pub fn open(&mut self, stream: u32, metadata: &[u8]) -> bool {
        let payload = [OpenHead::APPLICATION.as_bytes(), metadata].concat();
        self.send(Kind::Open, stream, &payload)
    }

    /// Sends the record PING with the given token.
    pub fn ping(&mut self, token: u64) -> bool {
        self.send(Kind::Ping, 0, &ping_body(token))
    }

    /// Sends the record PING once for each of the tokens, many records at once.
    pub fn flood_of_pings(&mut self, tokens: std::ops::Range<u64>) -> bool {
        self.flood(Kind::Ping, 0, tokens.map(ping_body))
    }

    /// Sends the record RESET, which ends the given directions of `stream`.
    pub fn reset(&mut self, stream: u32, directions: u32) -> bool {
        self.send(Kind::Reset, stream, &[7u32.to_le_bytes(), directions.to_le_bytes()].concat())
    }

    /// Sends the record CREDIT for `stream`, with the value `credited`.
    pub fn credit(&mut self, stream: u32, credited: u64) -> bool {
        self.send(Kind::Credit, stream, &credited.to_le_bytes())
    }

    /// Sends `bytes` on `stream` as the first fragment of a message of `total` bytes.
    pub fn first(&mut self, stream: u32, total: u64, bytes: &[u8]) -> bool {
        self.send(Kind::FragmentFirst, stream, &[&total.to_le_bytes(), bytes].concat())
    }

    /// Receives the attacked end's next record; `None` if the attacked end has closed the
    /// connection.
    pub fn receive(&mut self) -> Option<Received> {
        let mut received = match &mut self.shm {
            Some(shm) => shm.receive(&self.wire)?,
            None => self.receive_from_socket()?,
        };
        received.stream = shifted(self.role, received.stream);
        Some(received)
    }

    fn receive_from_socket(&self) -> Option<Received> {
        let mut header = [0; size_of::<WireHeader>()];
        self.read(&mut header)?;
        let header = WireHeader::read_from_bytes(&header).unwrap();
        let mut body = vec![0; header.len.get() as usize];
        self.read(&mut body)?;
        let kind = header.word0.get() >> 1 & 31;
        Some(Received { kind, stream: header.stream.get(), body })
    }

    /// Receives records until one of the given kind and stream arrives; `None` if the attacked end
    /// has closed the connection.
    pub fn receive_until(&mut self, kind: Kind, stream: u32) -> Option<Received> {
        loop {
            let received = self.receive()?;
            if received.kind == kind as u64 && received.stream == stream {
                return Some(received);
            }
        }
    }

    /// Receives records until the attacked end answers the PING with the token `token`. Returns
    /// false if the attacked end closed the connection before it answered.
    pub fn receive_answer(&mut self, token: u64) -> bool {
        let answer = [1u64.to_le_bytes(), token.to_le_bytes()].concat();
        while let Some(received) = self.receive_until(Kind::Ping, 0) {
            if received.body == answer {
                return true;
            }
        }
        false
    }

    fn read(&self, into: &mut [u8]) -> Option<()> {
        let mut filled = 0;
        while filled < into.len() {
            match self.wire.socket.read(&mut into[filled..], false) {
                Ok(count @ 1..) => filled += count,
                _ => return None,
            }
        }
        Some(())
    }
}

/// Translates a stream's number between a test's numbering and that of the connection. The
/// translation is its own inverse.
fn shifted(role: Role, stream: u32) -> u32 {
    match stream {
        0 => 0,
        _ if !role.is_acceptor => stream,
        // The stream with the translated number has the same index and was opened by the same end
        // as before. Only the highest number has no counterpart.
        u32::MAX => u32::MAX - 1,
        odd if odd % 2 == 1 => odd + 1,
        even => even - 1,
    }
}

/// The regions of both ends, as the hostile peer uses them. The hostile peer keeps the rules of the
/// rings, and no other rules.
struct SharedMemory {
    producer: Producer,
    consumer: Consumer,
    /// The attacked end's doorbells: one for records and one for room.
    doorbells: [Doorbell; 2],
    /// The hostile peer's own doorbells, which the attacked end needs. The hostile peer itself
    /// polls.
    _own_doorbells: [Doorbell; 2],
}

struct OwnPages(OwnMap);

impl Writable for OwnPages {
    fn as_mut_slice(&mut self) -> &mut [u8] {
        self.0.as_mut_slice()
    }
}

impl SharedMemory {
    /// Completes a handshake over shared memory as the hostile peer: exchanges the frames from
    /// OFFER on.
    fn agree(wire: &Wire, role: Role, session_id: [u8; 16]) -> Self {
        let geometry = Geometry::new(RING_BYTES, 1024, 16 << 10).unwrap();
        let own_role = if role.is_acceptor { ROLE_ACCEPTOR } else { ROLE_CONNECTOR };
        let (descriptor, consumed, ring) = own_region(&geometry, session_id, own_role);
        let own_doorbells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()];
        let own = [descriptor.as_fd(), own_doorbells[0].as_fd(), own_doorbells[1].as_fd()];
        let own_offer = Offer::shm(geometry.region_bytes, REGION_AND_DOORBELLS);
        let ready = Ready::new(TRANSPORT_SHM, 0);
        let (offer, descriptors) = if role.is_acceptor {
            let theirs = wire.receive();
            assert!(wire.send(own_offer.as_bytes(), &own));
            assert!(wire.send(ready.as_bytes(), &[]));
            assert!(!wire.receive().0.is_empty(), "READY");
            theirs
        } else {
            assert!(wire.send(own_offer.as_bytes(), &own));
            assert!(!wire.receive().0.is_empty(), "HELLO");
            let theirs = wire.receive();
            assert!(!wire.receive().0.is_empty(), "READY");
            assert!(wire.send(ready.with_doorbells().as_bytes(), &[]));
            theirs
        };
        let offer = Offer::read_from_bytes(&offer).unwrap();
        let [region, records, room] = <[OwnedFd; 3]>::try_from(descriptors).unwrap();
        let map = PeerMap::map(region.as_fd(), offer.region_size.get(), u64::MAX).unwrap();
        let theirs = PeerMem::new(Arc::new(Pages(map)));
        let mut header = [0; size_of::<RegionHeader>()];
        theirs.copy(0, &mut header);
        let header = RegionHeader::read_from_bytes(&header).unwrap();
        let (offset, size) = (header.ring_offset.get(), header.ring_size.get());
        let size = partywall_layout::record_ring::RingSize::new(size).unwrap();
        let their_ring = theirs.part(offset, size.bytes()).unwrap();
        let control = theirs.part(CONTROL_OFFSET, PAGE_BYTES).unwrap();
        Self {
            producer: Producer::new(ring, geometry.ring, control),
            consumer: Consumer::new(their_ring, size, consumed),
            doorbells: [records, room].map(|doorbell| Doorbell::from_peer(doorbell).unwrap()),
            _own_doorbells: own_doorbells,
        }
    }

    fn send(&mut self, wire: &Wire, kind: Kind, stream: u32, body: &[u8]) -> bool {
        if !self.append(wire, kind, stream, body) {
            return false;
        }
        self.publish();
        true
    }

    /// Appends a record to the hostile peer's ring without publishing it. If the ring is full, the
    /// hostile peer publishes the earlier records and waits until the attacked end has read some.
    fn append(&mut self, wire: &Wire, kind: Kind, stream: u32, body: &[u8]) -> bool {
        loop {
            match self.producer.append(kind, stream, body) {
                Ok(()) => return true,
                Err(AppendError::Full) => {
                    self.publish();
                    if has_hung_up(wire) {
                        return false;
                    }
                }
                Err(AppendError::Violation(violation)) => {
                    panic!("the victim breaks a rule: {violation}")
                }
            }
        }
    }

    fn publish(&mut self) {
        self.producer.publish();
        // The hostile peer notifies the attacked end of the records, whether the attacked end
        // sleeps or not.
        self.doorbells[0].notify().unwrap();
    }

    fn receive(&mut self, wire: &Wire) -> Option<Received> {
        let mut is_over = false;
        loop {
            if let Some(header) = self.consumer.peek().unwrap() {
                let mut body = vec![0; header.len as usize];
                self.consumer.copy(&header, 0, &mut body);
                self.consumer.advance(&header);
                self.consumer.report();
                self.doorbells[1].notify().unwrap();
                return Some(Received { kind: header.kind as u64, stream: header.stream, body });
            }
            if is_over {
                return None;
            }
            // After the attacked end has closed the connection, the loop still reads the records
            // that the attacked end published before.
            is_over = has_hung_up(wire);
        }
    }
}

fn ping_body(token: u64) -> Vec<u8> {
    [0u64.to_le_bytes(), token.to_le_bytes()].concat()
}

/// Exchanges the frames of a handshake over a socket from OFFER on, as the hostile peer.
fn agree_on_socket(wire: &Wire, role: Role) {
    let (offer, ready) = (Offer::socket(1), Ready::new(TRANSPORT_SOCKET, 1));
    if role.is_acceptor {
        assert!(!wire.receive().0.is_empty(), "OFFER");
        assert!(wire.send(offer.as_bytes(), &[]));
        assert!(wire.send(ready.as_bytes(), &[]));
        assert!(!wire.receive().0.is_empty(), "READY");
        return;
    }
    assert!(wire.send(offer.as_bytes(), &[]));
    for frame in ["HELLO", "OFFER", "READY"] {
        assert!(!wire.receive().0.is_empty(), "{frame}");
    }
    assert!(wire.send(ready.as_bytes(), &[]));
}

/// Waits for at most [`POLL_PERIOD`]; returns whether the attacked end has closed the connection by
/// then.
fn has_hung_up(wire: &Wire) -> bool {
    let deadline = Some(Instant::now() + POLL_PERIOD);
    let mut ready = [PollFd::new(&wire.socket, PollFlags::IN)];
    poll::wait(&mut ready, deadline).unwrap() > 0
        && !matches!(wire.socket.read(&mut [0; 64], true), Ok(1..))
}

/// Makes the hostile peer's own region, with its header. Returns the region's descriptor, the cache
/// line of its `consumed` word, and its ring.
fn own_region(geometry: &Geometry, session_id: [u8; 16], role: u32) -> (OwnedFd, OwnMem, OwnMem) {
    let map = OwnMap::create("foe-region", geometry.region_bytes as usize).unwrap();
    let descriptor = map.fd().try_clone_to_owned().unwrap();
    let mut memory = OwnMem::new(Box::new(OwnPages(map)));
    let header = geometry.header(session_id, std::process::id(), role);
    memory.write(0, header.as_bytes());
    let (_header, rest) = memory.split_at(CONTROL_OFFSET as usize);
    let (consumed, rest) = rest.split_at(LINE_BYTES as usize);
    let behind = CONTROL_OFFSET + LINE_BYTES;
    let (_control, rest) = rest.split_at((geometry.ring_offset - behind) as usize);
    let (ring, _slab) = rest.split_at(geometry.ring.bytes() as usize);
    (descriptor, consumed, ring)
}

/// The longest time that a hostile peer waits for the attacked end to connect.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Number of records that a flood sends with one system call or one doorbell.
const FLOOD_RECORDS: usize = 64;

/// The pause between two polls of the hostile peer.
const POLL_PERIOD: Duration = Duration::from_micros(20);

/// Size of the hostile peer's ring in bytes; one record may take a quarter of the ring.
const RING_BYTES: u64 = 1 << 20;
