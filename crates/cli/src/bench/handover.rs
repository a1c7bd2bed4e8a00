// SPDX-License-Identifier: MIT OR Apache-2.0
//! How one process gives descriptors to the other: over a Unix socket, once, before anything is measured.

use std::fs;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

use super::lane::Setup;
use super::system;

/// A socket file at which a process waits to be given descriptors; removed when dropped.
pub struct HandoverDoor {
    listener: UnixListener,
    path: PathBuf,
}

impl HandoverDoor {
    /// Binds the socket file.
    pub fn bind(setup: &Setup) -> Result<Self> {
        let path = setup.directory.join("handover.sock");
        let listener =
            UnixListener::bind(&path).with_context(|| format!("binding {}", path.display()))?;
        Ok(Self { listener, path })
    }

    /// Where to connect.
    pub fn address(&self) -> String {
        self.path.display().to_string()
    }

    /// Waits for the other process.
    pub fn accept(&self) -> Result<UnixStream> {
        Ok(self.listener.accept().context("accepting a handover")?.0)
    }
}

impl Drop for HandoverDoor {
    fn drop(&mut self) {
        // The directory is removed at the end in any case; this only frees the name for the next round.
        let _ = fs::remove_file(&self.path);
    }
}

/// Connects to a [`HandoverDoor`].
pub fn connect(address: &str) -> Result<UnixStream> {
    UnixStream::connect(address).with_context(|| format!("connecting {address}"))
}

/// Gives copies of `descriptors` to the other process.
pub fn give(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    system::send_descriptors(socket, descriptors).context("handing over descriptors")
}

/// Takes exactly `N` descriptors.
pub fn take<const N: usize>(socket: &UnixStream) -> Result<[OwnedFd; N]> {
    let taken = system::receive_descriptors(socket).context("taking descriptors")?;
    let count = taken.len();
    taken.try_into().map_err(|_| anyhow!("expected {N} descriptors, got {count}"))
}
