// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client of calls over a stream: it sends each call with an id, and passes each answer to the
//! call with the answer's id.
//!
//! ```text
//!   call ─▶ wait for slot ─▶ turn to send ─▶ sent ─▶ answered     two tasks: `read` passes
//!    └ future dropped: removed ┘             └ dropped: CANCEL    answers, `cancel` sends CANCEL
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

/// Makes calls over a stream. Clones share the stream.
///
/// Dropping the last clone ends the direction to the server. The server still handles one-way calls
/// that were sent before.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// # let address = format!("unix:{}/app.sock", directory.path().display());
/// use partywall_extras::calls::{CallError, Client, Failure, Request, Server};
/// # let mut listener = partywall::tokio::Listener::bind(&address)?;
/// # let (session, there) = tokio::join!(partywall::tokio::connect(&address), listener.accept());
/// # let (session, there) = (session?, there?);
///
/// let serving = tokio::spawn(async move {
///     let stream = there.accept().await.unwrap().unwrap();
///     Server::new(stream).serve(|request: Request| async move {
///         if request.is_empty() {
///             return Err(Failure::new(1, "nothing to shout"));
///         }
///         Ok(request.to_ascii_uppercase())
///     }).await
/// });
///
/// let client = Client::new(session.open(b"shout").await?);
/// assert_eq!(client.call(b"hello").await?, b"HELLO");
/// let Err(CallError::Failed { code, detail }) = client.call(b"").await else { panic!() };
/// assert_eq!((code, &detail[..]), (1, &b"nothing to shout"[..]));
/// drop(client);
/// serving.await??;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    tasks: Arc<Tasks>,
}

/// The two tasks of a client, shared by all its clones. Dropping the last clone ends the tasks.
#[derive(Debug)]
struct Tasks {
    shared: Arc<Shared>,
    reader: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    table: Mutex<CallTable>,
    /// The sending direction of the stream, which one task at a time uses. A call holds it from the
    /// choice of its id until the call is sent, so calls are sent in the order of their ids.
    send: Turns<SendStream>,
    slots: Arc<Semaphore>,
    /// Wakes the task `cancel` when a call is cancelled, or when the last clone of the client is
    /// dropped.
    changed: Notify,
}

#[derive(Debug)]
struct CallTable {
    pending: Pending<Waiter>,
    /// Cancelled calls of which the server must still be told by a CANCEL message. Each keeps its
    /// slot of the `in_flight_max`, which bounds the list.
    cancels: Vec<(u64, OwnedSemaphorePermit)>,
    over: Option<Lost>,
    is_closing: bool,
}

/// A call that waits for its answer: the channel that wakes its future, and its slot of the
/// `in_flight_max`.
#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<Result<Message, CallError>>,
    slot: OwnedSemaphorePermit,
}

/// A guard of a waiting call's entry in the client's table. The future of the call owns the guard.
/// When the future drops the guard, the entry is removed, and the call is cancelled if it has no
/// answer yet.
struct Ticket<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Client {
    /// Makes a client over `stream`, with the default limits.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self::with(stream, CallsConfig::default())
    }

    /// Makes a client over `stream`, with the limits of `config`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    #[must_use]
    pub fn with(stream: Stream, config: CallsConfig) -> Self {
        let (send, recv) = stream.into_split();
        let slots = config.in_flight_max.clamp(1, Semaphore::MAX_PERMITS);
        let table = CallTable {
            pending: Pending::new(),
            cancels: Vec::new(),
            over: None,
            is_closing: false,
        };
        let shared = Arc::new(Shared {
            table: Mutex::new(table),
            send: Turns::new(send),
            slots: Arc::new(Semaphore::new(slots)),
            changed: Notify::new(),
        });
        let reader = tokio::spawn(read(Arc::clone(&shared), recv)).abort_handle();
        tokio::spawn(cancel(Arc::clone(&shared)));
        Self { tasks: Arc::new(Tasks { shared, reader }) }
    }

    /// Makes a call and waits for the answer. The answer is the received message without its
    /// header. Dropping the future cancels the call.
    ///
    /// # Errors
    /// Returns [`CallError`] if the call was not answered.
    pub async fn call(&self, payload: &[u8]) -> Result<Message, CallError> {
        self.call_until(payload, None).await
    }

    /// Makes a call and waits for the answer, at most until `deadline`. The wait includes the time
    /// until fewer calls are in flight and the ring has room for the call. The server gets the
    /// deadline, and drops the handler when the deadline passes.
    ///
    /// # Errors
    /// [`CallError::DeadlineExceeded`] if the deadline passed, and the errors of
    /// [`call`](Self::call).
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

    /// Makes a one-way call, which has no answer: the caller never learns whether it was handled.
    /// `Ok` means that the call is committed to the stream.
    ///
    /// # Errors
    /// Returns [`CallError`] if the call was not committed.
    pub async fn call_one_way(&self, payload: &[u8]) -> Result<(), CallError> {
        let shared = &*self.tasks.shared;
        let mut send = shared.send.lock().await;
        let id = {
            let mut table = shared.table();
            table.check()?;
            table.pending.one_way()
        };
        let frame = Frame::Call { id, one_way: true, left_us: 0 };
        Ok(send_frame(&mut send, frame, payload).await?)
    }

    /// Returns the reason why no more calls can be made, or `None` as long as calls can be made.
    #[must_use]
    pub fn lost(&self) -> Option<Lost> {
        self.tasks.shared.table().over.clone()
    }

    async fn call_until(
        &self,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<Message, CallError> {
        let shared = &*self.tasks.shared;
        let Ok(slot) = Arc::clone(&shared.slots).acquire_owned().await else {
            return Err(CallError::Aborted); // unreachable: the semaphore is never closed
        };
        let mut send = shared.send.lock().await;
        let (answer, answered) = oneshot::channel();
        let ticket = shared.begin(Waiter { answer, slot })?;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let frame = Frame::Call { id: ticket.id, one_way: false, left_us: left_us(left) };
        send_frame(&mut send, frame, payload).await?;
        shared.table().pending.sent(ticket.id);
        drop(send);
        // Awaiting the answer fails only if the call's entry in the table is dropped without an
        // answer, and no code does that.
        answered.await.unwrap_or(Err(CallError::Aborted))
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.reader.abort();
        self.shared.table().is_closing = true;
        self.shared.changed.notify_one();
    }
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, CallTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, waiter: Waiter) -> Result<Ticket<'_>, CallError> {
        let mut table = self.table();
        table.check()?;
        Ok(Ticket { shared: self, id: table.pending.begin(waiter) })
    }

    /// Passes the answer in `message` to the call with the id of the answer.
    fn receive(&self, mut message: Message) -> Result<(), CallViolation> {
        let frame = Frame::decode(&message)?;
        message.advance(HEADER_BYTES);
        let (id, answer) = match frame {
            Frame::Answer { id } => (id, Ok(message)),
            Frame::Error { id, code } => (id, Err(failure(code, message))),
            Frame::Call { id, .. } | Frame::Cancel { id } => {
                return Err(CallViolation::Role { id });
            }
        };
        let waiter = self.table().pending.answered(id)?;
        if let Some(waiter) = waiter {
            // Passing the answer to its call fails only if the caller has dropped the call in the
            // meantime. So the error is ignored.
            let _ = waiter.answer.send(answer);
        }
        Ok(())
    }

    /// Makes every waiting call fail with `lost`, because no more answers will arrive.
    fn end(&self, lost: &Lost) {
        let mut table = self.table();
        table.over = Some(lost.clone());
        let waiters = table.pending.end();
        table.cancels.clear();
        drop(table);
        for waiter in waiters {
            let _ = waiter.answer.send(Err(CallError::Lost(lost.clone())));
        }
        self.changed.notify_one();
    }
}

impl CallTable {
    fn check(&self) -> Result<(), Lost> {
        self.over.clone().map_or(Ok(()), Err)
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut table = self.shared.table();
        if let Left::Cancel(waiter) = table.pending.leave(self.id) {
            table.cancels.push((self.id, waiter.slot));
            drop(table);
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

/// Runs the task that receives answers and passes them to the waiting calls, until the stream ends.
async fn read(shared: Arc<Shared>, mut recv: RecvStream) {
    let lost = loop {
        match recv.recv().await {
            Err(error) => break Lost::Recv(error),
            Ok(None) => break Lost::Finished,
            Ok(Some(message)) => {
                if let Err(violation) = shared.receive(message) {
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

/// Runs the task that sends the message CANCEL for each cancelled call. At its end the task also
/// ends the direction to the server.
async fn cancel(shared: Arc<Shared>) {
    loop {
        let (cancels, is_over) = {
            let mut table = shared.table();
            (std::mem::take(&mut table.cancels), table.is_closing || table.over.is_some())
        };
        if cancels.is_empty() {
            if is_over {
                return;
            }
            // If the table of calls has changed since this task read it, a notification is stored,
            // and this wait ends immediately.
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
