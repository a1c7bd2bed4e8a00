// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake without a socket: bytes in, frames out, each in its order (SPEC 2.2).
//!
//! ```text
//!   connector   ──HELLO▶  await HELLO  ──OFFER▶  await OFFER  ──READY▶  await READY  ▶ run
//!   acceptor    await HELLO  ──HELLO, OFFER▶  await OFFER  ──READY▶  await READY  ▶ run
//!                    └── REJECT in place of any frame ──▶ refused
//! ```
//!
//! The machine asks for exactly the bytes of the next frame, so bytes after READY stay in the
//! socket for the transport. The machine decides nothing: its caller admits or refuses the peer.

use partywall_layout::hello::{
    self, FRAME_BYTES_MAX, Frame, HELLO_TAG, Hello, Offer, PREAMBLE_BYTES, Ready,
};
use partywall_layout::{Refusal, Violation};

/// The kind of frame that must come next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaiting {
    Hello,
    Offer,
    Ready,
    Nothing,
}

/// A frame that the machine received and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Hello(Box<Hello>),
    Offer(Box<Offer>),
    Ready(Ready),
    Refused(Refusal, String),
    OtherVersion(u16, u16),
}

/// Why the received bytes are invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Misread {
    /// The bytes do not begin with a tag of Partywall.
    NotPartywall(Vec<u8>),
    /// The frame has impossible contents, or came out of order.
    Violation(Violation),
}

/// Assembles received bytes to frames, and checks the order of the frames.
#[derive(Debug)]
pub(crate) struct Machine {
    awaiting: Awaiting,
    frame: Vec<u8>,
    is_first: bool,
}

impl Machine {
    pub(crate) fn new() -> Self {
        Self {
            awaiting: Awaiting::Hello,
            frame: Vec::with_capacity(FRAME_BYTES_MAX),
            is_first: true,
        }
    }

    pub(crate) const fn awaiting(&self) -> Awaiting {
        self.awaiting
    }

    /// Whether the peer has not sent a single byte.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_first && self.frame.is_empty()
    }

    /// Returns the number of bytes missing to the end of the current frame, or of its preamble. The
    /// number is never 0 while a frame is awaited.
    pub(crate) fn missing(&self) -> usize {
        let wanted = match self.frame.first_chunk::<PREAMBLE_BYTES>() {
            None => PREAMBLE_BYTES,
            // `feed` checked the length when the preamble was complete.
            Some(preamble) => hello::frame_length(preamble).unwrap_or(PREAMBLE_BYTES),
        };
        wanted.saturating_sub(self.frame.len())
    }

    /// Takes at most [`missing`](Self::missing) received bytes. Returns the frame once it is
    /// complete.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<Option<Received>, Misread> {
        self.frame.extend_from_slice(bytes);
        if self.is_first && !begins_like_ours(&self.frame) {
            return Err(Misread::NotPartywall(self.frame.clone()));
        }
        let Some(preamble) = self.frame.first_chunk::<PREAMBLE_BYTES>() else { return Ok(None) };
        let length = hello::frame_length(preamble).map_err(Misread::Violation)?;
        if self.frame.len() < length {
            return Ok(None);
        }
        let frame = std::mem::take(&mut self.frame);
        self.is_first = false;
        let received = hello::parse(&frame).and_then(|frame| self.turn(&frame));
        received.map(Some).map_err(Misread::Violation)
    }

    /// Checks that the frame is of the awaited kind, and moves on to the next kind.
    fn turn(&mut self, frame: &Frame<'_>) -> Result<Received, Violation> {
        let (received, next) = match (self.awaiting, frame) {
            (Awaiting::Hello, Frame::Hello(hello)) => {
                (Received::Hello(Box::new(*hello)), Awaiting::Offer)
            }
            (Awaiting::Hello, Frame::OtherVersion(oldest, newest)) => {
                (Received::OtherVersion(*oldest, *newest), Awaiting::Nothing)
            }
            (Awaiting::Offer, Frame::Offer(offer)) => {
                (Received::Offer(Box::new(*offer)), Awaiting::Ready)
            }
            (Awaiting::Ready, Frame::Ready(ready)) => (Received::Ready(*ready), Awaiting::Nothing),
            (_, Frame::Reject(code, text)) => {
                let text = String::from_utf8_lossy(text);
                let text = text.chars().filter(|c| !c.is_control()).collect();
                (Received::Refused(Refusal::from_number(*code), text), Awaiting::Nothing)
            }
            _ => {
                return Err(Violation::Frame {
                    what: "order of frames",
                    found: self.awaiting as u64,
                });
            }
        };
        self.awaiting = next;
        Ok(received)
    }
}

/// Whether `bytes` can be the beginning of HELLO or of REJECT.
fn begins_like_ours(bytes: &[u8]) -> bool {
    let len = bytes.len().min(HELLO_TAG.len());
    bytes[..len] == HELLO_TAG[..len] || bytes[..len] == hello::REJECT_TAG[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_layout::hello::{Hello, Offer, TRANSPORT_SHM, TRANSPORT_SOCKET};
    use zerocopy::IntoBytes;

    /// Feeds the bytes one by one, as if a slow peer had sent them.
    fn drip(machine: &mut Machine, bytes: &[u8]) -> Result<Vec<Received>, Misread> {
        let mut received = Vec::new();
        for byte in bytes {
            assert!(machine.missing() > 0);
            received.extend(machine.feed(&[*byte])?);
        }
        Ok(received)
    }

    #[test]
    fn frames_come_in_their_order() {
        let mut machine = Machine::new();
        let mut all = Hello::new().as_bytes().to_vec();
        all.extend_from_slice(Offer::new(TRANSPORT_SHM, 0, 0, 1 << 16).as_bytes());
        all.extend_from_slice(Ready::new(TRANSPORT_SHM, 0).as_bytes());
        let received = drip(&mut machine, &all).unwrap();
        assert!(matches!(
            received[..],
            [Received::Hello(_), Received::Offer(_), Received::Ready(_)]
        ));
        assert_eq!(machine.awaiting(), Awaiting::Nothing);
    }

    #[test]
    fn any_other_order_is_refused() {
        let hello = Hello::new();
        let offer = Offer::new(TRANSPORT_SOCKET, 1, 0, 0);
        let ready = Ready::new(TRANSPORT_SOCKET, 1);
        let frames = [hello.as_bytes(), offer.as_bytes(), ready.as_bytes()];
        for order in [[0, 0], [0, 2]] {
            let mut machine = Machine::new();
            let result =
                order.iter().try_for_each(|index| drip(&mut machine, frames[*index]).map(|_| ()));
            assert!(matches!(result, Err(Misread::Violation(_))), "{order:?}");
        }
        assert!(matches!(
            drip(&mut Machine::new(), offer.as_bytes()),
            Err(Misread::NotPartywall(_))
        ));
    }

    #[test]
    fn a_stranger_is_recognised_by_its_first_byte() {
        let mut machine = Machine::new();
        assert_eq!(machine.feed(b"G"), Err(Misread::NotPartywall(b"G".to_vec())));
    }
}
