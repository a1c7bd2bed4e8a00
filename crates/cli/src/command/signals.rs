// SPDX-License-Identifier: MIT OR Apache-2.0
//! Catches SIGINT and SIGTERM while a listener has a socket file, so that the command can remove
//! the file before it ends.
//!
//! ```text
//!   caught     signal ─▶ a byte in its pipe ─▶ the poller drops the listener, exits 128 + signal
//!   released   signal ─▶ the default effect: the process ends at once
//! ```
//! The poller is the code that waits for a connection and for the pipe at the same time. The code
//! in this source file neither removes the socket file nor ends the process; its callers do. The
//! code is not part of `partywall-sys`, because that crate promises to install no handler for these
//! signals.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use partywall_sys::poll::{self, PollFd, PollFlags};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// SIGINT and SIGTERM, which this process catches until their default effect is restored
/// ([`release`](Self::release)).
pub struct Caught {
    pipes: [UnixStream; SIGNALS.len()],
    is_released: Arc<AtomicBool>,
}

impl Caught {
    /// Catches SIGINT and SIGTERM from now on.
    pub fn catch() -> io::Result<Self> {
        let is_released = Arc::new(AtomicBool::new(false));
        let catch_one = |(signal, _)| {
            // Handlers run in the order of registration. Once `is_released` is set, this first
            // handler applies the signal's default effect, which ends the process before the second
            // handler runs.
            flag::register_conditional_default(signal, Arc::clone(&is_released))?;
            let (ours, notified) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            low_level::pipe::register(signal, notified)?;
            io::Result::Ok(ours)
        };
        let [interrupt, terminate] = SIGNALS.map(catch_one);
        Ok(Self { pipes: [interrupt?, terminate?], is_released })
    }

    /// Descriptors that become readable after a signal. The caller polls these descriptors and does
    /// not read them.
    pub fn descriptors(&self) -> [PollFd<'_>; SIGNALS.len()] {
        self.pipes.each_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// Waits until SIGINT or SIGTERM has arrived.
    pub fn wait(&self) -> io::Result<()> {
        poll::wait(&mut self.descriptors(), None).map(|_| ())
    }

    /// Restores the default effect of the signals; returns the exit code if a signal arrived
    /// before.
    pub fn release(&self) -> Option<ExitCode> {
        // ORDER: SeqCst, paired with the load of `is_released` in the handler of each signal. A
        // handler that runs at the same time either sees this store, and ends the process, or
        // writes a byte to the signal's pipe, from which this thread reads below.
        self.is_released.store(true, Ordering::SeqCst);
        let came = |pipe: &UnixStream| matches!((&mut &*pipe).read(&mut [0]), Ok(1..));
        let index = self.pipes.iter().position(came)?;
        Some(ExitCode::from(SIGNALS[index].1))
    }
}

/// Each caught signal with its exit code: 128 plus the signal's number, as in shells.
const SIGNALS: [(i32, u8); 2] = [(SIGINT, 128 + 2), (SIGTERM, 128 + 15)];
