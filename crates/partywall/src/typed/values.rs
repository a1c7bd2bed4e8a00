// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serde values as messages, encoded by postcard.
//!
//! ```text
//!   short   value ─ encode ─▶ stack ─ copy ─▶ ring                one pass
//!   long    value ─ measure ─▶ reserve ─ encode ─▶ shared memory   two passes, no buffer between
//!   recv    message view ─ decode ─▶ value                         no copy; &str, &[u8] borrow
//! ```
//!
//! If the value's encoded length differs from the measured one, the reservation is aborted: a value
//! is sent as a whole or not at all.

use crate::channel::Reservation;
use crate::error::{SendError, TrySendError};
use crate::message::Message;
use postcard::ser_flavors::Size;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::any::type_name;

/// The reason why postcard cannot encode a value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a {type_name} cannot be encoded ({reason}): postcard needs lengths in advance, and a value that does \
     not change meanwhile"
)]
pub struct EncodeError {
    type_name: &'static str,
    reason: postcard::Error,
}

/// The reason why a message does not decode as the expected type.
/// [`into_message`](Self::into_message) returns the message.
#[derive(Debug, thiserror::Error)]
#[error(
    "message {number} ({} bytes) is no {type_name} ({reason}): do both sides have the same definition of it?",
    message.len()
)]
pub struct DecodeError {
    number: u64,
    type_name: &'static str,
    reason: postcard::Error,
    /// The message that could not be decoded, in a box to keep the error type small.
    message: Box<Message>,
}

impl DecodeError {
    /// Returns the index of the message in its direction of the channel or stream, from 0.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the message that could not be decoded.
    #[must_use]
    pub fn into_message(self) -> Message {
        *self.message
    }
}

/// The reason why a value was not sent; `E` is the error type of the sender's own `send`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendValueError<E> {
    /// Postcard cannot encode the value; nothing was sent.
    #[error(transparent)]
    Encode(EncodeError),
    /// Sending the encoded message failed.
    #[error(transparent)]
    Send(E),
}

/// The reason why no value was received; `E` is the error type of the receiver's own `recv`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvValueError<E> {
    /// The received message does not decode as the expected type. The message counts as received;
    /// the next one can be received.
    #[error(transparent)]
    Decode(DecodeError),
    /// No message was received, for the contained reason.
    #[error(transparent)]
    Recv(E),
}

impl<E> From<EncodeError> for SendValueError<E> {
    fn from(error: EncodeError) -> Self {
        Self::Encode(error)
    }
}

impl<E> From<DecodeError> for RecvValueError<E> {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

/// Longest encoded value, in bytes, that is encoded on the stack and then copied into the ring.
const SHORT_MAX: usize = 1024;

/// A value after the first pass of encoding: a short value is encoded, a long one is only measured.
#[expect(clippy::large_enum_variant, reason = "lives for one call; a box is what it spares")]
pub(super) enum Encoded {
    Short { bytes: [u8; SHORT_MAX], len: usize },
    Long { len: usize },
}

pub(super) fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Encoded, EncodeError> {
    let mut bytes = [0; SHORT_MAX];
    match postcard::to_slice(value, &mut bytes) {
        Ok(encoded) => {
            let len = encoded.len();
            Ok(Encoded::Short { bytes, len })
        }
        Err(postcard::Error::SerializeBufferFull) => {
            let len = postcard::serialize_with_flavor(value, Size::default());
            Ok(Encoded::Long { len: len.map_err(|reason| failed::<T>(reason))? })
        }
        Err(reason) => Err(failed::<T>(reason)),
    }
}

/// Encodes the value into `memory`, the reserved memory of a message. Returns the number of bytes
/// used.
pub(super) fn encode_into<T: Serialize + ?Sized>(
    value: &T,
    memory: &mut [u8],
) -> Result<usize, EncodeError> {
    let encoded = postcard::to_slice(value, memory);
    encoded.map(|bytes| bytes.len()).map_err(|reason| failed::<T>(reason))
}

/// Encodes and sends a value. A short value is sent by `send`. For a long value, `reserve` provides
/// memory, and `commit` sends the memory after cutting it to the used length.
pub(super) fn send_encoded<'a, S, T: Serialize + ?Sized, E>(
    sender: S,
    value: &T,
    send: impl FnOnce(S, &[u8]) -> Result<(), E>,
    reserve: impl FnOnce(S, usize) -> Result<Reservation<'a>, E>,
    commit: impl FnOnce(Reservation<'a>, usize) -> Result<(), E>,
) -> Result<(), SendValueError<E>> {
    let len = match encode(value)? {
        Encoded::Short { bytes, len } => {
            return send(sender, &bytes[..len]).map_err(SendValueError::Send);
        }
        Encoded::Long { len } => len,
    };
    let mut memory = reserve(sender, len).map_err(SendValueError::Send)?;
    let used = encode_into(value, &mut memory)?;
    commit(memory, used).map_err(SendValueError::Send)
}

pub(super) fn cut_and_commit(mut memory: Reservation<'_>, used: usize) -> Result<(), SendError> {
    memory.truncate(used);
    memory.commit()
}

pub(super) fn cut_and_try_commit(
    mut memory: Reservation<'_>,
    used: usize,
) -> Result<(), TrySendError> {
    memory.truncate(used);
    memory.try_commit().map_err(|(_, error)| error)
}

fn failed<T: ?Sized>(reason: postcard::Error) -> EncodeError {
    EncodeError { type_name: type_name::<T>(), reason }
}

pub(super) fn decode<T: DeserializeOwned, E>(
    message: Message,
    number: u64,
) -> Result<T, RecvValueError<E>> {
    match postcard::from_bytes(&message) {
        Ok(value) => Ok(value),
        Err(reason) => {
            let (type_name, message) = (type_name::<T>(), Box::new(message));
            Err(DecodeError { number, type_name, reason, message }.into())
        }
    }
}
