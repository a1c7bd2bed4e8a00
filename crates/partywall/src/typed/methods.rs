// SPDX-License-Identifier: MIT OR Apache-2.0
//! The methods of channels and streams that send and receive values.
//!
//! ```text
//!   send_value, recv_value     feature `serde`      values.rs: encoding and decoding
//!   send_plain, recv_plain     feature `zerocopy`   plain.rs: the bytes of the struct itself
//! ```

#[cfg(feature = "zerocopy")]
use super::plain::{NotPlain, Plain, RecvPlainError, into_checked, into_plain};
#[cfg(all(feature = "serde", feature = "tokio"))]
use super::values::{Encoded, encode, encode_into};
#[cfg(feature = "serde")]
use super::values::{
    RecvValueError, SendValueError, cut_and_commit, cut_and_try_commit, decode, send_encoded,
};
use crate::channel::{Channel, Receiver, Sender, SharedSender};
use crate::error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::message::Message;
#[cfg(feature = "tokio")]
use crate::session::{StreamRecvError, StreamSendError};
#[cfg(feature = "tokio")]
use crate::tokio::{RecvStream, SendStream, Stream};
#[cfg(feature = "serde")]
use serde::de::DeserializeOwned;
#[cfg(feature = "serde")]
use serde::{Deserialize, Serialize};
use std::time::Instant;
#[cfg(feature = "zerocopy")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

#[cfg(feature = "serde")]
impl Message {
    /// Decodes the value that the message contains. The value may borrow strings and bytes from the
    /// message; these are then not copied.
    ///
    /// Bytes after the value are ignored. Under [`Trust::Trusted`](crate::Trust::Trusted), borrowed
    /// data lies in the peer's memory, and stays unchanged only while the peer keeps its promise
    /// not to change a message that it has sent (SECURITY.md). Owned data was copied, so the peer
    /// cannot change it.
    ///
    /// # Errors
    /// Returns the error of postcard.
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

#[cfg(feature = "serde")]
impl Sender {
    /// Sends a serde value as one message. A long value is encoded directly into shared memory.
    ///
    /// # Errors
    /// Returns [`SendValueError`]; fails also as [`send`](Self::send) does.
    pub fn send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<SendError>> {
        send_encoded(self, value, Self::send, Self::reserve, cut_and_commit)
    }

    /// Sends a serde value as [`send_value`](Self::send_value) does, but blocks only until
    /// `deadline`.
    ///
    /// # Errors
    /// Fails as [`send_value`](Self::send_value) does, and with [`SendError::TimedOut`].
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

    /// Sends a serde value as [`send_value`](Self::send_value) does, if there is room now. Never
    /// blocks.
    ///
    /// # Errors
    /// Returns [`SendValueError`]; fails also as [`try_send`](Self::try_send) does.
    pub fn try_send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<TrySendError>> {
        send_encoded(self, value, Self::try_send, Self::try_reserve, cut_and_try_commit)
    }
}

#[cfg(feature = "serde")]
impl SharedSender {
    /// Sends a serde value, as [`Sender::send_value`] does.
    ///
    /// # Errors
    /// Fails as [`send_value`](Sender::send_value) does, for example if the value cannot be encoded
    /// or the peer is gone.
    pub fn send_value<T: Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), SendValueError<SendError>> {
        send_encoded(self, value, Self::send, Self::reserve, cut_and_commit)
    }

    /// Sends a serde value without blocking, as [`Sender::try_send_value`] does.
    ///
    /// # Errors
    /// Fails as [`try_send_value`](Sender::try_send_value) does, and with [`TrySendError::Busy`]
    /// while another thread sends.
    pub fn try_send_value<T: Serialize + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), SendValueError<TrySendError>> {
        send_encoded(self, value, Self::try_send, Self::try_reserve, cut_and_try_commit)
    }
}

#[cfg(feature = "serde")]
impl Receiver {
    /// Blocks until the next message arrives, and decodes it as a serde value.
    ///
    /// # Errors
    /// [`RecvValueError::Decode`] if the message does not encode a `T`. The message counts as
    /// received, and the error contains it. Fails also as [`recv`](Self::recv) does.
    pub fn recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<RecvError>> {
        let message = self.recv().map_err(RecvValueError::Recv)?;
        message.map(|message| decode(message, self.last_number())).transpose()
    }

    /// Receives a serde value as [`recv_value`](Self::recv_value) does, but blocks only until
    /// `deadline`.
    ///
    /// # Errors
    /// Fails as [`recv_value`](Self::recv_value) does, and with [`RecvError::TimedOut`].
    pub fn recv_value_deadline<T: DeserializeOwned>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<T>, RecvValueError<RecvError>> {
        let message = self.recv_deadline(deadline).map_err(RecvValueError::Recv)?;
        message.map(|message| decode(message, self.last_number())).transpose()
    }

    /// Receives a serde value as [`recv_value`](Self::recv_value) does, if a message has arrived.
    /// Never blocks.
    ///
    /// # Errors
    /// Fails as [`recv_value`](Self::recv_value) does, and with [`TryRecvError::Empty`].
    pub fn try_recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<TryRecvError>> {
        let message = self.try_recv().map_err(RecvValueError::Recv)?;
        message.map(|message| decode(message, self.last_number())).transpose()
    }
}

#[cfg(feature = "serde")]
impl Channel {
    /// Sends a serde value, as [`Sender::send_value`] does.
    ///
    /// # Errors
    /// Fails as [`send_value`](Sender::send_value) does, for example if the value cannot be encoded
    /// or the peer is gone.
    pub fn send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<SendError>> {
        self.sender().send_value(value)
    }

    /// Receives a serde value, as [`Receiver::recv_value`] does.
    ///
    /// # Errors
    /// Fails as [`recv_value`](Receiver::recv_value) does, for example if the message does not
    /// decode as a `T`.
    pub fn recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<RecvError>> {
        self.receiver().recv_value()
    }
}

#[cfg(feature = "zerocopy")]
impl Message {
    /// Converts the message into a plain struct or a slice of plain structs. A long message is read
    /// in place if its address is aligned for `T`, and copied otherwise.
    ///
    /// # Errors
    /// Returns [`NotPlain`] with the message if its length does not suit `T`.
    ///
    /// # Examples
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    /// # let mut there = listener.accept()?;
    /// # let mut channel = client.join().unwrap();
    /// channel.send_plain(&[1_u64, 2, 3][..])?;
    /// let numbers = there.recv()?.unwrap().into_plain::<[u64]>()?;
    /// assert_eq!(numbers.iter().sum::<u64>(), 6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_plain<T>(self) -> Result<Plain<T>, NotPlain>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        into_plain(self, None)
    }

    /// Converts the message into a struct of which only some byte patterns are valid: copies the
    /// bytes, then checks the copy.
    ///
    /// # Errors
    /// Returns [`NotPlain`] with the message if its bytes are no valid `T`.
    pub fn into_checked<T: TryFromBytes>(self) -> Result<T, NotPlain> {
        into_checked(self, None)
    }
}

#[cfg(feature = "zerocopy")]
impl Sender {
    /// Sends a plain struct or a slice of plain structs: their bytes in memory are the payload of
    /// the message.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer is gone or the message is too
    /// long.
    ///
    /// # Examples
    /// ```
    /// # let directory = tempfile::tempdir()?;
    /// # let address = format!("unix:{}/app.sock", directory.path().display());
    /// # let mut listener = partywall::Listener::bind(&address)?;
    /// # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
    /// # let mut there = listener.accept()?;
    /// # let mut channel = client.join().unwrap();
    /// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
    ///
    /// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
    /// #[repr(C)]
    /// struct Point { x: f64, y: f64 }
    ///
    /// channel.sender().send_plain(&Point { x: 1.0, y: 2.0 })?;
    /// let point = there.receiver().recv_plain::<Point>()?.unwrap();
    /// assert_eq!(point.x + point.y, 3.0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendError> {
        self.send(value.as_bytes())
    }

    /// Sends a plain struct as [`send_plain`](Self::send_plain) does, if there is room now. Never
    /// blocks.
    ///
    /// # Errors
    /// Fails as [`try_send`](Self::try_send) does, for example if there is no room now or the peer
    /// is gone.
    pub fn try_send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), TrySendError> {
        self.try_send(value.as_bytes())
    }
}

#[cfg(feature = "zerocopy")]
impl SharedSender {
    /// Sends a plain struct or a slice of them, as [`Sender::send_plain`] does.
    ///
    /// # Errors
    /// Fails as [`send_plain`](Sender::send_plain) does, for example if the peer is gone or the
    /// message is too long.
    pub fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), SendError> {
        self.send(value.as_bytes())
    }

    /// Sends a plain struct without blocking, as [`Sender::try_send_plain`] does.
    ///
    /// # Errors
    /// Fails as [`try_send_plain`](Sender::try_send_plain) does, for example if there is no room
    /// now or the peer is gone.
    pub fn try_send_plain<T: IntoBytes + Immutable + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), TrySendError> {
        self.try_send(value.as_bytes())
    }
}

#[cfg(feature = "zerocopy")]
impl Receiver {
    /// Blocks until the next message arrives, and returns it as a plain struct or a slice of them.
    ///
    /// # Errors
    /// [`RecvPlainError::NotPlain`] if the message's length does not suit `T`. The message counts
    /// as received, and the error contains it. Fails also as [`recv`](Self::recv) does.
    pub fn recv_plain<T>(&mut self) -> Result<Option<Plain<T>>, RecvPlainError<RecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.recv().map_err(RecvPlainError::Recv)?;
        let number = Some(self.last_number());
        let message = message.map(|message| into_plain(message, number)).transpose();
        message.map_err(RecvPlainError::NotPlain)
    }

    /// Receives a plain struct as [`recv_plain`](Self::recv_plain) does, but blocks only until
    /// `deadline`.
    ///
    /// # Errors
    /// Fails as [`recv_plain`](Self::recv_plain) does, and with [`RecvError::TimedOut`].
    pub fn recv_plain_deadline<T>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<Plain<T>>, RecvPlainError<RecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.recv_deadline(deadline).map_err(RecvPlainError::Recv)?;
        let number = Some(self.last_number());
        let message = message.map(|message| into_plain(message, number)).transpose();
        message.map_err(RecvPlainError::NotPlain)
    }

    /// Receives a plain struct as [`recv_plain`](Self::recv_plain) does, if a message has arrived.
    /// Never blocks.
    ///
    /// # Errors
    /// Fails as [`recv_plain`](Self::recv_plain) does, and with [`TryRecvError::Empty`].
    pub fn try_recv_plain<T>(&mut self) -> Result<Option<Plain<T>>, RecvPlainError<TryRecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.try_recv().map_err(RecvPlainError::Recv)?;
        let number = Some(self.last_number());
        let message = message.map(|message| into_plain(message, number)).transpose();
        message.map_err(RecvPlainError::NotPlain)
    }

    /// Blocks until the next message arrives, and returns it as a struct of which only some byte
    /// patterns are valid, because it contains enums, `bool` or `char`. The bytes are copied, then
    /// checked.
    ///
    /// # Errors
    /// [`RecvPlainError::NotPlain`] if the message's length differs from that of `T`, or its bytes
    /// are no valid `T`. Fails also as [`recv`](Self::recv) does.
    pub fn recv_checked<T: TryFromBytes>(
        &mut self,
    ) -> Result<Option<T>, RecvPlainError<RecvError>> {
        let message = self.recv().map_err(RecvPlainError::Recv)?;
        let number = Some(self.last_number());
        let message = message.map(|message| into_checked(message, number)).transpose();
        message.map_err(RecvPlainError::NotPlain)
    }
}

#[cfg(feature = "zerocopy")]
impl Channel {
    /// Sends a plain struct or a slice of plain structs, as [`Sender::send_plain`] does.
    ///
    /// # Errors
    /// Fails as [`send_plain`](Sender::send_plain) does, for example if the peer is gone or the
    /// message is too long.
    pub fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendError> {
        self.sender().send_plain(value)
    }

    /// Receives a plain struct or a slice of them, as [`Receiver::recv_plain`] does.
    ///
    /// # Errors
    /// Fails as [`recv_plain`](Receiver::recv_plain) does, for example if the message is no `T`.
    pub fn recv_plain<T>(&mut self) -> Result<Option<Plain<T>>, RecvPlainError<RecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        self.receiver().recv_plain()
    }

    /// Receives a struct that is copied and checked, as [`Receiver::recv_checked`] does.
    ///
    /// # Errors
    /// Fails as [`recv_checked`](Receiver::recv_checked) does, for example if the message is no
    /// `T`.
    pub fn recv_checked<T: TryFromBytes>(
        &mut self,
    ) -> Result<Option<T>, RecvPlainError<RecvError>> {
        self.receiver().recv_checked()
    }
}

#[cfg(all(feature = "serde", feature = "tokio"))]
impl SendStream {
    /// Sends a serde value as one message. A long value is encoded directly into shared memory. If
    /// the future is dropped before it completes, nothing of the message is sent.
    ///
    /// # Errors
    /// Returns [`SendValueError`]; fails also as [`send`](Self::send) does.
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

#[cfg(all(feature = "serde", feature = "tokio"))]
impl RecvStream {
    /// Receives the next message and decodes it as a serde value. Returns `None` once the peer has
    /// finished. Cancel-safe: a dropped future has taken no message.
    ///
    /// # Errors
    /// [`RecvValueError::Decode`] if the message does not encode a `T`. The message counts as
    /// received, and the error contains it. Fails also as [`recv`](Self::recv) does.
    pub async fn recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<StreamRecvError>> {
        let message = self.recv().await.map_err(RecvValueError::Recv)?;
        let number = self.received().saturating_sub(1);
        message.map(|message| decode(message, number)).transpose()
    }
}

#[cfg(all(feature = "serde", feature = "tokio"))]
impl Stream {
    /// Sends a serde value, as [`SendStream::send_value`] does.
    ///
    /// # Errors
    /// Fails as [`send_value`](SendStream::send_value) does, for example if the value cannot be
    /// encoded or the peer is gone.
    pub async fn send_value<T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendValueError<StreamSendError>> {
        self.halves_mut().0.send_value(value).await
    }

    /// Receives a serde value, as [`RecvStream::recv_value`] does.
    ///
    /// # Errors
    /// Fails as [`recv_value`](RecvStream::recv_value) does, for example if the message does not
    /// decode as a `T`.
    pub async fn recv_value<T: DeserializeOwned>(
        &mut self,
    ) -> Result<Option<T>, RecvValueError<StreamRecvError>> {
        self.halves_mut().1.recv_value().await
    }
}

#[cfg(all(feature = "zerocopy", feature = "tokio"))]
impl SendStream {
    /// Sends a plain struct or a slice of plain structs: their bytes in memory are the payload of
    /// the message.
    ///
    /// # Errors
    /// Fails as [`send`](Self::send) does, for example if the peer has stopped receiving or the
    /// session is over.
    pub async fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), StreamSendError> {
        self.send(value.as_bytes()).await
    }
}

#[cfg(all(feature = "zerocopy", feature = "tokio"))]
impl RecvStream {
    /// Receives the next message as a plain struct or a slice of plain structs. Returns `None` once
    /// the peer has finished.
    ///
    /// # Errors
    /// [`RecvPlainError::NotPlain`] if the message's length does not suit `T`. Fails also as
    /// [`recv`](Self::recv) does.
    pub async fn recv_plain<T>(
        &mut self,
    ) -> Result<Option<Plain<T>>, RecvPlainError<StreamRecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.recv().await.map_err(RecvPlainError::Recv)?;
        let number = self.received().saturating_sub(1);
        let message = message.map(|message| into_plain(message, Some(number))).transpose();
        message.map_err(RecvPlainError::NotPlain)
    }

    /// Receives the next message as a struct of which only some byte patterns are valid: copied,
    /// then checked. Returns `None` once the peer has finished.
    ///
    /// # Errors
    /// [`RecvPlainError::NotPlain`] if the message's length differs from that of `T`, or its bytes
    /// are no valid `T`. Fails also as [`recv`](Self::recv) does.
    pub async fn recv_checked<T: TryFromBytes>(
        &mut self,
    ) -> Result<Option<T>, RecvPlainError<StreamRecvError>> {
        let message = self.recv().await.map_err(RecvPlainError::Recv)?;
        let number = self.received().saturating_sub(1);
        let message = message.map(|message| into_checked(message, Some(number))).transpose();
        message.map_err(RecvPlainError::NotPlain)
    }
}

#[cfg(all(feature = "zerocopy", feature = "tokio"))]
impl Stream {
    /// Sends a plain struct or a slice of them, as [`SendStream::send_plain`] does.
    ///
    /// # Errors
    /// Fails as [`send_plain`](SendStream::send_plain) does, for example if the peer has stopped
    /// receiving or the session is over.
    pub async fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), StreamSendError> {
        self.halves_mut().0.send_plain(value).await
    }

    /// Receives a plain struct or a slice of them, as [`RecvStream::recv_plain`] does.
    ///
    /// # Errors
    /// Fails as [`recv_plain`](RecvStream::recv_plain) does, for example if the message is no `T`.
    pub async fn recv_plain<T>(
        &mut self,
    ) -> Result<Option<Plain<T>>, RecvPlainError<StreamRecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        self.halves_mut().1.recv_plain().await
    }
}
