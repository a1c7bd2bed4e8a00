// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handle with which an application uses a session, without a runtime: it opens and accepts
//! streams, pings, and closes.
//!
//! After `Pending`, the caller of a `poll_` method may call it again or give up. An [`Opening`]
//! keeps the resources of a stream that is being opened, and frees them when it is dropped.

use super::METADATA_BYTES_MAX;
use super::error::{OpenError, SessionError, assert_application_code};
use super::halves::{RecvHalf, SendHalf, halves};
use super::shared::SessionShared;
use super::state::wake;
use super::stream::StreamShared;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A handle of a session. Each clone counts as another user; without any user, the driver closes
/// the session.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) shared: Arc<SessionShared>,
}

impl Clone for Handle {
    fn clone(&self) -> Self {
        self.shared.add_user(true);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.shared.remove_user(true);
    }
}

/// The resources of a stream that is being opened. Dropping the `Opening` frees them.
#[derive(Debug, Default)]
pub(crate) struct Opening {
    stream: Option<(Arc<SessionShared>, Arc<StreamShared>)>,
    ticket: Option<u64>,
}

impl Opening {
    /// Whether the stream has a number, and the ring or socket lacks room for the record that opens
    /// it.
    pub(crate) const fn waits_for_room(&self) -> bool {
        self.ticket.is_some()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if let Some((shared, stream)) = self.stream.take() {
            if let Some(ticket) = self.ticket {
                shared.outbox().leave(ticket);
            }
            shared.forget_own(stream.number);
        }
    }
}

impl Handle {
    /// Makes the first handle of a session. A new session already counts its first user, so this
    /// function counts no further user.
    pub(crate) const fn new(shared: Arc<SessionShared>) -> Self {
        Self { shared }
    }

    pub(crate) fn poll_open(
        &self,
        context: &Context<'_>,
        metadata: &[u8],
        opening: &mut Opening,
    ) -> Poll<Result<(SendHalf, RecvHalf), OpenError>> {
        check_metadata(metadata)?;
        if !metadata.is_empty() {
            self.shared.check_supported("metadata of streams")?;
        }
        if opening.stream.is_none() {
            let stream = ready!(self.shared.poll_number(context))?;
            opening.stream = Some((Arc::clone(&self.shared), stream));
        }
        if let Some((shared, stream)) = &opening.stream {
            ready!(shared.poll_open(context, stream, metadata, &mut opening.ticket))?;
        }
        opening
            .stream
            .take()
            .map_or(Poll::Pending, |(shared, stream)| Poll::Ready(Ok(halves(&shared, &stream))))
    }

    /// Registers a user that has given up its attempt to open a stream. The user is woken once
    /// there may be room for another attempt.
    pub(crate) fn wake_for_room(&self, context: &Context<'_>) {
        self.shared.outbox().await_any_room(context);
        self.shared.wake_driver();
    }

    /// Returns the next stream that the peer opens, or `None` once the session has ended in good
    /// order.
    pub(crate) fn poll_accept(
        &self,
        context: &Context<'_>,
    ) -> Poll<Result<Option<(SendHalf, RecvHalf)>, SessionError>> {
        Poll::Ready(match ready!(self.shared.poll_accept(context)) {
            Ok(stream) => Ok(Some(halves(&self.shared, &stream))),
            Err(error) if error.is_good_end() => Ok(None),
            Err(error) => Err(error),
        })
    }

    /// Completes if there is a stream to accept, or the session is over. Otherwise registers the
    /// waker of the user, which waits for a stream.
    pub(crate) fn poll_opened(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.shared.state();
        if !state.waiting.is_empty() || state.is_over {
            return Poll::Ready(());
        }
        let woken = state.accepters.register(context);
        drop(state);
        wake(woken);
        Poll::Pending
    }

    /// Sends PING to the peer. Returns the token by which `poll_answer` recognises the answer.
    pub(crate) fn ask(&self) -> Result<u64, SessionError> {
        self.shared.check_supported("pings")?;
        Ok(self.shared.ask())
    }

    pub(crate) fn poll_answer(
        &self,
        context: &Context<'_>,
        token: u64,
    ) -> Poll<Result<(), SessionError>> {
        self.shared.poll_until(context, |state| state.pings.answered >= token)
    }

    /// Completes when no stream of the session is open any more.
    pub(crate) fn poll_drained(&self, context: &Context<'_>) -> Poll<Result<(), SessionError>> {
        self.shared.poll_until(context, |state| state.live == 0)
    }

    /// Completes when the peer has sent the record GO_AWAY. The result is the code of that record.
    pub(crate) fn poll_going_away(&self, context: &Context<'_>) -> Poll<Result<u32, SessionError>> {
        ready!(self.shared.poll_until(context, |state| state.going_away.is_some()))?;
        let code = self.shared.state().going_away;
        Poll::Ready(Ok(code.unwrap_or_default()))
    }

    pub(crate) fn poll_closed(&self, context: &Context<'_>) -> Poll<SessionError> {
        match ready!(self.shared.poll_until(context, |_| false)) {
            Err(error) => Poll::Ready(error),
            Ok(()) => Poll::Pending,
        }
    }

    /// Completes when the driver has ended. In a forked child, where no driver runs, the call
    /// completes immediately.
    pub(crate) fn poll_finished(&self, context: &Context<'_>) -> Poll<()> {
        if self.shared.check_process().is_err() {
            return Poll::Ready(());
        }
        let mut state = self.shared.state();
        if state.has_finished {
            return Poll::Ready(());
        }
        let woken = state.others.register(context);
        drop(state);
        wake(woken);
        Poll::Pending
    }

    /// Frees all unused memory for large messages. Freeing needs room in the ring to notify the
    /// peer, and stops when there is none.
    pub(crate) fn trim(&self) {
        let mut outbox = self.shared.outbox();
        let trimmed = outbox.trim();
        self.shared.leave_outbox(outbox);
        self.shared.settle(trimmed);
    }

    #[track_caller]
    pub(crate) fn close(&self, code: u32, reason: &str) {
        assert_application_code(code);
        self.shared.end(SessionError::ClosedHere { code, reason: reason.into() });
    }
}

const fn check_metadata(metadata: &[u8]) -> Result<(), OpenError> {
    if metadata.len() > METADATA_BYTES_MAX {
        let (len, max) = (metadata.len(), METADATA_BYTES_MAX);
        return Err(OpenError::MetadataTooLong { len, max });
    }
    Ok(())
}
