// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many streams over one connection, without a runtime: what both fronts, `partywall::tokio` and
//! `partywall::blocking`, are made of.
//!
//! ```text
//!   fronts      tokio/   blocking/                    futures, or calls with deadlines
//!   ─────────────────────────────────────────────────────────────────────────────────────
//!   handle.rs, halves.rs   what users hold  driver.rs   who receives ─▶ routing.rs: for whom
//!               patience.rs: before sleeping, look again
//!   core.rs, books.rs   what both share (words.rs: of the session itself)    outbox.rs   one at a time sends, what is owed first
//!   stream.rs   one stream                 lifecycle.rs, credit.rs, numbers.rs   pure rules
//!   waiting.rs  who waits for what all share        sync.rs  locks, or shuttle's (interleavings/)
//!   ─────────────────────────────────────────────────────────────────────────────────────
//!   transport   records of streams over a wall or a socket
//! ```
//!
//! It starts no task and no thread, and never waits: what cannot be done now registers a waker.

mod books;
mod core;
mod credit;
mod driver;
mod error;
mod halves;
mod handle;
mod lifecycle;
mod numbers;
mod outbox;
mod patience;
mod routing;
mod stream;
mod sync;
mod waiting;
mod words;

#[cfg(all(test, shuttle))]
mod interleavings;

pub use error::{OpenError, SessionError, StreamRecvError, StreamSendError, WaitError};
pub use partywall_layout::stream::{DROPPED, METADATA_BYTES_MAX, REFUSED};

pub(crate) use driver::{Driver, Sleep, Turn};
pub(crate) use halves::{RecvHalf, SendHalf};
pub(crate) use handle::{Handle, Opening};
pub(crate) use patience::{Next, Patience};
