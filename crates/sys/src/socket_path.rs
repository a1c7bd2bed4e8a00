// SPDX-License-Identifier: MIT OR Apache-2.0
//! The path of a listening Unix socket: claimed, replaced if stale, and removed by its owner.
//!
//! ```text
//!   lock the directory ─► bind ──ok────────────────────► mode, listen, record dev + inode, unlock
//!                           └─EADDRINUSE─► connect to it
//!                                            accepted or full ─► AddressInUse
//!                                            refused ──────────► a socket? ─no─► NotASocket
//!                                                                   └─yes─► unlink, bind again
//! ```
//!
//! The attempt to connect shows whether the socket at the path is stale. A live listener accepts
//! that connection like any other, and reads the connection's end at once.
//!
//! This process holds the lock (`flock` on the directory) until it listens. Between `bind` and
//! `listen` a socket refuses connections like a stale one, so without the lock another process
//! could replace it.
//!
//! # Invariants
//!
//! - Only a socket that refuses connections is ever unlinked to make room.
//! - Only the process that claimed the path removes the file, and only while the path names the
//!   same file. The listening socket keeps the inode in use, so the inode's number cannot have been
//!   reused.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::fs::{chmod, fchmod, flock, fstat, lstat, open, unlink};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

use crate::fork::ForkGuard;
use crate::listener::BindError;

/// A path that a listening socket of this process has claimed.
#[derive(Debug)]
pub(crate) struct SocketPath {
    path: PathBuf,
    device: u64,
    inode: u64,
    owner: ForkGuard,
}

impl SocketPath {
    /// Binds the socket `fd` to `path` with permission bits `mode`, and makes the socket listen.
    pub(crate) fn listen(
        fd: &OwnedFd,
        path: &Path,
        mode: u32,
        backlog: i32,
    ) -> Result<SocketPath, BindError> {
        let fail = |errno| BindError::explain(&format!("unix:{}", path.display()), errno);
        let address = SocketAddrUnix::new(path).map_err(fail)?;
        let mode = Mode::from_bits_truncate(mode & 0o777);
        // The mode is set before bind, so that the socket file never exists with wider permissions.
        fchmod(fd, mode).map_err(fail)?;
        let lock = lock_directory(path);
        bind_or_replace(fd, path, &address, &lock)?;
        let stat = lstat(path).map_err(fail)?;
        let taken = SocketPath {
            path: path.to_owned(),
            device: stat.st_dev,
            inode: stat.st_ino,
            owner: ForkGuard::current(),
        };
        let listening = widen(path, &stat, mode)
            .and_then(|()| rustix::net::listen(fd, backlog).map_err(io::Error::from));
        if let Err(source) = listening {
            taken.remove();
            return Err(BindError::Other { to: format!("unix:{}", path.display()), source });
        }
        Ok(taken)
    }

    /// Removes the socket file, if this process created the file and the path still names it. The
    /// caller must still have the listening socket open: it keeps the inode's number from being
    /// reused.
    pub(crate) fn remove(&self) {
        if self.owner.is_owner() && lstat(&self.path).is_ok_and(|stat| self.is_same(&stat)) {
            // An error of the removal is ignored, because the next listener finds that the socket
            // file is stale, and replaces it.
            let _ = unlink(&self.path);
        }
    }

    fn is_same(&self, stat: &Stat) -> bool {
        stat.st_dev == self.device && stat.st_ino == self.inode
    }
}

fn bind_or_replace(
    fd: &OwnedFd,
    path: &Path,
    address: &SocketAddrUnix,
    lock: &Lock,
) -> Result<(), BindError> {
    let to = || format!("unix:{}", path.display());
    for _ in 0..BIND_ATTEMPTS_MAX {
        match rustix::net::bind(fd, address) {
            Ok(()) => return Ok(()),
            Err(Errno::ADDRINUSE) => {}
            Err(errno) => return Err(BindError::explain(&to(), errno)),
        }
        match occupant(path, address).map_err(|errno| BindError::explain(&to(), errno))? {
            Occupant::Nobody => continue,
            Occupant::Listener => return Err(BindError::AddressInUse { to: to() }),
            Occupant::OtherFile => return Err(BindError::NotASocket { path: path.to_owned() }),
            Occupant::StaleSocket => {}
        }
        if matches!(lock, Lock::Busy) {
            return Err(BindError::Locked { path: path.to_owned() });
        }
        match unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(BindError::explain(&to(), errno)),
        }
    }
    Err(BindError::AddressInUse { to: to() })
}

/// The kind of file or socket that occupies a path to which the new socket could not be bound.
enum Occupant {
    Nobody,
    Listener,
    StaleSocket,
    OtherFile,
}

fn occupant(path: &Path, address: &SocketAddrUnix) -> Result<Occupant, Errno> {
    match lstat(path) {
        Err(Errno::NOENT) => return Ok(Occupant::Nobody),
        Err(errno) => return Err(errno),
        // A symbolic link counts as another file: bind does not follow it, so neither does this
        // function.
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) != FileType::Socket => {
            return Ok(Occupant::OtherFile);
        }
        Ok(_) => {}
    }
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    match rustix::net::connect(&probe, address) {
        Err(Errno::CONNREFUSED) => Ok(Occupant::StaleSocket),
        Err(Errno::NOENT) => Ok(Occupant::Nobody),
        Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => Err(errno),
        // The socket at the path is live: connecting to it succeeded, or failed with an error that
        // only a live socket returns: backlog full (EAGAIN), another socket type (EPROTOTYPE), no
        // permission (EACCES).
        _ => Ok(Occupant::Listener),
    }
}

/// The result of locking the directory of the socket file.
enum Lock {
    /// This process holds the lock of the directory until the value is dropped.
    Held(#[expect(dead_code, reason = "closing it unlocks")] OwnedFd),
    /// The directory of the socket file is not readable, so no process with the same rights can
    /// lock it either.
    Impossible,
    /// Another process has held the lock of the directory for longer than this process waits.
    Busy,
}

fn lock_directory(path: &Path) -> Lock {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = open(parent, flags, Mode::empty()) else { return Lock::Impossible };
    for attempt in 0..LOCK_ATTEMPTS_MAX {
        if attempt > 0 {
            thread::sleep(LOCK_RETRY_INTERVAL);
        }
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Lock::Held(directory),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return Lock::Impossible, // a file system without locks
        }
    }
    Lock::Busy
}

/// Adds to the socket file the permission bits that the umask removed. The change goes through a
/// descriptor of the file, so that no other process can redirect the change to another file.
fn widen(path: &Path, stat: &Stat, mode: Mode) -> io::Result<()> {
    if Mode::from_raw_mode(stat.st_mode) == mode {
        return Ok(());
    }
    let file = rustix::fs::openat(CWD, path, PATH_ONLY, Mode::empty())?;
    let opened = fstat(&file)?;
    if (opened.st_dev, opened.st_ino) != (stat.st_dev, stat.st_ino) {
        return Err(io::Error::other("the socket file was replaced while we made it"));
    }
    let by_descriptor = format!("/proc/thread-self/fd/{}", file.as_fd().as_raw_fd());
    // The permissions are changed through /proc. Without /proc the socket file has fewer
    // permissions than requested, so this function fails.
    if fs::symlink_metadata(&by_descriptor).is_err() {
        return Err(io::Error::other(
            "the umask narrows the mode, and /proc is not mounted to widen it",
        ));
    }
    Ok(chmod(by_descriptor, mode)?)
}

const PATH_ONLY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Upper bound of the attempts to bind the path, which other processes may claim and release
/// meanwhile.
const BIND_ATTEMPTS_MAX: u32 = 4;

/// Upper bound of the attempts to lock the directory: with [`LOCK_RETRY_INTERVAL`] between them
/// they take one second. A process holds the lock for microseconds.
const LOCK_ATTEMPTS_MAX: u32 = 100;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);
