// SPDX-License-Identifier: MIT OR Apache-2.0
//! The errors of sessions and streams, one small enum per operation, and the codes in the errors.

use crate::error::{Closed, Fault, TooLarge};
use partywall_layout::stream::{DROPPED, REFUSED, RESERVED_CODES};
use std::fmt;
use std::io;
use std::sync::Arc;

/// The reason why a session is over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// This side called [`close`](crate::blocking::Session::close) or dropped its last handle.
    /// Dropping closes with code 0 and an empty reason.
    #[error("this side closed the session{}", Reason(*code, reason))]
    ClosedHere {
        /// The code that the caller gave to `close`.
        code: u32,
        /// The reason that the caller gave to `close`.
        reason: Arc<str>,
    },
    /// The peer closed the session without a code or reason ([`Closed::Finished`]), or its
    /// connection was lost ([`Closed::Disconnected`]).
    #[error(transparent)]
    Closed(Closed),
    /// The peer closed the session, and gave a code or reason.
    #[error("the peer closed the session{}", Reason(*code, reason))]
    ClosedByPeer {
        /// The code that the peer gave to `close`.
        code: u32,
        /// The reason that the peer gave to `close`. Control characters are replaced.
        reason: Arc<str>,
    },
    /// The session is broken: the peer violated the protocol, or a system call failed.
    #[error(transparent)]
    Fault(Arc<Fault>),
    /// The session's protocol has no equivalent of the operation. The session continues.
    #[error("this protocol has no {what}: see partywall::protocol")]
    Unsupported {
        /// The missing operation, as text.
        what: &'static str,
    },
}

impl SessionError {
    /// Makes the error of a session that this side closed without code or reason.
    pub(crate) fn closed_here() -> Self {
        Self::ClosedHere { code: 0, reason: "".into() }
    }

    /// Whether one of the two sides closed the session, as opposed to a fault or a lost connection.
    #[must_use]
    pub const fn is_good_end(&self) -> bool {
        matches!(
            self,
            Self::ClosedHere { .. } | Self::ClosedByPeer { .. } | Self::Closed(Closed::Finished)
        )
    }
}

/// The code and reason of `close`, which `Display` writes as the end of a sentence.
struct Reason<'a>(u32, &'a str);

impl fmt::Display for Reason<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self(0, "") => Ok(()),
            Self(code, "") => write!(f, " (code {code:#x})"),
            Self(code, reason) => write!(f, " (code {code:#x}): {reason}"),
        }
    }
}

/// The reason why a call stopped waiting for an event of a session before the event happened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The deadline passed before the event happened. The session continues.
    #[error("timed out: the deadline passed before the event")]
    TimedOut,
    /// The event has not happened yet; only `try_` calls return this error. The session continues.
    #[error("the operation would block")]
    WouldBlock,
    /// The session is over, for the contained reason.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The reason why no stream was opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The peer sent `go_away` and accepts no more streams. The caller may open the stream over
    /// another session.
    #[error("the peer takes no more streams (code {code:#x}): open it over another session")]
    GoingAway {
        /// The code that the peer gave to `go_away`.
        code: u32,
    },
    /// The peer never allows this side to open a stream.
    #[error("the peer allows no streams: raise Config::streams_max there")]
    NoStreams,
    /// The metadata is longer than the metadata of a stream can be.
    #[error(
        "{len} bytes of metadata exceed the limit of {max}: send the rest as the first message"
    )]
    MetadataTooLong {
        /// Length of the metadata in bytes.
        len: usize,
        /// Longest possible metadata in bytes.
        max: usize,
    },
    /// The deadline passed before the peer allowed another stream, or before there was room to open
    /// it.
    #[error("timed out: no stream could be opened before the deadline")]
    TimedOut,
    /// Opening would have to wait; only `try_open` returns this error.
    #[error("opening a stream would block: the peer allows no more now, or there is no room")]
    WouldBlock,
    /// The session is over, for the contained reason.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The reason why a request was not received and answered.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// No request was received, so there is none to answer.
    #[error("no request was received: {0}")]
    Recv(StreamRecvError),
    /// A request was received, but its response was not sent.
    #[error("the response was not sent: {0}")]
    Send(StreamSendError),
}

/// The reason why a message was not sent on a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamSendError {
    /// The peer has stopped receiving from this stream.
    #[error("the peer receives no more of this stream (code {code:#x}{})", code_name(*code))]
    Stopped {
        /// The code that the peer gave; [`DROPPED`] if the peer dropped its end of the stream.
        code: u32,
    },
    /// This side has already finished or reset its sending direction.
    #[error("this side has finished or reset the stream")]
    ClosedHere,
    /// Credit or room is lacking. Only `try_send` returns this error, and `send` under the policy
    /// [`BackPressure::Error`](crate::BackPressure::Error).
    #[error("no credit or room now")]
    Full,
    /// The deadline passed before there was credit and room. Nothing of the message was sent.
    #[error("timed out: no room before the deadline")]
    TimedOut,
    /// The message is longer than this session can ever send.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// The owned reservation has its memory from another connection.
    #[error("the reservation belongs to another connection: commit it where it was reserved")]
    ForeignReservation,
    /// The session is over, for the contained reason.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// The reason why no message was received from a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamRecvError {
    /// The peer reset its sending direction. Messages that it had sent before were received.
    #[error("the peer has reset the stream (code {code:#x}{})", code_name(*code))]
    Reset {
        /// The code that the peer gave; [`DROPPED`] if a panic dropped the peer's end of the
        /// stream.
        code: u32,
    },
    /// No message has arrived; only `try_recv` returns this error.
    #[error("no message is there now")]
    Empty,
    /// The deadline passed before a message came.
    #[error("timed out: no message before the deadline")]
    TimedOut,
    /// This side has already stopped receiving from the stream.
    #[error("this side has stopped receiving from the stream")]
    StoppedHere,
    /// The session ended before the peer had finished the stream.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Makes the reason for which a session is over from a fault of its connection: any fault ends the
/// session.
impl From<Fault> for SessionError {
    fn from(fault: Fault) -> Self {
        Self::Fault(Arc::new(fault))
    }
}

impl From<SessionError> for io::Error {
    fn from(error: SessionError) -> Self {
        let kind = match &error {
            SessionError::ClosedHere { .. } => io::ErrorKind::NotConnected,
            SessionError::ClosedByPeer { .. } | SessionError::Closed(Closed::Finished) => {
                io::ErrorKind::ConnectionAborted
            }
            SessionError::Closed(Closed::Disconnected) => io::ErrorKind::ConnectionReset,
            SessionError::Fault(_) => io::ErrorKind::InvalidData,
            SessionError::Unsupported { .. } => io::ErrorKind::Unsupported,
        };
        Self::new(kind, error)
    }
}

impl From<WaitError> for io::Error {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::TimedOut => Self::new(io::ErrorKind::TimedOut, error),
            WaitError::WouldBlock => Self::new(io::ErrorKind::WouldBlock, error),
            WaitError::Session(error) => error.into(),
        }
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Session(error) => error.into(),
            OpenError::TimedOut => Self::new(io::ErrorKind::TimedOut, error),
            OpenError::WouldBlock => Self::new(io::ErrorKind::WouldBlock, error),
            OpenError::MetadataTooLong { .. } => Self::new(io::ErrorKind::InvalidInput, error),
            OpenError::GoingAway { .. } | OpenError::NoStreams => {
                Self::new(io::ErrorKind::ConnectionRefused, error)
            }
        }
    }
}

impl From<StreamSendError> for io::Error {
    fn from(error: StreamSendError) -> Self {
        match error {
            StreamSendError::Session(error) => error.into(),
            StreamSendError::Full => Self::new(io::ErrorKind::WouldBlock, error),
            StreamSendError::TimedOut => Self::new(io::ErrorKind::TimedOut, error),
            StreamSendError::TooLarge(_) | StreamSendError::ForeignReservation => {
                Self::new(io::ErrorKind::InvalidInput, error)
            }
            StreamSendError::Stopped { .. } | StreamSendError::ClosedHere => {
                Self::new(io::ErrorKind::BrokenPipe, error)
            }
        }
    }
}

impl From<StreamRecvError> for io::Error {
    fn from(error: StreamRecvError) -> Self {
        match error {
            StreamRecvError::Session(error) => error.into(),
            StreamRecvError::TimedOut => Self::new(io::ErrorKind::TimedOut, error),
            StreamRecvError::Reset { .. } => Self::new(io::ErrorKind::ConnectionReset, error),
            StreamRecvError::Empty => Self::new(io::ErrorKind::WouldBlock, error),
            StreamRecvError::StoppedHere => Self::new(io::ErrorKind::NotConnected, error),
        }
    }
}

/// Panics if the application passes a code that is reserved for the protocol: 0xffffff00 or
/// greater.
#[track_caller]
pub(crate) fn assert_application_code(code: u32) {
    assert!(
        code < RESERVED_CODES,
        "code {code:#x} is the protocol's: codes of an application are less than {RESERVED_CODES:#x}"
    );
}

/// Returns the name of a code that is reserved for the protocol, as the end of a sentence, or an
/// empty text for other codes.
const fn code_name(code: u32) -> &'static str {
    match code {
        REFUSED => ", refused: it was never accepted, and may be opened elsewhere",
        DROPPED => ", dropped: its user there is gone",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_of_the_protocol_has_a_name_in_errors() {
        for (code, words) in [(DROPPED, "0xffffff02, dropped"), (REFUSED, "0xffffff01, refused")] {
            let sent = StreamSendError::Stopped { code }.to_string();
            let received = StreamRecvError::Reset { code }.to_string();
            assert!(sent.contains(words) && received.contains(words), "{sent} / {received}");
        }
        let own = StreamRecvError::Reset { code: 7 }.to_string();
        assert_eq!(own, "the peer has reset the stream (code 0x7)");
    }

    #[test]
    fn code_of_the_protocol_is_refused_from_the_application() {
        assert_application_code(RESERVED_CODES - 1);
        for code in [RESERVED_CODES, REFUSED, DROPPED, u32::MAX] {
            assert!(
                std::panic::catch_unwind(|| assert_application_code(code)).is_err(),
                "{code:#x}"
            );
        }
    }
}
