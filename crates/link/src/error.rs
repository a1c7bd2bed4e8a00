// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of open links, one small enum per operation.
//!
//! A lost connection is no error: the link keeps sent messages, and the peer may reconnect. Errors
//! of link files are in `store/error.rs`. An error text already contains its cause, so `source`
//! returns `None`.

use std::io;
use std::sync::Arc;

use super::link_state::{AckFault, SendFault};
use super::store::KeyError;
use super::store::StorageError;
use partywall::AddressError;

/// Reason why a link has stopped in this process: it sends and delivers no further messages.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Stopped {
    /// This process closed the link.
    #[error("the link was closed in this process: open it again")]
    Closed,
    /// A later owner of this end of the link has attached to the peer, so this process has lost the
    /// link.
    #[error(
        "a later owner of this end has taken its place: find out who opened the same link, and let only one go on"
    )]
    Fenced,
    /// The files of the two ends contradict each other, so the link is in quarantine: it keeps all
    /// bytes until an operator decides.
    #[error(
        "the link is in quarantine, and keeps all bytes: look with `partywall link inspect`, and decide"
    )]
    Quarantined,
    /// This process is a forked child of the process that opened the link, and only the parent may
    /// use it.
    #[error("this link belongs to the parent process: open another one after fork()")]
    Forked,
    /// A system call that the link needs failed unexpectedly.
    #[error("waiting failed: {0}")]
    System(Arc<io::Error>),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::System(Arc::new(error))
    }
}

/// Reason why a message was not sent. The peer will not receive the message.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The deadline passed before the link's ring or slab had room for the message.
    #[error("no room came before the deadline: the peer has not acknowledged what was sent before")]
    TimedOut,
    /// The message is longer than the longest message that the link's ring and slab can keep.
    #[error(
        "a message of {len} bytes exceeds the {max} that this link can keep: raise Config::slab_bytes (of a new file)"
    )]
    TooLarge {
        /// Length in bytes of the message that was not sent.
        len: u64,
        /// Length in bytes of the longest message that the link can keep.
        max: u64,
    },
    /// The batch of messages takes more than half the link's ring.
    #[error(
        "a batch of {len} bytes takes more than half the ring of this link: send it in parts, or raise \
         Config::ring_bytes (of a new file)"
    )]
    BatchTooLarge {
        /// Total length in bytes of the messages of the batch.
        len: u64,
    },
    /// The link has stopped and accepts no further messages, for the reason in the field.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a message was not sent at once, by a call that does not wait for room.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// The link's ring or slab has no room at the moment, because the peer has not acknowledged
    /// earlier messages.
    #[error("there is no room now")]
    Full,
    /// The message can never be sent, for the reason in the field; trying again does not help.
    #[error(transparent)]
    Never(#[from] SendError),
}

/// Reason why no message was received. A peer that is gone or cannot be reached is no reason: the
/// link waits for the peer.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The deadline passed before a message arrived.
    #[error("no message came before the deadline")]
    TimedOut,
    /// The link delivers no more messages, for the reason given.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why no message was received at once, by a call that does not wait for one.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// No further message has arrived yet.
    #[error("no message is there now")]
    Empty,
    /// The link delivers no more messages, for the reason given.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a message was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AckError {
    /// A later message was already acknowledged, which acknowledged this message too.
    #[error("the message is acknowledged already: a later one was acknowledged")]
    Consumed,
    /// The message belongs to a past epoch, and is in the [reports](crate::Link::reports). Or the
    /// link delivers unacknowledged messages again, as after [`rewind`](crate::Link::rewind), and
    /// this message will be received again.
    #[error(
        "the message cannot be acknowledged any more: its epoch is over, and it is in the reports, or it will be received again"
    )]
    Stale,
    /// The link does nothing more in this process, for the reason given.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// Reason why a reply was not sent. The message to which it replies was then not acknowledged
/// either.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The message that the reply answers cannot be acknowledged, for the reason in the field.
    #[error(transparent)]
    Ack(#[from] AckError),
    /// The reply cannot be sent, for the reason given.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// Reason why a wait ended before the awaited event happened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed before the awaited event happened.
    #[error(
        "{link}: {awaited}{}{last}",
        if last.is_empty() { "" } else { "; the last attempt to attach: " }
    )]
    TimedOut {
        /// The event that was awaited; its text says what to do.
        awaited: Awaited,
        /// A description of the link: its name, and the names of both ends.
        link: String,
        /// Error text of the link's last attempt to attach. It is empty if there was no attempt, or
        /// if the last attempt succeeded.
        last: String,
    },
    /// The awaited event cannot happen any more, because the link has stopped for the reason in the
    /// field.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// The event of a link for which a call waited until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Awaited {
    /// The peer has acknowledged all messages.
    #[error(
        "the peer did not acknowledge all messages before the deadline: wait longer, and see by next_event \
         whether it is attached"
    )]
    Acked,
    /// All messages were given to the system, or to memory that the peer reads.
    #[error(
        "not all messages left this process before the deadline: wait longer, and see by next_event \
         whether the peer is attached"
    )]
    Sent,
    /// The link has a connection.
    #[error("the peer was not attached before the deadline: is it running, at the same address?")]
    Attached,
    /// An event of the link.
    #[error("the link had no event before the deadline")]
    Event,
    /// The link has sent all messages, the peer's system has confirmed their bytes, and the link is
    /// closed.
    #[error(
        "the peer's system did not confirm all messages before the deadline, and the link is closed: \
         a link in files keeps those that are not acknowledged until it is opened again"
    )]
    Closed,
}

/// Reason why a link does not switch to another address.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// The text that was given as the new address is no valid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The link is a server's end; only a client can switch to another address.
    #[error(
        "this is the server's end of the link: its client goes over, to any address of Server::listen_also"
    )]
    Served,
    /// The link does nothing more in this process, for the reason given.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// A setting of a [`Config`](crate::Config) has an impossible value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Config::{setting} is {found}, but must be {wanted}")]
pub struct ConfigError {
    /// Name of the setting, as in [`Config`](crate::Config).
    pub setting: &'static str,
    /// The value of the setting, which was rejected.
    pub found: u64,
    /// The values that the setting may have, in words.
    pub wanted: &'static str,
}

/// Reason why a link was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A name in the key of the link is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A setting of the configuration has an impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text that was given as the server's address is no valid address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The link file was not opened, for the reason in the field.
    #[error(transparent)]
    File(#[from] StorageError),
    /// This process already has a handle of the same link.
    #[error("this link of the server is in use: use the handle that there is, or drop it first")]
    AlreadyOpen,
    /// The server already has as many links as [`Config::links_max`](crate::Config::links_max)
    /// allows. The field is the number of links.
    #[error("the server has {0} links, as many as it may: close some, or raise Config::links_max")]
    TooMany(usize),
    /// The records in the link's memory contradict the link's stored state; the text says where.
    #[error("the link cannot continue: {0}")]
    Damaged(String),
    /// The system refuses the descriptors (epoll, eventfd, timer) on which threads block.
    #[error("waiting cannot be set up: {0}")]
    Setup(io::Error),
    /// The server is being closed, so it opens no further link.
    #[error("the server is closed")]
    Closed,
    /// This process is a forked child of the process that made the server or the group.
    #[error("this server or client belongs to the parent process: make another one after fork()")]
    Forked,
}

impl From<io::Error> for OpenError {
    fn from(error: io::Error) -> Self {
        Self::Setup(error)
    }
}

/// Reason why `Server::bind` or `Server::listen_also` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The server's name is empty or too long.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A setting of the configuration has an impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text that was given as the server's address is no valid address, or its host name cannot
    /// be resolved.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The directory is not fit for link files, for the reason in the field.
    #[error(transparent)]
    Directory(#[from] StorageError),
    /// Other hosts can reach the server's address, and the configuration does not allow that.
    #[error(
        "{address} can be reached from other hosts, and TCP is not encrypted: bind a loopback address, or say \
         Config::allow_remote(true)"
    )]
    NotLoopback {
        /// The address that was refused, because other hosts can reach it.
        address: String,
    },
    /// The server's address is a TCP address. TCP does not identify clients, and the configuration
    /// does not allow anonymous ones.
    #[error(
        "over TCP nobody can tell who comes to {address}: say Config::on_login to judge what clients send, or \
         Config::allow_anonymous_tcp(true)"
    )]
    Anonymous {
        /// The address that was refused, because clients would be anonymous.
        address: String,
    },
    /// The system refuses to bind the server's address, or to listen at it.
    #[error(transparent)]
    System(#[from] partywall_sys::BindError),
    /// The system refuses the descriptors (epoll, eventfd, timer) on which threads block.
    #[error("waiting cannot be set up: {0}")]
    Setup(io::Error),
    /// This process is a forked child of the process that made the group.
    #[error("this server belongs to the parent process: bind another one after fork()")]
    Forked,
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        Self::Setup(error)
    }
}

/// Reason why a server returned no link from `accept` or a similar method.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No client attached a new link before the deadline. `try_accept` returns this error if no new
    /// link is attached at the moment.
    #[error("no link was attached before the deadline")]
    TimedOut,
    /// The system call with which the thread waits for clients failed.
    #[error("waiting failed: {0}")]
    Wait(io::Error),
    /// This process is a forked child of the process that made the server.
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

/// Reason why a message was not sent. It tells the caller whether to wait for room and try again,
/// or to give up.
pub(super) enum Refused {
    /// The link's ring or slab has no room now, but may have room later.
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
