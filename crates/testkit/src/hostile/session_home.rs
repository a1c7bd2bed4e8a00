// SPDX-License-Identifier: MIT OR Apache-2.0
//! The attacked end of a session: a real session, which a hostile peer attacks.
use super::session::{Role, SessionFoe};
use crate::Directory;
use partywall::tokio::{Listener, Session, Stream, connect_with};
use partywall::{Config, Fault, SessionError, TransportPolicy};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The length of the longest message that the attacked end accepts, in bytes.
pub const MESSAGE_MAX: u64 = 1 << 20;
const WINDOW: u64 = 1000;
/// Maximum number of streams that the hostile peer may have open at a time.
pub const STREAMS_MAX: u32 = 4;
/// The longest time that a test waits: an operation that takes longer has failed.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The end of a session that a hostile peer attacks: the attacked end. It listens if the hostile
/// peer connects, and connects if the hostile peer accepts.
pub struct SessionHome {
    /// The side of the hostile peer, and the transport of the session.
    pub role: Role,
    config: Config,
    place: Directory,
    /// The tokio runtime of the attacked end's tasks.
    pub runtime: Runtime,
    /// The sessions that the attacked end has accepted.
    sessions: Receiver<Session>,
    /// The listener through which a hostile peer that accepts gets the attacked end's connection.
    listener: partywall_sys::Listener,
}

impl SessionHome {
    /// Makes the attacked end for a hostile peer with the side and the transport of `role`.
    pub fn new(role: Role) -> Self {
        Self::with(role, |config| config)
    }

    /// Makes the attacked end for a hostile peer in the given role, with the configuration that
    /// `adapt` returns.
    pub fn with(role: Role, adapt: impl Fn(Config) -> Config) -> Self {
        let place = Directory::new();
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
        let listener =
            partywall_sys::Listener::listen_unix_path(place.path("foe"), 0o600, 16).unwrap();
        Self { role, config, place, runtime, sessions, listener }
    }

    /// Lets a hostile peer make its handshake. Returns the hostile peer, and the session that it
    /// attacks.
    pub fn meet(&self) -> (SessionFoe, Session) {
        let is_shared_memory = self.role.is_shared_memory;
        if !self.role.is_acceptor {
            let foe = SessionFoe::connect(&self.place.path("home"), is_shared_memory);
            return (foe, self.sessions.recv_timeout(LIMIT).unwrap());
        }
        let (address, config) = (self.place.address("foe"), self.config.clone());
        let connecting = self.runtime.spawn(async move { connect_with(address, &config).await });
        let foe = SessionFoe::accept(&self.listener, is_shared_memory);
        (foe, self.wait(connecting).unwrap().unwrap())
    }

    /// Runs `future` until it is done, and fails after the time limit of these tests ([`LIMIT`]).
    pub fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { tokio::time::timeout(LIMIT, future).await }).expect("hung")
    }

    /// Returns a hostile peer, a session, and stream 2 of the session, which the attacked end has
    /// opened. On the stream the attacked end has sent a message of 100 bytes, which costs 128
    /// bytes of the window. The attacked end accepts all streams of the hostile peer.
    pub fn in_use(&self) -> (SessionFoe, Session, Stream) {
        let (foe, session) = self.meet();
        let ours = self.wait(async {
            let mut stream = session.open(b"ours").await.unwrap();
            stream.send(&[1; 100]).await.unwrap();
            stream
        });
        (foe, session, ours)
    }

    /// The code of the violation for which the attacked end ended the session.
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

/// Makes the attacked end accept all streams of the session and keep them unread.
pub fn keep_all(home: &SessionHome, session: &Session) {
    let session = session.clone();
    home.runtime.spawn(async move {
        let mut kept = Vec::new();
        while let Ok(Some(stream)) = session.accept().await {
            kept.push(stream);
        }
    });
}
