// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers of the tests of frameworks (hyper, axum, tonic): the addresses and transports over which
//! client and server connect, and a gRPC service written by hand.
#![allow(dead_code, reason = "no test program uses all of it")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

#[cfg(feature = "tonic")]
pub mod echo;

use partywall::tokio::{Incoming, Listener, Session, connect_with};
use partywall::{Config, TransportPolicy};
use std::future::Future;
use std::time::{Duration, Instant};

/// Longest time that a wait may take before the test fails.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// How a test connects client and server: an address, and a configuration that selects the
/// transport.
#[derive(Clone, Debug)]
pub struct Way {
    pub name: &'static str,
    pub address: String,
    pub config: Config,
}

impl Way {
    /// Returns the way to connect client and server over shared memory.
    pub fn shm(directory: &tempfile::TempDir) -> Self {
        let config = Config::default().transport(TransportPolicy::SharedMemory);
        Self { name: "shm", address: unix(directory, "shm"), config }
    }

    /// Returns the ways to connect client and server: over shared memory, a Unix socket and TCP.
    pub fn all(directory: &tempfile::TempDir) -> [Self; 3] {
        let config = Config::default().transport(TransportPolicy::Socket);
        let address = unix(directory, "socket");
        let tcp = ("tcp", "tcp:127.0.0.1:0".to_owned(), Config::default());
        [
            Self::shm(directory),
            Self { name: "unix", address, config },
            Self { name: tcp.0, address: tcp.1, config: tcp.2 },
        ]
    }

    pub fn is_shared_memory(&self) -> bool {
        self.name == "shm"
    }

    pub fn is_tcp(&self) -> bool {
        self.name == "tcp"
    }

    /// Listens at the address, and replaces the address by the one to which clients connect.
    pub fn listen(&mut self) -> Incoming {
        let listener = Listener::bind_with(&*self.address, &self.config).unwrap();
        self.address = listener.local_address().to_string();
        Incoming::new(listener)
    }

    pub async fn connect(&self) -> Session {
        connect_with(&*self.address, &self.config).await.unwrap()
    }
}

fn unix(directory: &tempfile::TempDir, name: &str) -> String {
    format!("unix:{}/{name}.sock", directory.path().display())
}

/// Awaits `future`; panics with `what` after [`TIMEOUT`].
pub async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    let waited = tokio::time::timeout(TIMEOUT, future).await;
    waited.unwrap_or_else(|_| panic!("{what}: nothing for {TIMEOUT:?}"))
}

/// Waits until `holds` returns true; panics with `what` after [`TIMEOUT`].
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        tokio::task::yield_now().await;
    }
}

/// Returns bytes of which no two adjacent ones are equal; different seeds give different bytes.
/// Tests use them as HTTP bodies.
pub fn body(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}
