// SPDX-License-Identifier: MIT OR Apache-2.0
//! What can go wrong with a session and its streams, one small enum per operation.

use crate::code::in_words;
use crate::error::{Closed, Fault, TooLarge};
use std::io;
use std::sync::Arc;

/// Why a session is over.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// This side closed it.
    #[error("this side has closed the session")]
    ClosedHere,
    /// The other side closed it, or is gone.
    #[error(transparent)]
    Closed(Closed),
    /// The session is broken.
    #[error(transparent)]
    Fault(Arc<Fault>),
    /// The protocol that is spoken has no such thing; the session goes on.
    #[error("this protocol has no {what}: see partywall::protocol")]
    Unsupported {
        /// What it lacks.
        what: &'static str,
    },
    /// The deadline passed, or, of the blocking `try_open` and `try_accept`, there is nothing now. The session
    /// goes on.
    #[error("it did not happen in time")]
    TimedOut,
}

/// Why no stream was opened.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The other side asked for no more streams (`go_away`), with this code. Open it elsewhere.
    #[error("the other side takes no more streams (code {code:#x}): open it over another session")]
    GoingAway {
        /// What the other side gave as its reason.
        code: u32,
    },
    /// The other side bears no stream at all.
    #[error("the other side allows no streams: raise Config::streams_max there")]
    NoStreams,
    /// More metadata than a stream can open with.
    #[error(
        "{len} bytes of metadata exceed the limit of {max}: send the rest as the first message"
    )]
    MetadataTooLong {
        /// Its length in bytes.
        len: usize,
        /// The most there may be, in bytes.
        max: usize,
    },
    /// The session is over.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Why a message was not sent on a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamSendError {
    /// The other side will not receive any more of this stream, and gave this code.
    #[error("the other side receives no more of this stream (code {code:#x}{})", in_words(*code))]
    Stopped {
        /// Its reason; [`DROPPED`](super::DROPPED) if it dropped the stream.
        code: u32,
    },
    /// This side closed or reset its sending direction before.
    #[error("this side has closed the stream for sending")]
    ClosedHere,
    /// There is no room, and the policy is [`BackPressure::Error`](crate::BackPressure::Error).
    #[error("there is no room now")]
    Full,
    /// The message can never be sent over this session.
    #[error("{0}")]
    TooLarge(TooLarge),
    /// The session is over; but [`SessionError::TimedOut`] only says that the deadline passed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// Why no message was received from a stream.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamRecvError {
    /// The other side closed its direction in good order; everything it sent was received.
    #[error("the other side has closed its direction of the stream")]
    Finished,
    /// The other side gave up, with this code. What it sent before was received.
    #[error("the other side has reset the stream (code {code:#x}{})", in_words(*code))]
    Reset {
        /// Its reason; [`DROPPED`](super::DROPPED) if it was dropped while unwinding.
        code: u32,
    },
    /// Nothing is there now; only from `try_recv`.
    #[error("no message is there now")]
    Empty,
    /// This side stopped receiving before.
    #[error("this side has stopped receiving from the stream")]
    StoppedHere,
    /// The session is over; but [`SessionError::TimedOut`] only says that the deadline passed.
    #[error(transparent)]
    Session(#[from] SessionError),
}

/// For those who see that the session has a fault.
impl From<Fault> for SessionError {
    fn from(fault: Fault) -> Self {
        Self::Fault(Arc::new(fault))
    }
}

impl From<SessionError> for io::Error {
    fn from(error: SessionError) -> Self {
        let kind = match &error {
            SessionError::ClosedHere => io::ErrorKind::NotConnected,
            SessionError::Closed(Closed::Finished) => io::ErrorKind::ConnectionAborted,
            SessionError::Closed(Closed::Disconnected) => io::ErrorKind::ConnectionReset,
            SessionError::Fault(_) => io::ErrorKind::InvalidData,
            SessionError::TimedOut => io::ErrorKind::TimedOut,
            SessionError::Unsupported { .. } => io::ErrorKind::Unsupported,
        };
        Self::new(kind, error)
    }
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Session(error) => error.into(),
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
            StreamSendError::TooLarge(_) => Self::new(io::ErrorKind::InvalidInput, error),
            StreamSendError::Stopped { .. } | StreamSendError::ClosedHere => {
                Self::new(io::ErrorKind::BrokenPipe, error)
            }
        }
    }
}

impl From<StreamRecvError> for io::Error {
    /// [`Finished`](StreamRecvError::Finished) is the end of a byte stream and no error there; here it
    /// becomes `UnexpectedEof`.
    fn from(error: StreamRecvError) -> Self {
        match error {
            StreamRecvError::Session(error) => error.into(),
            StreamRecvError::Finished => Self::new(io::ErrorKind::UnexpectedEof, error),
            StreamRecvError::Reset { .. } => Self::new(io::ErrorKind::ConnectionReset, error),
            StreamRecvError::Empty => Self::new(io::ErrorKind::WouldBlock, error),
            StreamRecvError::StoppedHere => Self::new(io::ErrorKind::NotConnected, error),
        }
    }
}
