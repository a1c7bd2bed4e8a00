// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kill sweep: a tracer single-steps a worker process through an operation on a link (the act),
//! and checks at each instruction what a kill at that point would leave.
//!
//! ```text
//!   this process                                     second process: the worker (worker.rs)
//!   stage.rs    the peer, which runs only if driven    plays the script: messages before the act
//!   stepper.rs  ── PTRACE_SINGLESTEP ────────────▶     SIGSTOP │ the act, in steps │ SIGSTOP
//!   images.rs   the changes of both link files after each instruction
//!   judge.rs    ── each image ─▶ two new owners: may they find this, and do messages flow?
//!   sweep.rs    ── SIGKILL after some steps ─────▶  another worker; its next owner meets the peer
//! ```
//!
//! A killed process leaves the contents of its file at that boundary between two instructions.
//! Nothing else outlives it, except the bytes that it has written to its socket. So a copy of the
//! files at a boundary stands for the death of both ends at that boundary, and two boundaries with
//! equal files stand for the same death. The real kills test the bytes of the socket.
//!
//! The sweep shows no order of stores other than that of the instructions. That suffices: a
//! processor shows its own stores to a reader of the file in order, and power loss is out of scope.
#![allow(dead_code, reason = "the two processes use different parts")]

pub mod act;
pub mod conversation;
pub mod images;
pub mod judge;
pub mod stage;
pub mod stepper;
pub mod sweep;
pub mod worker;
