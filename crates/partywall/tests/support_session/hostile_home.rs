// SPDX-License-Identifier: MIT OR Apache-2.0
//! Our side of a session with a neighbour that keeps no rule.
#![allow(dead_code, reason = "each test file uses a part")]

use crate::foe::{Role, SessionFoe};
use crate::support::Place;
use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Config, Fault, SessionError, TransportPolicy};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::runtime::Runtime;

pub const MESSAGE_MAX: u64 = 1 << 20;
const WINDOW: u64 = 1000;
pub const STREAMS_MAX: u32 = 4;
pub const LIMIT: Duration = Duration::from_secs(60);

/// Our side: it listens, or connects, as the foe is not to.
pub struct Home {
    pub role: Role,
    config: Config,
    place: Place,
    pub runtime: Runtime,
    /// Where our side listens: its sessions.
    sessions: Receiver<Session>,
    /// Where the foe does.
    door: partywall_sys::Listener,
}

impl Home {
    pub fn new(role: Role) -> Self {
        Self::with(role, |config| config)
    }

    pub fn with(role: Role, adapt: impl Fn(Config) -> Config) -> Self {
        let place = Place::new();
        let transport = if role.is_shared_memory {
            TransportPolicy::SharedMemory
        } else {
            TransportPolicy::Socket
        };
        let config = Config::default()
            .transport(transport)
            .message_max(MESSAGE_MAX)
            .stream_window(WINDOW)
            .streams_max(STREAMS_MAX);
        let config = adapt(config);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (sender, sessions) = channel();
        let address = place.address("home");
        let guard = runtime.enter();
        let listener = Listener::bind_with(address, &config).unwrap();
        drop(guard);
        runtime.spawn(async move {
            while let Ok(session) = listener.accept().await {
                if sender.send(session).is_err() {
                    break;
                }
            }
        });
        let door = partywall_sys::Listener::listen_unix_path(place.path("foe"), 0o600, 16).unwrap();
        Self { role, config, place, runtime, sessions, door }
    }

    pub fn meet(&self) -> (SessionFoe, Session) {
        let is_shared_memory = self.role.is_shared_memory;
        if !self.role.is_acceptor {
            let foe = SessionFoe::connect(&self.place.path("home"), is_shared_memory);
            return (foe, self.sessions.recv_timeout(LIMIT).unwrap());
        }
        let (address, config) = (self.place.address("foe"), self.config.clone());
        let connecting = self.runtime.spawn(async move { connect_with(address, &config).await });
        let foe = SessionFoe::accept(&self.door, is_shared_memory);
        (foe, self.wait(connecting).unwrap().unwrap())
    }

    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(LIMIT, future).await }).expect("hung")
    }

    /// A session in which our side opened a stream, which the foe calls 2, and sent a message of cost 128, and accepts all.
    pub fn in_use(&self) -> (SessionFoe, Session, Stream) {
        let (foe, session) = self.meet();
        let ours = self.wait(async {
            let mut stream = session.open(b"ours").await.unwrap();
            stream.send(&[1; 100]).await.unwrap();
            stream
        });
        (foe, session, ours)
    }

    /// The code of the violation that ended the session.
    pub fn code(&self, session: &Session) -> u32 {
        match self.wait(session.closed()) {
            SessionError::Fault(fault) => match &*fault {
                Fault::Violation { violation, .. } => violation.code(),
                other => panic!("{other}"),
            },
            other => panic!("{other}"),
        }
    }
}

/// Accepts streams and keeps them, without reading.
pub fn keep_all(home: &Home, session: &Session) {
    let session = session.clone();
    home.runtime.spawn(async move {
        let mut kept = Vec::new();
        while let Ok(Some(stream)) = session.accept().await {
            kept.push(stream);
        }
    });
}
