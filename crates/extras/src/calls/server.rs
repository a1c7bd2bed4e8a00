// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server of calls: each running call is a task, and `serve` owns all of them.
//!
//! ```text
//!   serve ─┬─ CALL ───▶ run ─▶ task: handler, then answer    `serve` drops its tasks when dropped
//!          │           or keep waiting, or refuse (BUSY)
//!          ├─ CANCEL ─▶ abort the task of the call
//!          └─ a task ended ─▶ the next waiting call runs
//! ```
//!
//! The server receives even when `running_max` calls run and `waiting_max` calls wait, so that it
//! always gets a CANCEL.

use super::frame::{Frame, HEADER_BYTES, left};
use super::serving::{Arrived, Serving};
use super::{ABORTED, BUSY, CODES_RESERVED, CallViolation, DEADLINE, VIOLATION};
use super::{CallsConfig, ServeError, send_frame};
use bytes::{Buf, Bytes};
use partywall::Message;
use partywall::tokio::{RecvStream, SendStream, Stream};
use partywall::{StreamRecvError, StreamSendError};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::ops::Deref;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;
use tokio::sync::Mutex as Turns;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

/// Answers the calls that arrive on a stream.
#[derive(Debug)]
pub struct Server {
    send: Arc<Turns<SendStream>>,
    recv: RecvStream,
    config: CallsConfig,
}

/// A call as its handler receives it. `Request` derefs to the payload of the call.
#[derive(Debug)]
pub struct Request {
    payload: Message,
    deadline: Option<Instant>,
    is_one_way: bool,
}

/// The failure that a handler returns instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: u32,
    detail: Bytes,
}

impl Request {
    /// Returns the payload as it arrived. A large payload is not copied: the message refers to the
    /// client's memory until it is dropped.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.payload
    }

    /// Returns the client's deadline, if the call has one. When the deadline passes, the handler is
    /// dropped.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether the call is one-way, so that the client expects no answer.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        self.is_one_way
    }
}

impl Deref for Request {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.payload
    }
}

impl Failure {
    /// Makes a failure with a code of the application and a detail for the client.
    ///
    /// # Panics
    /// Panics if the code is reserved for the protocol: [`CODES_RESERVED`] or greater.
    #[must_use]
    pub fn new(code: u32, detail: impl Into<Bytes>) -> Self {
        assert!(code < CODES_RESERVED, "codes from {CODES_RESERVED:#x} on are reserved");
        Self { code, detail: detail.into() }
    }

    const fn of_protocol(code: u32) -> Self {
        Self { code, detail: Bytes::new() }
    }
}

struct Loop<H> {
    send: Arc<Turns<SendStream>>,
    handler: Arc<H>,
    calls: Serving<(Request, u64), AbortHandle>,
    tasks: JoinSet<Result<(), StreamSendError>>,
    /// For each task, the id of its call and whether the call is one-way.
    calls_by_task: HashMap<Id, (u64, bool)>,
}

enum Event {
    Received(Result<Option<Message>, StreamRecvError>),
    Done(Result<(Id, Result<(), StreamSendError>), JoinError>),
}

impl Server {
    /// Makes a server for the calls that arrive on `stream`, with the default limits of running and
    /// waiting calls.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self::with(stream, CallsConfig::default())
    }

    /// Makes a server for the calls that arrive on `stream`. `config` limits how many calls run and
    /// how many wait.
    #[must_use]
    pub fn with(stream: Stream, config: CallsConfig) -> Self {
        let (send, recv) = stream.into_split();
        Self { send: Arc::new(Turns::new(send)), recv, config }
    }

    /// Answers each call with the result of `handler`, until the client has ended its direction and
    /// every call is answered. Each handler runs in a task of its own. Dropping the future drops
    /// all handlers.
    ///
    /// A handler is dropped when its call is cancelled, when its deadline passes, or when the
    /// stream or the session fails. If a handler panics, its call fails with
    /// [`CallError::Aborted`](super::CallError::Aborted).
    ///
    /// # Errors
    /// Returns [`ServeError`] if the stream ended early.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub async fn serve<H, F, R>(mut self, handler: H) -> Result<(), ServeError>
    where
        H: Fn(Request) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: AsRef<[u8]> + Send + 'static,
    {
        let mut serving = Loop {
            send: Arc::clone(&self.send),
            handler: Arc::new(handler),
            calls: Serving::new(self.config.running_max, self.config.waiting_max),
            tasks: JoinSet::new(),
            calls_by_task: HashMap::new(),
        };
        let mut is_finished = false;
        while !(is_finished && serving.calls.is_idle()) {
            let handled = match serving.next(&mut self.recv, is_finished).await {
                Event::Received(Ok(Some(message))) => serving.receive(message).await,
                Event::Received(Ok(None)) => {
                    is_finished = true;
                    Ok(())
                }
                Event::Received(Err(error)) => Err(error.into()),
                Event::Done(done) => serving.done(done).await,
            };
            if let Err(error) = handled {
                serving.tasks.shutdown().await;
                if matches!(error, ServeError::Violation(_)) {
                    self.recv.stop(VIOLATION);
                    self.send.lock().await.reset(VIOLATION);
                }
                return Err(error);
            }
        }
        Ok(())
    }
}

impl<H, F, R> Loop<H>
where
    H: Fn(Request) -> F + Send + Sync + 'static,
    F: Future<Output = Result<R, Failure>> + Send + 'static,
    R: AsRef<[u8]> + Send + 'static,
{
    async fn next(&mut self, recv: &mut RecvStream, is_finished: bool) -> Event {
        poll_fn(|context| {
            if let Poll::Ready(Some(done)) = self.tasks.poll_join_next_with_id(context) {
                return Poll::Ready(Event::Done(done));
            }
            if is_finished {
                return Poll::Pending;
            }
            recv.poll_recv(context).map(Event::Received)
        })
        .await
    }

    async fn receive(&mut self, mut message: Message) -> Result<(), ServeError> {
        match Frame::decode(&message)? {
            Frame::Call { id, one_way, left_us } => {
                message.advance(HEADER_BYTES);
                let deadline = left(left_us).map(|left| Instant::now() + left);
                let request = Request { payload: message, deadline, is_one_way: one_way };
                match self.calls.arrive(id, (request, id))? {
                    Arrived::Run((request, id)) => self.run(id, request),
                    Arrived::Waits => {}
                    Arrived::Refused((request, id)) => {
                        drop(request.payload);
                        if !one_way {
                            self.fail(id, BUSY).await?;
                        }
                    }
                }
            }
            Frame::Cancel { id } => {
                if let Some(handler) = self.calls.cancel(id) {
                    handler.abort();
                }
            }
            Frame::Answer { id } | Frame::Error { id, .. } => {
                return Err(CallViolation::Role { id }.into());
            }
        }
        Ok(())
    }

    fn run(&mut self, id: u64, request: Request) {
        let (send, handler) = (Arc::clone(&self.send), Arc::clone(&self.handler));
        let is_one_way = request.is_one_way;
        let abort = self.tasks.spawn(async move {
            let outcome = handle(&*handler, request).await;
            if is_one_way { Ok(()) } else { answer(&send, id, outcome).await }
        });
        self.calls_by_task.insert(abort.id(), (id, is_one_way));
        self.calls.started(id, abort);
    }

    /// Processes the end of a handler's task: runs the next waiting call, and sends the error
    /// ABORTED to the client if the handler panicked.
    async fn done(
        &mut self,
        done: Result<(Id, Result<(), StreamSendError>), JoinError>,
    ) -> Result<(), ServeError> {
        let (task, answered, panicked) = match done {
            Ok((task, answered)) => (task, answered, false),
            Err(error) => (error.id(), Ok(()), error.is_panic()),
        };
        let Some((id, is_one_way)) = self.calls_by_task.remove(&task) else { return Ok(()) };
        if let Some((_, (request, next))) = self.calls.finished(id) {
            self.run(next, request);
        }
        answered?;
        if panicked && !is_one_way {
            self.fail(id, ABORTED).await?;
        }
        Ok(())
    }

    async fn fail(&self, id: u64, code: u32) -> Result<(), StreamSendError> {
        let failure: Result<&[u8], _> = Err(Failure::of_protocol(code));
        answer(&self.send, id, failure).await
    }
}

/// Runs a handler until it ends or its deadline passes.
async fn handle<H, F, R>(handler: &H, request: Request) -> Result<R, Failure>
where
    H: Fn(Request) -> F,
    F: Future<Output = Result<R, Failure>>,
{
    let Some(deadline) = request.deadline else { return handler(request).await };
    if deadline <= Instant::now() {
        return Err(Failure::of_protocol(DEADLINE));
    }
    match tokio::time::timeout_at(deadline.into(), handler(request)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::of_protocol(DEADLINE)),
    }
}

/// Sends an answer. Ignores the error if the client has stopped receiving.
async fn answer<R: AsRef<[u8]>>(
    send: &Turns<SendStream>,
    id: u64,
    outcome: Result<R, Failure>,
) -> Result<(), StreamSendError> {
    let mut send = send.lock().await;
    let sent = match &outcome {
        Ok(payload) => send_frame(&mut send, Frame::Answer { id }, payload.as_ref()).await,
        Err(Failure { code, detail }) => {
            send_frame(&mut send, Frame::Error { id, code: *code }, detail).await
        }
    };
    match sent {
        Err(StreamSendError::TooLarge(limit)) => {
            let why = limit.to_string();
            send_frame(&mut send, Frame::Error { id, code: ABORTED }, why.as_bytes()).await
        }
        Err(StreamSendError::Stopped { .. }) => Ok(()),
        other => other,
    }
}
