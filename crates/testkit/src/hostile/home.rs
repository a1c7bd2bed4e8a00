// SPDX-License-Identifier: MIT OR Apache-2.0
//! The listener that hostile peers attack. It records why it refused peers, and a test can check
//! that it still serves an honest peer.

use super::channel::Wire;
use crate::{Directory, millis, within};
use partywall::{Channel, Config, HandshakeError, Listener};
use partywall_layout::hello::Hello;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A listener that records the reasons for which it refuses peers.
pub struct Home {
    /// The directory that holds the listener's socket; the file name of the socket is `home`.
    pub place: Directory,
    /// The listener that hostile peers attack.
    pub listener: Listener,
    refused: Arc<Mutex<Vec<(u32, String)>>>,
}

impl Home {
    /// Makes the listener that hostile peers attack, with the given configuration.
    pub fn new(config: Config) -> Self {
        let place = Directory::new();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&refused);
        let config = config.on_refused(move |error: &HandshakeError| {
            list.lock().unwrap().push((error.code(), error.to_string()));
        });
        let listener = Listener::bind_with(place.address("home"), &config).unwrap();
        Self { place, listener, refused }
    }

    /// Opens a new connection to the listener, over which the test makes the handshake frame by
    /// frame.
    pub fn wire(&self) -> Wire {
        Wire::connect(&self.place.path("home"))
    }

    /// Lets the listener handle all frames that have arrived, without blocking. Returns a channel
    /// if a handshake is complete.
    pub fn go_on(&mut self) -> Option<Channel> {
        (0..3).find_map(|_| self.listener.try_accept().ok())
    }

    /// The code and the reason of the refusal that the listener recorded since the last call. There
    /// must be exactly one such refusal.
    pub fn reason(&mut self) -> (u32, String) {
        for _ in 0..100 {
            assert!(self.listener.accept_deadline(within(millis(20))).is_err(), "was let in");
            let found = std::mem::take(&mut *self.refused.lock().unwrap());
            if let [reason] = &found[..] {
                return reason.clone();
            }
            assert!(found.is_empty(), "{found:?}");
        }
        panic!("nobody was refused");
    }

    /// Connects to the listener and sends the HELLO `own`. Returns the connection, and the session
    /// id, which is the nonce of that HELLO.
    pub fn greeted(&mut self, own: &Hello) -> (Wire, [u8; 16]) {
        let wire = self.wire();
        assert!(wire.send_hello(own));
        assert!(self.go_on().is_none());
        (wire, own.nonce)
    }

    /// Checks that the listener serves an honest client.
    pub fn serves(&mut self) {
        let address = self.place.address("home");
        std::thread::scope(|scope| {
            let client = scope.spawn(move || {
                let mut channel = partywall::connect(&address).unwrap();
                channel.send(b"honest").unwrap();
                channel.recv().unwrap().unwrap();
            });
            let mut channel =
                self.listener.accept_deadline(within(Duration::from_secs(10))).unwrap();
            assert_eq!(channel.recv().unwrap().unwrap(), b"honest");
            channel.send(b"welcome").unwrap();
            client.join().unwrap();
        });
        self.refused.lock().unwrap().clear();
    }
}

/// Error code with which the attacked listener refuses a peer that broke a rule of the handshake.
pub const VIOLATION: u32 = 209;
/// Error code with which the attacked listener refuses a peer whose descriptor is of a wrong kind.
pub const DESCRIPTOR: u32 = 210;
/// Error code with which the attacked listener refuses a peer that speaks another protocol.
pub const NOT_PARTYWALL: u32 = 203;
/// Error code that the attacked listener reports if the peer closed the connection during the
/// handshake.
pub const HUNG_UP: u32 = 202;

/// A descriptor of a pipe, which no peer may send.
pub fn pipe() -> OwnedFd {
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let end = child.stdin.take().unwrap().into();
    child.wait().unwrap();
    end
}
