// SPDX-License-Identifier: MIT OR Apache-2.0
//! A process that is killed at each of its instructions, by single steps.
//!
//! ```text
//!   this process                                     second process: the worker (worker.rs)
//!   stage.rs    the peer, which stands still           script: what was before
//!   stepper.rs  ── PTRACE_SINGLESTEP ────────────▶     SIGSTOP │ the act, instruction by instruction │ SIGSTOP
//!   images.rs   both files after each instruction, as what changed in them
//!   judge.rs    ── each image ─▶ two new owners: what do they find, and does it go on?
//!   sweep.rs    ── SIGKILL after so many steps ──▶    another worker, whose next owner goes on with the peer that lives
//! ```
//!
//! What a killed process leaves is what its file holds at that boundary between two instructions:
//! nothing else of it outlives it, but what it has written to its socket. So a copy of the file at
//! a boundary is the death of both ends there, and two boundaries with equal files are one death.
//! What the socket carries is the business of the real kills.
//!
//! What it does not show: another order of stores than that of the instructions (a processor shows
//! its own stores to whoever reads the file in order, and power is not lost), or acts that are not
//! in act.rs.
#![allow(dead_code, reason = "the two processes use different parts")]

pub mod act;
pub mod conversation;
pub mod images;
pub mod judge;
pub mod stage;
pub mod stepper;
pub mod sweep;
pub mod worker;
