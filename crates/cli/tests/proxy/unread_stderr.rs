// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a proxy whose stderr is full and not read continues to carry connections, and still
//! ends after SIGTERM.

use crate::program;
use crate::proxied;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::Stdio;

use program::{Running, TIMEOUT, partywall, wait_until};
use proxied::{Proxy, echo_unix, exchange, pattern, signal};

/// An entry proxy whose stderr the test has filled before its start.
struct Fixture {
    _directory: tempfile::TempDir,
    exit: Proxy,
    entry: Running,
    front: PathBuf,
    /// The reading end of the proxy's stderr, which is a socket.
    stderr: UnixStream,
    filling: usize,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let (front, back, shm) = (path("front"), path("back"), path("shm"));
        echo_unix(&back);
        let shm = format!("unix:{}", shm.display());
        let exit = Proxy::start(&shm, &format!("plain:unix:{}", back.display()), &[]);
        let (stderr, theirs) = UnixStream::pair().unwrap();
        let filling = fill(&theirs);
        let listen = format!("plain:unix:{}", front.display());
        let arguments = ["proxy", "--listen", &listen, "--to", &shm, "--stats-every", "1ms"];
        let mut command = partywall(&[&arguments[..], &["--stats"]].concat());
        let entry = Running::start(command.stderr(Stdio::from(OwnedFd::from(theirs))));
        stderr.set_read_timeout(Some(TIMEOUT)).unwrap();
        Self { _directory: directory, exit, entry, front, stderr, filling }
    }

    /// Asserts that the entry proxy still accepts a connection and carries bytes in both
    /// directions.
    fn carries(&self) {
        let mut client = None;
        wait_until("the entry listens", || {
            client = UnixStream::connect(&self.front).ok();
            client.is_some()
        });
        let mut client = client.unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        for seed in 0..100 {
            exchange(&mut client, &pattern(10_000, seed));
        }
    }
}

/// Writes to the socket until it accepts no more bytes; returns how many it has accepted.
fn fill(mut socket: &UnixStream) -> usize {
    socket.set_nonblocking(true).unwrap();
    let mut total = 0;
    for size in [4096, 1] {
        loop {
            match socket.write(&[b'.'; 4096][..size]) {
                Ok(count) => total += count,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
    }
    socket.set_nonblocking(false).unwrap();
    total
}

#[test]
fn unread_output_waits_for_a_reader_and_blocks_no_connection() {
    let mut fixture = Fixture::new();
    fixture.carries();
    let mut filling = vec![0; fixture.filling];
    fixture.stderr.read_exact(&mut filling).unwrap();
    let mut lines = BufReader::new(&fixture.stderr).lines().map(Result::unwrap);
    let first = lines.next().unwrap();
    assert!(first.starts_with("listening on plain:unix:"), "{first}");
    let mut lines = lines.skip_while(|line| !line.contains("from plain"));
    assert!(lines.next().is_some_and(|line| line.contains(" open, ")));
    signal(&fixture.entry, "TERM");
    assert!(lines.any(|line| line.starts_with("sessions       1")), "the table comes last");
    assert_eq!(fixture.entry.code(), 0);
    drop(fixture.exit);
}

#[test]
fn proxy_with_unread_stderr_ends() {
    let mut fixture = Fixture::new();
    fixture.carries();
    signal(&fixture.entry, "TERM");
    assert_eq!(fixture.entry.code(), 0);
}
