// SPDX-License-Identifier: MIT OR Apache-2.0
//! A listener to be attacked: it remembers why it refused whom, and is asked afterwards whether it serves.

use super::foe::Wire;
use super::{Place, millis, within};
use partywall::{Channel, Config, HandshakeError, Listener};
use partywall_layout::hello::Hello;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// A listener that remembers why it refused.
pub struct Home {
    pub place: Place,
    pub listener: Listener,
    refused: Arc<Mutex<Vec<(u32, String)>>>,
}

impl Home {
    pub fn new(config: Config) -> Self {
        let place = Place::new();
        let refused = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&refused);
        let config = config.on_refused(move |error: &HandshakeError| {
            list.lock().unwrap().push((error.code(), error.to_string()));
        });
        let listener = Listener::bind_with(place.address("home"), &config).unwrap();
        Self { place, listener, refused }
    }

    pub fn wire(&self) -> Wire {
        Wire::connect(&self.place.path("home"))
    }

    /// Lets the listener go on as far as it can.
    pub fn go_on(&mut self) -> Option<Channel> {
        (0..3).find_map(|_| self.listener.try_accept().ok())
    }

    /// The reason for the last refusal; there must be exactly one.
    pub fn reason(&mut self) -> (u32, String) {
        let until = within(Duration::from_secs(60));
        while Instant::now() < until {
            assert!(self.listener.accept_deadline(within(millis(20))).is_err(), "was let in");
            let found = std::mem::take(&mut *self.refused.lock().unwrap());
            if let [reason] = &found[..] {
                return reason.clone();
            }
            assert!(found.is_empty(), "{found:?}");
        }
        panic!("nobody was refused");
    }

    /// A wire on which HELLO went both ways, and the session's id.
    pub fn greeted(&mut self, own: &Hello) -> (Wire, [u8; 16]) {
        self.greeted_in_time(own).unwrap()
    }

    /// The same, unless the listener's time for it was up before.
    pub fn greeted_in_time(&mut self, own: &Hello) -> Option<(Wire, [u8; 16])> {
        let wire = self.wire();
        assert!(wire.send_hello(own));
        assert!(self.go_on().is_none());
        let (theirs, _) = wire.receive();
        let session_id = Hello::read_from_bytes(&theirs).ok()?.nonce;
        wire.receive();
        Some((wire, session_id))
    }

    /// An honest client gets through.
    pub fn serves(&mut self) {
        assert!(self.serves_in_time(), "an honest client is refused");
        self.refused.lock().unwrap().clear();
    }

    /// The same, unless the time for the client's handshake was up before: whether it got through.
    pub fn serves_in_time(&mut self) -> bool {
        let address = self.place.address("home");
        std::thread::scope(|scope| {
            let client = scope.spawn(move || {
                let Ok(mut channel) = partywall::connect(&address) else { return false };
                channel.send(b"honest").is_ok() && channel.recv().is_ok()
            });
            let accepted = std::iter::repeat_with(|| {
                let is_over = client.is_finished();
                let accepted = self.listener.accept_deadline(within(millis(20))).ok();
                (accepted.is_some() || is_over).then_some(accepted)
            });
            if let Some(mut channel) = accepted.flatten().next().flatten() {
                assert_eq!(channel.recv().unwrap(), b"honest");
                channel.send(b"welcome").unwrap();
            }
            client.join().unwrap()
        })
    }
}

pub const VIOLATION: u32 = 209;
pub const DESCRIPTOR: u32 = 210;
pub const NOT_PARTYWALL: u32 = 203;
pub const HUNG_UP: u32 = 202;

/// A descriptor of a pipe.
pub fn pipe() -> OwnedFd {
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let end = child.stdin.take().unwrap().into();
    child.wait().unwrap();
    end
}
