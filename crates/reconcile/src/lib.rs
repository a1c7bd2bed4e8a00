// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two ends of a link agree on after anything happened: views in, decisions out (SPEC 12).
//!
//! ```text
//!  position.rs    where in a stream: positions, ranges, proofs, marks
//!  identity.rs    who: lineage, incarnation, generation, epoch, stream
//!  views.rs       what one side tells the other about a direction, checked
//!  reconcile.rs   the one pure function: a sender's view and a receiver's view make a decision
//!  decision.rs    what can come out of it, and what the receiver does about it
//!  skip.rs        what a receiver went past without consuming it, and who reports that when
//!  epoch.rs       leaving an epoch: what becomes of its streams, which ranges are reported
//!  attach.rs      which connection replaces which
//!  watermarks.rs  base ≤ acked ≤ consumed ≤ received ≤ tail, and the moves that keep it so
//!  recovery.rs    what had been consumed when a side ended in the middle of a commit
//!  ack.rs         when an acknowledgement is due
//!  report.rs      what the application is told of
//! ```
//!
//! This crate has no `unsafe`, allocates nothing, and asks nothing of an operating system or a clock.
//! The transports and the model of `tests/model` call the same functions. Everything that comes from
//! the neighbour is taken for a lie until it was checked; no function panics, whatever its arguments.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::arithmetic_side_effects))]
#![no_std]
#![forbid(unsafe_code)]

pub mod ack;
pub mod attach;
pub mod decision;
pub mod epoch;
pub mod identity;
pub mod position;
pub mod reconcile;
pub mod recovery;
pub mod report;
pub mod skip;
pub mod views;
pub mod watermarks;

pub use attach::{Admission, Connection, Peer, PeerOrder, Present};
pub use decision::{Applied, Decision, Impossible, Unfit};
pub use epoch::{Past, ReceivedPast, SentPast};
pub use identity::{ConnectionNumber, Epoch, Identity, Incarnation, StoreId, StreamId};
pub use position::{AckedOffset, Position, Range, RecordDigest};
pub use reconcile::reconcile;
pub use report::{Cause, Direction, Report, Reports, Span};
pub use skip::Skip;
pub use views::{Malformed, ReceiverView, SenderView};
pub use watermarks::{Arrival, Incoming, Outgoing};
