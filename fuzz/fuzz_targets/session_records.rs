// SPDX-License-Identifier: MIT OR Apache-2.0
//! A peer in either role sends any stream records after an honest handshake over a socket. The
//! results are streams, messages, a violation, or the end (SPEC 11). Never does the side under test
//! panic, hang, or use ever more memory.
//!
//! ```text
//!  input:  a byte that chooses the peer's role | steps
//!  step:   what | stream | length (2 bytes) | as many bytes as the length says
//!  what:   a kind of record that the peer sends, or an operation of the side under test
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::blocking::{Session, Stream};
use partywall::{Config, TransportPolicy, Wait};
use partywall_fuzz::{BYTES_MAX, SessionByHand, accept_session, connect_session};
use partywall_layout::Position;
use partywall_layout::record_ring::{Kind, WireHeader, footprint, word0};
use std::io::IoSlice;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// Maximum duration of each operation of the side under test.
const TIME_MAX: Duration = Duration::from_secs(10);
const STREAMS_MAX: u32 = 8;
const STEPS_MAX: usize = 200;

struct World {
    session: Session,
    streams: Vec<Stream>,
    hand: SessionByHand,
    position: Position,
}

fuzz_target!(|input: &[u8]| {
    let Some((role, mut rest)) = input.split_first() else { return };
    let config = partywall_fuzz::config()
        .transport(TransportPolicy::Socket)
        .wait(Wait::Park)
        .stream_window(2000)
        .streams_max(STREAMS_MAX);
    let mut world = World::new(role & 1 == 0, &config);
    for _ in 0..STEPS_MAX {
        let [what, stream, low, high, after @ ..] = rest else { break };
        let length = usize::from(u16::from_le_bytes([*low, *high])) % 1100;
        let (bytes, after) = after.split_at(after.len().min(length));
        world.step(*what, u32::from(*stream) % 20, length, bytes);
        rest = after;
    }
    world.hand.socket.shutdown_write().ok();
    // The side under test has received all bytes of its peer, and no more follow. So the session
    // must end, with or without an error.
    let end = world.session.closed(Some(Instant::now() + TIME_MAX));
    assert!(end.is_ok(), "still waiting after the peer hung up");
    world.take();
});

impl World {
    fn new(is_acceptor: bool, config: &Config) -> Self {
        let (session, hand) =
            if is_acceptor { accept_session(config) } else { connect_session(config) };
        Self { session, streams: Vec::new(), hand, position: Position(0) }
    }

    fn step(&mut self, what: u8, stream: u32, length: usize, bytes: &[u8]) {
        match what % 32 {
            24 => self.write(bytes),
            25 => self.streams.extend(self.session.try_open(&bytes[..bytes.len().min(1000)])),
            26 => self.take(),
            27 => {
                if let Some(stream) = self.streams.get_mut(stream as usize) {
                    let _ = stream.try_send(bytes);
                }
            }
            28 if (stream as usize) < self.streams.len() => {
                drop(self.streams.swap_remove(stream as usize));
            }
            29 => self.session.go_away(stream),
            30 => {
                if let Some(stream) = self.streams.get_mut(stream as usize) {
                    stream.reset(length as u32);
                }
            }
            number => {
                let kind = Kind::from_number(number).unwrap_or(Kind::Open);
                self.record(kind, stream, bytes);
            }
        }
    }

    fn record(&mut self, kind: Kind, stream: u32, body: &[u8]) {
        let header = WireHeader {
            word0: U64::new(word0(self.position, kind)),
            len: U32::new(body.len() as u32),
            stream: U32::new(stream),
        };
        self.write(header.as_bytes());
        self.write(body);
        self.position = self.position.plus(footprint(body.len() as u64));
    }

    fn write(&mut self, bytes: &[u8]) {
        // The write may fail, because the side under test may have closed the connection.
        let _ = self.hand.socket.write(&[IoSlice::new(bytes)], true);
    }

    /// The side under test accepts all streams that the peer opened, and receives all messages that
    /// arrived.
    fn take(&mut self) {
        while let Ok(Some(stream)) = self.session.try_accept() {
            self.streams.push(stream);
        }
        // Streams that have ended are dropped: streams whose numbers are reused would otherwise
        // accumulate in `streams`.
        self.streams.retain_mut(|stream| {
            loop {
                match stream.try_recv() {
                    Ok(Some(message)) => assert!(message.len() as u64 <= BYTES_MAX),
                    Ok(None) => return false,
                    Err(partywall::StreamRecvError::Empty) => return true,
                    Err(_) => return false,
                }
            }
        });
        assert!(self.session.streams() <= 2 * STREAMS_MAX as usize + 100);
    }
}
