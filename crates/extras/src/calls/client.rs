// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calling end.
//!
//! ```text
//!   call ─▶ slot ─▶ order of sending ─▶ sent ─▶ answered     two tasks per client: one hands out answers,
//!    └ dropped: gone ┘                   └ dropped: CANCEL    one sends what dropped calls owe
//! ```

use super::frame::{Frame, HEADER_BYTES, left_us};
use super::pending::{Left, Pending};
use super::{ABORTED, BUSY, CallViolation, DEADLINE, VIOLATION};
use super::{CallError, CallsConfig, Lost, send_frame};
use bytes::Buf;
use partywall::Message;
use partywall::tokio::{RecvStream, SendStream, Stream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::{Mutex as Turns, Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::AbortHandle;

/// Makes calls over a stream; clones make theirs over the same one.
///
/// Dropping the last clone tells the server that no more calls will come; one-way calls that were sent are
/// still handled.
#[derive(Clone, Debug)]
pub struct Client {
    link: Arc<Link>,
}

/// What ends the tasks when the last clone goes.
#[derive(Debug)]
struct Link {
    shared: Arc<Shared>,
    reader: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    book: Mutex<Book>,
    /// Calls are sent one after the other, in the order of their ids.
    send: Turns<SendStream>,
    slots: Arc<Semaphore>,
    /// Somebody gave up a call, or all is over.
    changed: Notify,
}

#[derive(Debug)]
struct Book {
    pending: Pending<Waiter>,
    /// Calls given up of which the server must be told. They hold their slots: it cannot grow further.
    cancels: Vec<(u64, OwnedSemaphorePermit)>,
    over: Option<Lost>,
    is_closing: bool,
}

/// Who waits for an answer.
#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<Result<Message, CallError>>,
    slot: OwnedSemaphorePermit,
}

/// A call that somebody waits for; dropped when nobody does any more.
struct Ticket<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Client {
    /// Makes calls over `stream`, with the default limits.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self::with(stream, CallsConfig::default())
    }

    /// Makes calls over `stream`.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn with(stream: Stream, config: CallsConfig) -> Self {
        let (send, recv) = stream.into_split();
        let slots = config.in_flight_max.clamp(1, Semaphore::MAX_PERMITS);
        let book =
            Book { pending: Pending::new(), cancels: Vec::new(), over: None, is_closing: false };
        let shared = Arc::new(Shared {
            book: Mutex::new(book),
            send: Turns::new(send),
            slots: Arc::new(Semaphore::new(slots)),
            changed: Notify::new(),
        });
        let reader = tokio::spawn(read(Arc::clone(&shared), recv)).abort_handle();
        tokio::spawn(cancel(Arc::clone(&shared)));
        Self { link: Arc::new(Link { shared, reader }) }
    }

    /// Calls, and waits for the answer: the message as it arrived, past its header. Dropping the future
    /// cancels the call.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call(&self, payload: &[u8]) -> Result<Message, CallError> {
        self.call_until(payload, None).await
    }

    /// As [`call`](Self::call), but only until `deadline`, which the server is told, too. Waiting for a
    /// slot and for room counts.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`], and as `call`.
    pub async fn call_deadline(
        &self,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<Message, CallError> {
        let call = self.call_until(payload, Some(deadline));
        match tokio::time::timeout_at(deadline.into(), call).await {
            Ok(answered) => answered,
            Err(_) => Err(CallError::DeadlineExceeded),
        }
    }

    /// Calls without an answer: nobody learns whether it was handled. When this returns `Ok`, it is
    /// committed.
    ///
    /// # Errors
    /// See [`CallError`].
    pub async fn call_one_way(&self, payload: &[u8]) -> Result<(), CallError> {
        let shared = &*self.link.shared;
        let mut send = shared.send.lock().await;
        let id = {
            let mut book = shared.book();
            book.check()?;
            book.pending.one_way()
        };
        let frame = Frame::Call { id, one_way: true, left_us: 0 };
        Ok(send_frame(&mut send, frame, payload).await?)
    }

    /// Whether no more calls can be made, and why.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        self.link.shared.book().over.clone()
    }

    async fn call_until(
        &self,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Message, CallError> {
        let shared = &*self.link.shared;
        let Ok(slot) = Arc::clone(&shared.slots).acquire_owned().await else {
            return Err(CallError::Aborted); // nobody closes the semaphore
        };
        let mut send = shared.send.lock().await;
        let (answer, answered) = oneshot::channel();
        let ticket = shared.begin(Waiter { answer, slot })?;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let frame = Frame::Call { id: ticket.id, one_way: false, left_us: left_us(left) };
        send_frame(&mut send, frame, payload).await?;
        shared.book().pending.sent(ticket.id);
        drop(send);
        // Every waiter is told before it is dropped.
        answered.await.unwrap_or(Err(CallError::Aborted))
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
        self.shared.book().is_closing = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, waiter: Waiter) -> Result<Ticket<'_>, CallError> {
        let mut book = self.book();
        book.check()?;
        Ok(Ticket { shared: self, id: book.pending.begin(waiter) })
    }

    /// What a message means to those who wait.
    fn hear(&self, mut message: Message) -> Result<(), CallViolation> {
        let frame = Frame::decode(&message)?;
        message.advance(HEADER_BYTES);
        let (id, answer) = match frame {
            Frame::Answer { id } => (id, Ok(message)),
            Frame::Error { id, code } => (id, Err(failure(code, message))),
            Frame::Call { id, .. } | Frame::Cancel { id } => {
                return Err(CallViolation::Role { id });
            }
        };
        let waiter = self.book().pending.answered(id)?;
        if let Some(waiter) = waiter {
            // Whoever waited may have given up at this moment.
            let _ = waiter.answer.send(answer);
        }
        Ok(())
    }

    /// No more answers will come: everybody who waits is told.
    fn end(&self, lost: &Lost) {
        let mut book = self.book();
        book.over = Some(lost.clone());
        let waiters = book.pending.end();
        book.cancels.clear();
        drop(book);
        for waiter in waiters {
            let _ = waiter.answer.send(Err(CallError::Lost(lost.clone())));
        }
        self.changed.notify_one();
    }
}

impl Book {
    fn check(&self) -> Result<(), Lost> {
        self.over.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut book = self.shared.book();
        if let Left::Tell(waiter) = book.pending.leave(self.id) {
            book.cancels.push((self.id, waiter.slot));
            drop(book);
            self.shared.changed.notify_one();
        }
    }
}

fn failure(code: u32, detail: Message) -> CallError {
    match code {
        BUSY => CallError::Busy,
        DEADLINE => CallError::DeadlineExceeded,
        ABORTED => CallError::Aborted,
        code => CallError::Failed { code, detail: detail.into() },
    }
}

/// The task that hands out answers.
async fn read(shared: Arc<Shared>, mut recv: RecvStream) {
    let lost = loop {
        match recv.recv().await {
            Err(error) => break Lost::Recv(error),
            Ok(None) => break Lost::Finished,
            Ok(Some(message)) => {
                if let Err(violation) = shared.hear(message) {
                    break Lost::Violation(violation);
                }
            }
        }
    };
    shared.end(&lost);
    if matches!(lost, Lost::Violation(_)) {
        recv.stop(VIOLATION);
        shared.send.lock().await.reset(VIOLATION);
    }
}

/// The task that tells the server of calls that were given up; the stream is closed when it ends.
async fn cancel(shared: Arc<Shared>) {
    loop {
        let (cancels, is_over) = {
            let mut book = shared.book();
            (std::mem::take(&mut book.cancels), book.is_closing || book.over.is_some())
        };
        if cancels.is_empty() {
            if is_over {
                return;
            }
            // A change since the look above has left its mark.
            shared.changed.notified().await;
            continue;
        }
        for (id, slot) in cancels {
            let mut send = shared.send.lock().await;
            if send_frame(&mut send, Frame::Cancel { id }, &[]).await.is_err() {
                return;
            }
            drop(slot);
        }
    }
}
