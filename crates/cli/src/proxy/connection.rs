// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection of the proxy: a plain socket and a stream, joined until both directions have
//! ended.
//!
//! ```text
//!   plain socket                      stream
//!   end of its data         ◀─────▶   CLOSE_WRITE          the other direction continues
//!   RST                     ◀─────▶   RESET, both ways     bytes sent before are still delivered
//!   reads no more (Unix)    ◀─────▶   RESET {receiving}    the other direction continues
//!   RST                     ◀──────   the session has ended
//! ```
//! A program sees an abnormal end as a reset if its socket has resets; `plain.rs` says what a Unix
//! socket does instead.

use std::time::Duration;

use partywall::tokio::{RecvStream, SendStream, Stream};
use partywall::{DROPPED, REFUSED};
use tokio::select;
use tokio::time::timeout;

use super::counters::Counters;
use super::plain::Plain;
use super::shared::Shared;
use super::{ENDING, LATE, READS_NO_MORE, RESET, UNREACHABLE, reset_reason};
use super::{to_plain, to_stream};

/// Carries the bytes of one connection in both directions until both have ended, or the proxy ends.
pub async fn carry(plain: Plain, stream: Stream, shared: &Shared) {
    let (counters, stages) = (&shared.counters, &shared.stages);
    let (send, recv) = stream.into_split();
    let mut joined = Joined { plain, send, recv, reset_code: Some(ENDING) };
    let end = select! {
        biased;
        end = both_ways(&mut joined.plain, &mut joined.send, &mut joined.recv, counters) => end,
        () = stages.ending() => End::CutOff(ENDING),
    };
    count(end, shared);
    joined.reset_code = match end {
        End::InOrder => None,
        End::PlainReset => Some(RESET),
        End::PeerReset(code) | End::CutOff(code) => Some(code),
    };
}

/// The plain socket and the stream of a connection. Dropping this value, for example because a
/// second signal ends the proxy, resets each direction that has not finished.
struct Joined {
    plain: Plain,
    send: SendStream,
    recv: RecvStream,
    /// The code with which the stream to the other proxy is reset; `None` if both directions ended
    /// in good order.
    reset_code: Option<u32>,
}

impl Drop for Joined {
    fn drop(&mut self) {
        // The reset of the stream affects only directions that are still open. A direction that has
        // ended in good order stays so.
        if let Some(code) = self.reset_code {
            self.send.reset(code);
            self.plain.reset_on_close();
        }
        self.recv.stop(self.reset_code.unwrap_or(READS_NO_MORE));
    }
}

/// How a connection of the proxy ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Both directions of the connection were closed in good order.
    InOrder,
    /// The plain socket of the connection failed, or its program reset it.
    PlainReset,
    /// The other proxy reset the stream of the connection, with this code.
    PeerReset(u32),
    /// The session has ended, or the proxy ends; the variant holds the RESET code that says which.
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
    counters: &Counters,
) -> End {
    let (mut reader, mut writer) = plain.split();
    // The futures are boxed, so that the future of the direction that has ended can be dropped,
    // which releases its borrows.
    let mut inward = Box::pin(to_stream::copy(&mut reader, send, counters));
    let mut outward = Box::pin(to_plain::copy(&mut writer, recv, counters));
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
                to_stream::Ended::Broken => End::PlainReset,
                to_stream::Ended::Stopped(READS_NO_MORE) => {
                    reader.stop();
                    after_in(outward.await)
                }
                to_stream::Ended::Stopped(code) => {
                    deliver_rest(outward, End::PeerReset(code)).await
                }
                to_stream::Ended::Over => deliver_rest(outward, End::CutOff(RESET)).await,
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
                    // The plain socket has failed. The proxy still reads the bytes that the program
                    // wrote before the error, and carries them to the peer.
                    let _ = timeout(REST_TIMEOUT, inward).await;
                    End::PlainReset
                }
                to_plain::Ended::Reset(code) => End::PeerReset(code),
                to_plain::Ended::Over => End::CutOff(RESET),
            }
        }
    }
}

/// Returns how a connection ended whose direction from the stream to the plain socket ended last;
/// `ended` says how that direction ended.
fn after_in(ended: to_plain::Ended) -> End {
    match ended {
        to_plain::Ended::Finished | to_plain::Ended::ReadsNoMore => End::InOrder,
        to_plain::Ended::Broken => End::PlainReset,
        to_plain::Ended::Reset(code) => End::PeerReset(code),
        to_plain::Ended::Over => End::CutOff(RESET),
    }
}

/// Returns how a connection ended whose direction from the plain socket to the stream ended last;
/// `ended` says how that direction ended.
fn after_out(ended: to_stream::Ended, send: &mut SendStream) -> End {
    match ended {
        to_stream::Ended::Finished => {
            send.finish();
            End::InOrder
        }
        to_stream::Ended::Broken => End::PlainReset,
        // With one of these two RESET codes the other proxy has ended the stream in good order, and
        // takes no further bytes of the program.
        to_stream::Ended::Stopped(READS_NO_MORE | DROPPED) => End::InOrder,
        to_stream::Ended::Stopped(code) => End::PeerReset(code),
        to_stream::Ended::Over => End::CutOff(RESET),
    }
}

/// Carries to the plain socket the bytes that the peer sent before the stream ended, if the program
/// reads them in time. `end` says how the stream ended.
async fn deliver_rest(outward: impl Future<Output = to_plain::Ended>, end: End) -> End {
    match (timeout(REST_TIMEOUT, outward).await, end) {
        (Ok(to_plain::Ended::Finished), End::PeerReset(DROPPED)) => End::InOrder,
        _ => end,
    }
}

fn count(end: End, shared: &Shared) {
    let mut counted = shared.counters.lock();
    match end {
        End::InOrder => {}
        End::PlainReset => counted.resets_by_plain += 1,
        End::PeerReset(code @ (UNREACHABLE | LATE | REFUSED)) => {
            drop(counted);
            shared.failed(&format!("a connection was reset: {}", reset_reason(code)));
        }
        End::CutOff(_) | End::PeerReset(ENDING) => counted.cut_off += 1,
        End::PeerReset(_) => counted.resets_by_peer += 1,
    }
}

/// Time that the program at the plain socket has to read the bytes that arrived before a reset;
/// after it, the proxy resets the socket.
const REST_TIMEOUT: Duration = Duration::from_secs(1);
