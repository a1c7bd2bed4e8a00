// SPDX-License-Identifier: MIT OR Apache-2.0
//! Helpers for the tests of `partywall proxy`: two proxies with shared memory between them, and
//! programs with plain sockets at both ends.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{ChildStderr, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::program::{Running, TIMEOUT, announced, partywall};

/// A running `partywall proxy`.
pub struct Proxy {
    pub process: Running,
    /// The address of the proxy's listener.
    pub address: String,
    /// The proxy's stderr. Its first line, with the address of the listener, has been read already.
    pub stderr: BufReader<ChildStderr>,
}

impl Proxy {
    pub fn start(listen: &str, to: &str, options: &[&str]) -> Self {
        let arguments = [&["proxy", "--listen", listen, "--to", to], options].concat();
        let mut process = Running::start(&mut partywall(&arguments));
        let mut stderr = BufReader::new(process.0.stderr.take().expect("piped"));
        let address = announced(&mut stderr);
        Self { process, address, stderr }
    }

    /// Sends a signal, such as `TERM`, to the proxy.
    pub fn signal(&self, name: &str) {
        signal(&self.process, name);
    }

    /// Waits until the proxy has ended; returns its exit code and the rest of its stderr.
    pub fn finish(mut self) -> (i32, String) {
        let code = self.process.code();
        let mut printed = String::new();
        self.stderr.read_to_string(&mut printed).unwrap();
        (code, printed)
    }
}

/// Sends a signal, such as `TERM`, to a process.
pub fn signal(process: &Running, name: &str) {
    let command = format!("kill -{name} {}", process.0.id());
    assert!(Command::new("sh").args(["-c", &command]).status().unwrap().success());
}

/// Two running proxies: the entry proxy accepts plain sockets, and the exit proxy connects to the
/// server. The field `directory` is the directory of their socket files.
pub struct Pair {
    pub directory: tempfile::TempDir,
    pub entry: Proxy,
    pub exit: Proxy,
}

impl Pair {
    /// Starts two proxies: the entry proxy accepts plain sockets at `listen`, and the exit proxy
    /// connects each of them to the server at `to`.
    pub fn start(listen: &str, to: &str, options: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let shm = format!("unix:{}/shm.sock", directory.path().display());
        let exit = Proxy::start(&shm, to, options);
        let entry = Proxy::start(listen, &shm, options);
        Self { directory, entry, exit }
    }

    /// Starts two proxies between Unix sockets: clients connect to the socket file `front`, and the
    /// exit proxy connects to the server at `back`.
    pub fn unix(front: &Path, back: &Path, options: &[&str]) -> Self {
        let plain = |path: &Path| format!("plain:unix:{}", path.display());
        Self::start(&plain(front), &plain(back), options)
    }

    /// Starts two proxies between TCP sockets: clients connect over TCP, and the exit proxy
    /// connects to the TCP server `to`.
    pub fn tcp(to: &TcpListener, options: &[&str]) -> Self {
        Self::start("tcp:127.0.0.1:0", &address_of(to), options)
    }

    /// Connects a client to the listener of the entry proxy.
    pub fn connect(&self) -> TcpStream {
        connect(&self.entry.address)
    }
}

/// Connects a client to the address `tcp:…`, with a time-out for each call.
pub fn connect(address: &str) -> TcpStream {
    with_timeouts(TcpStream::connect(address.strip_prefix("tcp:").expect("tcp:")).unwrap())
}

/// Accepts the next connection of the listener, with a time-out for each later call.
pub fn accept(listener: &TcpListener) -> TcpStream {
    with_timeouts(listener.accept().unwrap().0)
}

fn with_timeouts(socket: TcpStream) -> TcpStream {
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(TIMEOUT)).unwrap();
    socket
}

pub fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

pub fn address_of(listener: &TcpListener) -> String {
    format!("tcp:{}", listener.local_addr().unwrap())
}

/// A plain socket, TCP or Unix, so that helpers work with both kinds.
pub trait Socket: Read + Write + Send + Sized + 'static {
    fn duplicate(&self) -> Self;
    fn end(&self);
}

impl Socket for TcpStream {
    fn duplicate(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

impl Socket for UnixStream {
    fn duplicate(&self) -> Self {
        self.try_clone().unwrap()
    }

    fn end(&self) {
        self.shutdown(Shutdown::Write).unwrap();
    }
}

/// A server that echoes all bytes until the client closes its writing direction.
fn echo(mut socket: impl Socket) {
    let mut back = socket.duplicate();
    // The copy fails if the client resets the connection. That is no error of this server.
    if io::copy(&mut socket, &mut back).is_ok() {
        let _ = back.flush();
    }
}

/// Starts a TCP server that echoes each connection in a thread.
pub fn echo_tcp() -> TcpListener {
    let listener = listen();
    let accepting = listener.try_clone().unwrap();
    thread::spawn(move || {
        for socket in accepting.incoming() {
            let socket = socket.unwrap();
            thread::spawn(move || echo(socket));
        }
    });
    listener
}

/// Starts a server at the socket file `path` that echoes each connection in a thread.
pub fn echo_unix(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        for socket in listener.incoming() {
            let socket = socket.unwrap();
            thread::spawn(move || echo(socket));
        }
    });
}

/// Makes `len` bytes of test data. Each byte depends on its offset and on the seed, so that a
/// comparison detects a lost or misplaced byte.
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    let mut bytes: Vec<u8> = (0..len.div_ceil(8)).flat_map(|_| next()).collect();
    bytes.truncate(len);
    bytes
}

/// Writes the bytes, closes the writing direction, and asserts that the socket echoes the same
/// bytes.
pub fn round_trip(mut socket: impl Socket, bytes: &[u8]) {
    let (mut sending, copy) = (socket.duplicate(), bytes.to_vec());
    let sender = thread::spawn(move || {
        sending.write_all(&copy).unwrap();
        sending.end();
    });
    let mut back = Vec::new();
    socket.read_to_end(&mut back).unwrap();
    sender.join().unwrap();
    assert!(back == bytes, "{} bytes sent, {} received, or other bytes", bytes.len(), back.len());
}

/// Writes the bytes, and asserts that the socket echoes the same bytes; the connection stays open.
pub fn exchange(socket: &mut (impl Read + Write), bytes: &[u8]) {
    socket.write_all(bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    socket.read_exact(&mut back).unwrap();
    assert!(back == bytes);
}

/// Asserts that the connection was reset: a read fails, instead of returning the end of the stream.
pub fn assert_reset(socket: &mut TcpStream) {
    let read = io::copy(socket, &mut io::sink());
    assert_eq!(read.unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// Resets a connection: waits until the socket has unread bytes, and closes it, to which Linux
/// responds with a reset.
pub fn reset(socket: TcpStream) {
    let count = socket.peek(&mut [0]).expect("a byte to leave unread");
    assert_eq!(count, 1);
    drop(socket);
}

/// Waits until the condition `is_so` holds; panics with the text `what` after `TIMEOUT`.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}: not in time");
        thread::sleep(Duration::from_millis(2));
    }
}
