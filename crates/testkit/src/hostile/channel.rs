// SPDX-License-Identifier: MIT OR Apache-2.0
//! A hostile peer of a channel. It makes the handshake frame by frame, and then writes any word of
//! its own region and any byte of the socket.

use crate::deadline::within;
use partywall::{Channel, Listener};
use partywall_layout::control::{CONTROL_DOORBELL, ControlSegment};
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, Descriptors, FEATURE_SHM, FEATURE_SOCKET, Frame, Hello, Offer,
    PREAMBLE_BYTES, REGION_AND_DOORBELLS, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready, TRANSPORT_SHM,
    TRANSPORT_SOCKET, frame_length, parse,
};
use partywall_layout::record_ring::{self, BlobBody, Kind, SegmentBody};
use partywall_layout::segment::{CONSUMED, CONTROL_OFFSET};
use partywall_layout::{Geometry, Position, RegionHeader};
use partywall_ring::{PeerMem, Readable};
use partywall_sys::{Doorbell, OwnMap, PeerMap, PidFd, Socket, connect_unix_path};
use std::cell::{RefCell, UnsafeCell};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, IntoBytes};

/// Makes the frame HELLO of a hostile peer that offers the features with the given bits.
pub fn hello(features: u64) -> Hello {
    Hello {
        features: U64::new(features),
        fallback_reason: U32::new(u32::from(features & FEATURE_SHM == 0)),
        map_max: U64::new(64 << 20),
        message_max: U64::new(64 << 20),
        peer_blocks_max: U64::new(1024),
        segments_max: U32::new(32),
        nonce: [7; 16],
        ..Hello::new()
    }
}

/// The feature bits of a peer that offers both shared memory and the socket.
pub const BOTH: u64 = FEATURE_SHM | FEATURE_SOCKET;

/// The geometry of a region so small that a test can try every word of it.
pub fn small_geometry() -> Geometry {
    Geometry::new(4096, 1024, 16 << 10).unwrap()
}

/// A connection over which a test sends and receives handshake frames.
pub struct Wire {
    /// The socket over which the handshake frames pass.
    pub socket: Socket,
    /// Descriptors that have arrived with frames which the test has not received yet.
    early: RefCell<VecDeque<OwnedFd>>,
}

impl Wire {
    /// Makes a connection for handshake frames from a connected socket.
    pub fn new(socket: Socket) -> Self {
        Self { socket, early: RefCell::default() }
    }

    /// Connects to the listener at `path`, for handshake frames.
    pub fn connect(path: &Path) -> Self {
        Self::new(connect_unix_path(path, Some(within(Duration::from_secs(10)))).unwrap())
    }

    /// Sends bytes and descriptors in one message; `false` if the peer has closed the connection.
    pub fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let sent = self.socket.send(&[IoSlice::new(bytes)], descriptors, false, false);
        sent.is_ok_and(|count| count == bytes.len())
    }

    /// Sends the frame HELLO together with a pidfd, a descriptor of this process.
    pub fn send_hello(&self, hello: &Hello) -> bool {
        let process = PidFd::of_self().unwrap();
        let descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]);
        self.send(Hello { descriptors, ..*hello }.as_bytes(), &[process.as_fd()])
    }

    /// Receives the next frame and its descriptors. The result is empty if the peer has closed the
    /// connection.
    pub fn receive(&self) -> (Vec<u8>, Vec<OwnedFd>) {
        let mut frame = Vec::new();
        let mut early = self.early.borrow_mut();
        let mut wanted = PREAMBLE_BYTES;
        while frame.len() < wanted {
            let mut buffer = [0; 1024];
            let read = self.socket.receive(&mut buffer[..wanted - frame.len()], false);
            let Ok(received) = read else { return (Vec::new(), Vec::new()) };
            if received.bytes == 0 {
                return (Vec::new(), Vec::new());
            }
            frame.extend_from_slice(&buffer[..received.bytes]);
            early.extend(received.fds);
            if frame.len() == PREAMBLE_BYTES {
                wanted = frame_length(frame.first_chunk().unwrap()).unwrap();
            }
        }
        // The descriptors of all frames that were sent in one message arrive with the message's
        // first byte.
        let listed = match parse(&frame) {
            Ok(Frame::Hello(hello)) => hello.descriptors.kinds().len(),
            Ok(Frame::Offer(offer)) => offer.descriptors.kinds().len(),
            Ok(Frame::Ready(ready)) => ready.descriptors.kinds().len(),
            _ => 0,
        };
        let descriptors = early.drain(..listed).collect();
        (frame, descriptors)
    }
}

/// A hostile peer of a channel that has sent the frames HELLO and OFFER, and to which the listener
/// has not answered yet.
struct Offering {
    wire: Wire,
    region: OwnMap,
    geometry: Geometry,
    own_doorbells: [Doorbell; 2],
    is_shared_memory: bool,
}

impl Offering {
    fn new(path: &Path, hello: &Hello, geometry: Geometry) -> Self {
        let wire = Wire::connect(path);
        let region = region(&geometry, hello.nonce, ROLE_CONNECTOR);
        let own_doorbells = [Doorbell::new().unwrap(), Doorbell::new().unwrap()];
        let is_shared_memory = hello.features.get() & FEATURE_SHM != 0;
        assert!(wire.send_hello(hello));
        if is_shared_memory {
            let descriptors = [region.as_fd(), own_doorbells[0].as_fd(), own_doorbells[1].as_fd()];
            let offer = Offer::shm(geometry.region_bytes, REGION_AND_DOORBELLS);
            assert!(wire.send(offer.as_bytes(), &descriptors));
        } else {
            assert!(wire.send(Offer::socket(1).as_bytes(), &[]));
        }
        Self { wire, region, geometry, own_doorbells, is_shared_memory }
    }

    /// Receives the listener's frames, and ends the handshake with the frame `ready`. If that is
    /// `None`, ends it with the READY that an honest peer would send.
    fn agree(self, ready: Option<Ready>) -> Foe {
        let Self { wire, region, geometry, own_doorbells, is_shared_memory } = self;
        wire.receive();
        let (offer, mut descriptors) = wire.receive();
        let offer = Offer::read_from_bytes(&offer).unwrap();
        wire.receive();
        let doorbells = descriptors.split_off(descriptors.len().min(1)).into_iter();
        let doorbells: Vec<_> =
            doorbells.map(|doorbell| Doorbell::from_peer(doorbell).unwrap()).collect();
        let theirs = descriptors.first().map(|descriptor| {
            let size = offer.region_size.get();
            let map = PeerMap::map(descriptor.as_fd(), size, u64::MAX).unwrap();
            PeerMem::new(Arc::new(Pages(map)))
        });
        let fitting = match (is_shared_memory, doorbells.is_empty()) {
            (true, false) => Ready::new(TRANSPORT_SHM, 0).with_doorbells(),
            (true, true) => Ready::new(TRANSPORT_SHM, 0),
            (false, _) => Ready::new(TRANSPORT_SOCKET, 1),
        };
        assert!(wire.send(ready.unwrap_or(fitting).as_bytes(), &[]));
        let (position, next_segment) = (0, 1);
        Foe { wire, region, geometry, doorbells, own_doorbells, theirs, position, next_segment }
    }
}

/// A hostile peer of a channel, after its handshake. The attacked end of the channel is a real
/// `Channel`.
pub struct Foe {
    /// The connection of the handshake, which stays as the control socket.
    pub wire: Wire,
    /// The hostile peer's own region, which it writes and the attacked end maps.
    pub region: OwnMap,
    /// The geometry of the hostile peer's region: the places of its ring and its slab.
    pub geometry: Geometry,
    /// The attacked end's doorbells, for records and for room, if the attacked end sent them.
    pub doorbells: Vec<Doorbell>,
    /// The hostile peer's own doorbells, which it sent to the attacked end.
    pub own_doorbells: [Doorbell; 2],
    /// The attacked end's region, mapped by the hostile peer.
    pub theirs: Option<PeerMem>,
    /// The ring position of the hostile peer's next record.
    pub position: u64,
    next_segment: u32,
}

/// A mapped region of a peer, in the form that the ring crate needs.
pub struct Pages(pub PeerMap);

impl Readable for Pages {
    fn cells(&self) -> &[UnsafeCell<u8>] {
        self.0.cells()
    }
}

/// Lets the listener handle all handshake frames that have arrived, without blocking.
pub fn drive(listener: &mut Listener) {
    assert!(listener.try_accept().is_err(), "not yet");
}

impl Foe {
    /// Connects to `listener` with a handshake that keeps the rules. Returns the hostile peer, and
    /// the attacked end's channel.
    pub fn meet(listener: &mut Listener, path: &Path, hello: &Hello) -> (Self, Channel) {
        Self::meet_with(listener, path, hello, small_geometry())
    }

    /// Connects to `listener` with a handshake that keeps the rules, as a hostile peer whose region
    /// has the given geometry.
    pub fn meet_with(
        listener: &mut Listener,
        path: &Path,
        hello: &Hello,
        geometry: Geometry,
    ) -> (Self, Channel) {
        Self::meet_as(listener, path, hello, geometry, None)
    }

    /// Connects to `listener` as a hostile peer whose region has the given geometry, and which
    /// sends the frame `ready`, if it is given, in place of the READY that an honest peer would
    /// send.
    pub fn meet_as(
        listener: &mut Listener,
        path: &Path,
        hello: &Hello,
        geometry: Geometry,
        ready: Option<Ready>,
    ) -> (Self, Channel) {
        let offering = Offering::new(path, hello, geometry);
        drive(listener);
        let foe = offering.agree(ready);
        let channel = listener.accept_deadline(within(Duration::from_secs(10))).unwrap();
        (foe, channel)
    }

    /// Connects with a handshake that keeps the rules to a listener of another process, which
    /// handles the frames by itself.
    pub fn visit(path: &Path, hello: &Hello, geometry: Geometry) -> Self {
        Offering::new(path, hello, geometry).agree(None)
    }

    /// Wakes the attacked end, if it sleeps until records come.
    pub fn notify(&self) {
        // Errors of notifying are ignored: an attacked end that has ended needs no notification.
        match self.doorbells.first() {
            Some(doorbell) => drop(doorbell.notify()),
            None => drop(self.wire.send(&[CONTROL_DOORBELL], &[])),
        }
    }

    /// The position up to which the attacked end has consumed the hostile peer's records.
    pub fn consumed(&self) -> u64 {
        let theirs = self.theirs.as_ref().unwrap();
        theirs.load((CONTROL_OFFSET + CONSUMED) as usize)
    }

    /// Waits until the attacked end has closed the connection.
    pub fn wait_for_hang_up(&self) {
        let mut buffer = [0; 64];
        while self.wire.socket.receive(&mut buffer, false).is_ok_and(|received| received.bytes > 0)
        {
        }
    }

    /// The id of the first block that the attacked end sent.
    pub fn first_block(&self) -> u64 {
        let theirs = self.theirs.as_ref().unwrap();
        let at = theirs.load(32) + record_ring::HEADER_BYTES;
        theirs.load(at as usize)
    }

    /// Writes `word` at any offset of the hostile peer's region.
    pub fn write_word(&mut self, offset: u64, word: u64) {
        let at = offset as usize;
        self.region.as_mut_slice()[at..at + 8].copy_from_slice(&word.to_le_bytes());
    }

    /// Writes `word` at any offset of the control page in the hostile peer's region.
    pub fn write_control(&mut self, offset: u64, word: u64) {
        self.write_word(CONTROL_OFFSET + offset, word);
    }

    /// The offset of the ring position `position` in the hostile peer's region.
    pub fn place(&self, position: u64) -> u64 {
        self.geometry.ring_offset + self.geometry.ring.offset(Position(position))
    }

    /// Publishes one record in the way of an honest sender, but with any kind and body.
    pub fn publish(&mut self, kind: Kind, body: &[u8]) {
        self.publish_as(kind, body.len() as u32, body);
    }

    /// Publishes one record whose header announces the length `len`, which may differ from the
    /// length of `body`.
    pub fn publish_as(&mut self, kind: Kind, len: u32, body: &[u8]) {
        let at = self.place(self.position);
        let from = (at + record_ring::HEADER_BYTES) as usize;
        let end = (self.geometry.ring_offset + self.geometry.ring.bytes()) as usize;
        let fits = body.len().min(end - from);
        self.region.as_mut_slice()[from..from + fits].copy_from_slice(&body[..fits]);
        self.write_word(at + 8, record_ring::word1(len, 0));
        let next = self.position + partywall_layout::record_ring::footprint(len.into());
        self.write_word(self.place(next), 0);
        self.write_word(at, record_ring::word0(Position(self.position), kind));
        self.position = next;
    }

    /// Publishes a BLOB record with the given fields, whether a block of that place and length
    /// exists or not.
    pub fn publish_blob(&mut self, block: u64, segment: u32, offset: u64, length: u64) {
        let body = blob(block, segment, offset, length);
        self.publish(Kind::Blob, body.as_bytes());
    }

    /// Publishes the record that announces a segment, without the segment's frame on the socket.
    pub fn publish_segment(&mut self, kind: Kind, number: u32, size: u64) {
        let (number, zero) = (U32::new(number), U32::new(0));
        let body = SegmentBody { number, zero, size: U64::new(size) };
        self.publish(kind, body.as_bytes());
    }

    /// Sends the frame that announces segment `number`, with any descriptor.
    pub fn send_segment(&self, number: u32, descriptor: BorrowedFd<'_>) -> bool {
        let frame = ControlSegment::new(number);
        self.wire.send(frame.as_bytes(), &[descriptor])
    }

    /// Adds a valid segment of `size` bytes to the hostile peer's memory; returns the number of the
    /// segment.
    pub fn add_segment(&mut self, size: u64) -> u32 {
        let number = self.next_segment;
        self.next_segment += 1;
        let memory = OwnMap::create("foe-segment", size as usize).unwrap();
        assert!(self.send_segment(number, memory.as_fd()));
        self.publish_segment(Kind::Segment, number, size);
        number
    }
}

/// The body of a BLOB record that names the given block, segment, offset and length.
pub fn blob(block: u64, segment: u32, offset: u64, length: u64) -> BlobBody {
    BlobBody {
        block: U64::new(block),
        segment: U32::new(segment),
        zero: U32::new(0),
        offset: U64::new(offset),
        length: U64::new(length),
    }
}

/// A region whose header is valid for the given geometry, session and role.
pub fn region(geometry: &Geometry, session_id: [u8; 16], role: u32) -> OwnMap {
    assert!(role == ROLE_ACCEPTOR || role == ROLE_CONNECTOR);
    let header = geometry.header(session_id, std::process::id(), role);
    region_with(geometry.region_bytes, &header)
}

/// A region of `bytes` bytes that begins with `header`, which may be invalid.
pub fn region_with(bytes: u64, header: &RegionHeader) -> OwnMap {
    let mut region = OwnMap::create("foe-region", bytes as usize).unwrap();
    region.as_mut_slice()[..size_of::<RegionHeader>()].copy_from_slice(header.as_bytes());
    region
}
