// SPDX-License-Identifier: MIT OR Apache-2.0
//! Both ends of channels and sessions in one process, over every transport.

use crate::deadline::soon;
use partywall::tokio::Session;
use partywall::{Begin, Channel, Config, Listener, TransportPolicy, TrustPolicy};
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes both ends of a channel, connected with each other: returns the connecting end, then the
/// accepting end.
pub fn pair(address: &str, client: &Config, server: &Config) -> (Channel, Channel) {
    let mut listener = Listener::bind_with(address, server).unwrap();
    let address = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| partywall::connect_with(&address, client).unwrap());
        let accepted = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), accepted)
    })
}

/// Makes both ends of a session, connected with each other: returns the connecting end, then the
/// accepting end.
pub async fn session_pair_with(kind: Kind, client: &Config, server: &Config) -> (Session, Session) {
    let listener = partywall::tokio::Listener::bind_with(kind.address(), server).unwrap();
    let address = listener.local_address().to_string();
    let connecting = partywall::tokio::connect_with(address, client);
    let (client, server) = tokio::join!(connecting, listener.accept());
    (client.unwrap(), server.unwrap())
}

/// Makes a pair of sessions over a transport of the given kind. Both ends have the configuration
/// that `adapt` returns.
pub async fn session_pair(kind: Kind, adapt: impl Fn(Config) -> Config) -> (Session, Session) {
    let config = adapt(kind.config());
    session_pair_with(kind, &config, &config).await
}

/// The transport between the two ends of a channel or session in one process, and whether the ends
/// trust each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Shared memory between ends that trust each other, and therefore read payloads in place.
    SharedMemory,
    /// Shared memory between ends that do not trust each other, and so copy payloads before reading
    /// them.
    Untrusted,
    /// A Unix socket, from which the connection moves to shared memory while it runs.
    Moving,
    /// A Unix socket, which carries all records.
    Unix,
    /// A TCP connection, which carries all records.
    Tcp,
}

impl Kind {
    /// All kinds of transport, for the tests that run over each of them.
    pub const ALL: [Self; 5] =
        [Self::SharedMemory, Self::Untrusted, Self::Moving, Self::Unix, Self::Tcp];

    /// The name of this kind of transport, which a test passes to its second process.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shm",
            Self::Untrusted => "untrusted",
            Self::Moving => "moving",
            Self::Unix => "unix",
            Self::Tcp => "tcp",
        }
    }

    /// Returns the kind of transport with the name `name`.
    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|kind| kind.name() == name).unwrap()
    }

    /// An address that no other test uses.
    pub fn address(self) -> String {
        // ORDER: Relaxed: the counter guards no other memory; each address only has to get a number
        // that no other address gets.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        match self {
            Self::Tcp => "tcp:127.0.0.1:0".into(),
            _ => format!("unix:@partywall-test-{}-{next}", std::process::id()),
        }
    }

    /// The configuration that both ends use for a transport of this kind.
    pub fn config(self) -> Config {
        let config = Config::default().begin(Begin::SharedMemory);
        match self {
            Self::SharedMemory => {
                config.transport(TransportPolicy::SharedMemory).trust(TrustPolicy::Trusted)
            }
            Self::Untrusted => {
                config.transport(TransportPolicy::SharedMemory).trust(TrustPolicy::Untrusted)
            }
            Self::Moving => config.begin(Begin::Socket).trust(TrustPolicy::Trusted),
            Self::Unix => config.transport(TransportPolicy::Socket),
            Self::Tcp => config,
        }
    }

    /// Whether all messages pass through shared memory, the first ones included.
    pub const fn is_shared_memory(self) -> bool {
        matches!(self, Self::SharedMemory | Self::Untrusted)
    }

    /// Makes the two connected ends of a channel over a transport of this kind, both with the
    /// configuration that `adapt` returns.
    pub fn pair(self, adapt: impl Fn(Config) -> Config) -> (Channel, Channel) {
        let config = adapt(self.config());
        pair(&self.address(), &config, &config)
    }
}
