// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is sent: the same text every time, or numbered letters of a given length.
//!
//! ```text
//!   --message hi    hi                    --size 24   00000000000000a7qrstuvwx
//! ```
//! The number makes each echo tell which message it answers: one that is lost, repeated or overtaken is
//! noticed. No payload contains a line end, which plain sockets use as frame.

use anyhow::{Result, bail};

/// Makes the payload of each message.
#[derive(Clone, Debug)]
pub enum Payload {
    /// The same every time.
    Text(Vec<u8>),
    /// So many bytes, with the number of the message as far as it fits.
    Numbered(usize),
}

impl Payload {
    /// The text if there is one, `size` numbered bytes otherwise.
    pub fn new(message: Option<&str>, size: usize) -> Result<Self> {
        Ok(match message {
            Some(text) if text.contains('\n') => {
                bail!("--message contains a line end, which is what plain sockets frame by")
            }
            Some(text) => Self::Text(text.into()),
            None => Self::Numbered(size),
        })
    }

    /// How long each is, in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(text) => text.len(),
            Self::Numbered(size) => *size,
        }
    }

    /// A buffer to be numbered with [`number`](Self::number).
    pub fn template(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone(),
            Self::Numbered(size) => (b'a'..=b'z').cycle().take(*size).collect(),
        }
    }

    /// Makes `buffer`, a template, message number `index`.
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

/// Hexadecimal digits of a 64-bit number.
const NUMBER_BYTES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_numbered_as_far_as_they_have_room() {
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
