// SPDX-License-Identifier: MIT OR Apache-2.0
//! The state machine of a handshake, without a socket: it assembles received bytes to frames, and
//! checks that each frame comes in its order (SPEC 2.2).
//!
//! ```text
//!   connector   ──HELLO, OFFER▶  await HELLO, OFFER, READY  ──READY▶  run
//!   acceptor    await HELLO, OFFER  ──HELLO, OFFER, READY▶  await READY  ▶ run
//!                    └── REJECT in place of any frame ──▶ refused
//! ```
//!
//! Bytes after the connector's READY belong to the transport: the machine asks for no byte after
//! that frame. The same holds for the acceptor's HELLO if the connection begins on the socket. All
//! earlier bytes may be read at once, because the peer then waits for an answer. The machine
//! decides nothing: its caller admits or refuses the peer.

use partywall_layout::hello::{
    self, FRAME_BYTES_MAX, Frame, HELLO_BYTES, HELLO_TAG, Hello, Offer, PREAMBLE_BYTES,
    READY_BYTES, Ready,
};
use partywall_layout::{Refusal, Violation};

/// The kind of handshake frame that the peer must send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaiting {
    Hello,
    Offer,
    Ready,
    Nothing,
}

/// A handshake frame that was received and checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    Hello(Box<Hello>),
    Offer(Box<Offer>),
    Ready(Ready),
    Refused(Refusal, String),
    OtherVersion(u16, u16),
}

/// The first bytes that a peer sent, with which no frame of Partywall's handshake begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NotPartywall(pub Vec<u8>);

/// Assembles the bytes that a handshake's peer sends to frames, and checks the order of the frames.
#[derive(Debug)]
pub(crate) struct Machine {
    awaiting: Awaiting,
    frame: Vec<u8>,
    is_first: bool,
    is_acceptor: bool,
    /// Whether this connector begins on the socket. Then records of the acceptor may follow
    /// directly after the acceptor's HELLO.
    begins_on_socket: bool,
}

impl Machine {
    pub(crate) fn new(is_acceptor: bool) -> Self {
        Self {
            is_acceptor,
            awaiting: Awaiting::Hello,
            frame: Vec::with_capacity(FRAME_BYTES_MAX),
            is_first: true,
            begins_on_socket: false,
        }
    }

    /// Limits reading to the acceptor's HELLO, because the bytes after it may already be records of
    /// the connection.
    pub(crate) const fn begin_on_socket(&mut self) {
        self.begins_on_socket = true;
    }

    pub(crate) const fn awaiting(&self) -> Awaiting {
        self.awaiting
    }

    /// Whether the peer has not sent a single byte in this handshake.
    pub(crate) fn is_untouched(&self) -> bool {
        self.is_first && self.frame.is_empty()
    }

    /// Most bytes that the caller may read from the socket now; never 0 while a frame is awaited.
    /// `serves_others` says that the first bytes may be those of another protocol.
    pub(crate) fn wanted(&self, serves_others: bool) -> usize {
        let len = self.frame.len();
        let last = match self.awaiting {
            Awaiting::Ready if self.is_acceptor => Some(READY_BYTES),
            Awaiting::Hello if self.begins_on_socket => Some(HELLO_BYTES),
            _ => None,
        };
        if let Some(least) = last {
            let whole = match self.frame.first_chunk::<PREAMBLE_BYTES>() {
                // The peer may send REJECT in place of the awaited frame. REJECT may be shorter
                // than that frame. Reading beyond its end is harmless, because no byte follows
                // REJECT.
                None => least,
                Some(preamble) => hello::frame_length(preamble).unwrap_or(PREAMBLE_BYTES),
            };
            return whole.saturating_sub(len).max(1);
        }
        if serves_others && self.is_first && len < PREAMBLE_BYTES {
            return PREAMBLE_BYTES - len;
        }
        usize::MAX
    }

    /// Adds received bytes, at most [`wanted`](Self::wanted), to the frame that is being assembled.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Result<(), NotPartywall> {
        self.frame.extend_from_slice(bytes);
        if self.is_first && !begins_like_ours(&self.frame) {
            return Err(NotPartywall(self.frame.clone()));
        }
        Ok(())
    }

    /// Returns the peer's next frame once all its bytes were passed to `feed`, else `None`.
    pub(crate) fn next_frame(&mut self) -> Result<Option<Received>, Violation> {
        let Some(preamble) = self.frame.first_chunk::<PREAMBLE_BYTES>() else { return Ok(None) };
        let length = hello::frame_length(preamble)?;
        if self.frame.len() < length {
            return Ok(None);
        }
        let rest = self.frame.split_off(length);
        let frame = std::mem::replace(&mut self.frame, rest);
        self.is_first = false;
        hello::parse(&frame).and_then(|frame| self.turn(&frame)).map(Some)
    }

    /// Checks that the peer has sent no byte after the frame that `next_frame` returned last.
    pub(crate) fn check_no_rest(&self) -> Result<(), Violation> {
        let found = self.frame.len() as u64;
        if found == 0 {
            Ok(())
        } else {
            Err(Violation::Frame { what: "bytes after a frame", found })
        }
    }

    /// Checks that the frame is of the kind that must come next, and sets the kind that must follow
    /// it.
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

/// Whether `bytes` can be the beginning of a HELLO or REJECT frame of Partywall.
fn begins_like_ours(bytes: &[u8]) -> bool {
    let len = bytes.len().min(HELLO_TAG.len());
    bytes[..len] == HELLO_TAG[..len] || bytes[..len] == hello::REJECT_TAG[..len]
}

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_layout::hello::{REGION_ALONE, TRANSPORT_SHM, TRANSPORT_SOCKET};
    use zerocopy::IntoBytes;

    /// Feeds `bytes` to the machine one at a time, as if from a slow peer. Returns the received
    /// frames.
    fn drip(machine: &mut Machine, bytes: &[u8]) -> Result<Vec<Received>, Violation> {
        let mut received = Vec::new();
        for byte in bytes {
            assert!(machine.wanted(false) > 0);
            machine.feed(&[*byte]).unwrap();
            received.extend(machine.next_frame()?);
        }
        Ok(received)
    }

    fn all_frames() -> Vec<u8> {
        let mut all = Hello::new().as_bytes().to_vec();
        all.extend_from_slice(Offer::shm(1 << 16, REGION_ALONE).as_bytes());
        all.extend_from_slice(Ready::new(TRANSPORT_SHM, 0).as_bytes());
        all
    }

    #[test]
    fn frames_come_in_their_order_at_once_or_byte_by_byte() {
        for is_acceptor in [false, true] {
            let mut slow = Machine::new(is_acceptor);
            let dripped = drip(&mut slow, &all_frames()).unwrap();
            let mut fast = Machine::new(is_acceptor);
            fast.feed(&all_frames()).unwrap();
            let at_once: Vec<_> = std::iter::from_fn(|| fast.next_frame().unwrap()).collect();
            assert_eq!(at_once, dripped);
            assert!(matches!(
                dripped[..],
                [Received::Hello(_), Received::Offer(_), Received::Ready(_)]
            ));
            assert_eq!(slow.awaiting(), Awaiting::Nothing);
            fast.check_no_rest().unwrap();
        }
    }

    #[test]
    fn acceptor_reads_no_byte_after_ready() {
        let all = all_frames();
        let (before, ready) = all.split_at(all.len() - READY_BYTES);
        let mut machine = Machine::new(true);
        drip(&mut machine, before).unwrap();
        for (index, byte) in ready.iter().enumerate() {
            assert_eq!(machine.wanted(false), READY_BYTES - index);
            machine.feed(&[*byte]).unwrap();
        }
        assert!(matches!(machine.next_frame(), Ok(Some(Received::Ready(_)))));
        assert_eq!(machine.check_no_rest(), Ok(()));
    }

    #[test]
    fn any_other_order_is_refused() {
        let hello = Hello::new();
        let offer = Offer::socket(1);
        let ready = Ready::new(TRANSPORT_SOCKET, 1);
        let frames = [hello.as_bytes(), offer.as_bytes(), ready.as_bytes()];
        for order in [[0, 0], [0, 2]] {
            let mut machine = Machine::new(true);
            let result =
                order.iter().try_for_each(|index| drip(&mut machine, frames[*index]).map(|_| ()));
            assert!(result.is_err(), "{order:?}");
        }
        assert!(Machine::new(true).feed(offer.as_bytes()).is_err());
    }

    #[test]
    fn a_stranger_is_recognised_by_its_first_byte() {
        let mut machine = Machine::new(true);
        assert_eq!(machine.feed(b"G"), Err(NotPartywall(b"G".to_vec())));
    }
}
