// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain structs as messages: their own bytes, read in place.
//!
//! ```text
//!   send_plain(&T)       T's bytes are the payload
//!   recv_plain::<T>()    length and alignment are checked once; then the message is a &T
//!   recv_checked::<T>()  copied first, then checked bit by bit: for enums, bool, char
//! ```
//!
//! # Types that can be read in place
//!
//! Only types for which *any* bytes are a value ([`FromBytes`]). A type with invalid bytes must be
//! checked on a private copy, and safe code cannot record that it was checked, so it is received by
//! value.
//!
//! # Under `Trust::Trusted`
//!
//! Length and alignment are private and never change. The bytes of a large message lie in the
//! peer's memory and stay the same only while the peer keeps its promise (SECURITY.md). A peer that
//! breaks it can change a field between two reads. So copy before a check, and use the copy: `let
//! header = *plain;`. Under [`Trust::Untrusted`](crate::Trust::Untrusted) the whole message is a
//! private copy.

use super::places::Place;
use crate::channel::{Channel, Receiver, Sender, SharedSender};
use crate::error::{RecvError, SendError, TryRecvError, TrySendError};
use crate::message::Message;
use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Instant;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

/// A message that is a `T`, or a slice of them: derefs to it.
///
/// A large message is read in place; dropping this returns its memory to the sender. A message
/// whose address does not suit `T` (a short one, or one advanced past a header) is copied once to
/// an aligned address.
pub struct Plain<T: ?Sized> {
    place: Place,
    is: PhantomData<fn() -> Box<T>>,
}

/// A message that is not a `T`; it gives the message back.
#[derive(Debug)]
pub struct NotPlain {
    number: Option<u64>,
    type_name: &'static str,
    what: What,
    /// Boxed to keep the error small.
    message: Box<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Size,
    Alignment,
    Bytes,
}

/// Why no plain struct was received; `E` is the error of the receiver.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvPlainError<E> {
    /// The received message is no such struct. It was taken; the next one can be received.
    #[error(transparent)]
    NotPlain(NotPlain),
    /// No message was received.
    #[error(transparent)]
    Recv(E),
}

impl NotPlain {
    /// Number of the message in its channel or stream direction, from 0, if known.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the message.
    #[must_use]
    pub fn into_message(self) -> Message {
        *self.message
    }
}

impl fmt::Display for NotPlain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, type_name) = (self.message.len(), self.type_name);
        match self.number {
            Some(number) => write!(f, "message {number} ({len} bytes) is no {type_name}: ")?,
            None => write!(f, "a message of {len} bytes is no {type_name}: ")?,
        }
        f.write_str(match self.what {
            What::Size => "its length is another; do both sides have the same definition of it?",
            What::Alignment => "more than 64 bytes of alignment cannot be had",
            What::Bytes => {
                "its bytes are none of its values; did the other side send another type?"
            }
        })
    }
}

impl std::error::Error for NotPlain {}

impl<T: FromBytes + KnownLayout + Immutable + ?Sized> Plain<T> {
    /// The message as a `T`; the error gives it back.
    fn new(message: Message) -> Result<Self, (What, Box<Message>)> {
        let what = match T::ref_from_bytes(&message) {
            // A short message moves with the value, so its present address means nothing.
            Ok(_) if message.has_stable_address() => {
                return Ok(Self { place: Place::There(message), is: PhantomData });
            }
            Ok(_) | Err(zerocopy::CastError::Alignment(_)) => None,
            Err(zerocopy::CastError::Size(_)) => Some(What::Size),
        };
        if let Some(what) = what {
            return Err((what, Box::new(message)));
        }
        let place = Place::copied(&message);
        match T::ref_from_bytes(place.as_slice()) {
            Ok(_) => Ok(Self { place, is: PhantomData }),
            Err(zerocopy::CastError::Alignment(_)) => Err((What::Alignment, Box::new(message))),
            Err(zerocopy::CastError::Size(_)) => Err((What::Size, Box::new(message))),
        }
    }
}

impl<T: ?Sized> Plain<T> {
    /// Whether the message is read in the sender's memory, without a copy.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        match &self.place {
            Place::There(message) => message.is_zero_copy(),
            _ => false,
        }
    }
}

impl<T: FromBytes + KnownLayout + Immutable + ?Sized> Deref for Plain<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match T::ref_from_bytes(self.place.as_slice()) {
            Ok(value) => value,
            // Not reached, not even in a forked child: length and address were checked at
            // construction and never change. The bytes may change, but any bytes are a value. The
            // mapping is read-only, so children inherit it (tests/fork/channels.rs). A copy is
            // aligned to 64 wherever it moves.
            Err(_) => unreachable!("the place of a plain struct has changed"),
        }
    }
}

impl<T> fmt::Debug for Plain<T>
where
    T: FromBytes + KnownLayout + Immutable + fmt::Debug + ?Sized,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Plain").field(&&**self).finish()
    }
}

fn plain<T, E>(message: Message, number: u64) -> Result<Plain<T>, RecvPlainError<E>>
where
    T: FromBytes + KnownLayout + Immutable + ?Sized,
{
    Plain::new(message).map_err(|(what, message)| not_plain::<T, E>(what, message, number))
}

fn checked<T: TryFromBytes, E>(message: Message, number: u64) -> Result<T, RecvPlainError<E>> {
    read::<T>(&message).map_err(|what| not_plain::<T, E>(what, Box::new(message), number))
}

/// Copies, then checks the copy.
fn read<T: TryFromBytes>(message: &Message) -> Result<T, What> {
    T::try_read_from_bytes(message).map_err(|error| match error {
        zerocopy::ConvertError::Size(_) => What::Size,
        _ => What::Bytes,
    })
}

fn not_plain<T: ?Sized, E>(what: What, message: Box<Message>, number: u64) -> RecvPlainError<E> {
    let (number, type_name) = (Some(number), type_name::<T>());
    RecvPlainError::NotPlain(NotPlain { number, type_name, what, message })
}

impl Message {
    /// The message as a plain struct, or as a slice of them; read in place if its address suits.
    ///
    /// # Errors
    /// [`NotPlain`], with the message, if its length differs.
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
        Plain::new(self).map_err(|(what, message)| NotPlain {
            number: None,
            type_name: type_name::<T>(),
            what,
            message,
        })
    }

    /// The message as a struct for which some bytes are invalid: copied, then checked.
    ///
    /// # Errors
    /// [`NotPlain`], with the message.
    pub fn into_checked<T: TryFromBytes>(self) -> Result<T, NotPlain> {
        read::<T>(&self).map_err(|what| NotPlain {
            number: None,
            type_name: type_name::<T>(),
            what,
            message: Box::new(self),
        })
    }
}

impl Sender {
    /// Sends a plain struct, or a slice of them: its own bytes, as one message.
    ///
    /// # Errors
    /// The errors of [`send`](Self::send).
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

    /// As [`send_plain`](Self::send_plain), if there is room now. The call never waits.
    ///
    /// # Errors
    /// The errors of [`try_send`](Self::try_send).
    pub fn try_send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), TrySendError> {
        self.try_send(value.as_bytes())
    }
}

impl SharedSender {
    /// Calls [`Sender::send_plain`] on the sending end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), SendError> {
        self.send(value.as_bytes())
    }

    /// Calls [`Sender::try_send_plain`] on the sending end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn try_send_plain<T: IntoBytes + Immutable + ?Sized>(
        &self,
        value: &T,
    ) -> Result<(), TrySendError> {
        self.try_send(value.as_bytes())
    }
}

impl Receiver {
    /// Waits for the next message and returns it as a plain struct, or as a slice of them.
    ///
    /// # Errors
    /// [`RecvPlainError::NotPlain`] if its length differs: the message is taken, and the error
    /// returns it. Otherwise the errors of [`recv`](Self::recv).
    pub fn recv_plain<T>(&mut self) -> Result<Option<Plain<T>>, RecvPlainError<RecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.recv().map_err(RecvPlainError::Recv)?;
        message.map(|message| plain(message, self.last_number())).transpose()
    }

    /// As [`recv_plain`](Self::recv_plain), but only until `deadline`.
    ///
    /// # Errors
    /// The errors of that method, and [`RecvError::TimedOut`].
    pub fn recv_plain_deadline<T>(
        &mut self,
        deadline: Instant,
    ) -> Result<Option<Plain<T>>, RecvPlainError<RecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.recv_deadline(deadline).map_err(RecvPlainError::Recv)?;
        message.map(|message| plain(message, self.last_number())).transpose()
    }

    /// As [`recv_plain`](Self::recv_plain), if a message is there now. The call never waits.
    ///
    /// # Errors
    /// The errors of that method, and [`TryRecvError::Empty`].
    pub fn try_recv_plain<T>(&mut self) -> Result<Option<Plain<T>>, RecvPlainError<TryRecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        let message = self.try_recv().map_err(RecvPlainError::Recv)?;
        message.map(|message| plain(message, self.last_number())).transpose()
    }

    /// The next message as a struct that not all bytes are a value of (with enums, `bool` or
    /// `char`): copied, then checked; waits for one.
    ///
    /// # Errors
    /// [`RecvPlainError::NotPlain`] if its length differs, or its bytes are no value.
    /// Otherwise the errors of [`recv`](Self::recv).
    pub fn recv_checked<T: TryFromBytes>(
        &mut self,
    ) -> Result<Option<T>, RecvPlainError<RecvError>> {
        let message = self.recv().map_err(RecvPlainError::Recv)?;
        message.map(|message| checked(message, self.last_number())).transpose()
    }
}

impl Channel {
    /// Calls [`Sender::send_plain`] on the sending end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn send_plain<T: IntoBytes + Immutable + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), SendError> {
        self.sender().send_plain(value)
    }

    /// Calls [`Receiver::recv_plain`] on the receiving end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn recv_plain<T>(&mut self) -> Result<Option<Plain<T>>, RecvPlainError<RecvError>>
    where
        T: FromBytes + KnownLayout + Immutable + ?Sized,
    {
        self.receiver().recv_plain()
    }

    /// Calls [`Receiver::recv_checked`] on the receiving end.
    ///
    /// # Errors
    /// The errors of that method.
    pub fn recv_checked<T: TryFromBytes>(
        &mut self,
    ) -> Result<Option<T>, RecvPlainError<RecvError>> {
        self.receiver().recv_checked()
    }
}

#[cfg(feature = "tokio")]
mod streams {
    use super::{Plain, RecvPlainError, checked, plain};
    use crate::session::{StreamRecvError, StreamSendError};
    use crate::tokio::{RecvStream, SendStream, Stream};
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, TryFromBytes};

    impl SendStream {
        /// Sends a plain struct, or a slice of them: its own bytes, as one message.
        ///
        /// # Errors
        /// The errors of [`send`](Self::send).
        pub async fn send_plain<T: IntoBytes + Immutable + ?Sized>(
            &mut self,
            value: &T,
        ) -> Result<(), StreamSendError> {
            self.send(value.as_bytes()).await
        }
    }

    impl RecvStream {
        /// The next message as a plain struct, or as a slice of them; `None` once the peer has
        /// finished.
        ///
        /// # Errors
        /// [`RecvPlainError::NotPlain`] if its length differs, and the errors of
        /// [`recv`](Self::recv).
        pub async fn recv_plain<T>(
            &mut self,
        ) -> Result<Option<Plain<T>>, RecvPlainError<StreamRecvError>>
        where
            T: FromBytes + KnownLayout + Immutable + ?Sized,
        {
            let message = self.recv().await.map_err(RecvPlainError::Recv)?;
            let number = self.received().saturating_sub(1);
            message.map(|message| plain(message, number)).transpose()
        }

        /// The next message as a struct that not all bytes are a value of: copied, then checked.
        /// `None` once the peer has finished.
        ///
        /// # Errors
        /// [`RecvPlainError::NotPlain`] if its length differs, or its bytes are no value.
        /// Otherwise the errors of [`recv`](Self::recv).
        pub async fn recv_checked<T: TryFromBytes>(
            &mut self,
        ) -> Result<Option<T>, RecvPlainError<StreamRecvError>> {
            let message = self.recv().await.map_err(RecvPlainError::Recv)?;
            let number = self.received().saturating_sub(1);
            message.map(|message| checked(message, number)).transpose()
        }
    }

    impl Stream {
        /// Calls [`SendStream::send_plain`] on the sending direction.
        ///
        /// # Errors
        /// The errors of that method.
        pub async fn send_plain<T: IntoBytes + Immutable + ?Sized>(
            &mut self,
            value: &T,
        ) -> Result<(), StreamSendError> {
            self.halves_mut().0.send_plain(value).await
        }

        /// Calls [`RecvStream::recv_plain`] on the receiving direction.
        ///
        /// # Errors
        /// The errors of that method.
        pub async fn recv_plain<T>(
            &mut self,
        ) -> Result<Option<Plain<T>>, RecvPlainError<StreamRecvError>>
        where
            T: FromBytes + KnownLayout + Immutable + ?Sized,
        {
            self.halves_mut().1.recv_plain().await
        }
    }
}
