// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends any bytes, in any pieces, to a listener and to a connector instead of a handshake. A
//! listener also gets any descriptors with each piece. The result is a channel or an error before
//! the deadline (SPEC 2).
//!
//! ```text
//!  input:  a byte that chooses role and mode | changes to valid frames, or raw bytes |
//!          the lengths of the pieces in which the bytes are sent
//!  length of a piece:  bits 0..7 the bytes, bits 5..7 also the number of descriptors
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::{Channel, HandshakeError, Listener};
use partywall_fuzz::{address, config, hello, reach};
use partywall_layout::hello::{Offer, REGION_ALONE, Ready};
use partywall_sys::{Doorbell, OwnMap, PidFd};
use std::cell::RefCell;
use std::io::{IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Maximum duration of one run, longer than the handshake's deadline.
const TIME_MAX: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_millis(200);

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else { return };
    let pieces = pieces(*choice, input);
    let start = Instant::now();
    if choice & 1 == 0 {
        accept(&pieces, choice & 8 != 0)
    } else {
        connect(pieces)
    }
    assert!(start.elapsed() < TIME_MAX, "it took {:?}", start.elapsed());
});

/// Bytes that the fuzz target sends in one write, and the number of descriptors that it sends with
/// them if the receiver is a listener.
struct Piece {
    bytes: Vec<u8>,
    descriptors: usize,
}

/// The fuzzed bytes that are sent in place of a handshake, divided into one piece for each write.
fn pieces(choice: u8, input: &[u8]) -> Vec<Piece> {
    let (bytes, lengths) = if choice & 2 == 0 {
        input.split_at(input.len() - input.len() / 8)
    } else {
        input.split_at(input.len() / 2)
    };
    let stream = if choice & 2 == 0 { bytes.to_vec() } else { patched(choice, bytes) };
    let mut rest = &stream[..];
    let mut pieces = Vec::new();
    for length in lengths.iter().take(64) {
        let (piece, after) = rest.split_at(rest.len().min(1 + usize::from(*length)));
        pieces.push(Piece { bytes: piece.to_vec(), descriptors: usize::from(length >> 5) });
        rest = after;
    }
    pieces.push(Piece { bytes: rest.to_vec(), descriptors: 0 });
    pieces.retain(|piece| !piece.bytes.is_empty());
    pieces
}

/// The frames of a valid handshake, of which `patches` changes a few bytes. Each change is an
/// offset of two bytes and a value.
fn patched(choice: u8, patches: &[u8]) -> Vec<u8> {
    let transport = 1 + u32::from(choice >> 2 & 1);
    let features = u64::from(choice >> 4 & 3);
    let mut stream = hello(features).as_bytes().to_vec();
    let reason = 3 * (transport - 1);
    let offer = if reason == 0 { Offer::shm(1 << 16, REGION_ALONE) } else { Offer::socket(reason) };
    stream.extend_from_slice(offer.as_bytes());
    stream.extend_from_slice(Ready::new(transport, 3 * (transport - 1)).as_bytes());
    for patch in patches.chunks_exact(3) {
        let place = usize::from(u16::from_le_bytes([patch[0], patch[1]]));
        if place < stream.len() {
            stream[place] = patch[2];
        } else if place >= 0x8000 {
            stream.push(patch[2]);
        }
    }
    stream
}

/// Runs a real listener against a client that sends the fuzzed bytes in the given pieces.
fn accept(pieces: &[Piece], hangs_up: bool) {
    thread_local! {
        static LISTENER: RefCell<Listener> = RefCell::new(
            Listener::bind_with(address("accept"), &config().handshake_timeout(HANDSHAKE_TIMEOUT)).expect("nobody else has this name"),
        );
        static DESCRIPTORS: Vec<OwnedFd> = descriptors();
    }
    LISTENER.with_borrow_mut(|listener| {
        let client = reach("accept");
        let mut channel = None;
        for (index, piece) in pieces.iter().enumerate() {
            // The listener closes the connection after a refusal, so the write may fail.
            let gone = DESCRIPTORS.with(|all| {
                let chosen = all.iter().cycle().skip(index % all.len()).take(piece.descriptors);
                let chosen: Vec<_> = chosen.map(AsFd::as_fd).collect();
                client.send(&[IoSlice::new(&piece.bytes)], &chosen, false, true).is_err()
            });
            channel = channel.or(listener.try_accept().ok());
            if gone {
                break;
            }
        }
        if hangs_up {
            client.shutdown_write().ok();
        } else {
            drop(client);
        }
        if let Some(channel) = channel.or(listener.try_accept().ok()) {
            use_it(channel);
        }
    });
}

/// Descriptors that a peer may send: a pidfd, a memfd and an eventfd. A frame can list each of
/// these kinds, but the memfd is no valid region.
fn descriptors() -> Vec<OwnedFd> {
    let process = PidFd::of_self().expect("a pidfd");
    let doorbell = Doorbell::new().expect("an eventfd");
    let memory = OwnMap::create("fuzzed", 64 << 10).expect("a memfd");
    let borrowed = [process.as_fd(), memory.as_fd(), doorbell.as_fd()];
    borrowed.map(|fd| fd.try_clone_to_owned().expect("a descriptor")).into()
}

/// Runs a real connector against a server that sends the fuzzed bytes in the given pieces.
fn connect(pieces: Vec<Piece>) {
    thread_local! {
        static SERVER: SyncSender<Vec<Piece>> = serve();
    }
    SERVER.with(|server| server.send(pieces).expect("the server lives"));
    match partywall::connect_with(
        address("connect"),
        &config().handshake_timeout(HANDSHAKE_TIMEOUT),
    ) {
        Ok(channel) => use_it(channel),
        Err(partywall::ConnectError::Handshake(error)) => {
            assert!(!matches!(error, HandshakeError::System { .. }), "{error}");
            assert!(!error.to_string().is_empty());
        }
        Err(other) => panic!("{other}"),
    }
}

/// Sends and receives on a channel whose peer sent fuzzed bytes as its handshake, and sends nothing
/// more.
fn use_it(mut channel: Channel) {
    let _ = channel.try_send(b"hello?");
    for _ in 0..300 {
        match channel.try_recv() {
            Ok(Some(message)) => assert!(message.len() < 1 << 20),
            Err(partywall::TryRecvError::Empty) => {}
            Ok(None) | Err(_) => break,
        }
    }
}

fn serve() -> SyncSender<Vec<Piece>> {
    let listener = UnixListener::bind_addr(&name("connect")).expect("nobody else has this name");
    let (server, orders) = sync_channel::<Vec<Piece>>(1);
    std::thread::spawn(move || {
        for pieces in orders {
            let Ok((mut client, _)) = listener.accept() else { return };
            for piece in pieces {
                if client.write_all(&piece.bytes).is_err() {
                    break;
                }
            }
            client.shutdown(Shutdown::Write).ok();
            // The server reads until the client closes the connection. Otherwise a reset of the
            // connection would discard bytes that the server has sent.
            client.read_to_end(&mut Vec::new()).ok();
        }
    });
    server
}

fn name(end: &str) -> SocketAddr {
    let address = address(end);
    let name = address.strip_prefix("unix:@").expect("made so");
    SocketAddr::from_abstract_name(name).expect("short enough")
}
