// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain structs as messages: their own bytes, read in place.
//!
//! ```text
//!   send_plain(&T)       T's bytes are the payload
//!   recv_plain::<T>()    length and alignment are checked once; then the message is a &T
//!   recv_checked::<T>()  copied first, then checked bit by bit: for enums, bool, char
//! ```
//!
//! # What may be looked at in place
//! # Types that may be read in place
//! Only types for which *any* bytes are a value ([`FromBytes`]). A type with forbidden bytes must
//! be checked on a copy that no other process can change, and safe code cannot record that it was:
//! so it is received by value.
//!
//! # Under `Trust::Trusted`
//!
//! Length and alignment belong to this side, and never change. The bytes of a large message lie in
//! the peer's memory, and stay the same only while the peer keeps its promise (SECURITY.md): a peer
//! that breaks it can change a field between two reads. So copy what you check, and use the copy:
//! `let header = *plain;`. Under [`Trust::Untrusted`](crate::Trust::Untrusted) all of it is a
//! private copy.

use super::places::Place;
use crate::message::Message;
use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use zerocopy::{FromBytes, Immutable, KnownLayout, TryFromBytes};

/// A message that is a `T`, or a slice of them: derefs to it.
///
/// A large message is read in place; its memory returns to the sender when this is dropped. A
/// message whose address does not suit `T` (short ones, and those advanced past a header) is copied
/// once to an address that does.
pub struct Plain<T: ?Sized> {
    place: Place,
    is: PhantomData<fn() -> Box<T>>,
}

/// A message that is no `T`. It can be taken out of the error.
#[derive(Debug)]
pub struct NotPlain {
    number: Option<u64>,
    type_name: &'static str,
    what: What,
    /// Boxed, because errors should be small.
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
    /// A message came that is no such struct. It was taken; the next one can be received.
    #[error(transparent)]
    NotPlain(NotPlain),
    /// No message was received.
    #[error(transparent)]
    Recv(E),
}

impl NotPlain {
    /// Index of the message in its channel, or in its direction of a stream, from 0, if known.
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
            What::Size => "its length is another; do both ends have the same definition of it?",
            What::Alignment => "more than 64 bytes of alignment cannot be had",
            What::Bytes => "its bytes are none of its values; did the peer send another type?",
        })
    }
}

impl std::error::Error for NotPlain {}

impl<T: FromBytes + KnownLayout + Immutable + ?Sized> Plain<T> {
    /// The message as a `T`; the error returns it.
    fn new(message: Message) -> Result<Self, (What, Box<Message>)> {
        let what = match T::ref_from_bytes(&message) {
            // A short message moves with the value, so its present address does not count.
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
    /// Whether it is read in the sender's memory, without any copy.
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
            // Not reached, not even in a forked child: length and address were checked when it was
            // made, and never change. The bytes may change, and any bytes are a value. The mapping
            // is read-only, so children inherit it (tests/fork/channels.rs); a copy lies at a
            // multiple of 64 wherever it moves.
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

/// Converts a message; `number` is its index in its direction, if known.
pub(super) fn into_plain<T>(message: Message, number: Option<u64>) -> Result<Plain<T>, NotPlain>
where
    T: FromBytes + KnownLayout + Immutable + ?Sized,
{
    let type_name = type_name::<T>();
    Plain::new(message).map_err(|(what, message)| NotPlain { number, type_name, what, message })
}

/// As [`into_plain`], for a struct of which not all bytes are a value.
pub(super) fn into_checked<T>(message: Message, number: Option<u64>) -> Result<T, NotPlain>
where
    T: TryFromBytes,
{
    let type_name = type_name::<T>();
    read::<T>(&message).map_err(|what| {
        let message = Box::new(message);
        NotPlain { number, type_name, what, message }
    })
}

/// Copies, then checks the copy.
fn read<T: TryFromBytes>(message: &Message) -> Result<T, What> {
    T::try_read_from_bytes(message).map_err(|error| match error {
        zerocopy::ConvertError::Size(_) => What::Size,
        _ => What::Bytes,
    })
}
