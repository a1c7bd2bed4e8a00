// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is killed at each of its instructions, by single steps.
//!
//! ```text
//!   this process                                     second process: the worker (worker.rs)
//!   stage.rs    the peer, which stands still           script: what was before
//!   stepper.rs  ── PTRACE_SINGLESTEP ────────────▶     SIGSTOP │ the act, in steps │ SIGSTOP
//!   images.rs   both files after each instruction, as what changed in them
//!   judge.rs    ── each image ─▶ two new owners: what do they find, and does it go on?
//!   sweep.rs    ── SIGKILL after so many steps ──▶  another worker; its successor meets the peer
//! ```
//!
//! A killed process leaves what its file holds at that boundary between two instructions. Nothing
//! else outlives it but what it has written to its socket. So a copy of the file at a boundary is
//! the death of both ends there, and two boundaries with equal files are one death. The real kills
//! test the bytes of the socket.
//!
//! It does not show another order of stores than that of the instructions. A processor shows its
//! own stores to a reader of the file in order, and power is not lost.
#![allow(dead_code, reason = "the two processes use different parts")]

pub mod act;
pub mod conversation;
pub mod images;
pub mod judge;
pub mod stage;
pub mod stepper;
pub mod sweep;
pub mod worker;
