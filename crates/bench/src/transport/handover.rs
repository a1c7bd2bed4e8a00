// SPDX-License-Identifier: MIT OR Apache-2.0
//! Passes the descriptors of pipes, eventfds and memory between the two processes over a Unix
//! socket, before the measurement.

use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Listener, Socket, connect_unix_path};

use crate::harness::workspace::Setup;

/// A socket file at which the child waits for descriptors.
pub struct HandoverListener {
    listener: Listener,
    path: PathBuf,
}

impl HandoverListener {
    /// Binds a socket file for the handover that no other measurement uses.
    pub fn bind(setup: &Setup) -> Result<Self> {
        let path = setup.path("handover");
        let listener = Listener::listen_unix_path(&path, 0o600, BACKLOG)?;
        Ok(Self { listener, path })
    }

    /// The path of the bound socket file, to which the parent process connects.
    pub fn address(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits until the parent process connects to the socket file.
    pub fn accept(&self) -> Result<Socket> {
        let deadline = Instant::now() + ACCEPT_TIMEOUT;
        loop {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            if poll::wait(&mut waiting, Some(deadline)).context("waiting for descriptors")? == 0 {
                bail!("the other process did not connect to pass descriptors");
            }
            if let Some(socket) = self.listener.accept()? {
                return Ok(socket);
            }
        }
    }
}

/// Connects to the socket file at `address`, at which the child process waits for descriptors
/// ([`HandoverListener`]).
pub fn connect(address: &str) -> Result<Socket> {
    Ok(connect_unix_path(address, Some(Instant::now() + ACCEPT_TIMEOUT))?)
}

/// Sends duplicates of `descriptors` to the other process, over the socket.
pub fn send(socket: &Socket, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let sent = socket.send(&[IoSlice::new(&[0])], descriptors, false, false);
    sent.map(drop).context("sending descriptors")
}

/// Receives exactly `N` descriptors that the other process sends over the socket.
pub fn receive<const N: usize>(socket: &Socket) -> Result<[OwnedFd; N]> {
    let received = socket.receive(&mut [0], false).context("receiving descriptors")?.fds;
    let count = received.len();
    received.try_into().map_err(|_| anyhow!("expected {N} descriptors, got {count}"))
}

/// Length of the listen backlog. It exceeds the number of threads of one parent process that
/// connect at once, so that no attempt to connect fails because the backlog is full.
const BACKLOG: i32 = 64;

/// Maximum time that the child process waits for the parent, which connects to the socket file as
/// soon as it knows the address.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
