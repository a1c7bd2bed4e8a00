// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors, one small enum per operation.
//!
//! Expected states (`Full`, `Empty`, `Closed`, `TimedOut`) are variants of their own; everything
//! else is a [`Fault`], which says what happened, to whom, and what to do. The numbers of
//! [`code`](Fault::code) are stable: other languages and logs may rely on them.
//!
//! `Display` contains the advice. `Debug` is derived and prints only the fields, for tests and
//! debuggers; a `main` that returns one of these errors prints the fields. A `Debug` that prints
//! the advice would hide the value in the text of a failed `assert!`. The guide describes how to
//! print errors.

use crate::address::AddressError;
use partywall_layout::hello::{SERVICE_CHANNEL, SERVICE_LINK, SERVICE_SESSION};
use partywall_layout::{FallbackReason, Refusal, Violation};
use std::io;

/// The way in which the peer ended the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// The peer closed its end in good order. As the error of a `send`, the variant means that the
    /// peer has stopped receiving.
    #[error("the peer has closed")]
    Finished,
    /// The peer died or hung up without closing; messages that it had committed were received
    /// first.
    #[error("the peer died or hung up")]
    Disconnected,
}

impl Closed {
    /// Returns the stable error number (SPEC 17.1) of the way in which the peer ended the channel.
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::Finished => 9,
            Self::Disconnected => 10,
        }
    }
}

/// A failure that ends the channel: a violation, or a system call that must not fail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer broke a rule of the protocol. The peer is faulty or hostile; this side cut the
    /// connection.
    #[error("{peer} broke the protocol: {violation}")]
    Violation {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The broken rule, with the value that broke it.
        violation: Violation,
    },
    /// The peer broke a rule of another protocol, or that protocol failed.
    #[error("{protocol} session with {peer}: {reason}")]
    Protocol {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The name of the protocol, as the protocol reports it.
        protocol: &'static str,
        /// The reason for the failure. `source()` does not return the reason, because the text of
        /// this error already contains its text.
        reason: ProtocolError,
    },
    /// The calling process is a forked child, and the channel belongs to the parent process.
    #[error("this channel belongs to the parent process: connect anew after fork()")]
    Forked,
    /// A system call failed that does not fail in normal operation.
    #[error("{what} failed: {source}")]
    System {
        /// The operation that failed, as text.
        what: &'static str,
        /// The error that the failed system call returned.
        source: io::Error,
    },
}

impl Fault {
    /// Returns a stable number: 100 plus the number of the violation, or 1 to 3 for other faults.
    #[must_use]
    pub fn code(&self) -> u32 {
        match self {
            Self::Violation { violation, .. } => 100 + violation.code(),
            Self::Forked => 1,
            Self::System { .. } => 2,
            Self::Protocol { .. } => 3,
        }
    }

    pub(crate) const fn system(what: &'static str, source: io::Error) -> Self {
        Self::System { what, source }
    }
}

/// The reason why `send` did not send its message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The peer is gone, so it will not receive the message.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The deadline passed before the ring or the memory had room. The message was not sent.
    #[error("no room came before the deadline")]
    TimedOut,
    /// The ring or the memory has no room, and the policy is
    /// [`BackPressure::Error`](crate::BackPressure::Error).
    #[error("there is no room now")]
    Full,
    /// The message is longer than this channel can ever send.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// The owned reservation has its memory from another connection.
    #[error("the reservation belongs to another connection: commit it where it was reserved")]
    ForeignReservation,
    /// The channel is broken: the peer violated the protocol, or a system call failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The reason why `try_send` did not send its message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// The ring or the memory has no room now.
    #[error("there is no room now")]
    Full,
    /// Another thread is sending through the same shared sender.
    #[error("another thread is sending at this moment")]
    Busy,
    /// The peer is gone, so it will not receive the message.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The message is longer than this channel can ever send.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// The owned reservation has its memory from another connection.
    #[error("the reservation belongs to another connection: commit it where it was reserved")]
    ForeignReservation,
    /// The channel is broken: the peer violated the protocol, or a system call failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A message is longer than the channel can carry; `limit` names the setting that bounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {len} bytes exceeds {max}, {}: {limit}", limit.of())]
pub struct TooLarge {
    /// Length of the message in bytes.
    pub len: u64,
    /// Length of the longest possible message, in bytes.
    pub max: u64,
    /// The limit that the message exceeds; its text says how to raise the limit.
    pub limit: Limit,
}

/// The setting or size that bounds the length of a message, and that a message exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// The message is longer than `memory_max` of this side allows.
    #[error("raise Config::memory_max on this side and at the peer, or use BackPressure::Overflow")]
    OwnMemory,
    /// The message is longer than `map_max` of the peer allows.
    #[error(
        "raise Config::memory_max or Config::map_max at the peer, and Config::memory_max on this \
         side if it is no greater"
    )]
    PeerMap,
    /// The message is longer than `message_max` of the peer allows.
    #[error(
        "raise Config::memory_max or Config::message_max at the peer, and Config::memory_max on \
         this side if it is no greater"
    )]
    PeerMessage,
    /// The messages of the batch exceed half the ring, which is the most that a batch may take.
    #[error("commit the batch and begin another, or raise Config::ring_bytes")]
    Batch,
    /// The message is longer than another protocol, such as shmipc, allows.
    #[error(
        "send it in parts, or let the protocol have more memory (of shmipc: share_memory_buffer_cap of the \
         connecting side)"
    )]
    Protocol,
}

impl Limit {
    /// Says which side or setting sets the limit, in words that follow its value.
    #[must_use]
    pub const fn of(self) -> &'static str {
        match self {
            Self::OwnMemory => "the most that this side has memory for",
            Self::PeerMap => "the most that the peer maps",
            Self::PeerMessage => "the most that the peer receives",
            Self::Batch => "the most that a batch may take",
            Self::Protocol => "the most that the protocol carries",
        }
    }
}

/// The reason why a receiver returned no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The peer died or hung up without finishing; everything that it had sent was received before.
    #[error("{}", Closed::Disconnected)]
    Disconnected,
    /// The deadline passed before a message arrived.
    #[error("no message came before the deadline")]
    TimedOut,
    /// The channel is broken: the peer violated the protocol, or a system call failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// The reason why `try_recv` returned no message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// No message has arrived yet.
    #[error("there is no message now")]
    Empty,
    /// The peer died or hung up without finishing; everything that it had sent was received before.
    #[error("{}", Closed::Disconnected)]
    Disconnected,
    /// The channel is broken: the peer violated the protocol, or a system call failed.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A setting has an impossible value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Config::{setting} is {found}, but must be {wanted}")]
pub struct ConfigError {
    /// The name of the setting that has the impossible value.
    pub setting: &'static str,
    /// The impossible value that the setting was given.
    pub found: u64,
    /// The values that the setting may have, as text.
    pub wanted: &'static str,
}

/// The reason why no listener was bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The text is no address, or its host name cannot be looked up.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A setting has an impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address can be reached from other hosts, and `Config::allow_remote` is not set.
    #[error(
        "{address} can be reached from other hosts, and TCP is neither authenticated nor encrypted: \
         bind a loopback address, or say Config::allow_remote(true)"
    )]
    NotLoopback {
        /// The refused address, as text.
        address: String,
    },
    /// The operating system refused to bind the address.
    #[error(transparent)]
    System(#[from] partywall_sys::BindError),
    /// The epoll set or the timer with which the listener waits could not be created.
    #[error("waiting for connections cannot be set up: {0}")]
    Setup(io::Error),
}

/// The reason why the listener accepted no connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// No connection had finished its handshake before the deadline. `try_accept` also returns this
    /// error, if no connection is ready.
    #[error("no connection came before the deadline")]
    TimedOut,
    /// The system returned an error instead of a connection; the listener continues to accept
    /// connections.
    #[error(transparent)]
    System(#[from] partywall_sys::AcceptError),
    /// Polling the listener's descriptors failed.
    #[error("waiting for connections failed: {0}")]
    Wait(io::Error),
    /// The calling process is a forked child, and the listener belongs to the parent process.
    #[error("this listener belongs to the parent process: bind anew after fork()")]
    Forked,
}

/// The reason why no connection to a listener was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is no address, or its host name cannot be looked up.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A setting has an impossible value.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The operating system could not connect to a listener at the address.
    #[error(transparent)]
    System(#[from] partywall_sys::ConnectError),
    /// A listener was reached, but the handshake failed.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// The reason why the handshake of a new connection failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The peer did not finish the handshake before the handshake timeout.
    #[error(
        "{peer} did not finish the handshake in time: is it Partywall, is it alive, is its backlog \
         served? Config::handshake_timeout sets the time{hint}"
    )]
    TimedOut {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// A further possible cause of the failure, as text; empty if there is none.
        hint: &'static str,
    },
    /// The peer closed the connection.
    #[error(
        "{peer} hung up during the handshake: look at its own log for the reason, or is it a server \
         of links?{hint}"
    )]
    HungUp {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// A further possible cause of the failure, as text; empty if there is none.
        hint: &'static str,
    },
    /// The peer's first bytes belong to another protocol.
    #[error(
        "{peer} does not speak the protocol of channels and sessions (it began with {found}): {advice}"
    )]
    NotPartywall {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The first bytes of the peer, as text.
        found: String,
        /// The advice that the error text ends with.
        advice: &'static str,
    },
    /// Both sides have no protocol version in common.
    #[error(
        "{peer} speaks protocol versions {theirs_min} to {theirs_max}, this side {ours_min} to \
         {ours_max}: upgrade the older one"
    )]
    Version {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The oldest protocol version that the peer speaks.
        theirs_min: u16,
        /// The newest protocol version that the peer speaks.
        theirs_max: u16,
        /// The oldest protocol version that this side speaks.
        ours_min: u16,
        /// The newest protocol version that this side speaks.
        ours_max: u16,
    },
    /// The peer refused the connection by a REJECT frame.
    #[error("{peer} refused the connection: {refusal}{}{text}", if text.is_empty() { "" } else { ": " })]
    Refused {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The peer's reason: a number and its text.
        refusal: Refusal,
        /// The explanation that the peer sent; it may be empty.
        text: String,
    },
    /// This side's admission rule refused the peer.
    #[error("{peer} is not admitted: {reason}; Config::admit says who is")]
    NotAdmitted {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// Why this side's admission rule refuses the peer.
        reason: String,
    },
    /// The connector asks for another service than the listener serves: channels, sessions or
    /// links.
    #[error(
        "{peer} asks for {}, and this listener serves {}: both sides must use the same",
        service_name(*asked),
        service_name(*offered)
    )]
    Service {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The number of the service that the peer requested.
        asked: u32,
        /// The number of the service that this side serves.
        offered: u32,
    },
    /// One side requires shared memory that is not available, or no transport is allowed by both
    /// sides.
    #[error(
        "no transport suits both sides: no shared memory because {reason}, and one side does not allow \
         the socket: give both TransportPolicy::Auto, or remove the obstacle"
    )]
    NoTransport {
        /// The reason why memory cannot be shared.
        reason: FallbackReason,
    },
    /// The peer broke a rule of the handshake.
    #[error("{peer} broke the handshake: {violation}")]
    Violation {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The broken rule, with the value that broke it.
        violation: Violation,
    },
    /// The peer sent a file descriptor of the wrong kind.
    #[error("{peer} sent an unacceptable descriptor: {reason}")]
    Descriptor {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The rule of the handshake that the descriptor breaks.
        reason: String,
    },
    /// The handshake of a protocol other than Partywall's own failed.
    #[error("{protocol} handshake with {peer}: {reason}")]
    Protocol {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The name of the protocol, as the protocol reports it.
        protocol: &'static str,
        /// The reason for the failure. `source()` does not return the reason, because the text of
        /// this error already contains its text.
        reason: ProtocolError,
    },
    /// A system call that must not fail has failed during the handshake.
    #[error("{what} failed during the handshake with {peer}: {source}")]
    System {
        /// A description of the peer for error texts: process, user and address.
        peer: String,
        /// The operation that failed, as text.
        what: &'static str,
        /// The error that the failed system call returned.
        source: io::Error,
    },
}

impl HandshakeError {
    /// Returns a stable number from 201 on, one per variant.
    #[must_use]
    pub const fn code(&self) -> u32 {
        match self {
            Self::TimedOut { .. } => 201,
            Self::HungUp { .. } => 202,
            Self::NotPartywall { .. } => 203,
            Self::Version { .. } => 204,
            Self::Refused { .. } => 205,
            Self::NotAdmitted { .. } => 206,
            Self::Service { .. } => 207,
            Self::NoTransport { .. } => 208,
            Self::Violation { .. } => 209,
            Self::Descriptor { .. } => 210,
            Self::System { .. } => 211,
            Self::Protocol { .. } => 212,
        }
    }
}

/// The reason why a protocol other than Partywall's own failed, on a connection or in its
/// handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The peer broke a rule of the protocol.
    #[error("broke a rule: {what}")]
    Violation {
        /// The broken rule, with the value or action that broke the rule.
        what: String,
    },
    /// The peer, or this side, refused a request; `what` names the request.
    #[error("{what}")]
    Refused {
        /// The refused request, and advice for the user.
        what: String,
    },
    /// The peer closed the connection.
    #[error("it hung up")]
    HungUp,
    /// A system call that must not fail has failed.
    #[error("{what} failed: {source}")]
    System {
        /// The operation that failed, as text.
        what: &'static str,
        /// The error that the failed system call returned.
        source: io::Error,
    },
}

/// Returns the name of the service with this number (SPEC 2.2).
fn service_name(number: u32) -> String {
    match number {
        SERVICE_CHANNEL => "channels".to_owned(),
        SERVICE_SESSION => "sessions".to_owned(),
        SERVICE_LINK => "links".to_owned(),
        other => format!("service {other}"),
    }
}
