// SPDX-License-Identifier: MIT OR Apache-2.0
//! SIGINT and SIGTERM while there is something to tidy up: the socket file of a listener.
//!
//! ```text
//!   caught   signal ─▶ a byte in its pipe ─▶ whoever polls it drops the listener, and ends with 128 + signal
//!   let go   signal ─▶ its default effect: the process ends at once
//! ```
//! What it does *not* do: tidy up, or end anything. It lives here and not in `partywall-sys`, because a
//! library has no business with its program's signals: that crate promises to install no handler.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use partywall_sys::poll::{self, PollFd, PollFlags};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

/// The signals that end a program in order, held back until [`let_go`](Self::let_go).
pub struct Caught {
    pipes: [UnixStream; SIGNALS.len()],
    is_let_go: Arc<AtomicBool>,
}

impl Caught {
    /// From now on the signals wait to be looked at.
    pub fn catch() -> io::Result<Self> {
        let is_let_go = Arc::new(AtomicBool::new(false));
        let catch_one = |(signal, _)| {
            // Handlers run in this order: once let go, the default comes first, and ends the process.
            flag::register_conditional_default(signal, Arc::clone(&is_let_go))?;
            let (ours, notified) = UnixStream::pair()?;
            ours.set_nonblocking(true)?;
            low_level::pipe::register(signal, notified)?;
            io::Result::Ok(ours)
        };
        let [interrupt, terminate] = SIGNALS.map(catch_one);
        Ok(Self { pipes: [interrupt?, terminate?], is_let_go })
    }

    /// Descriptors that become readable when a signal came: to be polled, not to be read.
    pub fn descriptors(&self) -> [PollFd<'_>; SIGNALS.len()] {
        self.pipes.each_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN))
    }

    /// Waits for one of them.
    pub fn wait(&self) -> io::Result<()> {
        poll::wait(&mut self.descriptors(), None).map(|_| ())
    }

    /// Gives the signals their default effect back. The exit code if one came before.
    pub fn let_go(&self) -> Option<ExitCode> {
        // ORDER: SeqCst, so that no signal falls between: it either sees this, or has rung its pipe.
        self.is_let_go.store(true, Ordering::SeqCst);
        let came = |pipe: &UnixStream| matches!((&mut &*pipe).read(&mut [0]), Ok(1..));
        let index = self.pipes.iter().position(came)?;
        Some(ExitCode::from(SIGNALS[index].1))
    }
}

/// Each with its exit code, as shells have it: 128 and the signal's number.
const SIGNALS: [(i32, u8); 2] = [(SIGINT, 128 + 2), (SIGTERM, 128 + 15)];
