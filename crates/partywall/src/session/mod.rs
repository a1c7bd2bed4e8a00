// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many streams over one connection, without a runtime: the common base of the three APIs
//! `partywall::tokio`, `partywall::blocking` and `partywall::event`.
//!
//! ```text
//!   APIs        tokio/   blocking/   event/        futures, deadlines, or calls that never wait
//!   ──────────────────────────────────────────────────────────────────────────────────
//!   handle.rs   Handle: opens, accepts, closes     driver.rs    Driver: receives records
//!   halves.rs   SendHalf, RecvHalf of a stream     routing.rs   which stream a record is of
//!   shared.rs   SessionShared, with the state      outbox.rs    Outbox: sends, pending
//!   state.rs    (SessionState) and the outbox                   control records first
//!                                                  seat.rs      who runs the driver, on tokio
//!   stream.rs   StreamShared: one stream           lifecycle.rs, credit.rs, numbers.rs: rules
//!   error.rs    errors and codes                   sync.rs      locks, or shuttle's
//!   ──────────────────────────────────────────────────────────────────────────────────
//!   transport   records of streams over shared memory, a socket or another protocol
//! ```
//!
//! This folder starts no task and no thread, and never blocks: an operation that cannot complete
//! now registers a waker.

mod credit;
mod deferred_credit;
mod driver;
mod error;
mod halves;
mod handle;
mod lifecycle;
mod numbers;
mod outbox;
mod routing;
#[cfg(any(feature = "tokio", shuttle))]
mod seat;
mod shared;
mod state;
mod stream;
pub(crate) mod sync;

#[cfg(all(test, shuttle))]
pub(crate) mod interleavings;

pub use error::{OpenError, ReplyError, SessionError, StreamRecvError, StreamSendError, WaitError};
pub use partywall_layout::stream::{DROPPED, METADATA_BYTES_MAX, REFUSED};

pub(crate) use credit::WRITE_BYTES_MAX;
pub(crate) use driver::{Closing, Driver, Sleep, Turn};
pub(crate) use error::assert_application_code;
pub(crate) use halves::{RecvHalf, SendHalf, StreamEnds};
pub(crate) use handle::{Handle, Opening};
#[cfg(any(feature = "tokio", shuttle))]
pub(crate) use seat::SeatHold;
