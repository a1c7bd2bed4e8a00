// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of a link over shared memory: both ends are in one process, and each reads the other's
//! memory.
//!
//! ```text
//!   sides[0] client  core, conn ◀── bytes of the socket, counted ──▶ sides[1] server  core, conn
//!        its file or memfd ◀──────── each end maps the other's ───────▶ its file or memfd
//! ```
//!
//! `core` is the state of the link at an end (a `LinkState`), `conn` its connection. The tests in
//! `simulation` have random orders of events, with owners that are killed; each test of this folder
//! has one order of events.

mod compact;
mod hostile;
mod messages;
mod power_loss;
mod sleepers;
mod transport_switch;

use std::io::IoSlice;
use std::os::fd::AsFd;
use std::path::Path;

use bytes::{Bytes, BytesMut};

use super::simulation::memory::{INLINE_MAX, RING, SLAB, TestStore};
use super::{Answer, Conn, End, LinkState};
use crate::link_state::PeerMapping;
use crate::protocol::codec;
use crate::protocol::frame::{Frame, Names};
use crate::store::Directory;
use crate::store::Key;
use crate::store::{OwnFile, Sizes, StoreParts};

const CLIENT: usize = 0;
const SERVER: usize = 1;
const SIZES: Sizes = Sizes { ring: RING, entries: 8, slab: SLAB };

struct Pair {
    sides: [Side; 2],
    /// Number of bytes that went over the socket since the present connection was made.
    socket_bytes: usize,
}

struct Side {
    core: LinkState,
    conn: Option<Conn>,
    input: BytesMut,
}

impl Pair {
    fn of(parts: [StoreParts; 2]) -> Self {
        let sides = parts.map(|parts| {
            let core = LinkState::open(parts).unwrap();
            Side { core, conn: None, input: BytesMut::new() }
        });
        Self { sides, socket_bytes: 0 }
    }

    /// Makes a pair of ends whose memory is in unnamed files. Also returns these files, whose bytes
    /// the tests change.
    fn of_files() -> (Self, [TestStore; 2]) {
        let mut kept = [TestStore::new(1), TestStore::new(2)];
        let pair = Self::of(kept.each_mut().map(TestStore::open));
        (pair, kept)
    }

    fn of_link(directory: &Path) -> Self {
        let directory = Directory::open(directory).unwrap();
        let parts = [("a", "b"), ("b", "a")].map(|(local, remote)| {
            let key = Key::new(local, remote, "l").unwrap();
            StoreParts::of_file(OwnFile::open(&directory, &key, SIZES).unwrap(), INLINE_MAX)
        });
        Self::of(parts)
    }

    fn of_memfds() -> Self {
        let names = [["a", "b", "l"], ["b", "a", "l"]];
        Self::of(names.map(|names| StoreParts::in_memfd(SIZES, names, INLINE_MAX).unwrap()))
    }

    /// Makes a new connection, which replaces the present one. `mapping` has the mapped memory of
    /// the client, for the server, and that of the server, for the client.
    fn connect(&mut self, mapping: [Option<PeerMapping>; 2]) {
        self.begin(mapping);
        self.pump();
        let is_active = |side: &Side| side.conn.as_ref().is_some_and(Conn::is_active);
        assert!(self.sides.iter().all(is_active), "not attached");
        self.socket_bytes = 0;
    }

    /// Begins a new connection between the two ends, but stops as soon as the server has answered
    /// with the frame ATTACHED, which the client has not read then.
    fn begin(&mut self, [of_client, of_server]: [Option<PeerMapping>; 2]) {
        let names = Names { client: "a".into(), server: "b".into(), link: "l".into() };
        let [client, server] = &mut self.sides;
        let shares = of_client.is_some();
        let asked = match shares {
            true => client.core.attach_shm(names, Vec::new()),
            false => client.core.attach(names, Vec::new()),
        };
        let mut asked = asked.unwrap();
        assert_eq!(asked.descriptor().is_some(), shares);
        let bytes = outgoing(&client.core, &mut asked);
        assert!(asked.descriptor().is_none(), "it went with the first byte");
        let Frame::Attach { attach, .. } = codec::read(&bytes).unwrap() else {
            panic!("no ATTACH")
        };
        let Answer::Attached(answer) = server.core.answer_attach(attach, Vec::new(), of_client)
        else {
            panic!("refused")
        };
        if answer.descriptor().is_some() {
            of_server.into_iter().for_each(|mapping| asked.set_peer_mapping(mapping));
        }
        for (side, conn) in self.sides.iter_mut().zip([asked, answer]) {
            if let Some(mut old) = side.conn.replace(conn) {
                side.core.ended(&mut old, End::Replaced);
            }
            side.input.clear();
        }
    }

    /// Makes a new connection between both ends, over shared memory if `is_shared`, else over the
    /// socket alone.
    fn attach(&mut self, is_shared: bool) {
        let mapping = if is_shared { self.mapping() } else { [None, None] };
        self.connect(mapping);
        assert_eq!(self.is_shared(), is_shared);
    }

    /// Returns a mapping of the client's memory, for the server, and one of the server's memory,
    /// for the client.
    fn mapping(&self) -> [Option<PeerMapping>; 2] {
        let map = |side: &Side| {
            let descriptor = side.core.store.descriptor().unwrap();
            PeerMapping::map(descriptor.as_fd(), 1 << 20).unwrap()
        };
        self.sides.each_ref().map(|side| Some(map(side)))
    }

    fn is_shared(&self) -> bool {
        let shared = self.sides.each_ref().map(|side| side.conn.as_ref().unwrap().is_shared());
        assert_eq!(shared[CLIENT], shared[SERVER], "one side reads where the other does not write");
        shared[CLIENT]
    }

    fn pump(&mut self) {
        loop {
            let moved = self.carry(CLIENT) + self.carry(SERVER);
            if moved == 0 {
                return;
            }
            self.socket_bytes += moved;
        }
    }

    /// Transfers all bytes that the end `from` has to write to the other end. Returns their number.
    fn carry(&mut self, from: usize) -> usize {
        let side = &mut self.sides[from];
        let bytes = outgoing(&side.core, side.conn.as_mut().unwrap());
        let other = &mut self.sides[1 - from];
        other.input.extend_from_slice(&bytes);
        other.core.receive(other.conn.as_mut().unwrap(), &mut other.input).unwrap();
        bytes.len()
    }

    /// Receives and acknowledges the next message at the end `at`, over either transport.
    fn recv(&mut self, at: usize) -> Option<Bytes> {
        if self.sides[at].core.inbox.is_drained() && !self.is_shared() {
            self.pump();
        }
        let side = &mut self.sides[at];
        // The library has two ways to take a message from shared memory: a short one for short
        // compact records, and one for all records. The received position decides which of them the
        // test tries first, so that both are used.
        let tries_fast_path = side.core.inbox.received().0 / 64 % 2 == 0;
        let delivery = match tries_fast_path.then(|| side.core.next_short()).flatten() {
            Some(delivery) => delivery,
            None => {
                if side.core.inbox.is_drained() {
                    side.core.pull(side.conn.as_mut().unwrap()).unwrap();
                }
                side.core.next()?
            }
        };
        side.core.ack_to(&delivery.token).unwrap();
        Some(delivery.bytes)
    }
}

/// Returns all bytes that the end `core` has to write on `conn`, and counts them as written.
fn outgoing(core: &LinkState, conn: &mut Conn) -> Vec<u8> {
    let mut all = Vec::new();
    while core.has_outgoing(conn) {
        let mut slices = [IoSlice::new(&[]); 8];
        let used = core.outgoing(conn, usize::MAX, &mut slices).unwrap();
        let before = all.len();
        slices[..used].iter().for_each(|slice| all.extend_from_slice(slice));
        core.sent(conn, all.len() - before).unwrap();
    }
    all
}

fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (number * 31 + index * 7 + 1).to_le_bytes()[0]).collect()
}

fn below(random: &mut u64, bound: usize) -> usize {
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    usize::try_from((*random >> 11) % bound as u64).unwrap()
}
