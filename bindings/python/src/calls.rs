// SPDX-License-Identifier: MIT OR Apache-2.0
//! Requests and answers over one stream: many in flight, answered in any order.
//!
//! ```text
//!   CallsClient.call ── request ──▶ serve_calls ─▶ a thread for each running handler
//!                    ◀── answer, failure ──
//! ```

use crate::buffer::Payload;
use crate::error;
use crate::message::{Content, Message};
use crate::runtime::{self, Detached, Pending, wait};
use crate::stream::Stream;
use crate::wait::Deadline;
use partywall::{Closed, SessionError, StreamRecvError, StreamSendError};
use partywall_extras::calls::{CODES_RESERVED, CallError, CallsConfig, Client, Failure};
use partywall_extras::calls::{ServeError, Server};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

/// Makes calls over a stream, from any number of threads. The client takes the stream, which must
/// be unused. The client is a context manager. The stream ends when the client is closed or no
/// longer referred to.
#[pyclass(frozen, module = "partywall._native")]
pub struct CallsClient {
    /// The client. A running call also refers to the client, so the client ends with the last call.
    client: Mutex<Option<Arc<Detached<Client>>>>,
}

impl CallsClient {
    fn place(&self) -> MutexGuard<'_, Option<Arc<Detached<Client>>>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> PyResult<Arc<Detached<Client>>> {
        self.place().clone().ok_or_else(closed)
    }
}

#[pymethods]
impl CallsClient {
    #[new]
    #[pyo3(signature = (stream, *, in_flight_max = 1024))]
    fn new(stream: &Bound<'_, Stream>, in_flight_max: usize) -> PyResult<Self> {
        let runtime = runtime::handle(stream.py())?;
        let _entered = runtime.enter();
        let config = CallsConfig::default().in_flight_max(in_flight_max);
        let client = Client::with(stream.get().take_whole()?, config);
        Ok(Self { client: Mutex::new(Some(Arc::new(Detached::new(client)))) })
    }

    /// Makes a call, and returns its answer as a message. The server is told the `timeout`, in
    /// seconds, and is told of a call that Ctrl-C gives up. Raises CallFailed if the handler
    /// failed.
    #[pyo3(signature = (payload, timeout = None))]
    fn call(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Message> {
        let deadline = Deadline::after(timeout)?;
        let payload = Payload::of(payload)?;
        let (shared, bytes) = (self.client()?, payload.as_slice());
        let client = shared.get().ok_or_else(closed)?;
        let called = match deadline {
            Deadline::Never => wait(py, &deadline, client.call(bytes))?,
            Deadline::Now => Some(Err(CallError::DeadlineExceeded)),
            Deadline::At(until) => wait(py, &Deadline::Never, client.call_deadline(bytes, until))?,
        };
        let answered = called.unwrap_or(Err(CallError::DeadlineExceeded));
        answered.map(Message::new).map_err(|error| exception(py, &error))
    }

    /// Begins a call, and calls `done` with its answer; for `partywall.aio`. Cancelling the result
    /// cancels the call.
    fn start_call(
        &self,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        done: &Bound<'_, PyAny>,
    ) -> PyResult<Pending> {
        let deadline = Deadline::after(timeout)?;
        let bytes = Payload::of(payload)?.as_slice().to_vec();
        let client = self.client()?.get().ok_or_else(closed)?.clone();
        let calling = async move {
            match deadline {
                Deadline::Never => client.call(&bytes).await,
                timed => client.call_deadline(&bytes, timed.instant()).await,
            }
        };
        runtime::start(done, calling, |py, answered| match answered {
            Ok(answer) => Ok(Py::new(py, Message::new(answer))?.into_any()),
            Err(error) => Err(exception(py, &error)),
        })
    }

    /// Makes a call to which the server sends no answer. Returns once the call is on its way.
    #[pyo3(signature = (payload, timeout = None))]
    fn call_one_way(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let payload = Payload::of(payload)?;
        let shared = self.client()?;
        let client = shared.get().ok_or_else(closed)?;
        let called = wait(py, &deadline, client.call_one_way(payload.as_slice()))?;
        let called = called.unwrap_or(Err(CallError::DeadlineExceeded));
        called.map_err(|error| exception(py, &error))
    }

    /// Why no more calls can be made, as the exception that further calls raise; `None` while calls
    /// can be made.
    #[getter]
    fn lost<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let lost = self.client()?.get().ok_or_else(closed)?.lost();
        Ok(lost.map(|lost| error::exception(py, &lost).into_value(py).into_bound(py).into_any()))
    }

    /// Ends the stream, as soon as the calls of other threads are answered. `serve_calls` of the
    /// server returns then. Closing a client again does nothing.
    fn close(&self) {
        let taken = self.place().take();
        drop(taken);
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.close();
    }
}

fn closed() -> PyErr {
    error::closed_here("client")
}

/// Makes the exception of a failed call. If the handler has failed the call, the exception has the
/// handler's code and detail.
fn exception(py: Python<'_>, error: &CallError) -> PyErr {
    let made = error::exception(py, error);
    if let CallError::Failed { code, detail } = error {
        let value = made.value(py);
        let set = value
            .setattr("failure_code", *code)
            .and_then(|()| value.setattr("detail", &detail[..]));
        if let Err(failed) = set {
            return failed;
        }
    }
    made
}

/// The request of a call, as the handler receives it: a message with the payload.
#[pyclass(frozen, extends = Message, module = "partywall._native")]
pub struct Request {
    deadline: Option<Instant>,
    is_one_way: bool,
    /// Set once the call is over: it is answered, or the caller has given it up.
    over: Arc<OnceLock<()>>,
}

/// The part of a running call that is dropped when the call is answered or its caller gives it up;
/// the drop sets the flag that the call's request reads.
struct Over(Arc<OnceLock<()>>);

impl Drop for Over {
    fn drop(&mut self) {
        let _ = self.0.set(());
    }
}

#[pymethods]
impl Request {
    /// Seconds until the caller gives the call up, never negative; `None` without a deadline.
    #[getter]
    fn seconds_left(&self) -> Option<f64> {
        let left = self.deadline?.saturating_duration_since(Instant::now());
        Some(left.as_secs_f64())
    }

    /// Whether the caller expects no answer to the call.
    #[getter]
    const fn is_one_way(&self) -> bool {
        self.is_one_way
    }

    /// Whether the caller has given the call up, or is gone, so that an answer would be dropped.
    #[getter]
    fn is_cancelled(&self) -> bool {
        self.over.get().is_some()
    }
}

/// Answers the calls of a stream, which must be unused, until the client has ended it: by closing
/// its client, by closing its session with the code 0, or by leaving in good order. The death of
/// its process raises Disconnected.
///
/// Each running call of `handler` has a thread of its own. It gets a Request, and returns bytes or
/// any other buffer. To fail, it raises `Failure(code, detail)`; any other exception aborts the
/// call, and is reported by `sys.unraisablehook`.
#[pyfunction]
#[pyo3(signature = (stream, handler, *, running_max = 64, waiting_max = 1024))]
pub fn serve_calls(
    py: Python<'_>,
    stream: &Bound<'_, Stream>,
    handler: &Bound<'_, PyAny>,
    running_max: usize,
    waiting_max: usize,
) -> PyResult<()> {
    if !handler.is_callable() {
        return Err(PyTypeError::new_err("handler must be callable"));
    }
    let config = CallsConfig::default().running_max(running_max).waiting_max(waiting_max);
    let server = Server::with(stream.get().take_whole()?, config);
    let handler = Arc::new(handler.clone().unbind());
    let serving = server.serve(move |request: partywall_extras::calls::Request| {
        let handler = Arc::clone(&handler);
        async move {
            let over = Arc::new(OnceLock::new());
            let _until_dropped = Over(Arc::clone(&over));
            let answering = tokio::task::spawn_blocking(move || {
                Python::try_attach(|py| answer(py, handler.bind(py), request, over)).flatten()
            });
            match answering.await {
                Ok(Some(answered)) => answered,
                // If the task of a call panics, the Rust crate aborts the call. `resume_unwind`
                // does not run the process's panic hook, which would print a message.
                Ok(None) => resume_unwind(Box::new("the handler raised an exception")),
                Err(error) => resume_unwind(error.into_panic()),
            }
        }
    });
    match wait(py, &Deadline::Never, serving)? {
        Some(Err(error)) if !is_good_end(&error) => Err(error::exception(py, &error)),
        Some(_) | None => Ok(()),
    }
}

/// Whether the error says that the client has left in good order, by ending its session before its
/// stream.
const fn is_good_end(error: &ServeError) -> bool {
    let session = match error {
        ServeError::Recv(StreamRecvError::Session(session))
        | ServeError::Send(StreamSendError::Session(session)) => session,
        _ => return false,
    };
    matches!(
        session,
        SessionError::Closed(Closed::Finished) | SessionError::ClosedByPeer { code: 0, .. }
    )
}

/// Calls the handler of a call. Returns its answer, or the failure that it raised; `None` if the
/// call has to be aborted because the handler raised anything else.
fn answer(
    py: Python<'_>,
    handler: &Bound<'_, PyAny>,
    request: partywall_extras::calls::Request,
    over: Arc<OnceLock<()>>,
) -> Option<Result<Vec<u8>, Failure>> {
    match call_handler(py, handler, request, over) {
        Ok(answer) => Some(Ok(answer)),
        Err(raised) => match failure(py, &raised) {
            Ok(Some(failure)) => Some(Err(failure)),
            Ok(None) => {
                raised.write_unraisable(py, Some(handler));
                None
            }
            Err(wrong) => {
                wrong.write_unraisable(py, Some(handler));
                None
            }
        },
    }
}

fn call_handler(
    py: Python<'_>,
    handler: &Bound<'_, PyAny>,
    request: partywall_extras::calls::Request,
    over: Arc<OnceLock<()>>,
) -> PyResult<Vec<u8>> {
    let (deadline, is_one_way) = (request.deadline(), request.is_one_way());
    let made = Request { deadline, is_one_way, over };
    let payload = Message::of(Content::Message(request.into_message()));
    let request = Py::new(py, PyClassInitializer::from(payload).add_subclass(made))?;
    let answered = handler.call1((request,))?;
    if answered.is_none() {
        return Ok(Vec::new());
    }
    Ok(Payload::of(&answered)?.as_slice().to_vec())
}

/// Converts an exception to the failure of a call, if its class is `Failure`; `None` for other
/// classes.
fn failure(py: Python<'_>, raised: &PyErr) -> PyResult<Option<Failure>> {
    let class = py.import("partywall._errors")?.getattr("Failure")?;
    let value = raised.value(py);
    if !value.is_instance(&class)? {
        return Ok(None);
    }
    let code: u32 = value.getattr("failure_code")?.extract()?;
    if code >= CODES_RESERVED {
        let text = format!("codes from {CODES_RESERVED:#x} on are the protocol's");
        return Err(PyValueError::new_err(text));
    }
    let detail = value.getattr("detail")?;
    Ok(Some(Failure::new(code, Payload::of(&detail)?.as_slice().to_vec())))
}
