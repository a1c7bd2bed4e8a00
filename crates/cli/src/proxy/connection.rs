// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection: a plain socket and a stream, joined until both directions are over.
//!
//! ```text
//!   plain socket                      stream
//!   end of what it sends    ◀─────▶   CLOSE_WRITE          the other direction goes on
//!   RST                     ◀─────▶   RESET, both ways     what was sent before is still delivered
//!   reads no more (Unix)    ◀─────▶   RESET {receiving}    the other direction goes on
//!   RST                     ◀──────   the session is over
//! ```
//! A part is never passed off as the whole where the socket can tell them apart: see `plain.rs` for Unix.

use std::time::Duration;

use partywall::tokio::{RecvStream, SendStream, Stream};
use partywall::{DROPPED, REFUSED};
use tokio::select;
use tokio::time::timeout;

use super::codes::{self, ENDING, LATE, READS_NO_MORE, RESET, UNREACHABLE};
use super::counters::Counts;
use super::plain::Plain;
use super::shared::Shared;
use super::{to_plain, to_stream};

/// Passes everything on, both ways, until both are over or the proxy ends.
pub async fn carry(plain: Plain, stream: Stream, shared: &Shared) {
    let (counts, stages) = (&shared.counts, &shared.stages);
    let (send, recv) = stream.into_split();
    let mut joined = Joined { plain, send, recv, gives_up: Some(ENDING) };
    let end = select! {
        biased;
        end = both_ways(&mut joined.plain, &mut joined.send, &mut joined.recv, counts) => end,
        () = stages.ending() => End::CutOff(ENDING),
    };
    count(end, shared);
    joined.gives_up = match end {
        End::InOrder => None,
        End::Here => Some(RESET),
        End::There(code) | End::CutOff(code) => Some(code),
    };
}

/// Both ends of a connection. Whatever ends it, also a second signal, does not look like an end in order.
struct Joined {
    plain: Plain,
    send: SendStream,
    recv: RecvStream,
    /// What to tell the other side; nothing if both directions ended in order.
    gives_up: Option<u32>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        // What is over already is not reset by this.
        if let Some(code) = self.gives_up {
            self.send.reset(code);
            self.plain.reset_on_close();
        }
        self.recv.stop(self.gives_up.unwrap_or(READS_NO_MORE));
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both directions were closed.
    InOrder,
    /// The plain socket broke.
    Here,
    /// The other side gave the stream up.
    There(u32),
    /// The session is over, or the proxy ends.
    CutOff(u32),
}

enum First {
    In(to_stream::Ended),
    Out(to_plain::Ended),
}

async fn both_ways(
    plain: &mut Plain,
    send: &mut SendStream,
    recv: &mut RecvStream,
    counts: &Counts,
) -> End {
    let (mut reader, mut writer) = plain.split();
    // Boxed, so that the one that is over can be dropped, which gives back what it borrows.
    let mut inward = Box::pin(to_stream::copy(&mut reader, send, counts));
    let mut outward = Box::pin(to_plain::copy(&mut writer, recv, counts));
    let first = select! {
        biased;
        ended = &mut outward => First::Out(ended),
        ended = &mut inward => First::In(ended),
    };
    match first {
        First::In(ended) => {
            drop(inward);
            match ended {
                to_stream::Ended::Finished => {
                    send.finish();
                    after_in(outward.await)
                }
                to_stream::Ended::Broken => End::Here,
                to_stream::Ended::Stopped(READS_NO_MORE) => {
                    reader.stop();
                    after_in(outward.await)
                }
                to_stream::Ended::Stopped(code) => last_words(outward, End::There(code)).await,
                to_stream::Ended::Over => last_words(outward, End::CutOff(RESET)).await,
            }
        }
        First::Out(ended) => {
            drop(outward);
            match ended {
                to_plain::Ended::Finished => after_out(inward.await, send),
                to_plain::Ended::ReadsNoMore => {
                    recv.stop(READS_NO_MORE);
                    after_out(inward.await, send)
                }
                to_plain::Ended::Broken => {
                    recv.stop(RESET);
                    // What the program wrote before is read before the error.
                    let _ = timeout(LAST_WORDS, inward).await;
                    End::Here
                }
                to_plain::Ended::Reset(code) => End::There(code),
                to_plain::Ended::Over => End::CutOff(RESET),
            }
        }
    }
}

/// The last direction to end was the one to the plain socket.
fn after_in(ended: to_plain::Ended) -> End {
    match ended {
        to_plain::Ended::Finished | to_plain::Ended::ReadsNoMore => End::InOrder,
        to_plain::Ended::Broken => End::Here,
        to_plain::Ended::Reset(code) => End::There(code),
        to_plain::Ended::Over => End::CutOff(RESET),
    }
}

/// The last direction to end was the one from the plain socket.
fn after_out(ended: to_stream::Ended, send: &mut SendStream) -> End {
    match ended {
        to_stream::Ended::Finished => {
            send.finish();
            End::InOrder
        }
        to_stream::Ended::Broken => End::Here,
        // Both directions are over there, in order; what the program still writes is refused to it.
        to_stream::Ended::Stopped(READS_NO_MORE | DROPPED) => End::InOrder,
        to_stream::Ended::Stopped(code) => End::There(code),
        to_stream::Ended::Over => End::CutOff(RESET),
    }
}

/// The other side is gone, but what it sent before is still delivered, if the program takes it now.
async fn last_words(outward: impl Future<Output = to_plain::Ended>, end: End) -> End {
    match (timeout(LAST_WORDS, outward).await, end) {
        (Ok(to_plain::Ended::Finished), End::There(DROPPED)) => End::InOrder,
        _ => end,
    }
}

fn count(end: End, shared: &Shared) {
    let mut counted = shared.counts.lock();
    match end {
        End::InOrder => {}
        End::Here => counted.resets_here += 1,
        End::There(code @ (UNREACHABLE | LATE | REFUSED)) => {
            drop(counted);
            shared.failed(&format!("a connection was reset: {}", codes::reason(code)));
        }
        End::CutOff(_) | End::There(ENDING) => counted.cut_off += 1,
        End::There(_) => counted.resets_there += 1,
    }
}

/// How long a program may take for what arrived before a reset.
const LAST_WORDS: Duration = Duration::from_secs(1);
