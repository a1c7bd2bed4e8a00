// SPDX-License-Identifier: MIT OR Apache-2.0
//! The few things that measuring needs from the kernel: a clock both processes share, CPU time, affinity,
//! descriptors over a socket, an eventfd that blocks.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same clock in every process of the machine.
#[inline]
pub fn monotonic_ns() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// CPU time of all threads of this process so far, in nanoseconds.
pub fn process_cpu_ns() -> u64 {
    nanoseconds(ClockId::ProcessCPUTime)
}

/// CPU time of the calling thread so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

/// Keeps the calling thread, and the threads it starts later, on `cpu`.
pub fn pin(cpu: usize) -> io::Result<()> {
    let mut set = CpuSet::new();
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "no such CPU"));
    }
    set.set(cpu);
    Ok(sched_setaffinity(None, &set)?)
}

/// Asks for timers of the main thread that are not late on purpose (the default allows the kernel 50 µs).
///
/// Where the kernel refuses, pauses end later and the sender spins less; what is measured stays right.
pub fn sleep_precisely() {
    let _ = std::fs::write("/proc/self/timerslack_ns", "1");
}

/// A counter that blocks its reader while it is 0.
pub fn blocking_eventfd() -> io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC)?)
}

/// Sends one byte with `descriptors` attached.
pub fn send_descriptors(socket: &UnixStream, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY_SIZE];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
    }
    sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one byte and the descriptors attached to it.
pub fn receive_descriptors(socket: &UnixStream) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); ANCILLARY_SIZE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let mut slices = [IoSliceMut::new(&mut byte)];
    recvmsg(socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut taken = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            taken.extend(descriptors);
        }
    }
    Ok(taken)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock runs backwards past 0, and 64 bits of nanoseconds last for 584 years.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Room for the handful of descriptors that a handover needs.
const ANCILLARY_SIZE: usize = rustix::cmsg_space!(ScmRights(8));
