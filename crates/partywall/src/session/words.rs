// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the sides of a session say of the session itself: whether the other one is there, and that no more streams
//! are wanted.
//!
//! ```text
//!   ask ─▶ PING ─▶ answer ─▶ heard_answer       go_away ─▶ GO_AWAY ─▶ heard_go_away
//! ```
//!
//! A protocol has words for neither: asking is an error there, and whoever goes away refuses what is opened.

use super::core::Core;
use super::error::SessionError;
use super::waiting::wake;

impl Core {
    /// That nothing is asked for which the protocol that is spoken has no words.
    pub(super) fn check_words(&self, what: &'static str) -> Result<(), SessionError> {
        if self.is_foreign { Err(SessionError::Unsupported { what }) } else { Ok(()) }
    }

    /// Asks the other side; the token that the answer will bring, or a later one.
    pub(super) fn ask(&self) -> u64 {
        let mut streams = self.streams();
        streams.pings.asked += 1;
        let token = streams.pings.asked;
        drop(streams);
        let mut outbox = self.outbox();
        outbox.ask(token);
        let flushed = outbox.flush();
        self.leave_outbox(outbox);
        self.settle(flushed);
        token
    }

    /// Asks the other side to open no more streams.
    pub(crate) fn go_away(&self, code: u32) {
        let mut streams = self.streams();
        if std::mem::replace(&mut streams.has_gone_away, true) {
            return;
        }
        drop(streams);
        let mut outbox = self.outbox();
        outbox.go_away = Some(code);
        let flushed = outbox.flush();
        self.leave_outbox(outbox);
        self.settle(flushed);
    }

    /// The other side asks for no more streams.
    pub(super) fn heard_go_away(&self, code: u32) {
        let mut streams = self.streams();
        streams.going_away.get_or_insert(code);
        let mut wakers = streams.openers.take();
        wakers.extend(streams.others.take());
        drop(streams);
        wake(wakers);
    }

    /// The other side answered.
    pub(super) fn heard_answer(&self, token: u64) {
        let mut streams = self.streams();
        if token <= streams.pings.asked {
            streams.pings.answered = streams.pings.answered.max(token);
        }
        let wakers = streams.others.take();
        drop(streams);
        wake(wakers);
    }
}
