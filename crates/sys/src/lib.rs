// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Linux mechanisms Partywall stands on, one file each.
//!
//! ```text
//!  memory      memfd.rs  our half: made, allocated, mapped, sealed        ┐ both over
//!              map.rs    the neighbour's half: checked, mapped read-only  ┤ mapping.rs
//!              shared.rs memory that both write, for older protocols      ┘ shared_file.rs
//!              kept_file.rs  files that outlive their process     byte_lock.rs  who owns them
//!  bells       eventfd.rs   poll.rs   epoll.rs   timer.rs
//!  faults      sigbus.rs  memory that was truncated under us
//!  sockets     socket.rs  bytes, descriptors, credentials (over ancillary.rs, send_queue.rs)
//!              connect.rs   listener.rs   socket_path.rs
//!  neighbours  peer.rs  credentials, pidfd, namespaces    fork.rs  are we a forked child?
//!              instance.rs  a process in numbers, and whether it is dead for certain
//!  threads     biased.rs  a lock for a value that one thread has mostly
//!  the host    clock.rs   cpu.rs   cgroup.rs   limits.rs   probe.rs   process.rs   procfs.rs   signal.rs
//! ```
//!
//! What this crate does *not* do: it knows no ring, no record, no handshake and no policy. It starts no
//! thread and changes no process-wide setting. It installs no signal handler, with one exception: who maps memory
//! that its maker did not seal may ask for a guard ([`SharedMap::guard`]), and then SIGBUS is handled (`sigbus.rs`).
//!
//! # Invariants
//!
//! - `unsafe` is denied here and allowed in the modules marked below: that list is the audit.
//! - Every descriptor is opened close-on-exec and is owned by exactly one value.
//! - `EINTR` is retried everywhere, with the time that is left where there is a deadline.
//! - What a peer handed over is checked before it is used; each error type says by `is_violation()`
//!   whether the peer broke the rules or this process merely lacks something.

#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![deny(unsafe_code)]
#![cfg(target_os = "linux")]

#[allow(unsafe_code)] // reads what recvmsg stored and takes ownership of the descriptors in it
mod ancillary;
#[allow(unsafe_code)] // a lock's own: references to the value
pub mod biased;
#[allow(unsafe_code)] // fcntl for locks of descriptions, which rustix does not have
pub mod byte_lock;
#[allow(unsafe_code)] // maps one page and refers to it for the life of the process
pub mod fork;
#[allow(unsafe_code)] // mmap, madvise, munmap, and slices over what was mapped
mod mapping;
#[allow(unsafe_code)] // one ioctl
mod send_queue;
#[allow(unsafe_code)] // atomics and slices over memory that two processes write
pub mod shared;
#[allow(unsafe_code)] // sigaction, and mmap from its handler
pub mod sigbus;

pub mod cgroup;
pub mod clock;
pub mod connect;
pub mod cpu;
pub mod epoll;
pub mod eventfd;
pub mod instance;
pub mod kept_file;
pub mod limits;
pub mod listener;
pub mod map;
pub mod memfd;
pub mod peer;
pub mod poll;
pub mod probe;
pub mod process;
mod procfs;
pub mod shared_file;
pub mod signal;
pub mod socket;
mod socket_path;
pub mod timer;

pub use biased::{Biased, BiasedGuard};
pub use connect::{Begun, begin_tcp, begin_unix_abstract, begin_unix_path};
pub use connect::{ConnectError, connect_tcp, connect_unix_abstract, connect_unix_path};
pub use epoll::{EpollSet, Ready};
pub use eventfd::{Doorbell, DoorbellError};
pub use fork::ForkGuard;
pub use instance::{Instance, Liveness};
pub use kept_file::{FileMap, FileView, KeptDirectory, MakeError, UnnamedFile};
pub use listener::{AcceptError, BindError, Listener};
pub use map::{MapError, PeerMap};
pub use memfd::{MemfdError, OwnMap, SIZE_GRANULE};
pub use peer::{Credentials, PidFd, PidFdError};
pub use shared::{Area, Piece, Pieces, SharedMap};
pub use shared_file::{CreatedFile, FileFacts, FileIdentity, SharedFileError};
pub use socket::{FDS_MAX, Family, Received, Socket};
pub use timer::Timer;
