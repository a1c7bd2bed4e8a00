// SPDX-License-Identifier: MIT OR Apache-2.0
//! The exit codes of the command: each way to end has one code, and each code has one meaning.
//!
//! Wrong usage has the code 2 in every command. The commands that inspect also use 2 for what they
//! cannot read, because their code 1 is a finding. `bench --strict` ends with 11 if a target is
//! missed.

use std::process::ExitCode;

use partywall::{Closed, ConnectError, Fault, RecvError, SendError};
use partywall_bench::UsageError;

/// How a command ended; the value is its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command did all of its work, and each direction ended in good order.
    Done = 0,
    /// The command failed because of this process or machine, and not because of the peer.
    Failure = 1,
    /// The arguments of the command were wrong.
    Usage = 2,
    /// The address on the command line could not be bound or reached.
    NoConnection = 3,
    /// The peer died, or left before it had received all bytes or messages.
    PeerDied = 4,
    /// The peer broke the protocol, or returned other bytes than it was sent.
    Protocol = 5,
    /// The output of the command could not be written, for example because its reader has closed
    /// the pipe.
    OutputClosed = 6,
    /// Another process has taken over this end of a link, which this process owned before.
    Fenced = 7,
    /// The file of the link was not closed before a reboot, or is missing since, and was refused.
    OtherBoot = 8,
    /// The command delivered all messages that are left, but other messages are lost, or may be.
    LossPossible = 9,
    /// The command delivered all messages, some of them perhaps twice.
    RepeatPossible = 10,
}

/// The explanation of exit codes in the help of the commands that open a channel.
pub const EXIT_CODES: &str = "\
Exit codes:
  0  both directions ended in good order
  1  this machine failed (reading the input, memory, descriptors)
  2  wrong usage
  3  could not listen, or could not connect
  4  the peer died, or left before it had received everything
  5  the peer broke the protocol, or an echo differs from what was sent
  6  the reader of the output is gone, or the output could not be written
  130, 143  ended by Ctrl-C (SIGINT) or by SIGTERM; the socket file is removed";

/// The explanation of exit codes in the help of `link send` and `link recv`.
pub const LINK_EXIT_CODES: &str = "\
Exit codes:
  0  send: all messages are acknowledged; recv --once: the sender has finished, and all is written
  1  this machine failed (files, memory, descriptors)
  2  wrong usage
  3  no connection: could not listen, the peer refused, or no peer attached within --timeout
  4  the peer attached and is gone: no progress within --timeout, or none came back to --once
  5  quarantine: the files of both ends contradict each other (see partywall link inspect)
  6  recv: the reader of the output is gone, or the output could not be written
  7  another process has taken over this end of the link
  8  refused: the file of the link was not closed before a reboot, or is missing since (see
     partywall link adopt --help, and --after-reboot)
  9  as 0, but messages are or may be lost, as printed: a file of another boot was adopted, or the
     link reports a loss; recv to a regular file: also what the file may have lost in the reboot
  10 recv: as 0 and nothing is lost, but messages may have come again: a file of another boot was
     adopted
  130, 143  recv: ended by Ctrl-C (SIGINT) or by SIGTERM; the socket file is removed";

/// The error of a command whose flags contradict each other or lack one.
pub fn usage(reason: impl Into<String>) -> anyhow::Error {
    UsageError(reason.into()).into()
}

impl From<&anyhow::Error> for Exit {
    fn from(error: &anyhow::Error) -> Self {
        if error.is::<UsageError>() { Self::Usage } else { Self::Failure }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

impl From<&Closed> for Exit {
    /// Returns the exit code of a command whose peer has ended: only `Finished` is an end in good
    /// order.
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
    /// Returns the exit code of a command whose send failed. In this case even an orderly end of
    /// the peer is a failure, because the command had more to send.
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
            ConnectError::Config(_) => Self::Usage,
            _ => Self::NoConnection,
        }
    }
}
