// SPDX-License-Identifier: MIT OR Apache-2.0
//! Decides how the two ends of a link resume after any failure (SPEC 12). Each end describes its
//! state of a direction in a view; from the two views this crate derives a decision.
//!
//! ```text
//!  position.rs    positions, digests, acked offsets and the watermarks of one direction
//!  identity.rs    store id, incarnation, connection number, epoch, stream id
//!  views.rs       what one side sends the other about a direction, checked
//!  decision.rs    reconcile: two views make a decision, which the receiver applies
//!  skip.rs        what a receiver skipped without consuming it, and which side reports that when
//!  epoch.rs       leaving an epoch: what becomes of its streams, which ranges are reported
//!  attach.rs      which connection replaces which
//!  report.rs      what the application learns of skipped and dropped messages
//! ```
//!
//! This crate has no `unsafe` code, allocates nothing, and uses neither system calls nor a clock.
//! The links and the model of `tests/model` call the same functions. Everything that comes from the
//! peer is checked before it is believed; no function panics, whatever its arguments.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::arithmetic_side_effects))]
#![no_std]
#![forbid(unsafe_code)]

pub mod attach;
pub mod decision;
pub mod epoch;
pub mod identity;
pub mod position;
pub mod report;
pub mod skip;
pub mod views;

pub use attach::{Admission, Connection, Peer, PeerOrder, Present};
pub use decision::{Applied, Decision, Unfit, reconcile};
pub use epoch::{Past, ReceivedPast, SentPast};
pub use identity::{ConnectionNumber, Epoch, Identity, Incarnation, StoreId, StreamId};
pub use position::{
    AckUnfit, AckedOffset, Arrival, Incoming, OutOfOrder, Outgoing, Position, Prepared, Range,
    RecordDigest, ack_due_at, is_ack_due, recover,
};
pub use report::{Cause, Direction, Impossible, Report, Reports, Span};
pub use skip::Skip;
pub use views::{Malformed, ReceiverView, SenderView};
