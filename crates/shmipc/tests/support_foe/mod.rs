// SPDX-License-Identifier: MIT OR Apache-2.0
//! `Foe`, a hostile peer with which tests break the rules of shmipc, and `Home`, a listener for its
//! sessions. The peer creates or maps the shared memory, performs the handshake by hand, and then
//! writes any word anywhere.
//!
//! ```text
//!   Foe::client ── our listener: Home          Foe::server ── our connect
//!      └ queue, buffer: every word             └ the same memory, mapped once more
//! ```
//!
//! Apart from time-outs, this file asserts nothing: the tests do.
#![allow(dead_code, reason = "each test file uses a part")]

mod home;
mod memory;

#[allow(unused_imports, reason = "each test file uses a part")]
pub use home::{Home, address, echo, small};
pub use memory::Memory;
#[allow(unused_imports, reason = "each test file uses a part")]
pub use partywall_testkit::{TIMEOUT, alone, soon, until};

use partywall_shmipc::regions::{Element, PutError};
use partywall_shmipc::wire::encode;
use partywall_sys::process::{Process, mappings, resident_bytes};
use partywall_sys::{Socket, connect_unix_path};
use partywall_testkit::Random;
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

/// A random word as a hostile peer may write it: an edge case, or any value.
pub fn any_word(random: &mut Random) -> u32 {
    let any = random.next() as u32;
    match random.below(6) {
        0 => 0,
        1 => u32::MAX - any % 64,
        2 => any % 256,
        3 => (any % (1 << 20)) & !3,
        4 => i32::MAX as u32 + any % 3,
        _ => any,
    }
}

#[derive(Debug)]
pub struct Wire {
    pub socket: Socket,
}

impl Wire {
    pub fn connect(path: &Path) -> Self {
        Self { socket: connect_unix_path(path, Some(soon())).unwrap() }
    }

    /// Sends bytes to the side under test; returns `false` if that side has closed the connection.
    pub fn send(&self, bytes: &[u8]) -> bool {
        self.send_with(bytes, &[])
    }

    pub fn send_with(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
        let mut sent = 0;
        while sent < bytes.len() {
            let descriptors = if sent == 0 { descriptors } else { &[] };
            match self.socket.send(&[IoSlice::new(&bytes[sent..])], descriptors, false, false) {
                Ok(count) => sent += count,
                Err(_) => return false,
            }
        }
        true
    }

    /// Receives exactly `count` bytes, and the descriptors that came with them. Returns `None` if
    /// the side under test has closed the connection.
    pub fn receive(&self, count: usize) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
        let (mut bytes, mut descriptors) = (vec![0; count], Vec::new());
        let mut read = 0;
        while read < count {
            let received = self.socket.receive(&mut bytes[read..], false).ok()?;
            if received.bytes == 0 {
                return None;
            }
            read += received.bytes;
            descriptors.extend(received.fds);
        }
        Some((bytes, descriptors))
    }

    /// Waits until the side under test closes the connection, and ignores the bytes that it sends
    /// before.
    pub fn hears_the_end(&self) {
        let deadline = soon();
        while self.receive(1).is_some() {
            assert!(Instant::now() < deadline, "it does not hang up");
        }
    }
}

/// A hostile peer after its handshake: its connection and its shared memory.
#[derive(Debug)]
pub struct Foe {
    pub wire: Wire,
    pub memory: Memory,
}

impl Foe {
    /// Connects a hostile peer as a client of version 3.
    pub fn client(path: &Path) -> Self {
        Self::client_with(path, Memory::client(1 << 20, 64, true))
    }

    pub fn client_with(path: &Path, memory: Memory) -> Self {
        let wire = Wire::connect(path);
        assert!(wire.send(&encode::exchange(3)));
        assert_eq!(wire.receive(8).unwrap().0, encode::exchange(3));
        assert!(wire.send(&encode::by_memfd(3, "/foe_queue", "/foe_buffer")));
        assert_eq!(wire.receive(8).unwrap().0, encode::ack_ready_recv_fd(3));
        assert!(wire.send_with(&[0], &[memory.buffer(), memory.queue()]));
        assert_eq!(wire.receive(8).unwrap().0, encode::ack_shm(3));
        Self { wire, memory }
    }

    /// Performs a server's handshake of version 3 on an accepted connection.
    pub fn server(socket: Socket) -> Self {
        let wire = Wire { socket };
        assert_eq!(wire.receive(8).unwrap().0, encode::exchange(3));
        assert!(wire.send(&encode::exchange(3)));
        let (header, _) = wire.receive(8).unwrap();
        let length = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        wire.receive(length as usize - 8).unwrap();
        assert!(wire.send(&encode::ack_ready_recv_fd(3)));
        let (_, descriptors) = wire.receive(1).unwrap();
        let [buffer, queue] = <[OwnedFd; 2]>::try_from(descriptors).unwrap();
        let memory = Memory::server(buffer, queue);
        assert!(wire.send(&encode::ack_shm(3)));
        Self { wire, memory }
    }

    /// Adds an element to the ring, and notifies the side under test. Returns `false` if the ring
    /// is full.
    pub fn put(&mut self, stream: u32, offset: u32, status: u32) -> bool {
        match self.memory.producer.put(Element { stream, offset, status }) {
            Ok(()) => {}
            Err(PutError::Full) => return false,
            Err(PutError::Damaged(damage)) => panic!("{damage}"),
        }
        if self.memory.producer.mark_working() {
            self.wire.send(&encode::polling(3));
        }
        true
    }

    pub fn say(&mut self, stream: u32, bytes: &[u8]) {
        let offset = self.memory.message(bytes);
        assert!(self.put(stream, offset, 0));
    }

    /// Receives the next message from the side under test, with the id of its stream; `None` means
    /// the end of that stream.
    pub fn hear(&mut self) -> (u32, Option<Vec<u8>>) {
        let deadline = soon();
        loop {
            if let Some(Element { stream, offset, status }) = self.memory.consumer.pop().unwrap() {
                let chain =
                    (status & 0xff == 0).then(|| self.memory.region.receive(offset).unwrap());
                return (stream, chain.map(|chain| chain.to_vec()));
            }
            self.memory.consumer.set_idle();
            assert!(Instant::now() < deadline, "nothing is said");
            std::thread::yield_now();
        }
    }
}

/// Measures this process: its number of descriptors and of mappings, and its resident bytes.
pub fn footprint() -> (usize, usize, u64) {
    (
        partywall_testkit::descriptors(Process::Own),
        mappings(Process::Own).unwrap().len(),
        resident_bytes(Process::Own).unwrap(),
    )
}

/// Asserts that the process has no more descriptors, mappings and resident bytes than `before`, an
/// earlier measurement, except for a few that the allocator may add.
pub fn assert_footprint(before: (usize, usize, u64)) {
    until("descriptors back to the baseline", || footprint().0 <= before.0);
    until("mappings back to the baseline", || footprint().1 <= before.1 + MAPPINGS_SLACK);
    let after = footprint();
    assert!(after.2 <= before.2 + GROWTH_MAX, "resident: {} then {}", before.2, after.2);
}

/// Number of mappings that may remain, because the allocator creates mappings, too.
const MAPPINGS_SLACK: usize = 24;
/// Upper bound of the growth of resident bytes by a series of sessions, for example in the
/// allocator.
const GROWTH_MAX: u64 = 24 << 20;
