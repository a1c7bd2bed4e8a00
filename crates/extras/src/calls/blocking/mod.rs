// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls without a runtime, over streams of [`partywall::blocking`]. No background thread receives:
//! a thread that waits for its own answer or call also receives the messages of other threads, and
//! passes them on.
//!
//! ```text
//!   Client ─ begin ─▶ Call ─ wait ─▶ answer          Server ─ recv ─▶ Request ─┬─ answer ─▶
//!      any thread       └ dropped: CANCEL              any thread              ├─ fail ───▶
//!                                                                              └ dropped: ABORTED
//! ```
//!
//! The messages are those of [`calls`](super), so the client and the server may use different
//! forms.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! use partywall_extras::calls::CallsConfig;
//! use partywall_extras::calls::blocking::{Client, Server};
//! # let mut listener = partywall::blocking::Listener::bind(&*address)?;
//!
//! let serving = std::thread::spawn(move || {
//!     let session = listener.accept().unwrap();
//!     let server = Server::new(session.accept().unwrap().unwrap(), CallsConfig::default());
//!     while let Some(request) = server.recv(None).unwrap() {
//!         let answer = request.to_ascii_uppercase();
//!         request.answer(&answer, None).unwrap();
//!     }
//! });
//!
//! let session = partywall::blocking::connect(&*address)?;
//! let client = Client::new(session.open(b"shout")?, CallsConfig::default());
//! assert_eq!(client.call(b"hello", None)?, b"HELLO");
//! drop(client); // the server has no more calls
//! serving.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod client;
#[cfg(test)]
mod ends;
mod server;
mod turn;

pub use client::{Call, Client};
pub use server::{Request, Server};

use super::frame::{Frame, HEADER_BYTES};
use super::{SHORT_MAX, VIOLATION};
use partywall::StreamSendError;
use partywall::blocking::{RecvStream, SendStream};
use std::time::{Duration, Instant};
use turn::Turn;

/// Time for which the first attempt to send a message of calls waits for room. Between two attempts
/// this side receives messages, because the peer may itself be waiting for room.
const SEND_SLICE: Duration = Duration::from_millis(5);
/// Maximum time for which an attempt to send waits for room. Each attempt to send a long message
/// waits longer than the one before, up to this time.
const SEND_SLICE_MAX: Duration = Duration::from_secs(60);
/// Maximum number of messages that a side receives between two attempts to send, so that sending is
/// soon tried again.
const BETWEEN_MAX: usize = 64;

/// Longest time for which a thread waits before it looks for unsent messages (a CANCEL, or an error
/// for the client) that another thread has left during the wait.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Returns the time, at most `deadline`, at which a waiting thread next looks for unsent messages:
/// soon if `has_unsent` says that there is one already.
fn look_again(deadline: Option<Instant>, has_unsent: bool) -> Instant {
    let until = Instant::now() + if has_unsent { SEND_SLICE } else { LOOK_AGAIN };
    deadline.map_or(until, |deadline| deadline.min(until))
}

/// Sends a header and its payload as one message, whole or not at all. Waits for room until
/// `deadline`.
fn send_until(
    stream: &mut SendStream,
    frame: Frame,
    payload: &[u8],
    deadline: Instant,
) -> Result<(), StreamSendError> {
    let (header, len) = (frame.encode(), HEADER_BYTES + payload.len());
    if len <= SHORT_MAX {
        let mut short = [0; SHORT_MAX];
        short[..HEADER_BYTES].copy_from_slice(&header);
        short[HEADER_BYTES..len].copy_from_slice(payload);
        return stream.send_deadline(&short[..len], deadline);
    }
    let mut memory = stream.reserve_deadline(len, deadline)?;
    memory[..HEADER_BYTES].copy_from_slice(&header);
    memory[HEADER_BYTES..].copy_from_slice(payload);
    memory.commit_deadline(deadline)
}

/// Returns how long the next attempt to send a message of `len` bytes waits for room, if the last
/// attempt waited for the time `slice` in vain.
///
/// Over a socket the parts of a long message are sent one after the other, and after a failed
/// attempt the next one begins with the first part. If all attempts were equally long, a message
/// that takes longer than one attempt would never arrive.
fn next_slice(slice: Duration, len: usize) -> Duration {
    if len <= SHORT_MAX { slice } else { (2 * slice).min(SEND_SLICE_MAX) }
}

/// Sends a message of calls in several attempts. After each attempt that found no room, calls
/// `between`, which receives messages.
fn send_frame(
    stream: &mut SendStream,
    frame: Frame,
    payload: &[u8],
    deadline: Option<Instant>,
    mut between: impl FnMut(),
) -> Result<(), StreamSendError> {
    let mut slice = SEND_SLICE;
    loop {
        let end = Instant::now() + slice;
        let until = deadline.map_or(end, |deadline| deadline.min(end));
        match send_until(stream, frame, payload, until) {
            Err(StreamSendError::TimedOut) if deadline != Some(until) => between(),
            sent => return sent,
        }
        slice = next_slice(slice, HEADER_BYTES + payload.len());
    }
}

/// Ends both directions of a stream with the code VIOLATION, because the peer has violated the
/// protocol of calls.
fn refuse(send: &Turn<SendStream>, recv: &mut RecvStream) {
    recv.stop(VIOLATION);
    send.apply(|send| send.reset(VIOLATION));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_of_a_long_message_reach_any_time_up_to_the_bound() {
        let mut slice = SEND_SLICE;
        for _ in 0..20 {
            let next = next_slice(slice, SHORT_MAX + 1);
            assert!(next == 2 * slice || next == SEND_SLICE_MAX, "{next:?}");
            slice = next;
        }
        assert_eq!(slice, SEND_SLICE_MAX);
        assert_eq!(next_slice(SEND_SLICE, SHORT_MAX), SEND_SLICE);
    }
}
