// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the traffic of an established connection as it arrives on the socket.
//!
//! ```text
//!   socket ──▶ wanted() ── filled(n) ──▶ next() ──▶ Frame
//!                │
//!                ├─ the buffer, 64 KiB, for small messages
//!                └─ the Vec that becomes the payload, for the rest of a large body: no second copy
//! ```
//!
//! The parser's owner reads the socket into [`wanted`](Parser::wanted). The parser does not know
//! whether it serves a client or a server, nor which streams exist.
//!
//! The parser accepts the messages that other implementations accept, except lengths: each length
//! is checked against the message's kind. `Polling` is an exception, because other implementations
//! consume only its header, whatever its length. This parser does the same from length eight on,
//! since a message that they understand must not end a session. If a body did follow, the next
//! magic would be missing, which is an error.
//!
//! Invariants: the parser holds 64 KiB and at most one body within the limit, which it allocates
//! after the header. After an error the parser returns only that error.

use super::{
    FALLBACK_HEADER_BYTES, FALLBACK_HEADER_LENGTH, FrameError, HEADER_BYTES, HOT_RESTART_LENGTH,
    Header, Kind, STREAM_CLOSE_LENGTH,
};

/// Parses the bytes that arrive on the socket after the handshake.
#[derive(Debug)]
pub struct Parser {
    buffer: Box<[u8]>,
    /// Index in the parser's buffer of the first byte that was received but not parsed yet.
    start: usize,
    /// Index in the parser's buffer just after the last byte that was read from the socket.
    end: usize,
    /// The body of a large message that has not arrived as a whole: its rest is read from the
    /// socket directly into the payload of the message.
    body: Option<Body>,
    payload_bytes_max: u32,
    failed: Option<FrameError>,
}

/// A message of an established connection, as [`Parser::next`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A Polling message: the peer's queue may have elements.
    Polling,
    /// The peer closed a stream.
    StreamClose {
        /// The id of the stream that the peer closed.
        stream: u32,
    },
    /// Data that the peer sent over the socket.
    Fallback {
        /// The id of the stream to which the data belongs.
        stream: u32,
        /// The low eight bits of the message's status; its other bits have no meaning. 0 means
        /// data.
        status: u8,
        /// The data that the peer sent; may be empty.
        payload: Vec<u8>,
    },
    /// The server announces a hot restart: the client is to connect to a new process.
    HotRestart {
        /// The epoch that identifies the hot restart.
        epoch: u64,
    },
    /// The client acknowledges a hot restart: all its connections have moved.
    HotRestartAck {
        /// The epoch that identifies the acknowledged hot restart.
        epoch: u64,
    },
}

#[derive(Debug)]
struct Body {
    stream: u32,
    status: u8,
    payload: Vec<u8>,
    filled: usize,
}

impl Parser {
    /// Creates a parser that accepts up to `payload_bytes_max` bytes of data in one message. Other
    /// implementations accept [`PAYLOAD_BYTES_MAX`].
    #[must_use]
    pub fn new(payload_bytes_max: u32) -> Self {
        let payload_bytes_max = payload_bytes_max.min(u32::MAX - FALLBACK_HEADER_LENGTH);
        let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
        Self { buffer, start: 0, end: 0, body: None, payload_bytes_max, failed: None }
    }

    /// The buffer into which the caller reads the next bytes of the socket; then the caller calls
    /// [`filled`](Self::filled). The buffer is never empty if [`next`](Self::next) returned `None`
    /// before.
    pub fn wanted(&mut self) -> &mut [u8] {
        if let Some(body) = &mut self.body {
            return body.payload.get_mut(body.filled..).unwrap_or_default();
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.buffer.len() - self.end < ROOM_BYTES_MIN {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// The caller reports that it read `bytes` bytes into [`wanted`](Self::wanted).
    ///
    /// # Panics
    /// If `bytes` exceeds the length of the buffer that `wanted` returned.
    pub fn filled(&mut self, bytes: usize) {
        if let Some(body) = &mut self.body {
            assert!(bytes <= body.payload.len() - body.filled, "more than was wanted");
            body.filled += bytes;
        } else {
            assert!(bytes <= self.buffer.len() - self.end, "more than was wanted");
            self.end += bytes;
        }
    }

    /// Copies bytes that are already in memory into the parser, and returns how many bytes it
    /// copied. It copies fewer than all only while [`next`](Self::next) has a message to return.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        let wanted = self.wanted();
        let count = wanted.len().min(bytes.len());
        wanted[..count].copy_from_slice(&bytes[..count]);
        self.filled(count);
        count
    }

    /// Returns the next message, or `None` until more bytes arrive.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`FrameError`], after which the connection is unusable.
    #[expect(clippy::should_implement_trait, reason = "it goes on after a None")]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let found = self.find();
        if let Err(error) = &found {
            self.failed = Some(error.clone());
            (self.start, self.end, self.body) = (0, 0, None);
        }
        found
    }

    /// Whether the parser has the start of a message but not its end. If the connection ends at
    /// that point, the message is cut.
    #[must_use]
    pub const fn is_within_message(&self) -> bool {
        self.body.is_some() || self.start < self.end
    }

    fn find(&mut self) -> Result<Option<Frame>, FrameError> {
        if self.body.is_some() {
            return Ok(self.finished_body());
        }
        let Some((header, _)) = self.unread().split_first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = self.checked(*header)?;
        match header.kind {
            Kind::Polling => {
                self.start += HEADER_BYTES;
                Ok(Some(Frame::Polling))
            }
            Kind::StreamClose => Ok(self
                .take::<4>()
                .map(|stream| Frame::StreamClose { stream: u32::from_be_bytes(stream) })),
            Kind::HotRestart => Ok(self
                .take::<8>()
                .map(|epoch| Frame::HotRestart { epoch: u64::from_be_bytes(epoch) })),
            Kind::HotRestartAck => Ok(self
                .take::<8>()
                .map(|epoch| Frame::HotRestartAck { epoch: u64::from_be_bytes(epoch) })),
            Kind::FallbackData => Ok(self.fallback(header.length)),
            kind => Err(FrameError::OutOfPlace { kind }),
        }
    }

    /// Parses a header, and checks that an established connection allows messages of this kind and
    /// length.
    fn checked(&self, bytes: [u8; HEADER_BYTES]) -> Result<Header, FrameError> {
        let header = Header::read(bytes)?;
        if !VERSIONS.contains(&header.version) {
            return Err(FrameError::Version { found: header.version });
        }
        let (kind, found) = (header.kind, header.length);
        let expected = match kind {
            Kind::StreamClose => STREAM_CLOSE_LENGTH,
            Kind::HotRestart | Kind::HotRestartAck => HOT_RESTART_LENGTH,
            Kind::FallbackData if found < FALLBACK_HEADER_LENGTH => {
                return Err(FrameError::TooShort { kind, least: FALLBACK_HEADER_LENGTH, found });
            }
            Kind::FallbackData if found - FALLBACK_HEADER_LENGTH > self.payload_bytes_max => {
                let most = self.payload_bytes_max + FALLBACK_HEADER_LENGTH;
                return Err(FrameError::TooLong { kind, most, found });
            }
            _ => found,
        };
        if found == expected {
            Ok(header)
        } else {
            Err(FrameError::Length { kind, expected, found })
        }
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Takes a message's body of `COUNT` bytes out of the parser's buffer. Returns `None` until the
    /// whole body has arrived.
    fn take<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        let body = *self.unread().get(HEADER_BYTES..)?.first_chunk::<COUNT>()?;
        self.start += HEADER_BYTES + COUNT;
        Some(body)
    }

    /// Returns a FallbackData message of `length` bytes, if the parser's buffer has all of it. If
    /// the message is large and its rest has not arrived, allocates memory into which the socket is
    /// read next.
    fn fallback(&mut self, length: u32) -> Option<Frame> {
        let (head, data) = self.unread().split_first_chunk::<FALLBACK_HEADER_BYTES>()?;
        let [.., s0, s1, s2, s3, _, _, _, status] = *head;
        let (stream, status) = (u32::from_be_bytes([s0, s1, s2, s3]), status);
        let payload_bytes = (length - FALLBACK_HEADER_LENGTH) as usize;
        if let Some(payload) = data.get(..payload_bytes) {
            let payload = payload.to_vec();
            self.start += FALLBACK_HEADER_BYTES + payload_bytes;
            return Some(Frame::Fallback { stream, status, payload });
        }
        if payload_bytes < DIRECT_BYTES_MIN {
            return None;
        }
        // The system supplies the pages of this zeroed payload only when bytes are written into
        // them. So a peer that sends only the header of a long message costs no memory.
        let mut payload = vec![0; payload_bytes];
        let filled = data.len();
        payload[..filled].copy_from_slice(data);
        (self.start, self.end) = (0, 0);
        self.body = Some(Body { stream, status, payload, filled });
        None
    }

    fn finished_body(&mut self) -> Option<Frame> {
        let body = self.body.take_if(|body| body.filled == body.payload.len())?;
        let Body { stream, status, payload, .. } = body;
        Some(Frame::Fallback { stream, status, payload })
    }
}

/// The most data in one message that other implementations accept, in bytes: 32 MiB with the
/// header.
pub const PAYLOAD_BYTES_MAX: u32 = (32 << 20) - FALLBACK_HEADER_LENGTH;
/// Versions that messages after the handshake may have, whatever version was agreed. Other
/// implementations do not compare a message's version with the agreed one, either.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=3;
const BUFFER_BYTES: usize = 64 << 10;
/// Smallest number of free bytes behind the content of the parser's buffer: with fewer, the content
/// moves to the buffer's front. A message that must lie in the buffer as a whole is shorter than
/// this number, so it then fits.
const ROOM_BYTES_MIN: usize = 32 << 10;
/// From this length on, in bytes, the data of a FallbackData message is read from the socket
/// directly into the payload that is returned, which saves a second copy.
const DIRECT_BYTES_MIN: usize = 16 << 10;
const _: () = assert!(FALLBACK_HEADER_BYTES + DIRECT_BYTES_MIN <= ROOM_BYTES_MIN);
const _: () = assert!(2 * ROOM_BYTES_MIN <= BUFFER_BYTES);

#[cfg(test)]
mod tests;
