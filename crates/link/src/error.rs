// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a link in use, one small enum per operation.
//!
//! A lost connection is none of it: what was sent is kept, and what is waited for may still come. What can be wrong with
//! files is in `error.rs`.

use std::io;
use std::sync::Arc;

use super::link_state::{AckFault, SendFault};
use super::store::KeyError;
use super::store::StorageError;
use partywall::AddressError;

/// The link does nothing more in this process.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// It was closed here.
    #[error("the link was closed in this process: open it again")]
    Closed,
    /// A later owner of the same end was here.
    #[error(
        "a later owner of this end has taken its place: find out who opened the same link, and let only one go on"
    )]
    Fenced,
    /// What both ends know contradicts itself.
    #[error(
        "the link is in quarantine, and keeps all bytes: look with `partywall link inspect`, and decide"
    )]
    Quarantined,
    /// This is a forked child.
    #[error("this link belongs to the parent process: open another one after fork()")]
    Forked,
    /// The system failed where it has no reason to.
    #[error("waiting failed: {0}")]
    System(Arc<io::Error>),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::System(Arc::new(error))
    }
}

/// Why a message was not sent. It will not arrive.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The deadline came before there was room.
    #[error("no room came before the deadline: the peer has not consumed what was sent before")]
    TimedOut,
    /// It never fits.
    #[error(
        "a message of {len} bytes exceeds the {max} that this link can keep: raise Config::slab_bytes (of a new file)"
    )]
    TooLarge {
        /// Length of the message in bytes.
        len: u64,
        /// The longest possible, in bytes.
        max: u64,
    },
    /// A batch takes more than half the ring.
    #[error(
        "a batch of {len} bytes takes more than half the ring of this link: publish it in parts, or raise \
         Config::ring_bytes (of a new file)"
    )]
    BatchTooLarge {
        /// Bytes of all its messages.
        len: u64,
    },
    /// The link takes no more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a message was not sent at once.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// There is no room now: the peer has not consumed what was sent before.
    #[error("there is no room now")]
    Full,
    /// It never will be.
    #[error(transparent)]
    Never(#[from] SendError),
}

/// Why no message was received.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The deadline came before one.
    #[error("no message came before the deadline")]
    TimedOut,
    /// None will come any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why no message was received at once.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// None is there now.
    #[error("no message is there now")]
    Empty,
    /// None will come any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a message was not committed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// A later message was committed, and this one with it.
    #[error("the message is consumed already: a later one was committed")]
    Consumed,
    /// Its epoch is over, and it is in the [reports](super::Link::reports); or the link hands out again what was not committed, as after
    /// [`rewind`](super::Link::rewind), and it comes again.
    #[error(
        "the message does not wait to be committed any more: its epoch is over, and it is in the reports, or it will be received again"
    )]
    Stale,
    /// The link is of no further use here.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a reply was not sent, and what it answers not committed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// What it answers cannot be committed.
    #[error(transparent)]
    Commit(#[from] AckError),
    /// It cannot be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Why it did not come to what was waited for.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline came first.
    #[error("not before the deadline{}{last}", if last.is_empty() { "" } else { "; the last attempt to attach: " })]
    TimedOut {
        /// What came of the last attempt to attach; empty if there was none, or it succeeded.
        last: String,
    },
    /// It never will.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Why a link does not go over to another address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// It is the end of a server, which is found by its clients.
    #[error(
        "this is the server's end of the link: its client goes over, to any address of Server::listen_also"
    )]
    Served,
    /// The link is of no further use here.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A setting that is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Config::{setting} is {found}, but must be {wanted}")]
pub struct ConfigError {
    /// Which.
    pub setting: &'static str,
    /// What it is.
    pub found: u64,
    /// What it must be.
    pub wanted: &'static str,
}

/// Why a link was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A name is not possible.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A setting is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The file was not opened.
    #[error(transparent)]
    File(#[from] StorageError),
    /// The application has this link of the server.
    #[error("this link of the server is in use: use the handle that there is, or drop it first")]
    AlreadyOpen,
    /// The server has as many links as it may.
    #[error("the server has {0} links, as many as it may: close some, or raise Config::links_max")]
    TooMany(usize),
    /// What is in its memory contradicts itself.
    #[error("the link cannot continue: {0}")]
    Damaged(String),
    /// Descriptors to wait with could not be had.
    #[error("waiting cannot be set up: {0}")]
    Setup(io::Error),
    /// This is a forked child.
    #[error("this server or client belongs to the parent process: make another one after fork()")]
    Forked,
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Setup(error)
    }
}

/// Why no server is there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The server's name is not possible.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A setting is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text is no address, or leads nowhere.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The directory is not one for links.
    #[error(transparent)]
    Directory(#[from] StorageError),
    /// The address can be reached from other hosts, and nobody said that this is wanted.
    #[error(
        "{address} can be reached from other hosts, and TCP is not encrypted: bind a loopback address, or say \
         Config::allow_remote(true)"
    )]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// Over TCP nobody can tell who a client is, and nobody said that this does not matter.
    #[error(
        "over TCP nobody can tell who comes to {address}: say Config::on_login to judge what clients send, or \
         Config::allow_anonymous_tcp(true)"
    )]
    Anonymous {
        /// The address.
        address: String,
    },
    /// The system does not allow it.
    #[error(transparent)]
    System(#[from] partywall_sys::BindError),
    /// Descriptors to wait with could not be had.
    #[error("waiting cannot be set up: {0}")]
    Setup(io::Error),
    /// This is a forked child.
    #[error("this server belongs to the parent process: bind another one after fork()")]
    Forked,
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Setup(error)
    }
}

/// Why no link was accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The deadline came before a link was attached.
    #[error("no link was attached before the deadline")]
    TimedOut,
    /// Waiting failed.
    #[error("waiting failed: {0}")]
    Wait(io::Error),
    /// This is a forked child.
    #[error("this server belongs to the parent process: bind another one after fork()")]
    Forked,
}

impl From<io::Error> for AcceptError {
    fn from(error: io::Error) -> Self {
        Self::Wait(error)
    }
}

impl From<AckFault> for AckError {
    fn from(error: AckFault) -> Self {
        match error {
            AckFault::Consumed => Self::Consumed,
            AckFault::Stale => Self::Stale,
        }
    }
}

/// What a message that is not taken means for one who may wait.
pub(super) enum Refused {
    /// Later, perhaps.
    Full,
    Never(SendError),
}

impl Refused {
    pub(super) fn new(fault: SendFault, len: u64, stopped: impl FnOnce() -> Stopped) -> Self {
        match fault {
            SendFault::Full => Self::Full,
            SendFault::TooLarge { max } => {
                Self::Never(SendError::TooLarge { len, max: max as u64 })
            }
            SendFault::BatchFull => Self::Never(SendError::BatchTooLarge { len }),
            SendFault::Stopped => Self::Never(SendError::Stopped(stopped())),
        }
    }
}
