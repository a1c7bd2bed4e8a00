// SPDX-License-Identifier: MIT OR Apache-2.0
//! The reasons why a connection does not use shared memory, or was refused (SPEC 2.5, 2.6).
//!
//! Frames carry the number of a reason; its sentence is for an operator. A number from a newer peer
//! that this version does not know is kept unchanged.

use core::fmt;

/// Reason why a connection uses the socket instead of shared memory (SPEC 2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FallbackReason {
    /// The configuration of one side demands the socket.
    Policy,
    /// The address of the connection is a TCP address, or its socket cannot pass descriptors.
    Remote,
    /// The kernel or a sandbox does not allow memfds, or the seals that a region needs.
    Memfd,
    /// The region of one side could not be allocated.
    Memory,
    /// A process is at its limit of open descriptors, or a security module dropped descriptors.
    Descriptors,
    /// The region of one side is larger than the peer accepts.
    Limits,
    /// A side could not map the region of its peer.
    Map,
    /// The connection began on the socket, and has not moved to shared memory so far.
    NotMoved,
    /// The peer gave up the move to shared memory.
    Abandoned,
    /// A number from a newer peer, with a meaning that this version does not know.
    Other(u32),
}

impl FallbackReason {
    /// The number that stands for this reason of the fallback in a frame; never 0.
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
            Self::NotMoved => 8,
            Self::Abandoned => 9,
            Self::Other(number) => number,
        }
    }

    /// The reason for the fallback to the socket that has this number; `None` for the number 0,
    /// which means no fallback.
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
            8 => Self::NotMoved,
            9 => Self::Abandoned,
            other => Self::Other(other),
        })
    }
}

impl fmt::Display for FallbackReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Policy => "the configuration asks for the socket",
            Self::Remote => "the address is TCP, where memory cannot be shared",
            Self::Memfd => {
                "memfd_create with sealing is unavailable (kernel older than 5.1, or a sandbox)"
            }
            Self::Memory => "out of memory for a shared memory region",
            Self::Descriptors => {
                "descriptors were not delivered (descriptor limit, or a security module)"
            }
            Self::Limits => "the region exceeds the peer's limit",
            Self::Map => "mapping the peer's region failed",
            Self::NotMoved => "the connection has not moved to shared memory yet",
            Self::Abandoned => "the peer gave up the move to shared memory",
            Self::Other(number) => return write!(f, "reason {number}, unknown to this version"),
        })
    }
}

/// Reason why a connection was refused (SPEC 2.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Refusal {
    /// The two sides have no protocol version in common.
    Version,
    /// The listener does not admit the connector's credentials (user, group or process).
    Admission,
    /// There is no transport that both sides allow.
    Transport,
    /// The peer broke a rule of the handshake.
    Violation,
    /// The listener does not offer the requested service.
    Service,
    /// The listener has too many handshakes in progress.
    Busy,
    /// A number from a newer peer, with a meaning that this version does not know.
    Other(u32),
}

impl Refusal {
    /// The number that stands for this reason of a refusal in the frame REJECT.
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

    /// The reason of a refusal that has this number, which came in a REJECT.
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
            Self::Admission => "the credentials are not admitted",
            Self::Transport => "no transport that both sides allow",
            Self::Violation => "a rule of the handshake was broken",
            Self::Service => "the requested service is not offered",
            Self::Busy => "too many connections are being set up",
            Self::Other(number) => return write!(f, "code {number}, unknown to this version"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_numbers::NumberTable;
    use crate::walk_variants;

    const NEWER: u32 = 4_000_000_000;

    #[test]
    fn every_reason_and_refusal_has_the_number_of_the_specification() {
        let newer = NumberTable::of_row(NEWER, "of a newer peer");
        let mut table = NumberTable::of_section("2.6 Fallback reasons").with(0, "", &newer);
        walk_variants!(table, |reason: &FallbackReason| reason.number(), FallbackReason {
            Policy = FallbackReason::Policy => "policy",
            Remote = FallbackReason::Remote => "remote",
            Memfd = FallbackReason::Memfd => "memfd",
            Memory = FallbackReason::Memory => "memory",
            Descriptors = FallbackReason::Descriptors => "descriptors",
            Limits = FallbackReason::Limits => "limits",
            Map = FallbackReason::Map => "map",
            NotMoved = FallbackReason::NotMoved => "not moved",
            Abandoned = FallbackReason::Abandoned => "abandoned",
            Other = FallbackReason::Other(NEWER) => "of a newer peer",
        });
        table.assert_all_met(0..=u32::MAX);
        let mut table = NumberTable::of_section("2.5 Codes of REJECT").with(0, "", &newer);
        walk_variants!(table, |refusal: &Refusal| refusal.number(), Refusal {
            Version = Refusal::Version => "version",
            Admission = Refusal::Admission => "admission",
            Transport = Refusal::Transport => "transport",
            Violation = Refusal::Violation => "violation",
            Service = Refusal::Service => "service",
            Busy = Refusal::Busy => "busy",
            Other = Refusal::Other(NEWER) => "of a newer peer",
        });
        table.assert_all_met(0..=u32::MAX);
    }
}
