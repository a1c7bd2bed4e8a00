// SPDX-License-Identifier: MIT OR Apache-2.0
//! The answering end: a task for each call that runs, all of them within `serve`.
//!
//! ```text
//!   serve ─┬─ CALL ───▶ book: run ─▶ task: handler, answer       dropped with serve
//!          │                  wait / refuse (BUSY)
//!          ├─ CANCEL ─▶ book: abort the task
//!          └─ a task is done ─▶ book: the next runs
//! ```
//!
//! It receives even while as many run and wait as may: so that cancelling always gets through.

use super::frame::{Frame, HEADER_BYTES, left};
use super::serving::{Arrived, Serving};
use super::{ABORTED, BUSY, CODES_RESERVED, CallViolation, DEADLINE, VIOLATION};
use super::{CallsConfig, send_frame};
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

/// Answers the calls of a stream.
#[derive(Debug)]
pub struct Server {
    send: Arc<Turns<SendStream>>,
    recv: RecvStream,
    config: CallsConfig,
}

/// A call, as its handler gets it; derefs to the payload.
#[derive(Debug)]
pub struct Request {
    payload: Message,
    deadline: Option<Instant>,
    is_one_way: bool,
}

/// What a handler says instead of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    code: u32,
    detail: Bytes,
}

/// Why a server serves no more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The client is gone, or gave up the stream: handlers were dropped.
    #[error("no more calls will come: {0}")]
    Recv(#[from] StreamRecvError),
    /// Answers cannot be sent. [`StreamSendError::Full`] if the policy is
    /// [`BackPressure::Error`](partywall::BackPressure::Error): choose another.
    #[error("answers cannot be sent: {0}")]
    Send(#[from] StreamSendError),
    /// The client broke the rules of calls; the stream was reset.
    #[error(transparent)]
    Violation(#[from] CallViolation),
}

impl Request {
    /// The payload as it arrived: a large one is a view of the client's memory.
    #[must_use]
    pub fn into_message(self) -> Message {
        self.payload
    }

    /// When the client gives up, if it said so; the handler is dropped then.
    #[must_use]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether nobody waits for an answer.
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
    /// A failure with a code of the application's, and what it says.
    ///
    /// # Panics
    /// If the code is one of the protocol's: [`CODES_RESERVED`] or greater.
    #[must_use]
    pub fn new(code: u32, detail: impl Into<Bytes>) -> Self {
        assert!(
            code < CODES_RESERVED,
            "codes from {CODES_RESERVED:#x} on are those of the protocol"
        );
        Self { code, detail: detail.into() }
    }

    const fn of_protocol(code: u32) -> Self {
        Self { code, detail: Bytes::new() }
    }
}

/// What `serve` keeps.
struct Loop<H> {
    send: Arc<Turns<SendStream>>,
    handler: Arc<H>,
    book: Serving<(Request, u64), AbortHandle>,
    tasks: JoinSet<Result<(), StreamSendError>>,
    /// Which call each task runs, and whether it is one-way.
    calls: HashMap<Id, (u64, bool)>,
}

enum Event {
    Received(Result<Option<Message>, StreamRecvError>),
    Done(Result<(Id, Result<(), StreamSendError>), JoinError>),
}

impl Server {
    /// Answers the calls of `stream`, with the default limits.
    #[must_use]
    pub fn new(stream: Stream) -> Self {
        Self::with(stream, CallsConfig::default())
    }

    /// Answers the calls of `stream`.
    #[must_use]
    pub fn with(stream: Stream, config: CallsConfig) -> Self {
        let (send, recv) = stream.into_split();
        Self { send: Arc::new(Turns::new(send)), recv, config }
    }

    /// Answers each call with what `handler` makes of it, until the client makes no more and all are
    /// answered. Handlers are tasks of their own; dropping this future drops them all.
    ///
    /// A handler is dropped when its call is cancelled, when its deadline passes, and when the stream or
    /// the session breaks. Handlers that panic answer [`CallError::Aborted`](super::CallError::Aborted).
    ///
    /// # Errors
    /// See [`ServeError`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn serve<H, F, R>(mut self, handler: H) -> Result<(), ServeError>
    where
        H: Fn(Request) -> F + Send + Sync + 'static,
        F: Future<Output = Result<R, Failure>> + Send + 'static,
        R: AsRef<[u8]> + Send + 'static,
    {
        let mut serving = Loop {
            send: Arc::clone(&self.send),
            handler: Arc::new(handler),
            book: Serving::new(self.config.running_max, self.config.waiting_max),
            tasks: JoinSet::new(),
            calls: HashMap::new(),
        };
        let mut is_finished = false;
        while !(is_finished && serving.book.is_idle()) {
            let heard = match serving.next(&mut self.recv, is_finished).await {
                Event::Received(Ok(Some(message))) => serving.hear(message).await,
                Event::Received(Ok(None)) => {
                    is_finished = true;
                    Ok(())
                }
                Event::Received(Err(error)) => Err(error.into()),
                Event::Done(done) => serving.done(done).await,
            };
            if let Err(error) = heard {
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
    /// What happens next.
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

    async fn hear(&mut self, mut message: Message) -> Result<(), ServeError> {
        match Frame::decode(&message)? {
            Frame::Call { id, one_way, left_us } => {
                message.advance(HEADER_BYTES);
                let deadline = left(left_us).map(|left| Instant::now() + left);
                let request = Request { payload: message, deadline, is_one_way: one_way };
                match self.book.arrive(id, (request, id))? {
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
                if let Some(handler) = self.book.cancel(id) {
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
        self.calls.insert(abort.id(), (id, is_one_way));
        self.book.started(id, abort);
    }

    /// A task is done: the next call runs.
    async fn done(
        &mut self,
        done: Result<(Id, Result<(), StreamSendError>), JoinError>,
    ) -> Result<(), ServeError> {
        let (task, answered, panicked) = match done {
            Ok((task, answered)) => (task, answered, false),
            Err(error) => (error.id(), Ok(()), error.is_panic()),
        };
        let Some((id, is_one_way)) = self.calls.remove(&task) else { return Ok(()) };
        if let Some((_, (request, next))) = self.book.finished(id) {
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

/// Runs a handler, until its deadline if it has one.
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

/// Sends an answer. A client that receives no more needs none.
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
