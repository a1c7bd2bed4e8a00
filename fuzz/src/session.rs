// SPDX-License-Identifier: MIT OR Apache-2.0
//! A session over a socket between the side under test, as connector or as acceptor, and the peer
//! that the fuzzer plays. The peer makes the handshake frame by frame.
//!
//! The side under test has a thread of its own, so a finding may not reproduce at once.

use crate::{address, hello, receive, send};
use partywall::Config;
use partywall::blocking::{Listener, Session, connect_with};
use partywall_layout::FallbackReason;
use partywall_layout::hello::{
    DESCRIPTOR_PIDFD, Descriptors, FEATURE_SOCKET, HELLO_BYTES, OFFER_BYTES, Offer, READY_BYTES,
    Ready, SERVICE_SESSION, TRANSPORT_SOCKET,
};
use partywall_sys::{PidFd, Socket};
use std::cell::RefCell;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

/// Maximum duration of a handshake.
const TIME_MAX: Duration = Duration::from_secs(30);
/// The window in bytes that the peer grants to the side under test: how much that side may send on
/// a new stream.
const STREAM_WINDOW: u64 = 2000;
const STREAMS_MAX: u32 = 8;

/// The end of a session that the fuzzer plays: it has completed the handshake, and then sends
/// whatever records the fuzzer chooses.
pub struct SessionByHand {
    /// The socket that carries the records.
    pub socket: Socket,
}

/// Makes a session whose side under test accepts; the peer opens streams with odd numbers.
#[must_use]
pub fn accept_session(config: &Config) -> (Session, SessionByHand) {
    const NAME: &str = "session-accept";
    thread_local! {
        static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
    }
    LISTENER.with_borrow_mut(|listener| {
        let listener = listener.get_or_insert_with(|| {
            Listener::bind_with(address(NAME), config).expect("nobody else uses this name")
        });
        let socket = crate::reach(NAME);
        send_offer(&socket);
        // The side under test reads and answers the handshake only while `accept_deadline` waits
        // for a session. The peer must receive that answer before it sends the frame READY.
        let answered = Instant::now() + Duration::from_millis(1);
        assert!(listener.accept_deadline(answered).is_err(), "not yet");
        receive(&socket, HELLO_BYTES + OFFER_BYTES + READY_BYTES);
        send_ready(&socket);
        let session = listener.accept_deadline(Instant::now() + TIME_MAX);
        (session.expect("an honest handshake"), SessionByHand { socket })
    })
}

/// Makes a session whose side under test connects; the peer opens streams with even numbers.
#[must_use]
pub fn connect_session(config: &Config) -> (Session, SessionByHand) {
    const NAME: &str = "session-connect";
    thread_local! {
        static LISTENER: partywall_sys::Listener = {
            let address = address(NAME);
            let name = address.strip_prefix("unix:@").expect("made so");
            partywall_sys::Listener::listen_unix_abstract(name, 1).expect("nobody else has it")
        };
    }
    // The first use of `LISTENER` binds it; the side under test connects to it later.
    LISTENER.with(|_| ());
    std::thread::scope(|scope| {
        let session = scope.spawn(|| connect_with(address(NAME), config));
        let until = Instant::now() + TIME_MAX;
        let socket = loop {
            let accepted = LISTENER.with(partywall_sys::Listener::accept);
            match accepted.expect("a listener accepts") {
                Some(socket) => break socket,
                None => std::thread::yield_now(),
            }
            assert!(Instant::now() < until, "nobody connects");
        };
        send_offer(&socket);
        send_ready(&socket);
        let session = session.join().expect("no panic").expect("an honest handshake");
        receive(&socket, HELLO_BYTES + OFFER_BYTES + READY_BYTES);
        (session, SessionByHand { socket })
    })
}

/// Sends the frames HELLO and OFFER that an honest peer would send.
fn send_offer(socket: &Socket) {
    let mut own = hello(FEATURE_SOCKET);
    own.service = U32::new(SERVICE_SESSION);
    own.stream_window = U64::new(STREAM_WINDOW);
    own.streams_max = U32::new(STREAMS_MAX);
    own.descriptors = Descriptors::of(&[DESCRIPTOR_PIDFD]);
    let process = PidFd::of_self().expect("a pidfd");
    send(socket, own.as_bytes(), &[process.as_fd()]);
    send(socket, Offer::socket(FallbackReason::Policy.number()).as_bytes(), &[]);
}

fn send_ready(socket: &Socket) {
    let reason = FallbackReason::Policy.number();
    send(socket, Ready::new(TRANSPORT_SOCKET, reason).as_bytes(), &[]);
}
