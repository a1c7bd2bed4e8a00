// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong, one small enum per operation.
//!
//! Expected states (`Full`, `Empty`, `Closed`, `TimedOut`) are variants of their own; everything else
//! is a [`Fault`], which says what happened, to whom, and what to do. [`code`](Fault::code) numbers
//! are stable: other languages and logs may rely on them.
//!
//! The advice is in `Display`. `Debug` is derived and shows the fields, as tests and debuggers want it: a
//! `main` that returns one of these prints that. Making `Debug` print the advice lost, because it hides
//! in an `assert!` what the value is; the guide shows how to print errors instead.

use crate::address::AddressError;
use partywall_layout::hello::{SERVICE_CHANNEL, SERVICE_LINK, SERVICE_SESSION};
use partywall_layout::{FallbackReason, Refusal, Violation};
use std::io;

/// How the other side ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Closed {
    /// It closed its end in good order; everything it sent has been received.
    #[error("the other side has closed")]
    Finished,
    /// It died, or hung up without closing; what it had committed before was received.
    #[error("the other side died or hung up")]
    Disconnected,
}

/// Something that must not happen, did. The channel is of no further use.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The other side broke a rule of the protocol. It is faulty or hostile; the connection was cut.
    #[error("{peer} broke the protocol: {violation}")]
    Violation {
        /// Who.
        peer: String,
        /// Which rule, and how.
        violation: Violation,
    },
    /// The other side broke a rule of the protocol that it speaks, or the protocol failed.
    #[error("{protocol} session with {peer}: {reason}")]
    Protocol {
        /// Who.
        peer: String,
        /// Which protocol.
        protocol: &'static str,
        /// What went wrong. No source of this error: its words are in these already.
        reason: ProtocolError,
    },
    /// This is a forked child, and the channel belongs to its parent.
    #[error("this channel belongs to the parent process: connect anew after fork()")]
    Forked,
    /// A system call failed that cannot fail in good order.
    #[error("{what} failed: {source}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl Fault {
    /// A stable number: 100 and the violation's own, or 1 to 3.
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

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// Nobody will receive it.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The deadline passed before there was room. The message was not sent.
    #[error("no room came before the deadline")]
    TimedOut,
    /// There is no room, and the policy is [`BackPressure::Error`](crate::BackPressure::Error).
    #[error("there is no room now")]
    Full,
    /// The message can never be sent over this channel.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// The channel is broken.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Why a message was not sent at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrySendError {
    /// There is no room now.
    #[error("there is no room now")]
    Full,
    /// Another thread is sending through the same shared sender at this moment.
    #[error("another thread is sending at this moment")]
    Busy,
    /// Nobody will receive it.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The message can never be sent over this channel.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// The channel is broken.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// A message longer than the channel can carry, and which limit says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a message of {len} bytes exceeds the limit of {max} bytes: {limit}")]
pub struct TooLarge {
    /// Length of the message in bytes.
    pub len: u64,
    /// The longest possible here, in bytes.
    pub max: u64,
    /// Which limit that is, and how to raise it.
    pub limit: Limit,
}

/// Which limit a message exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Limit {
    /// Our own `memory_max`.
    #[error(
        "raise Config::memory_max on this side (and on the other), or use BackPressure::Overflow"
    )]
    OwnMemory,
    /// The other side's `map_max`.
    #[error(
        "raise Config::memory_max or Config::map_max on the other side, and Config::memory_max on this side \
         if it is no greater"
    )]
    PeerMap,
    /// The other side's `message_max`.
    #[error(
        "raise Config::memory_max or Config::message_max on the other side, and Config::memory_max on this \
         side if it is no greater"
    )]
    PeerMessage,
    /// A batch takes at most half the ring.
    #[error("commit the batch and begin another, or raise Config::ring_bytes")]
    Batch,
    /// The protocol that is spoken takes no more at once.
    #[error(
        "send it in parts, or let the protocol have more memory (of shmipc: share_memory_buffer_cap of the \
         connecting side)"
    )]
    Protocol,
}

/// Why no message was received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The peer died or hung up without finishing; what it had sent was received before.
    #[error("{}", Closed::Disconnected)]
    Disconnected,
    /// The deadline passed before a message arrived.
    #[error("no message came before the deadline")]
    TimedOut,
    /// The channel is broken.
    #[error(transparent)]
    Fault(#[from] Fault),
}

/// Why no message was received at once.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryRecvError {
    /// There is no message now.
    #[error("there is no message now")]
    Empty,
    /// The peer died or hung up without finishing; what it had sent was received before.
    #[error("{}", Closed::Disconnected)]
    Disconnected,
    /// The channel is broken.
    #[error(transparent)]
    Fault(#[from] Fault),
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

/// Why nobody listens.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The text is no address, or leads nowhere.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A setting is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The address can be reached from other hosts, and nobody said that this is wanted.
    #[error(
        "{address} can be reached from other hosts, and TCP is neither authenticated nor encrypted: \
         bind a loopback address, or say Config::allow_remote(true)"
    )]
    NotLoopback {
        /// The address.
        address: String,
    },
    /// The system does not allow it.
    #[error(transparent)]
    System(#[from] partywall_sys::BindError),
    /// A descriptor to wait for connections could not be had.
    #[error("waiting for connections cannot be set up: {0}")]
    Setup(io::Error),
}

/// Why no connection was accepted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The deadline passed before a connection was ready.
    #[error("no connection came before the deadline")]
    TimedOut,
    /// The system could not give us a connection; the listener goes on.
    #[error(transparent)]
    System(#[from] partywall_sys::AcceptError),
    /// Waiting failed.
    #[error("waiting for connections failed: {0}")]
    Wait(io::Error),
    /// This is a forked child, and the listener belongs to its parent.
    #[error("this listener belongs to the parent process: bind anew after fork()")]
    Forked,
}

/// Why no connection was made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The text is no address, or leads nowhere.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A setting is not possible.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody was reached.
    #[error(transparent)]
    System(#[from] partywall_sys::ConnectError),
    /// Somebody was reached, but no channel came of it.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
}

/// Why two sides that reached each other did not come to terms.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The other side did not answer in time.
    #[error(
        "{peer} did not finish the handshake in time: is it Partywall, is it alive, is its backlog \
         served? Config::handshake_timeout sets the time{hint}"
    )]
    TimedOut {
        /// Who.
        peer: String,
        /// What else it may be; empty if nothing.
        hint: &'static str,
    },
    /// The other side hung up.
    #[error("{peer} hung up during the handshake: look at its own log for the reason{hint}")]
    HungUp {
        /// Who.
        peer: String,
        /// What else it may be; empty if nothing.
        hint: &'static str,
    },
    /// The other side speaks another protocol.
    #[error("{peer} does not speak Partywall (it began with {found}): {advice}")]
    NotPartywall {
        /// Who.
        peer: String,
        /// What it said first.
        found: String,
        /// What to do.
        advice: &'static str,
    },
    /// The other side speaks other versions.
    #[error(
        "{peer} speaks protocol versions {theirs_min} to {theirs_max}, this side {ours_min} to \
         {ours_max}: upgrade the older one"
    )]
    Version {
        /// Who.
        peer: String,
        /// The oldest version of the other side.
        theirs_min: u16,
        /// The newest version of the other side.
        theirs_max: u16,
        /// The oldest version of this side.
        ours_min: u16,
        /// The newest version of this side.
        ours_max: u16,
    },
    /// The other side does not want this connection.
    #[error("{peer} refused the connection: {refusal}{}{text}", if text.is_empty() { "" } else { ": " })]
    Refused {
        /// Who.
        peer: String,
        /// Why, as a number and its sentence.
        refusal: Refusal,
        /// What it said.
        text: String,
    },
    /// This side does not want that connection.
    #[error("{peer} is not admitted: {reason}; Config::admit says who is")]
    NotAdmitted {
        /// Who.
        peer: String,
        /// Why not.
        reason: String,
    },
    /// The service asked for is not the one offered.
    #[error(
        "{peer} asks for {}, and this listener serves {}: both sides must use the same",
        service_name(*asked),
        service_name(*offered)
    )]
    Service {
        /// Who.
        peer: String,
        /// What it asked for.
        asked: u32,
        /// What this side offers.
        offered: u32,
    },
    /// Shared memory is asked for but cannot be had, or no transport suits both.
    #[error(
        "no transport suits both sides: no shared memory because {reason}, and one side does not allow \
         the socket: give both TransportPolicy::Auto, or remove the obstacle"
    )]
    NoTransport {
        /// Why there is no shared memory.
        reason: FallbackReason,
    },
    /// The other side broke a rule.
    #[error("{peer} broke the handshake: {violation}")]
    Violation {
        /// Who.
        peer: String,
        /// Which rule, and how.
        violation: Violation,
    },
    /// The other side sent a descriptor that is not what it must be.
    #[error("{peer} sent an unacceptable descriptor: {reason}")]
    Descriptor {
        /// Who.
        peer: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The handshake of a protocol came to nothing.
    #[error("{protocol} handshake with {peer}: {reason}")]
    Protocol {
        /// Who.
        peer: String,
        /// Which protocol.
        protocol: &'static str,
        /// Why. No source of this error: its words are in these already.
        reason: ProtocolError,
    },
    /// A system call failed.
    #[error("{what} failed during the handshake with {peer}: {source}")]
    System {
        /// Who.
        peer: String,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl HandshakeError {
    /// A stable number.
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

/// Why a protocol other than our own failed, on a connection or in its handshake.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The peer broke a rule of the protocol.
    #[error("broke a rule: {what}")]
    Violation {
        /// The rule, and how it was broken.
        what: String,
    },
    /// The peer, or this side, refuses what was asked for.
    #[error("{what}")]
    Refused {
        /// The request, and what to do.
        what: String,
    },
    /// The peer hung up.
    #[error("it hung up")]
    HungUp,
    /// A system call failed.
    #[error("{what} failed: {source}")]
    System {
        /// The operation that failed.
        what: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}

/// A service in words (SPEC 2.2).
fn service_name(number: u32) -> String {
    match number {
        SERVICE_CHANNEL => "channels".to_owned(),
        SERVICE_SESSION => "sessions".to_owned(),
        SERVICE_LINK => "links".to_owned(),
        other => format!("service {other}"),
    }
}
