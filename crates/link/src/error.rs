// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of links in use, one small enum per operation.
//!
//! A lost connection is no error: messages that were sent are kept, and the peer may come back.
//! Errors of files are in `store/error.rs`. An error text names its cause, so `source` returns
//! none.

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
    /// The link was closed in this process.
    #[error("the link was closed in this process: open it again")]
    Closed,
    /// A later owner of the same end has attached.
    #[error(
        "a later owner of this end has taken its place: find out who opened the same link, and let only one go on"
    )]
    Fenced,
    /// The two ends contradict each other.
    #[error(
        "the link is in quarantine, and keeps all bytes: look with `partywall link inspect`, and decide"
    )]
    Quarantined,
    /// This process is a forked child.
    #[error("this link belongs to the parent process: open another one after fork()")]
    Forked,
    /// A system call failed that should not.
    #[error("waiting failed: {0}")]
    System(Arc<io::Error>),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::System(Arc::new(error))
    }
}

/// Reason why a message was not sent. It will not arrive.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// There was no room before the deadline.
    #[error("no room came before the deadline: the peer has not acknowledged what was sent before")]
    TimedOut,
    /// The message exceeds what the link can ever keep.
    #[error(
        "a message of {len} bytes exceeds the {max} that this link can keep: raise Config::slab_bytes (of a new file)"
    )]
    TooLarge {
        /// Length of the message in bytes.
        len: u64,
        /// The longest possible message in bytes.
        max: u64,
    },
    /// A batch takes more than half the ring.
    #[error(
        "a batch of {len} bytes takes more than half the ring of this link: send it in parts, or raise \
         Config::ring_bytes (of a new file)"
    )]
    BatchTooLarge {
        /// Length of all its messages in bytes.
        len: u64,
    },
    /// The link takes no more messages.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a message was not sent at once.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// There is no room now: the peer has not acknowledged what was sent before.
    #[error("there is no room now")]
    Full,
    /// The message can never be sent.
    #[error(transparent)]
    Never(#[from] SendError),
}

/// Reason why no message was received.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// No message came before the deadline.
    #[error("no message came before the deadline")]
    TimedOut,
    /// The link delivers no more messages.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why no message was received at once.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// There is no message now.
    #[error("no message is there now")]
    Empty,
    /// The link delivers no more messages.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a message was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// A later message was acknowledged, and this one with it.
    #[error("the message is acknowledged already: a later one was acknowledged")]
    Consumed,
    /// Its epoch is over, and it is in the [reports](crate::Link::reports); or the link delivers
    /// again what was not acknowledged, as after [`rewind`](crate::Link::rewind), and the message
    /// comes again.
    #[error(
        "the message cannot be acknowledged any more: its epoch is over, and it is in the reports, or it will be received again"
    )]
    Stale,
    /// The link cannot be used any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a reply was not sent, and its request not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The request cannot be acknowledged.
    #[error(transparent)]
    Ack(#[from] AckError),
    /// The reply cannot be sent.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Reason why a wait ended without its event.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed first.
    #[error("not before the deadline{}{last}", if last.is_empty() { "" } else { "; the last attempt to attach: " })]
    TimedOut {
        /// Result of the last attempt to attach; empty if there was none, or it succeeded.
        last: String,
    },
    /// The event cannot come any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a link does not switch to another address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The text is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// This is a server's end; only a client can switch.
    #[error(
        "this is the server's end of the link: its client goes over, to any address of Server::listen_also"
    )]
    Served,
    /// The link cannot be used any more.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A setting is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Config::{setting} is {found}, but must be {wanted}")]
pub struct ConfigError {
    /// Name of the setting.
    pub setting: &'static str,
    /// Value of the setting.
    pub found: u64,
    /// The values that are possible.
    pub wanted: &'static str,
}

/// Reason why a link was not opened.
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
    /// The application has a handle of this link already.
    #[error("this link of the server is in use: use the handle that there is, or drop it first")]
    AlreadyOpen,
    /// The server has as many links as it may.
    #[error("the server has {0} links, as many as it may: close some, or raise Config::links_max")]
    TooMany(usize),
    /// The memory of the link contradicts itself.
    #[error("the link cannot continue: {0}")]
    Damaged(String),
    /// No descriptors are left for waiting.
    #[error("waiting cannot be set up: {0}")]
    Setup(io::Error),
    /// This process is a forked child.
    #[error("this server or client belongs to the parent process: make another one after fork()")]
    Forked,
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Setup(error)
    }
}

/// Reason why a server was not made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The server's name is not possible.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A setting is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text is no address, or its host name cannot be resolved.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The directory cannot hold links.
    #[error(transparent)]
    Directory(#[from] StorageError),
    /// Other hosts can reach the address, and the configuration does not allow that.
    #[error(
        "{address} can be reached from other hosts, and TCP is not encrypted: bind a loopback address, or say \
         Config::allow_remote(true)"
    )]
    NotLoopback {
        /// The address that was refused.
        address: String,
    },
    /// TCP does not identify clients, and the configuration does not allow anonymous ones.
    #[error(
        "over TCP nobody can tell who comes to {address}: say Config::on_login to judge what clients send, or \
         Config::allow_anonymous_tcp(true)"
    )]
    Anonymous {
        /// The address that was refused.
        address: String,
    },
    /// The system does not allow it.
    #[error(transparent)]
    System(#[from] partywall_sys::BindError),
    /// No descriptors are left for waiting.
    #[error("waiting cannot be set up: {0}")]
    Setup(io::Error),
    /// This process is a forked child.
    #[error("this server belongs to the parent process: bind another one after fork()")]
    Forked,
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Setup(error)
    }
}

/// Reason why no link was accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No link was attached before the deadline.
    #[error("no link was attached before the deadline")]
    TimedOut,
    /// A system call for waiting failed.
    #[error("waiting failed: {0}")]
    Wait(io::Error),
    /// This process is a forked child.
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

/// A message that was not taken, for a caller that may wait.
pub(super) enum Refused {
    /// There may be room later.
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
