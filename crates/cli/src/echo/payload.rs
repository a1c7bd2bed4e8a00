// SPDX-License-Identifier: MIT OR Apache-2.0
//! The payload of each message: a fixed text, or numbered letters of a given length.
//!
//! ```text
//!   --message hi    hi                    --size 24   00000000000000a7qrstuvwx
//! ```
//! The number shows which message an echo answers, so a lost, repeated or reordered echo is
//! detected. No payload contains a newline, which ends a message on plain sockets.

use anyhow::Result;

use crate::command::exit::usage;

/// The payloads of all messages that `echo run` sends.
#[derive(Clone, Debug)]
pub enum Payload {
    /// The payload of each message is this text.
    Text(Vec<u8>),
    /// The payload of each message has this many bytes, and begins with as many digits of the
    /// message's number as fit.
    Numbered(usize),
}

impl Payload {
    /// Payloads with the text `message` if one is given, otherwise numbered payloads of `size`
    /// bytes.
    pub fn new(message: Option<&str>, size: usize) -> Result<Self> {
        Ok(match message {
            Some(text) if text.contains('\n') => {
                let why = "--message contains a newline, which ends a message on plain sockets";
                return Err(usage(why));
            }
            Some(text) => Self::Text(text.into()),
            None => Self::Numbered(size),
        })
    }

    /// Size of each payload in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Numbered(size) => *size,
        }
    }

    /// Makes a buffer with a payload, into which [`number`](Self::number) writes the number of each
    /// message.
    pub fn template(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Numbered(size) => (b'a'..=b'z').cycle().take(*size).collect(),
        }
    }

    /// Writes the number `index` into a buffer that [`template`](Self::template) made.
    pub fn number(&self, buffer: &mut [u8], index: u64) {
        if matches!(self, Self::Text(_)) {
            return;
        }
        let width = buffer.len().min(NUMBER_BYTES);
        for (place, byte) in buffer[..width].iter_mut().rev().enumerate() {
            *byte = b"0123456789abcdef"[(index >> (4 * place) & 15) as usize];
        }
    }
}

/// Number of hexadecimal digits with which the 64-bit number of a message is written at the start
/// of the message's payload.
const NUMBER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_numbered_begins_with_the_digits_that_fit() {
        let numbered = |size: usize, index| {
            let payload = Payload::new(None, size).unwrap();
            let mut buffer = payload.template();
            payload.number(&mut buffer, index);
            String::from_utf8(buffer).unwrap()
        };
        assert_eq!(numbered(24, 0xa7), "00000000000000a7qrstuvwx");
        assert_eq!(numbered(2, 0x1a7), "a7");
        assert_eq!(numbered(0, 5), "");
        assert!(Payload::new(Some("a\nb"), 0).is_err());
        assert_eq!(Payload::new(Some("hi"), 99).unwrap().len(), 2);
    }
}
