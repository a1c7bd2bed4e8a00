// SPDX-License-Identifier: MIT OR Apache-2.0
//! Plain structs as messages: their own bytes, read in place.
//!
//! ```text
//!   send_plain(&T)       T's bytes are the payload
//!   recv_plain::<T>()    length and alignment are checked once; then the message is a &T
//!   recv_checked::<T>()  copied first, then checked bit by bit: for enums, bool, char
//! ```
//!
//! # Types that may be read in place
//!
//! Only types for which *any* byte pattern is valid ([`FromBytes`]) are read in place. A type with
//! invalid byte patterns must be checked on a copy that no other process can change. Safe code
//! cannot note that memory was checked, so such a type is received by value.
//!
//! # Under `Trust::Trusted`
//!
//! Length and alignment of a plain value never change. The bytes of a large message lie in the
//! peer's memory, and stay unchanged only while the peer keeps its promise not to change a message
//! that it has sent (SECURITY.md). A peer that breaks the promise can change a field between two
//! reads. So copy a value before checking it, and use the copy: `let header = *plain;`. Under
//! [`Trust::Untrusted`](crate::Trust::Untrusted), all bytes are a private copy.

use super::places::Place;
use crate::message::Message;
use std::any::type_name;
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use zerocopy::{FromBytes, Immutable, KnownLayout, TryFromBytes};

/// A message that derefs to a `T`: a plain struct or a slice of plain structs.
///
/// A large message is read in place; its memory returns to the sender when the `Plain` is dropped.
/// A message whose address may not be aligned for `T` is copied once to an aligned address: short
/// messages, and messages advanced past a header.
pub struct Plain<T: ?Sized> {
    place: Place,
    is: PhantomData<fn() -> Box<T>>,
}

/// A message whose bytes are no `T`, as an error. [`into_message`](Self::into_message) returns the
/// message.
#[derive(Debug)]
pub struct NotPlain {
    number: Option<u64>,
    type_name: &'static str,
    what: What,
    /// The message that is no `T`, in a box to keep the error type small.
    message: Box<Message>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Size,
    Alignment,
    Bytes,
}

/// The reason why no plain struct was received; `E` is the error type of the receiver's own `recv`.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecvPlainError<E> {
    /// The received message is no `T`. The message counts as received; the next one can be
    /// received.
    #[error(transparent)]
    NotPlain(NotPlain),
    /// No message was received, for the contained reason.
    #[error(transparent)]
    Recv(E),
}

impl NotPlain {
    /// Returns the index of the message in its direction of the channel or stream, from 0, if
    /// known.
    #[must_use]
    pub const fn number(&self) -> Option<u64> {
        self.number
    }

    /// Returns the message that was refused because its bytes are no `T`.
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
    /// Makes the message readable as a `T`, or returns why it is no `T`, together with the message.
    fn new(message: Message) -> Result<Self, (What, Box<Message>)> {
        let what = match T::ref_from_bytes(&message) {
            // A short message is stored within the `Message` value, so its address changes when the
            // value moves.
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
    /// Whether the bytes are read in the sender's memory, without any copy.
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
            // Unreachable, even in a forked child: length and address were checked when the `Plain`
            // was made, and never change. The bytes may change, but any bytes are a valid `T`. The
            // mapping is read-only, so children inherit it (tests/fork/channels.rs); a copy stays
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

/// Converts a message into a `Plain`. `number` is the index of the message in its direction, if
/// known.
pub(super) fn into_plain<T>(message: Message, number: Option<u64>) -> Result<Plain<T>, NotPlain>
where
    T: FromBytes + KnownLayout + Immutable + ?Sized,
{
    let type_name = type_name::<T>();
    Plain::new(message).map_err(|(what, message)| NotPlain { number, type_name, what, message })
}

/// Converts a message into a struct of which only some byte patterns are valid. `number` is the
/// index of the message in its direction, if known.
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

/// Copies the bytes of the message, then checks that the copy is a valid `T`.
fn read<T: TryFromBytes>(message: &Message) -> Result<T, What> {
    T::try_read_from_bytes(message).map_err(|error| match error {
        zerocopy::ConvertError::Size(_) => What::Size,
        _ => What::Bytes,
    })
}
