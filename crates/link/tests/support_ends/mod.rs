// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers that make both ends of links in one process, for each test of links: over shared memory,
//! a Unix socket or TCP, with messages kept in memory or in files.
#![allow(dead_code, reason = "each test file uses a part")]

#[path = "../support_directory/mod.rs"]
pub mod directory;
pub mod every_length;
pub mod forwarder;

use partywall::TransportPolicy;
use partywall_link::{Client, Config, Link, Server, Storage};
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Shared memory, which both client and server allow.
    SharedMemory,
    /// A Unix socket, with shared memory disabled.
    Unix,
    Tcp,
}

/// The conditions of one run of a test: the directory, the transport and the kind of storage that
/// its links use.
pub struct Ground {
    directory: tempfile::TempDir,
    pub via: Via,
    is_kept: bool,
}

impl Ground {
    pub fn new(via: Via, is_kept: bool) -> Self {
        Self { directory: directory::with(&["client", "server"]), via, is_kept }
    }

    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns one `Ground` for each combination of a transport and a kind of storage.
    pub fn all() -> Vec<Self> {
        let vias = [Via::SharedMemory, Via::Unix, Via::Tcp];
        vias.iter().flat_map(|via| [Self::new(*via, false), Self::new(*via, true)]).collect()
    }

    pub fn path(&self, end: &str) -> PathBuf {
        self.directory.path().join(end)
    }

    pub fn place(&self, end: &str) -> Storage {
        if self.is_kept { Storage::directory(self.path(end)) } else { Storage::Memory }
    }

    pub fn address(&self) -> String {
        if self.via == Via::Tcp {
            "tcp:127.0.0.1:0".to_owned()
        } else {
            format!("unix:{}/links.sock", self.directory.path().display())
        }
    }

    pub fn server(&self, config: Config) -> Server {
        let config = self.config(config).allow_anonymous_tcp(true);
        Server::bind(self.address(), self.place("server"), "bob", config).unwrap()
    }

    pub fn client(&self, config: Config) -> Client {
        Client::new(self.place("client"), "alice", self.config(config)).unwrap()
    }

    pub fn config(&self, config: Config) -> Config {
        match self.via {
            Via::Unix => config.transport(TransportPolicy::Socket),
            Via::SharedMemory | Via::Tcp => config,
        }
    }

    /// Makes a server and a client with a link between them. Returns the server and both ends of
    /// the link.
    pub fn pair(&self, config: &Config) -> Pair {
        let server = self.server(config.clone());
        let client = self.client(config.clone());
        let link = client.connect(server.local_address(), "bob", "orders").unwrap();
        let served = server.open("alice", "orders").unwrap();
        Pair { server, served, link }
    }
}

pub struct Pair {
    pub server: Server,
    pub served: Link,
    pub link: Link,
}

/// A deadline one minute from now. A correct program needs seconds at most, so only a faulty one
/// reaches the deadline.
pub fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A message that begins with its number, which the function `number` returns.
pub fn message(number: u64, len: usize) -> Vec<u8> {
    let mut bytes = number.to_le_bytes().to_vec();
    bytes.resize(len.max(8), number as u8);
    bytes
}

pub fn number(message: &[u8]) -> u64 {
    u64::from_le_bytes(message[..8].try_into().unwrap())
}

/// Sends each received message back as a reply, `count` times.
pub fn echo(link: &Link, count: usize) {
    for _ in 0..count {
        let message = link.recv_deadline(soon()).unwrap().unwrap();
        let copy = message.to_vec();
        message.reply_deadline(&copy, soon()).unwrap();
    }
    link.wait_acked(soon()).unwrap();
}

/// Calls `is_so` until it returns true; fails after a deadline.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = soon();
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        std::thread::yield_now();
    }
}
