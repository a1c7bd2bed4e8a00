// SPDX-License-Identifier: MIT OR Apache-2.0
//! Single-steps a thread of a second process (the worker) through an act, an operation on a link
//! between two stops.
//!
//! ```text
//!   worker: says which thread ─▶ PTRACE_TRACEME ─▶ SIGSTOP ─────────── act ───────────▶ SIGSTOP
//!   tracer (this process):                         wait ── step, step, step, … ──▶ second SIGSTOP
//! ```
//!
//! Instructions that are not examined run at full speed, from system call to system call. A system
//! call counts as one step. A repeated instruction (`rep movsb`) counts as one step for each
//! repetition.

use super::worker::THREAD;
use nix::errno::Errno;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use partywall_testkit::{Second, TIMEOUT};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// A thread of the worker process that this process traces. Only the tracing thread of this process
/// can control the traced thread.
pub struct Stepper {
    second: Second,
    thread: Pid,
}

/// The place where the single-stepped worker process has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The worker has stopped within the tested operation, after one instruction.
    Stepped,
    /// The worker has stopped at the end of the tested operation, which it marks by sending itself
    /// SIGSTOP.
    Marked,
}

impl Stepper {
    /// Waits until the worker has stopped at the beginning of the tested operation. Calls
    /// `meanwhile` repeatedly, which lets the worker's peer run in this process.
    pub fn meet(
        mut second: Second,
        directory: &Path,
        mut meanwhile: impl FnMut() -> Result<(), String>,
    ) -> Result<Self, String> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            meanwhile()?;
            if Instant::now() > deadline || second.ends_within(Duration::ZERO) {
                return Err("the worker does not come to its act; is ptrace allowed here?".into());
            }
            let Ok(text) = fs::read_to_string(directory.join(THREAD)) else { continue };
            let thread = Pid::from_raw(text.parse().map_err(|_| "no thread")?);
            match waitpid(thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG)) {
                // The worker process has not yet asked to be traced by this process, or has not
                // stopped yet.
                Err(Errno::ECHILD) | Ok(WaitStatus::StillAlive) => {}
                Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => return Ok(Self { second, thread }),
                other => return Err(format!("before its act: {other:?}")),
            }
        }
    }

    /// Lets the worker execute one instruction. If the instruction is a system call that blocks,
    /// `meanwhile` is called repeatedly: it lets the worker's peer run.
    ///
    /// # Errors
    /// The worker ended, or stopped by another signal than SIGTRAP or SIGSTOP.
    pub fn step(&self, meanwhile: &mut dyn FnMut()) -> Result<(Stop, bool), String> {
        let is_call = self.is_at_call().map_err(|error| error.to_string())?;
        ptrace::step(self.thread, None).map_err(|error| format!("no step: {error}"))?;
        Ok((self.stop(is_call.then_some(meanwhile))?, is_call))
    }

    /// Runs the worker's traced thread up to its next system call.
    ///
    /// # Errors
    /// The worker ended, or stopped by another signal than SIGTRAP or SIGSTOP.
    pub fn to_call(&self) -> Result<Stop, String> {
        ptrace::syscall(self.thread, None).map_err(|error| format!("no leap: {error}"))?;
        self.stop(None)
    }

    /// Runs the worker's traced thread through the system call at which it has stopped.
    ///
    /// # Errors
    /// The worker ended, or stopped by another signal than SIGTRAP or SIGSTOP.
    pub fn through_call(&self, meanwhile: &mut dyn FnMut()) -> Result<Stop, String> {
        ptrace::syscall(self.thread, None).map_err(|error| format!("no leap: {error}"))?;
        self.stop(Some(meanwhile))
    }

    fn stop(&self, meanwhile: Option<&mut dyn FnMut()>) -> Result<Stop, String> {
        let status = match meanwhile {
            None => waitpid(self.thread, Some(WaitPidFlag::__WALL)),
            Some(meanwhile) => self.wait(meanwhile),
        };
        match status {
            Ok(WaitStatus::Stopped(_, Signal::SIGTRAP)) => Ok(Stop::Stepped),
            Ok(WaitStatus::Stopped(_, Signal::SIGSTOP)) => Ok(Stop::Marked),
            other => Err(format!("in its act: {other:?}")),
        }
    }

    /// Whether the worker's next instruction is a system call: only a system call can block.
    fn is_at_call(&self) -> nix::Result<bool> {
        let at = ptrace::getregs(self.thread)?.rip;
        let word = ptrace::read(self.thread, at as ptrace::AddressType)?;
        Ok(word & 0xffff == SYSCALL)
    }

    fn wait(&self, meanwhile: &mut dyn FnMut()) -> nix::Result<WaitStatus> {
        let deadline = Instant::now() + TIMEOUT;
        for poll in 1_u64.. {
            let status = waitpid(self.thread, Some(WaitPidFlag::__WALL | WaitPidFlag::WNOHANG))?;
            if status != WaitStatus::StillAlive {
                return Ok(status);
            }
            if poll % LOOKS_ALONE == 0 {
                meanwhile();
                if Instant::now() > deadline {
                    return Err(Errno::ETIMEDOUT);
                }
            } else {
                thread::yield_now();
            }
        }
        Err(Errno::ETIMEDOUT)
    }

    /// Kills the worker where it has stopped, by dropping the stepper.
    pub fn kill(self) {}
}

impl Drop for Stepper {
    fn drop(&mut self) {
        let _ = partywall_sys::signal::kill(self.second.pid(), partywall_sys::signal::Signal::KILL);
        // The system removes a traced thread only after its tracer has waited for the thread's end.
        while let Ok(status) = waitpid(self.thread, Some(WaitPidFlag::__WALL)) {
            if !matches!(status, WaitStatus::Stopped(..)) {
                break;
            }
        }
        self.second.wait();
    }
}

/// The two bytes 0f 05 of the machine instruction `syscall`, as a little-endian number.
const SYSCALL: i64 = 0x050f;
/// Number of polls of the worker's state before `meanwhile` is called. A system call that takes
/// longer probably blocks until the peer answers; `meanwhile` lets the peer run.
const LOOKS_ALONE: u64 = 100;
