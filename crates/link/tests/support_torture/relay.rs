// SPDX-License-Identifier: MIT OR Apache-2.0
//! A relay between the client and the server of the torture test. The relay cuts connections,
//! delays bytes, delivers bytes late, and drops the descriptors of some connections.
//!
//! ```text
//!   client ──▶ relay ──▶ server         pump: one thread for each direction of a connection
//!   cut                 both ends see the end of the connection at once
//!   cut and keep        one end sees the end of the connection and uses a new connection; bytes
//!                       under way to the other end arrive late, on the old connection
//!   delay               no byte passes in one direction for a while
//! ```

use super::settings::Via;
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Listener, Socket, connect_tcp, connect_unix_path};
use partywall_testkit::Random;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub struct Relay {
    shared: Arc<Shared>,
    address: String,
}

struct Shared {
    /// The path of the file in which the server writes its address.
    server: PathBuf,
    pairs: Mutex<Vec<Arc<Pair>>>,
    connections: AtomicU64,
    /// The relay drops the descriptors of one in so many successive connections, which then get no
    /// shared memory. `None` if the relay drops no descriptors.
    loses_every: Option<u64>,
    listener: Listener,
    is_over: AtomicBool,
}

struct Pair {
    /// The two sockets of a relayed connection: the one to the client, and the one to the server.
    sockets: [Socket; 2],
    /// The instants until which the relay holds back the bytes of this connection: those to the
    /// client, and those to the server.
    until: Mutex<[Instant; 2]>,
    /// Whether the relay drops the descriptors that are sent over this connection.
    loses: bool,
}

/// A disturbance that the relay makes in the newest connection between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Cut,
    /// The relay ends the connection towards one end only, which connects again. The other end,
    /// whose index this is, receives the bytes under way late, on the old connection.
    CutAndKeep(usize),
    Delay(usize),
}

impl Harm {
    pub fn draw(chance: &mut Random) -> Self {
        let side = chance.below(2) as usize;
        match chance.below(4) {
            0 => Self::Cut,
            1 => Self::Delay(side),
            _ => Self::CutAndKeep(side),
        }
    }
}

impl Relay {
    pub fn new(directory: &Path, via: Via) -> Self {
        let listener = if via == Via::Tcp {
            Listener::listen_tcp("127.0.0.1:0".parse().unwrap(), BACKLOG)
        } else {
            Listener::listen_unix_path(directory.join("relay.sock"), 0o600, BACKLOG)
        };
        let listener = listener.unwrap();
        let address = listener.label();
        let shared = Arc::new(Shared {
            server: directory.join("address"),
            pairs: Mutex::default(),
            connections: AtomicU64::new(0),
            loses_every: (via == Via::SharedMemory).then_some(LOSES_EVERY),
            listener,
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept());
        Self { shared, address }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Applies a disturbance to the newest connection; `false` if there is no connection.
    pub fn harm(&self, harm: Harm, time: Duration) -> bool {
        let mut pairs = self.shared.pairs.lock().unwrap();
        pairs.retain(|pair| Arc::strong_count(pair) > 1);
        let Some(pair) = pairs.last() else { return false };
        match harm {
            Harm::Cut => pair.end(),
            Harm::Delay(side) => pair.rest(side, time),
            Harm::CutAndKeep(side) => {
                pair.rest(side, time);
                // The peer of `side` (client or server) sees that the connection has ended, and
                // abandons it.
                let _ = pair.sockets[1 - side].shutdown_write();
            }
        }
        true
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        // Shutting down the listening socket wakes the thread that polls it. On a Unix socket that
        // is shut down, `accept` returns at once and reports no error. So the thread ends by the
        // flag `is_over`; otherwise it would spin.
        self.shared.is_over.store(true, Ordering::Release);
        let copy = self.shared.listener.as_fd().try_clone_to_owned().unwrap();
        let _ = UnixStream::from(copy).shutdown(std::net::Shutdown::Both);
        self.shared.pairs.lock().unwrap().iter().for_each(|pair| pair.end());
    }
}

impl Shared {
    fn accept(self: Arc<Self>) {
        while let Ok(client) = self.next() {
            if self.is_over.load(Ordering::Acquire) {
                return;
            }
            let Some(client) = client else { continue };
            let Some(server) = self.connect() else { continue };
            let number = self.connections.fetch_add(1, Ordering::Relaxed);
            let until = Mutex::new([Instant::now(); 2]);
            let loses = self.loses_every.is_some_and(|every| number % every == every - 1);
            let pair = Arc::new(Pair { sockets: [client, server], until, loses });
            // The relay lists the connection before it relays any byte. A thread that learns of a
            // relayed byte may ask the relay to cut the connection, which must then be in the list.
            self.pairs.lock().unwrap().push(Arc::clone(&pair));
            for to in [0, 1] {
                let pair = Arc::clone(&pair);
                thread::spawn(move || pair.pump(to));
            }
        }
    }

    fn next(&self) -> Result<Option<Socket>, partywall_sys::AcceptError> {
        let _ = poll::wait(&mut [PollFd::new(&self.listener, PollFlags::IN)], None);
        self.listener.accept()
    }

    fn connect(&self) -> Option<Socket> {
        let address = std::fs::read_to_string(&self.server).ok()?;
        let deadline = Some(Instant::now() + Duration::from_secs(5));
        if let Some(path) = address.strip_prefix("unix:") {
            return connect_unix_path(path, deadline).ok();
        }
        connect_tcp(address.strip_prefix("tcp:")?.parse().ok()?, deadline).ok()
    }
}

impl Pair {
    fn pump(&self, to: usize) {
        let mut bytes = vec![0; CHUNK_BYTES];
        loop {
            let Ok(mut received) = self.sockets[1 - to].receive(&mut bytes, false) else { break };
            if received.bytes == 0 {
                break;
            }
            self.wait(to);
            if self.loses {
                received.fds.clear();
            }
            if !self.write(to, &bytes[..received.bytes], &received.fds) {
                break;
            }
        }
        self.wait(to);
        let _ = self.sockets[to].shutdown_write();
    }

    fn write(&self, to: usize, mut bytes: &[u8], descriptors: &[OwnedFd]) -> bool {
        let mut pending: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        while !bytes.is_empty() {
            let sent = self.sockets[to].send(&[IoSlice::new(bytes)], &pending, false, false);
            let Ok(sent) = sent else { return false };
            bytes = &bytes[sent..];
            pending.clear();
        }
        true
    }

    /// Waits until the relay may pass on bytes to `to`, client or server: a delay holds them back
    /// for a while.
    fn wait(&self, to: usize) {
        loop {
            let until = self.until.lock().unwrap()[to];
            let Some(rest) = until.checked_duration_since(Instant::now()) else { return };
            thread::park_timeout(rest);
        }
    }

    fn rest(&self, to: usize, time: Duration) {
        self.until.lock().unwrap()[to] = Instant::now() + time;
    }

    fn end(&self) {
        for socket in &self.sockets {
            let _ = socket.shutdown_both();
        }
    }
}

/// Maximum number of connections that the system queues until the relay accepts them. One client
/// connects again after each cut, so few ever wait.
const BACKLOG: i32 = 64;
/// The relay drops the descriptors of every fourth connection, which so falls back to its socket.
/// The other connections use shared memory.
const LOSES_EVERY: u64 = 4;
/// Maximum number of bytes that the relay copies at once: so few that a delay may split a record of
/// the link.
const CHUNK_BYTES: usize = 1500;
