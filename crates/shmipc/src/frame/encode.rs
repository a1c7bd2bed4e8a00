// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that encode the messages of shmipc, which this crate writes to the socket.
//!
//! ```text
//!   polling            header                               8
//!   stream_close       header, stream u32                  12
//!   fallback_header    header, stream u32, status u32      16, and then the data
//!   hot_restart(_ack)  header, epoch u64                   16
//!   by_path, by_memfd  header; length (u16) and name of the queue, then of the buffers
//! ```
//!
//! Encoded messages are always well-formed, because a malformed message crashes the process of
//! another implementation.

use super::{
    FALLBACK_HEADER_BYTES, FALLBACK_HEADER_LENGTH, HEADER_BYTES, HEADER_LENGTH, HOT_RESTART_LENGTH,
    Header, Kind, STREAM_CLOSE_LENGTH,
};

/// The message Polling: the sender's queue has elements for the receiver of the message.
#[must_use]
pub const fn polling(version: u8) -> [u8; HEADER_BYTES] {
    compact(version, Kind::Polling)
}

/// The message StreamClose: the sender has closed the stream.
#[must_use]
pub fn stream_close(version: u8, stream: u32) -> [u8; 12] {
    let header = Header { length: STREAM_CLOSE_LENGTH, version, kind: Kind::StreamClose };
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&header.to_bytes());
    bytes[8..].copy_from_slice(&stream.to_be_bytes());
    bytes
}

/// The start of the message FallbackData, which precedes `payload_bytes` bytes of data on the
/// socket. The status is 0, that of an open stream.
///
/// # Panics
/// If the message would be longer than a header can express. A caller with at most
/// [`PAYLOAD_BYTES_MAX`](super::PAYLOAD_BYTES_MAX) bytes never panics.
#[must_use]
pub fn fallback_header(
    version: u8,
    stream: u32,
    payload_bytes: u32,
) -> [u8; FALLBACK_HEADER_BYTES] {
    assert!(payload_bytes <= u32::MAX - FALLBACK_HEADER_LENGTH, "longer than a header can say");
    let length = FALLBACK_HEADER_LENGTH + payload_bytes;
    let header = Header { length, version, kind: Kind::FallbackData };
    let mut bytes = [0; FALLBACK_HEADER_BYTES];
    bytes[..8].copy_from_slice(&header.to_bytes());
    bytes[8..12].copy_from_slice(&stream.to_be_bytes());
    bytes
}

/// The message HotRestart of a server: the client is to connect to the process that takes over.
#[must_use]
pub fn hot_restart(version: u8, epoch: u64) -> [u8; 16] {
    with_epoch(version, Kind::HotRestart, epoch)
}

/// The message HotRestartAck: the connections of the client have moved.
#[must_use]
pub fn hot_restart_ack(version: u8, epoch: u64) -> [u8; 16] {
    with_epoch(version, Kind::HotRestartAck, epoch)
}

/// The message ExchangeVersion: the newest version that the sender supports.
#[must_use]
pub const fn exchange(version: u8) -> [u8; HEADER_BYTES] {
    compact(version, Kind::ExchangeVersion)
}

/// The message AckShm: the server has mapped queue and buffers.
#[must_use]
pub const fn ack_shm(version: u8) -> [u8; HEADER_BYTES] {
    compact(version, Kind::AckShm)
}

/// The message AckReadyRecvFd: the server is ready to receive the descriptors.
#[must_use]
pub const fn ack_ready_recv_fd(version: u8) -> [u8; HEADER_BYTES] {
    compact(version, Kind::AckReadyRecvFd)
}

/// The message ShmByPath: the paths of the files that hold queue and buffers.
///
/// # Panics
/// If a path has more than 65,535 bytes.
#[must_use]
pub fn by_path(version: u8, queue: &str, buffer: &str) -> Vec<u8> {
    named(version, Kind::ShmByPath, queue, buffer)
}

/// The message ShmByMemfd: the names of queue and buffers, whose descriptors follow.
///
/// # Panics
/// If a name has more than 65,535 bytes.
#[must_use]
pub fn by_memfd(version: u8, queue: &str, buffer: &str) -> Vec<u8> {
    named(version, Kind::ShmByMemfd, queue, buffer)
}

const fn compact(version: u8, kind: Kind) -> [u8; HEADER_BYTES] {
    Header { length: HEADER_LENGTH, version, kind }.to_bytes()
}

fn with_epoch(version: u8, kind: Kind, epoch: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let header = Header { length: HOT_RESTART_LENGTH, version, kind };
    bytes[..8].copy_from_slice(&header.to_bytes());
    bytes[8..].copy_from_slice(&epoch.to_be_bytes());
    bytes
}

fn named(version: u8, kind: Kind, queue: &str, buffer: &str) -> Vec<u8> {
    let (queue_length, buffer_length) = (name_length(queue), name_length(buffer));
    let length = HEADER_LENGTH + 4 + u32::from(queue_length) + u32::from(buffer_length);
    let mut bytes = Header { length, version, kind }.to_bytes().to_vec();
    bytes.extend_from_slice(&queue_length.to_be_bytes());
    bytes.extend_from_slice(queue.as_bytes());
    bytes.extend_from_slice(&buffer_length.to_be_bytes());
    bytes.extend_from_slice(buffer.as_bytes());
    bytes
}

fn name_length(name: &str) -> u16 {
    match u16::try_from(name.len()) {
        Ok(length) => length,
        Err(_) => panic!("a name of {} bytes; a message has room for 65,535", name.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected: each message has the bytes that were recorded from published implementations of
    /// shmipc.
    #[test]
    fn messages_are_the_bytes_that_peers_send() {
        assert_eq!(exchange(3), *b"\0\0\0\x08\x77\x58\x03\x04");
        assert_eq!(ack_ready_recv_fd(3), *b"\0\0\0\x08\x77\x58\x03\x07");
        assert_eq!(ack_shm(3), *b"\0\0\0\x08\x77\x58\x03\x06");
        assert_eq!(polling(2), *b"\0\0\0\x08\x77\x58\x02\x01");
        assert_eq!(polling(3), *b"\0\0\0\x08\x77\x58\x03\x01");
        assert_eq!(
            by_path(2, "/dev/shm/q", "/dev/shm/b"),
            b"\0\0\0\x20\x77\x58\x02\x00\0\x0a/dev/shm/q\0\x0a/dev/shm/b"
        );
        assert_eq!(by_memfd(3, "q", "bb"), b"\0\0\0\x0f\x77\x58\x03\x05\0\x01q\0\x02bb");
        assert_eq!(stream_close(3, 2), *b"\0\0\0\x0c\x77\x58\x03\x02\0\0\0\x02");
        assert_eq!(fallback_header(3, 2, 5), *b"\0\0\0\x15\x77\x58\x03\x03\0\0\0\x02\0\0\0\0");
        assert_eq!(hot_restart(2, 1122), *b"\0\0\0\x10\x77\x58\x02\x08\0\0\0\0\0\0\x04\x62");
        assert_eq!(hot_restart_ack(2, 1122), *b"\0\0\0\x10\x77\x58\x02\x09\0\0\0\0\0\0\x04\x62");
    }

    #[test]
    #[should_panic(expected = "longer than a header can say")]
    fn a_message_longer_than_a_header_can_say_is_not_made() {
        let _ = fallback_header(3, 2, u32::MAX);
    }

    #[test]
    #[should_panic(expected = "a name of 65536 bytes")]
    fn a_name_longer_than_a_message_can_say_is_not_made() {
        let _ = by_path(2, "q", &"b".repeat(65_536));
    }
}
