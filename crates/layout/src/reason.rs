// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a connection has no wall, and why it was refused: the numbers and their sentences
//! (SPEC 2.5, 2.6).
//!
//! Numbers travel, sentences are for people. A number from a newer peer that is not known here is
//! kept as it came.

use core::fmt;

/// Why two sides talk over the socket and not through shared memory (SPEC 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FallbackReason {
    /// The configuration of one side asks for the socket.
    Policy,
    /// The address is a TCP address: memory cannot be shared, or descriptors not passed.
    Remote,
    /// The kernel or a sandbox has no memfd, or not the seals it needs.
    Memfd,
    /// The memory for a half could not be had.
    Memory,
    /// A process is at its limit of open descriptors, or a security module took them away.
    Descriptors,
    /// The half would be larger than the other side allows.
    Limits,
    /// Mapping the other side's half failed.
    Map,
    /// A number this version does not know.
    Other(u32),
}

impl FallbackReason {
    /// The number that stands for the reason on the wire; never 0.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Policy => 1,
            Self::Remote => 2,
            Self::Memfd => 3,
            Self::Memory => 4,
            Self::Descriptors => 5,
            Self::Limits => 6,
            Self::Map => 7,
            Self::Other(number) => number,
        }
    }

    /// The reason with this number; 0 is none.
    #[must_use]
    pub const fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => return None,
            1 => Self::Policy,
            2 => Self::Remote,
            3 => Self::Memfd,
            4 => Self::Memory,
            5 => Self::Descriptors,
            6 => Self::Limits,
            7 => Self::Map,
            other => Self::Other(other),
        })
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "the configuration asks for the socket",
            Self::Remote => "the address is TCP, where memory cannot be shared",
            Self::Memfd => "sealed memfds are not to be had (kernel older than 5.1, or a sandbox)",
            Self::Memory => "the memory for a half could not be had",
            Self::Descriptors => "descriptors did not get through (limit, or a security module)",
            Self::Limits => "the half is larger than the other side maps",
            Self::Map => "mapping the half failed",
            Self::Other(number) => return write!(f, "reason {number}, unknown to this version"),
        })
    }
}

/// Why a connection was refused (SPEC 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// No protocol version in common.
    Version,
    /// The credentials are not admitted.
    Admission,
    /// No transport that both sides allow.
    Transport,
    /// The other side broke a rule of the handshake.
    Violation,
    /// This listener does not offer the service asked for.
    Service,
    /// Too many connections are being set up.
    Busy,
    /// A number this version does not know.
    Other(u32),
}

impl Refusal {
    /// The number that stands for the refusal on the wire.
    #[must_use]
    pub const fn number(self) -> u32 {
        match self {
            Self::Version => 1,
            Self::Admission => 2,
            Self::Transport => 3,
            Self::Violation => 4,
            Self::Service => 5,
            Self::Busy => 6,
            Self::Other(number) => number,
        }
    }

    /// The refusal with this number.
    #[must_use]
    pub const fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Version,
            2 => Self::Admission,
            3 => Self::Transport,
            4 => Self::Violation,
            5 => Self::Service,
            6 => Self::Busy,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version => "no protocol version in common",
            Self::Admission => "these credentials are not admitted",
            Self::Transport => "no transport that both sides allow",
            Self::Violation => "a rule of the handshake was broken",
            Self::Service => "the service asked for is not offered here",
            Self::Busy => "too many connections are being set up",
            Self::Other(number) => return write!(f, "code {number}, unknown to this version"),
        })
    }
}
