// SPDX-License-Identifier: MIT OR Apache-2.0
//! Serde values as messages, encoded by postcard.
//!
//! ```text
//!   short   value ─ encode ─▶ stack ─ copy ─▶ ring                one pass
//!   long    value ─ measure ─▶ reserve ─ encode ─▶ shared memory   two passes, no buffer between
//!   recv    message view ─ decode ─▶ value               no copy; &str and &[u8] may borrow
//! ```
//!
//! If a value differs from its measured length, its reservation is dropped: a value is sent whole,
//! or not at all.

use crate::channel::{Channel, Receiver, Reservation, Sender, SharedSender};
use crate::error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::message::Message;
use postcard::ser_flavors::Size;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::any::type_name;
use std::time::Instant;

/// Why a value has no encoding.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a {type_name} cannot be encoded ({reason}): postcard needs lengths in advance, and a value that does \
     not change meanwhile"
)]
pub struct EncodeError {
    type_name: &'static str,
    reason: postcard::Error,
}

/// Why a message is not the expected value; it gives the message back.
#[derive(Debug, thiserror::Error)]
#[error(
    "message {number} ({} bytes) is no {type_name} ({reason}): do both sides have the same definition of it?",
    message.len()
)]
pub struct DecodeError {
    number: u64,
    type_name: &'static str,
    reason: postcard::Error,
    /// Boxed to keep the error small.
    message: Box<Message>,
}

impl DecodeError {
    /// Number of the message in its channel or stream direction, from 0.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// Returns the message.
    #[must_use]
    pub fn into_message(self) -> Message {
        *self.message
    }
}

/// Why a value was not sent; `E` is the error of the sender.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendValueError<E> {
    /// The value has no encoding, so no message was sent.
    #[error(transparent)]
    Encode(EncodeError),
    /// The message was not sent.
    #[error(transparent)]
    Send(E),
}

/// Why no value was received; `E` is the error of the receiver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvValueError<E> {
    /// A message came, and is not such a value. It was taken; the next one can be received.
    #[error(transparent)]
    Decode(DecodeError),
    /// No message was received.
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

/// A value up to this long goes by way of the stack: the ring would take a copy all the same.
const SHORT_MAX: usize = 1024;

/// A value, encoded or measured.
#[expect(clippy::large_enum_variant, reason = "lives for one call; a box is what it spares")]
enum Encoded {
    Short { bytes: [u8; SHORT_MAX], len: usize },
    Long { len: usize },
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Result<Encoded, EncodeError> {
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

/// Encodes into reserved memory; how much of it is used.
fn encode_into<T: Serialize + ?Sized>(value: &T, memory: &mut [u8]) -> Result<usize, EncodeError> {
    let encoded = postcard::to_slice(value, memory);
    encoded.map(|bytes| bytes.len()).map_err(|reason| failed::<T>(reason))
}

/// Sends a value: a short one by `send`, a long one in memory that it takes by `reserve` and hands
/// to `commit` with the length of what was used of it.
fn send_encoded<'a, S, T: Serialize + ?Sized, E>(
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

fn cut_and_commit(mut memory: Reservation<'_>, used: usize) -> Result<(), SendError> {
    memory.truncate(used);
    memory.commit()
}

fn cut_and_try_commit(mut memory: Reservation<'_>, used: usize) -> Result<(), TrySendError> {
    memory.truncate(used);
    memory.try_commit().map_err(|(_, error)| error)
}

fn failed<T: ?Sized>(reason: postcard::Error) -> EncodeError {
    EncodeError { type_name: type_name::<T>(), reason }
}

fn decode<T: DeserializeOwned, E>(message: Message, number: u64) -> Result<T, RecvValueError<E>> {
    match postcard::from_bytes(&message) {
        Ok(value) => Ok(value),
        Err(reason) => {
            let (type_name, message) = (type_name::<T>(), Box::new(message));
            Err(DecodeError { number, type_name, reason, message }.into())
        }
    }
}

impl Message {
    /// The value that the message encodes, which may borrow from it: strings and bytes are then not
    /// copied.
    ///
    /// Bytes after the value are ignored. Under [`Trust::Trusted`](crate::Trust::Trusted) borrowed
    /// parts lie in the peer's memory, and stay as checked only while the peer keeps its promise
    /// (SECURITY.md). Owned parts are copies.
    ///
    /// # Errors
    /// The error of postcard.
    ///
    /// # Examples
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    /// # let mut there = listener.accept()?;
    /// # let mut channel = client.join().unwrap();
    /// channel.send_value(&("a name", 7_u32))?;
    /// let message = there.recv()?.unwrap();
    /// let (name, number): (&str, u32) = message.value()?;
    /// assert_eq!((name, number), ("a name", 7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn value<'a, T: Deserialize<'a>>(&'a self) -> Result<T, postcard::Error> {
        postcard::from_bytes(self)
    }
}

impl Sender {
    /// Sends a serde value as one message. A long one is encoded in the memory that the receiver
    /// reads.
    ///
    /// # Errors
    /// See [`SendValueError`], and [`send`](Self::send).
    pub fn send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<SendError>> {
        send_encoded(self, value, Self::send, Self::reserve, cut_and_commit)
    }

    /// As [`send_value`](Self::send_value), but waits for room only until `deadline`.
    ///
    /// # Errors
    /// The errors of that method, and [`SendError::TimedOut`].
    pub fn send_value_deadline<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
        deadline: Instant,
    ) -> Result<(), SendValueError<SendError>> {
        send_encoded(
            self,
            value,
            |sender, bytes| sender.send_deadline(bytes, deadline),
            |sender, len| sender.reserve_deadline(len, deadline),
            cut_and_commit,
        )
    }

    /// As [`send_value`](Self::send_value), if there is room now. The call never waits.
    ///
    /// # Errors
    /// See [`SendValueError`], and [`try_send`](Self::try_send).
    pub fn try_send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<TrySendError>> {
        send_encoded(self, value, Self::try_send, Self::try_reserve, cut_and_try_commit)
    }
}

impl SharedSender {
    /// Calls [`Sender::send_value`] on the sending end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn send_value<T: Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), SendValueError<SendError>> {
        send_encoded(self, value, Self::send, Self::reserve, cut_and_commit)
    }

    /// Calls [`Sender::try_send_value`] on the sending end.
    ///
    /// # Errors
    /// The errors of that method, and [`TrySendError::Busy`] while another thread sends.
    pub fn try_send_value<T: Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), SendValueError<TrySendError>> {
        send_encoded(self, value, Self::try_send, Self::try_reserve, cut_and_try_commit)
    }
}

impl Receiver {
    /// Waits for the next message and decodes it in place as a serde value.
    ///
    /// # Errors
    /// [`RecvValueError::Decode`] if it is no such value: the message is taken, and the error
    /// returns it. Otherwise the errors of [`recv`](Self::recv).
    pub fn recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<RecvError>> {
        let message = self.recv().map_err(RecvValueError::Recv)?;
        message.map(|message| decode(message, self.last_number())).transpose()
    }

    /// As [`recv_value`](Self::recv_value), but only until `deadline`.
    ///
    /// # Errors
    /// The errors of that method, and [`RecvError::TimedOut`].
    pub fn recv_value_deadline<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<T>, RecvValueError<RecvError>> {
        let message = self.recv_deadline(deadline).map_err(RecvValueError::Recv)?;
        message.map(|message| decode(message, self.last_number())).transpose()
    }

    /// As [`recv_value`](Self::recv_value), if a message is there now. The call never waits.
    ///
    /// # Errors
    /// The errors of that method, and [`TryRecvError::Empty`].
    pub fn try_recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<TryRecvError>> {
        let message = self.try_recv().map_err(RecvValueError::Recv)?;
        message.map(|message| decode(message, self.last_number())).transpose()
    }
}

impl Channel {
    /// Calls [`Sender::send_value`] on the sending end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<SendError>> {
        self.sender().send_value(value)
    }

    /// Calls [`Receiver::recv_value`] on the receiving end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<RecvError>> {
        self.receiver().recv_value()
    }
}

#[cfg(feature = "tokio")]
mod streams {
    use super::{Encoded, RecvValueError, SendValueError, decode, encode, encode_into};
    use crate::session::{StreamRecvError, StreamSendError};
    use crate::tokio::{RecvStream, SendStream, Stream};
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    impl SendStream {
        /// Sends a serde value as one message. A long one is encoded in the memory that the
        /// receiver reads. Dropping the future sends nothing of it.
        ///
        /// # Errors
        /// See [`SendValueError`], and [`send`](Self::send).
        pub async fn send_value<T: Serialize + ?Sized>(
            &mut self,
            value: &T,
        ) -> Result<(), SendValueError<StreamSendError>> {
            let len = match encode(value)? {
                Encoded::Short { bytes, len } => {
                    return self.send(&bytes[..len]).await.map_err(SendValueError::Send);
                }
                Encoded::Long { len } => len,
            };
            let mut memory = self.reserve(len).await.map_err(SendValueError::Send)?;
            let used = encode_into(value, &mut memory)?;
            memory.truncate(used);
            memory.commit().await.map_err(SendValueError::Send)
        }
    }

    impl RecvStream {
        /// The next message as a serde value; `None` once the peer has finished. Cancel-safe: a
        /// future that is dropped took nothing.
        ///
        /// # Errors
        /// [`RecvValueError::Decode`] if it is no such value: the message is taken, and the error
        /// returns it. Otherwise the errors of [`recv`](Self::recv).
        pub async fn recv_value<T: DeserializeOwned>(
            &mut self,
        ) -> Result<Option<T>, RecvValueError<StreamRecvError>> {
            let message = self.recv().await.map_err(RecvValueError::Recv)?;
            let number = self.received().saturating_sub(1);
            message.map(|message| decode(message, number)).transpose()
        }
    }

    impl Stream {
        /// Calls [`SendStream::send_value`] on the sending direction.
        ///
        /// # Errors
        /// The errors of that method.
        pub async fn send_value<T: Serialize + ?Sized>(
            &mut self,
            value: &T,
        ) -> Result<(), SendValueError<StreamSendError>> {
            self.halves_mut().0.send_value(value).await
        }

        /// Calls [`RecvStream::recv_value`] on the receiving direction.
        ///
        /// # Errors
        /// The errors of that method.
        pub async fn recv_value<T: DeserializeOwned>(
            &mut self,
        ) -> Result<Option<T>, RecvValueError<StreamRecvError>> {
            self.halves_mut().1.recv_value().await
        }
    }
}
