// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux mechanisms that Partywall is built on, one file each.
//!
//! ```text
//!  memory      memfd.rs  our own region: created, allocated, mapped, sealed   ┐ both over
//!              map.rs    the peer's region: checked, mapped read-only         ┤ mapping.rs
//!              shared.rs memory that both processes write, for other protocols┘ shared_file.rs
//!  files       persistent_file.rs  outlive their process    byte_lock.rs  their locks
//!  doorbells   eventfd.rs   poll.rs   epoll.rs   timer.rs
//!  faults      sigbus.rs  survives the truncation of a mapped file
//!  sockets     socket.rs  bytes, descriptors, identity (over ancillary.rs, pass_pidfd.rs)
//!              connect.rs   listener.rs   socket_path.rs   activation.rs
//!  peers       peer.rs  credentials, pidfd, namespaces    fork.rs  detects a forked child
//!              instance.rs  identity of a process, and whether that process is dead
//!  threads     biased.rs  a mutex biased towards one thread
//!              asymmetric_mutex.rs  a mutex whose waiters pay for the barrier of its holder
//!  the host    clock.rs  cpu.rs  cgroup.rs  limits.rs  probe.rs  process.rs  procfs.rs  signal.rs
//!              mount.rs  descriptors of another process, opened without blocking
//! ```
//!
//! This crate does *not* know records, handshakes or policy. It starts no thread and changes no
//! process-wide setting. It installs no signal handler, with one exception: a caller that maps
//! memory its creator did not seal may ask for a guard ([`SharedMap::guard`]), which handles SIGBUS
//! (`sigbus.rs`).
//!
//! # Invariants
//!
//! - `unsafe` code is denied in this crate, except in the modules marked below. An audit reads
//!   these modules.
//! - Every descriptor is opened close-on-exec and is owned by exactly one value.
//! - Every call retries `EINTR`; a call with a deadline retries for the remaining time only.
//! - Descriptors and memory from a peer are checked before use. `is_violation()` of each error type
//!   says whether the peer broke the protocol or this process lacks a resource.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

#[allow(unsafe_code)] // borrows descriptors by number, as the environment names them
pub mod activation;
#[allow(unsafe_code)] // reads what recvmsg stored, and takes over the descriptors
mod ancillary;
#[allow(unsafe_code)] // references to the value that the mutex protects
pub mod asymmetric_mutex;
#[allow(unsafe_code)] // references to the value that the mutex protects
pub mod biased;
#[allow(unsafe_code)] // fcntl for open file description locks, which rustix lacks
pub mod byte_lock;
#[allow(unsafe_code)] // maps one page and refers to it for the life of the process
pub mod fork;
#[allow(unsafe_code)] // mmap, madvise, munmap, and slices over mapped memory
mod mapping;
#[allow(unsafe_code)] // one socket option, which rustix lacks
mod pass_pidfd;
#[allow(unsafe_code)] // one socket option, whose process id 0 rustix does not allow for
mod peer_credentials;
#[allow(unsafe_code)] // one ioctl
mod send_queue;
#[allow(unsafe_code)] // atomics and slices over memory that two processes write
pub mod shared;
#[allow(unsafe_code)] // sigaction, and mmap from its handler
pub mod sigbus;

pub mod barrier;
pub mod cgroup;
pub mod clock;
pub mod connect;
pub mod cpu;
pub mod epoll;
pub mod eventfd;
pub mod instance;
pub mod limits;
pub mod listener;
pub mod map;
pub mod memfd;
pub mod memory;
pub mod mount;
mod nonce;
pub mod peer;
pub mod persistent_file;
pub mod poll;
pub mod probe;
pub mod process;
mod procfs;
pub mod shared_file;
pub mod signal;
pub mod socket;
mod socket_path;
pub mod timer;

#[cfg(test)]
#[allow(dead_code, reason = "the test scaffolding, which uses this crate, owns the file")]
#[path = "../../testkit/src/error_numbers.rs"]
mod error_numbers;

pub use asymmetric_mutex::{AsymmetricMutex, AsymmetricMutexGuard};
pub use biased::{Biased, BiasedGuard};
pub use connect::{Begun, begin_tcp, begin_unix_abstract, begin_unix_path};
pub use connect::{ConnectError, connect_tcp, connect_unix_abstract, connect_unix_path};
pub use epoll::{EpollSet, Ready};
pub use eventfd::{Doorbell, DoorbellError};
pub use fork::ForkGuard;
pub use instance::{Instance, Liveness};
pub use listener::{AcceptError, BindError, Listener};
pub use map::{MapError, PeerMap};
pub use memfd::{MemfdError, OwnMap, SIZE_GRANULE};
pub use nonce::nonce;
pub use peer::{Credentials, PidFd, PidFdError};
pub use persistent_file::{FileMap, FileView, MakeError, PersistentDirectory, UnnamedFile};
pub use shared::{Area, Piece, Pieces, SharedMap};
pub use shared_file::{CreatedFile, FileIdentity, SharedFileError, SharedFileStat};
pub use socket::{FDS_MAX, Family, Received, Socket};
pub use timer::Timer;
