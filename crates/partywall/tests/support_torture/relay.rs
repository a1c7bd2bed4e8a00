// SPDX-License-Identifier: MIT OR Apache-2.0
//! Stands between the two ends, and cuts, delays and delivers late.
//!
//! ```text
//!   client ──▶ relay ──▶ server         pump: one thread a direction of a connection
//!   cut                 both sides see it at once
//!   cut and keep        one side sees it and connects anew; what was under way to the other comes late, on the old connection
//!   delay               nothing goes on in one direction for a while
//! ```

use crate::support_two::Chance;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// One relay, for one round.
pub struct Relay {
    shared: Arc<Shared>,
    address: String,
}

struct Shared {
    /// Where the server says where it is.
    server: PathBuf,
    pairs: Mutex<Vec<Arc<Pair>>>,
    connections: AtomicU64,
    listener: Listener,
}

struct Pair {
    /// To the client, to the server.
    sockets: [Socket; 2],
    /// Bytes for the client, for the server, rest until then.
    until: Mutex<[Instant; 2]>,
}

enum Listener {
    Unix(UnixListener),
    Tcp(TcpListener),
}

enum Socket {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// What can be done to the present connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    Cut,
    /// Bytes for this side come late, on a connection that the other side has lost.
    CutAndKeep(usize),
    Delay(usize),
}

impl Harm {
    pub fn draw(chance: &mut Chance) -> Self {
        let side = chance.below(2) as usize;
        match chance.below(4) {
            0 => Self::Cut,
            1 => Self::Delay(side),
            _ => Self::CutAndKeep(side),
        }
    }
}

impl Relay {
    pub fn new(directory: &Path, is_tcp: bool) -> Self {
        let (listener, address) = if is_tcp {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = format!("tcp:{}", listener.local_addr().unwrap());
            (Listener::Tcp(listener), address)
        } else {
            let path = directory.join("relay.sock");
            let address = format!("unix:{}", path.display());
            (Listener::Unix(UnixListener::bind(path).unwrap()), address)
        };
        let shared = Arc::new(Shared {
            server: directory.join("address"),
            pairs: Mutex::default(),
            connections: AtomicU64::new(0),
            listener,
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept());
        Self { shared, address }
    }

    /// Where clients connect.
    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// Harms the newest connection; `false` if there is none.
    pub fn harm(&self, harm: Harm, time: Duration) -> bool {
        let mut pairs = self.shared.pairs.lock().unwrap();
        pairs.retain(|pair| Arc::strong_count(pair) > 1);
        let Some(pair) = pairs.last() else { return false };
        match harm {
            Harm::Cut => pair.end(),
            Harm::Delay(side) => pair.rest(side, time),
            Harm::CutAndKeep(side) => {
                pair.rest(side, time);
                // The other side sees the end of the connection, and gives it up.
                let _ = pair.sockets[1 - side].shutdown(Shutdown::Write);
            }
        }
        true
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.listener.end(&self.address);
        self.shared.pairs.lock().unwrap().iter().for_each(|pair| pair.end());
    }
}

impl Shared {
    fn accept(self: Arc<Self>) {
        while let Ok(client) = self.listener.accept() {
            let Ok(server) = self.connect() else { continue };
            self.connections.fetch_add(1, Ordering::Relaxed);
            let until = Mutex::new([Instant::now(); 2]);
            let pair = Arc::new(Pair { sockets: [client, server], until });
            for to in [0, 1] {
                let pair = Arc::clone(&pair);
                thread::spawn(move || pair.pump(to));
            }
            self.pairs.lock().unwrap().push(pair);
        }
    }

    fn connect(&self) -> io::Result<Socket> {
        let address = std::fs::read_to_string(&self.server)?;
        if let Some(path) = address.strip_prefix("unix:") {
            return Ok(Socket::Unix(UnixStream::connect(path)?));
        }
        let address = address.strip_prefix("tcp:").unwrap_or(&address);
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        Ok(Socket::Tcp(socket))
    }
}

impl Pair {
    fn pump(&self, to: usize) {
        let mut bytes = vec![0; CHUNK_BYTES];
        loop {
            let count = match self.sockets[1 - to].read(&mut bytes) {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            self.wait(to);
            if self.sockets[to].write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        self.wait(to);
        let _ = self.sockets[to].shutdown(Shutdown::Write);
    }

    /// Until the bytes may go on.
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
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        Ok(match self {
            Self::Unix(listener) => Socket::Unix(listener.accept()?.0),
            Self::Tcp(listener) => {
                let socket = listener.accept()?.0;
                socket.set_nodelay(true)?;
                Socket::Tcp(socket)
            }
        })
    }

    /// Has `accept` fail.
    fn end(&self, _address: &str) {
        let descriptor: &dyn std::os::fd::AsFd = match self {
            Self::Unix(listener) => listener,
            Self::Tcp(listener) => listener,
        };
        // A listening socket that is shut down wakes whoever waits in accept.
        let copy = descriptor.as_fd().try_clone_to_owned().unwrap();
        let _ = UnixStream::from(copy).shutdown(Shutdown::Both);
    }
}

impl Socket {
    fn read(&self, bytes: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Unix(socket) => (&*socket).read(bytes),
            Self::Tcp(socket) => (&*socket).read(bytes),
        }
    }

    fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(socket) => (&*socket).write_all(bytes),
            Self::Tcp(socket) => (&*socket).write_all(bytes),
        }
    }

    fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match self {
            Self::Unix(socket) => socket.shutdown(how),
            Self::Tcp(socket) => socket.shutdown(how),
        }
    }
}

/// Small, so that a delay comes between the bytes of a record, too.
const CHUNK_BYTES: usize = 1500;
