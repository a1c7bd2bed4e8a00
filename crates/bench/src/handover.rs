// SPDX-License-Identifier: MIT OR Apache-2.0
//! How one process gives descriptors to the other: over a Unix socket, once, before anything is measured.

use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_sys::{Listener, Socket, connect_unix_path};

use super::lane::Setup;

/// A socket file at which a process waits to be given descriptors.
pub struct HandoverDoor {
    listener: Listener,
    path: PathBuf,
}

impl HandoverDoor {
    /// Binds the socket file.
    pub fn bind(setup: &Setup) -> Result<Self> {
        let path = setup.directory.join("handover.sock");
        let listener = Listener::listen_unix_path(&path, 0o600, BACKLOG)?;
        Ok(Self { listener, path })
    }

    /// Where to connect.
    pub fn address(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits for the other process.
    pub fn accept(&self) -> Result<Socket> {
        let deadline = Instant::now() + ACCEPT_TIMEOUT;
        loop {
            let mut waiting = [PollFd::new(&self.listener, PollFlags::IN)];
            if poll::wait(&mut waiting, Some(deadline)).context("waiting for a handover")? == 0 {
                bail!("nobody came to hand over descriptors");
            }
            if let Some(socket) = self.listener.accept()? {
                return Ok(socket);
            }
        }
    }
}

/// Connects to a [`HandoverDoor`].
pub fn connect(address: &str) -> Result<Socket> {
    Ok(connect_unix_path(address, Some(Instant::now() + ACCEPT_TIMEOUT))?)
}

/// Gives copies of `descriptors` to the other process.
pub fn give(socket: &Socket, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let sent = socket.send(&[IoSlice::new(&[0])], descriptors, false, false);
    sent.map(drop).context("handing over descriptors")
}

/// Takes exactly `N` descriptors.
pub fn take<const N: usize>(socket: &Socket) -> Result<[OwnedFd; N]> {
    let taken = socket.receive(&mut [0], false).context("taking descriptors")?.fds;
    let count = taken.len();
    taken.try_into().map_err(|_| anyhow!("expected {N} descriptors, got {count}"))
}

/// One process comes, or a few threads of it.
const BACKLOG: i32 = 64;

/// The other process has been told to come and is on its way.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
