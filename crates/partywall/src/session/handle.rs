// SPDX-License-Identifier: MIT OR Apache-2.0
//! The session as its users hold it: opens and accepts streams, asks, and ends.
//!
//! Every `poll_` may be called again after it said `Pending`, or not: what opening a stream holds lies in
//! its [`Opening`], which gives it back when it is dropped.

use super::METADATA_BYTES_MAX;
use super::core::Core;
use super::error::{OpenError, SessionError};
use super::halves::{RecvHalf, SendHalf, halves};
use super::stream::StreamCore;
use super::waiting::wake;
use crate::code::assert_own;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A session, as often cloned as there are users.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.core.join(true);
        Self { core: Arc::clone(&self.core) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.depart(true);
    }
}

/// A stream that is being opened.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    stream: Option<(Arc<Core>, Arc<StreamCore>)>,
    ticket: Option<u64>,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some((core, stream)) = self.stream.take() {
            if let Some(ticket) = self.ticket {
                core.outbox().leave(ticket);
            }
            core.forget_own(stream.number);
        }
    }
}

impl Handle {
    /// For the first handle: its user is counted already.
    pub(crate) const fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Opens a stream.
    pub(crate) fn poll_open(
        &self,
        context: &Context<'_>,
        metadata: &[u8],
        opening: &mut Opening,
    ) -> Poll<Result<(SendHalf, RecvHalf), OpenError>> {
        check_metadata(metadata)?;
        if !metadata.is_empty() {
            self.core.check_words("metadata of streams")?;
        }
        if opening.stream.is_none() {
            let stream = ready!(self.core.poll_number(context))?;
            opening.stream = Some((Arc::clone(&self.core), stream));
        }
        if let Some((core, stream)) = &opening.stream {
            ready!(core.poll_open(context, stream, metadata, &mut opening.ticket))?;
        }
        opening
            .stream
            .take()
            .map_or(Poll::Pending, |(core, stream)| Poll::Ready(Ok(halves(&core, &stream))))
    }

    /// The next stream that the peer opens; `None` once the session ended in good order.
    pub(crate) fn poll_accept(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Option<(SendHalf, RecvHalf)>, SessionError>> {
        Poll::Ready(match ready!(self.core.poll_accept(context)) {
            Ok(stream) => Ok(Some(halves(&self.core, &stream))),
            Err(error) if error.is_good_end() => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// The token of a question; an answer has come when `poll_answer` is ready.
    pub(crate) fn ask(&self) -> Result<u64, SessionError> {
        self.core.check_words("pings")?;
        Ok(self.core.ask())
    }

    pub(crate) fn poll_answer(
        &self,
        context: &Context<'_>,
        token: u64,
    ) -> Poll<Result<(), SessionError>> {
        self.core.poll_until(context, |streams| streams.pings.answered >= token)
    }

    /// Ready when no stream is left.
    pub(crate) fn poll_drained(&self, context: &Context<'_>) -> Poll<Result<(), SessionError>> {
        self.core.poll_until(context, |streams| streams.live == 0)
    }

    /// Ready when the other side asked for no more streams; the code.
    pub(crate) fn poll_going_away(&self, context: &Context<'_>) -> Poll<Result<u32, SessionError>> {
        ready!(self.core.poll_until(context, |streams| streams.going_away.is_some()))?;
        let code = self.core.streams().going_away;
        Poll::Ready(Ok(code.unwrap_or_default()))
    }

    /// Ready when the session is over; why.
    pub(crate) fn poll_closed(&self, context: &Context<'_>) -> Poll<SessionError> {
        match ready!(self.core.poll_until(context, |_| false)) {
            Err(error) => Poll::Ready(error),
            Ok(()) => Poll::Pending,
        }
    }

    /// Ready when the driver has ended; in a forked child at once, where there is none.
    pub(crate) fn poll_finished(&self, context: &Context<'_>) -> Poll<()> {
        if self.core.check_process().is_err() {
            return Poll::Ready(());
        }
        let mut streams = self.core.streams();
        if streams.has_finished {
            return Poll::Ready(());
        }
        let woken = streams.others.register(context);
        drop(streams);
        wake(woken);
        Poll::Pending
    }

    /// Gives all memory for large messages that is not in use back to the system, as far as there is
    /// room to tell the other side.
    pub(crate) fn trim(&self) {
        let mut outbox = self.core.outbox();
        let trimmed = outbox.trim();
        self.core.leave_outbox(outbox);
        self.core.settle(trimmed);
    }

    /// Ends the session at once, for all its streams.
    #[track_caller]
    pub(crate) fn close(&self, code: u32, reason: &str) {
        assert_own(code);
        self.core.end(SessionError::ClosedHere { code, reason: reason.into() });
    }
}

/// Whether metadata is short enough.
const fn check_metadata(metadata: &[u8]) -> Result<(), OpenError> {
    if metadata.len() > METADATA_BYTES_MAX {
        let (len, max) = (metadata.len(), METADATA_BYTES_MAX);
        return Err(OpenError::MetadataTooLong { len, max });
    }
    Ok(())
}
