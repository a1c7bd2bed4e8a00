// SPDX-License-Identifier: MIT OR Apache-2.0
//! Exit codes, for scripts: each way of ending has its own.
//!
//! 2 is missing here because `bench --strict` has it, for a missed target, and `shmipc dump` and `link inspect`, whose 1 is an
//! answer.

use std::process::ExitCode;

use partywall::{Closed, ConnectError, Fault, RecvError, SendError};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything ended in order.
    Done = 0,
    /// The arguments are wrong, or this machine failed us.
    Failure = 1,
    /// Nobody could be listened to or reached.
    NoConnection = 3,
    /// The other side died, or left before it had taken everything.
    PeerDied = 4,
    /// The other side broke the protocol, or sent back something else than it was sent.
    Protocol = 5,
    /// Nobody reads our output any more, or it could not be written.
    OutputClosed = 6,
}

/// What `--help` says about it.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  everything ended in order, in both directions
  1  wrong usage, or this machine failed (reading the input, memory, descriptors)
  3  could not listen, or could not connect
  4  the other side died, or left before it had taken everything
  5  the other side broke the protocol; or the two files of a link contradict each other (see
     partywall link inspect), or another process has taken a link over
  6  nobody reads the output any more, or it could not be written
  130, 143  ended by Ctrl-C (SIGINT) or by SIGTERM; the socket file is removed";

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&Closed> for Exit {
    /// For a receiver: only one of the two ends is in order.
    fn from(closed: &Closed) -> Self {
        match closed {
            Closed::Finished => Self::Done,
            Closed::Disconnected => Self::PeerDied,
        }
    }
}

impl From<&Fault> for Exit {
    fn from(fault: &Fault) -> Self {
        match fault {
            Fault::Violation { .. } => Self::Protocol,
            _ => Self::Failure,
        }
    }
}

impl From<&RecvError> for Exit {
    fn from(error: &RecvError) -> Self {
        match error {
            RecvError::Disconnected => Self::PeerDied,
            RecvError::Fault(fault) => fault.into(),
            _ => Self::Failure,
        }
    }
}

impl From<&SendError> for Exit {
    /// For a sender no end is in order: it still had something to say.
    fn from(error: &SendError) -> Self {
        match error {
            SendError::Closed(_) => Self::PeerDied,
            SendError::Fault(fault) => fault.into(),
            _ => Self::Failure,
        }
    }
}

impl From<&ConnectError> for Exit {
    fn from(error: &ConnectError) -> Self {
        match error {
            ConnectError::Config(_) => Self::Failure,
            _ => Self::NoConnection,
        }
    }
}
