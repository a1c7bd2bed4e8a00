// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links: their clients, servers, ends and messages, by calls that block.
//!
//! ```text
//!   LinkClient.connect ─┐
//!   LinkServer.accept ──┴▶ Link ─ send, recv ─▶ LinkMessage ─ ack, reply
//! ```
//!
//! The thread of `runtime.rs` drives all links: it connects, reads and acknowledges while this
//! process computes. It locks links while it calls rules of admission, which take the GIL. So every
//! call of this module gives the GIL up before it uses a link.

use crate::buffer::Payload;
use crate::config::address;
use crate::error;
use crate::link_config::{LinkConfig, LinkGroup, OptionalConfig};
use crate::link_state::{LinkEvent, LinkPosition, LinkReport, LinkStats, LinkStatus};
use crate::message::{Content, Message};
use crate::runtime::{self, Detached, Pending, wait};
use crate::wait::Deadline;
use partywall::ErrorCode;
use partywall_link::tokio::{Client, Group, Link as EndOfLink, Sender, Server};
use partywall_link::{
    AcceptError, Awaited, RecvError, Storage, Token, TryRecvError, TrySendError, WaitError,
};
use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::collections::VecDeque;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{RwLock, Semaphore};

/// Returns the storage of links: files in `directory`, or memory of this process if that is `None`.
fn storage(directory: Option<PathBuf>) -> Storage {
    directory.map_or(Storage::Memory, Storage::directory)
}

/// Calls `make` in the runtime, without the GIL, with the given group of links or a new one. The
/// GIL is given up because the runtime's thread may hold the group's lock while it calls a rule of
/// admission.
fn in_group<T: Send>(
    py: Python<'_>,
    group: Option<&Bound<'_, LinkGroup>>,
    make: impl FnOnce(&Group) -> T + Send,
) -> PyResult<T> {
    let group = group.map(|group| group.get().group()).transpose()?;
    let runtime = runtime::handle(py)?;
    py.detach(|| {
        let _entered = runtime.enter();
        let group = group.map_or_else(Group::new, Ok)?;
        Ok(make(&group))
    })
}

fn raise<T, E: ErrorCode + Error + 'static>(py: Python<'_>, result: Result<T, E>) -> PyResult<T> {
    result.map_err(|error| error::exception(py, &error))
}

fn nothing<E>(py: Python<'_>, result: Result<(), E>) -> PyResult<Py<PyAny>>
where
    E: ErrorCode + Error + 'static,
{
    raise(py, result).map(|()| py.None())
}

/// A client of links: opens links by their names, to servers at addresses.
///
/// `Client(name, directory)` keeps messages in files of the directory, which survive the process.
/// Without a directory, messages are kept in memory of the process.
#[pyclass(frozen, module = "partywall._native")]
pub struct LinkClient {
    client: Detached<Client>,
}

#[pymethods]
impl LinkClient {
    #[new]
    #[pyo3(signature = (name, directory = None, *, config = None, group = None))]
    fn new(
        py: Python<'_>,
        name: &str,
        directory: Option<PathBuf>,
        config: Option<&Bound<'_, LinkConfig>>,
        group: Option<&Bound<'_, LinkGroup>>,
    ) -> PyResult<Self> {
        let (config, _) = LinkConfig::of(config);
        let storage = storage(directory);
        let made = in_group(py, group, |group| Client::new_in(group, storage, name, config))?;
        Ok(Self { client: Detached::new(raise(py, made)?) })
    }

    /// Opens the link called `link` to the server called `server` at `address`. Does not wait for
    /// the server: the link keeps messages that are sent before the server is there.
    fn connect(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        server: &str,
        link: &str,
    ) -> PyResult<Link> {
        let client = self.client.get().ok_or_else(|| error::closed_here("client"))?;
        let runtime = runtime::handle(py)?;
        let opened = py.detach(|| {
            let _entered = runtime.enter();
            client.connect(&*address, server, link).map(Link::new)
        });
        raise(py, opened)
    }
}

/// A server of links: accepts the links that clients attach at an address. A context manager, and
/// an iterable of links.
#[pyclass(frozen, module = "partywall._native")]
pub struct LinkServer {
    shared: Arc<Serving>,
    address: String,
    config: OptionalConfig,
}

/// The part of a server of links that several threads and tasks use at the same time.
struct Serving {
    inner: RwLock<Option<Server>>,
    /// A semaphore without permits, on which calls wait for the end of the server. Closing it ends
    /// those calls.
    closing: Semaphore,
    /// Links that were accepted for a task of asyncio which was cancelled before it got them.
    returned: Mutex<VecDeque<Py<Link>>>,
    /// A semaphore with one permit for each link in `returned`.
    returns: Semaphore,
}

/// A link that a server accepts: a new one, or one that was accepted for a cancelled task.
enum Accepted {
    New(EndOfLink),
    Returned(Py<Link>),
}

impl Accepted {
    fn into_link(self, py: Python<'_>) -> PyResult<Py<Link>> {
        match self {
            Self::New(link) => Py::new(py, Link::new(link)),
            Self::Returned(link) => Ok(link),
        }
    }
}

impl Serving {
    async fn accept(&self) -> Option<Result<Accepted, AcceptError>> {
        let place = self.inner.read().await;
        let server = place.as_ref()?;
        tokio::select! {
            biased;
            _ = self.closing.acquire() => None,
            Some(link) = self.take_returned() => Some(Ok(Accepted::Returned(link))),
            accepted = server.accept() => Some(accepted.map(Accepted::New)),
        }
    }

    /// Waits for a link that was given back. If the wait is cancelled, no link is lost: a permit is
    /// used up only together with its link.
    async fn take_returned(&self) -> Option<Py<Link>> {
        let permit = self.returns.acquire().await.ok()?;
        let link = self.returned.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        permit.forget();
        link
    }
}

impl LinkServer {
    fn accept_until(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<Py<Link>>> {
        match wait(py, deadline, self.shared.accept())? {
            None => raise(py, Err(AcceptError::TimedOut)),
            Some(None) => Ok(None),
            Some(Some(accepted)) => raise(py, accepted)?.into_link(py).map(Some),
        }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&Server) -> PyResult<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let place = self.shared.inner.try_read().map_err(|_| error::closed_here("server"))?;
            act(place.as_ref().ok_or_else(|| error::closed_here("server"))?)
        })
    }
}

#[pymethods]
impl LinkServer {
    #[new]
    #[pyo3(signature = (address, name, directory = None, *, config = None, group = None))]
    fn new(
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
        name: &str,
        directory: Option<PathBuf>,
        config: Option<&Bound<'_, LinkConfig>>,
        group: Option<&Bound<'_, LinkGroup>>,
    ) -> PyResult<Self> {
        let (settings, config) = LinkConfig::of(config);
        let storage = storage(directory);
        let bind = |group: &Group| Server::bind_in(group, &*address, storage, name, settings);
        let server = raise(py, in_group(py, group, bind)?)?;
        let address = server.local_address().to_string();
        let shared = Serving {
            inner: RwLock::new(Some(server)),
            closing: Semaphore::new(0),
            returned: Mutex::default(),
            returns: Semaphore::new(0),
        };
        Ok(Self { shared: Arc::new(shared), address, config })
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.config)
    }

    /// Waits for the next link that a client attaches, at most `timeout` seconds. Raises ValueError
    /// if the server is closed, also while the call waits.
    #[pyo3(signature = (timeout = None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<Link>> {
        let accepted = self.accept_until(py, &Deadline::after(timeout)?)?;
        accepted.ok_or_else(|| error::closed_here("server"))
    }

    /// Begins to accept a link, and calls `done` with the link; for `partywall.aio`.
    fn start_accept(&self, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let shared = Arc::clone(&self.shared);
        runtime::start(done, async move { shared.accept().await }, |py, accepted| match accepted {
            Some(accepted) => Ok(raise(py, accepted)?.into_link(py)?.into_any()),
            None => Err(error::closed_here("server")),
        })
    }

    /// Takes back a link that `start_accept` accepted for a task that was cancelled meanwhile. The
    /// next call of `accept` returns the link.
    fn give_back(&self, link: Py<Link>) {
        self.shared.returned.lock().unwrap_or_else(PoisonError::into_inner).push_back(link);
        self.shared.returns.add_permits(1);
    }

    /// Opens the link with the names `client` and `link`, before that client attaches.
    fn open(&self, py: Python<'_>, client: &str, link: &str) -> PyResult<Link> {
        let opened = self.with(py, |server| Ok(server.open(client, link).map(Link::new)))?;
        raise(py, opened)
    }

    /// Serves the same links at one more address, and returns that address as it is bound.
    fn listen_also(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
    ) -> PyResult<String> {
        let runtime = runtime::handle(py)?;
        let bound = self.with(py, |server| {
            let _entered = runtime.enter();
            Ok(server.listen_also(&*address).map(|bound| bound.to_string()))
        })?;
        raise(py, bound)
    }

    /// The address that the server is bound to, as text, with the port that the system chose.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Number of connections that the server has refused.
    #[getter]
    fn refused(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |server| Ok(server.refused()))
    }

    /// Why the last refused connection was refused; `None` if none was.
    #[getter]
    fn last_refusal(&self, py: Python<'_>) -> PyResult<Option<String>> {
        self.with(py, |server| Ok(server.last_refusal()))
    }

    /// Takes the exception of the last link that the server could not open for an admitted client,
    /// for example because the link's file is of another boot; `None` if there is none.
    fn take_open_error<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let taken = self.with(py, |server| Ok(server.take_open_error()))?;
        Ok(taken.map(|error| error::exception(py, &error).into_value(py).into_bound(py).into_any()))
    }

    /// Stops listening, and closes all links of the server in good order, as `Link.close` does.
    /// Ends `accept` of other threads. Closing a server again does nothing.
    #[pyo3(signature = (timeout = 5.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let until = Deadline::after(timeout)?.instant();
        self.shared.closing.close();
        let closing = async {
            let taken = self.shared.inner.write().await.take();
            match taken {
                Some(server) => server.close(until).await,
                None => Ok(()),
            }
        };
        let closed = wait(py, &Deadline::Never, closing)?;
        raise(py, closed.unwrap_or(Ok(())))
    }

    fn __repr__(&self) -> String {
        format!("<partywall.links.Server at {}>", self.address)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (exception = None, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py, Some(if exception.is_some() { 0.0 } else { CLOSE_MAX }))
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the iteration once another thread has closed the server.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<Link>>> {
        self.accept_until(py, &Deadline::Never)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.inner.get_mut().take().map(Detached::new));
    }
}

/// One end of a link: messages are kept until the peer has acknowledged them, over lost connections
/// and, with a directory, over the death of processes.
///
/// Any number of threads may use a link. It is an iterable of received messages, and a context
/// manager that closes it in good order.
#[pyclass(frozen, module = "partywall._native")]
pub struct Link {
    sender: Detached<Sender>,
}

impl Link {
    fn new(link: EndOfLink) -> Self {
        Self { sender: Detached::new(link.split().0) }
    }

    fn end(&self) -> PyResult<EndOfLink> {
        Ok(self.sender.get().ok_or_else(|| error::closed_here("link"))?.link())
    }

    fn with<T, E>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&EndOfLink) -> Result<T, E> + Send,
    ) -> PyResult<T>
    where
        T: Send,
        E: ErrorCode + Error + Send + 'static,
    {
        let end = self.end()?;
        raise(py, py.detach(|| act(&end)))
    }

    /// Waits for a future of the link, and raises its error. If the deadline passes, raises an
    /// error with the text of `in_time`: what has not happened, and what to do.
    fn wait_for(
        py: Python<'_>,
        timeout: Option<f64>,
        future: impl Future<Output = Result<(), WaitError>> + Send,
        in_time: impl FnOnce() -> String,
    ) -> PyResult<()> {
        match wait(py, &Deadline::after(timeout)?, future)? {
            Some(waited) => raise(py, waited),
            None => Err(error::numbered(py, TIMED_OUT, &in_time())),
        }
    }

    fn receive(&self, py: Python<'_>, deadline: &Deadline) -> PyResult<Option<Py<LinkMessage>>> {
        let end = self.end()?;
        let received = match wait(py, deadline, end.recv())? {
            Some(received) => raise(py, received)?,
            None if matches!(deadline, Deadline::Now) => raise(py, Err(TryRecvError::Empty))?,
            None => raise(py, Err(RecvError::TimedOut))?,
        };
        received.map(|message| LinkMessage::new(py, message)).transpose()
    }
}

#[pymethods]
impl Link {
    /// Sends a copy of `payload`, which the link keeps until the peer has acknowledged it. Waits
    /// for room at most `timeout` seconds; a lost connection is no error.
    #[pyo3(signature = (payload, timeout = None))]
    fn send(
        &self,
        py: Python<'_>,
        payload: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let payload = Payload::of(payload)?;
        let end = self.end()?;
        match wait(py, &deadline, end.send(payload.as_slice()))? {
            Some(sent) => raise(py, sent),
            None if matches!(deadline, Deadline::Now) => raise(py, Err(TrySendError::Full)),
            None => raise(py, Err(partywall_link::SendError::TimedOut)),
        }
    }

    /// Sends several messages on the link: all or none, even if the process dies.
    #[pyo3(signature = (payloads, timeout = None))]
    fn send_batch(
        &self,
        py: Python<'_>,
        payloads: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let payloads =
            payloads.try_iter()?.map(|item| Payload::of(&item?)).collect::<PyResult<Vec<_>>>()?;
        let end = self.end()?;
        let mut batch = end.batch();
        for payload in &payloads {
            batch.send(payload.as_slice());
        }
        match wait(py, &deadline, batch.commit())? {
            Some(sent) => raise(py, sent),
            None if matches!(deadline, Deadline::Now) => raise(py, Err(TrySendError::Full)),
            None => raise(py, Err(partywall_link::SendError::TimedOut)),
        }
    }

    /// Receives the next message, to be acknowledged; `None` once the peer has closed its end in
    /// good order. Waits at most `timeout` seconds, also for a peer that was killed.
    #[pyo3(signature = (timeout = None))]
    fn recv(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<LinkMessage>>> {
        self.receive(py, &Deadline::after(timeout)?)
    }

    /// Acknowledges the message that a token (`LinkMessage.token`) names, and all messages before
    /// it. A former process may have stored the token.
    fn ack_to(&self, py: Python<'_>, token: &[u8]) -> PyResult<()> {
        let token: Option<Token> = token.try_into().ok().and_then(Token::from_bytes);
        let token = token.ok_or_else(|| PyValueError::new_err("the bytes are no token"))?;
        self.with(py, |end| end.ack_to(token))
    }

    /// Makes the link deliver again every received message that was not acknowledged.
    fn rewind(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, EndOfLink::rewind)
    }

    /// Waits until the peer has acknowledged every message that was sent before this call.
    #[pyo3(signature = (timeout = None))]
    fn wait_acked(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let end = self.end()?;
        Self::wait_for(py, timeout, end.wait_acked(), || {
            let (status, kept) = py.detach(|| (end.status(), end.unacked_bytes().unwrap_or(0)));
            format!(
                "not acknowledged before the deadline: the link keeps {kept} bytes, and is {status}"
            )
        })
    }

    /// Waits until the link has a connection over which messages flow.
    #[pyo3(signature = (timeout = None))]
    fn wait_attached(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let end = self.end()?;
        Self::wait_for(py, timeout, end.wait_attached(), || {
            let status = py.detach(|| end.status());
            format!("not attached before the deadline: the link is {status}, events() says why")
        })
    }

    /// Waits for the next event of the link, such as a lost connection. Each event is returned
    /// once.
    #[pyo3(signature = (timeout = None))]
    fn next_event(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<LinkEvent> {
        let end = self.end()?;
        let event = wait(py, &Deadline::after(timeout)?, end.next_event())?;
        let event = event.ok_or(WaitError::TimedOut {
            awaited: Awaited::Event,
            link: end.key().to_string(),
            last: String::new(),
        });
        Ok(LinkEvent::from(&raise(py, raise(py, event)?)?))
    }

    /// Returns all events of the link that no call has returned yet.
    fn events(&self, py: Python<'_>) -> PyResult<Vec<LinkEvent>> {
        let end = self.end()?;
        Ok(py.detach(|| end.events()).iter().map(LinkEvent::from).collect())
    }

    /// Returns the reports of messages that were skipped or dropped. A report is returned until
    /// `acknowledge_reports` removes it.
    fn reports(&self, py: Python<'_>) -> PyResult<Vec<LinkReport>> {
        let reports = self.with(py, EndOfLink::reports)?;
        Ok(reports.into_iter().map(|inner| LinkReport { inner }).collect())
    }

    /// Removes the given reports, which `reports()` returned.
    fn acknowledge_reports(
        &self,
        py: Python<'_>,
        reports: Vec<PyRef<'_, LinkReport>>,
    ) -> PyResult<()> {
        let reports: Vec<_> = reports.iter().map(|report| report.inner).collect();
        self.with(py, |end| end.acknowledge_reports(&reports))
    }

    /// Begins a new epoch of the link, in which both directions are empty. Messages that were not
    /// acknowledged are dropped and reported.
    fn begin_epoch(&self, py: Python<'_>, epoch: u64) -> PyResult<()> {
        self.with(py, |end| end.begin_epoch(epoch))
    }

    /// Moves the link to another address of the same server, while messages flow. Only the client's
    /// end of a link can do this.
    fn switch_to(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = address)] address: String,
    ) -> PyResult<()> {
        self.with(py, |end| end.switch_to(&*address))
    }

    /// The number of the link's epoch; 0 before the first epoch.
    #[getter]
    fn epoch(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, EndOfLink::epoch)
    }

    /// Number of processes that have owned this end, this process included.
    #[getter]
    fn incarnation(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, EndOfLink::incarnation)
    }

    /// Number of bytes of sent messages that the link keeps, because the peer has not acknowledged
    /// them.
    #[getter]
    fn unacked_bytes(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, EndOfLink::unacked_bytes)
    }

    /// Position in the sent stream at which the next message will begin.
    #[getter]
    fn sent_position(&self, py: Python<'_>) -> PyResult<LinkPosition> {
        self.with(py, EndOfLink::sent_position).map(LinkPosition::from)
    }

    /// Position in the received stream up to which messages are acknowledged; `None` before the
    /// first acknowledgement.
    #[getter]
    fn acked_position(&self, py: Python<'_>) -> PyResult<Option<LinkPosition>> {
        Ok(self.with(py, EndOfLink::acked_position)?.map(LinkPosition::from))
    }

    /// The bytes with which the server has answered the client's login.
    #[getter]
    fn login_reply<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, &self.with(py, EndOfLink::login_reply)?))
    }

    /// The status of the link: whether messages flow, and if not, why.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<LinkStatus> {
        let end = self.end()?;
        Ok(LinkStatus::from(&py.detach(|| end.status())))
    }

    /// The names of this end, of the peer's end, and of the link.
    #[getter]
    fn key(&self) -> PyResult<(String, String, String)> {
        let end = self.end()?;
        let key = end.key();
        Ok((key.local().to_owned(), key.remote().to_owned(), key.link().to_owned()))
    }

    /// Returns the counters of this end of the link.
    fn stats(&self, py: Python<'_>) -> PyResult<LinkStats> {
        let end = self.end()?;
        Ok(py.detach(|| end.stats()).into())
    }

    /// Begins to send a copy of `payload`, and calls `done` once the link keeps it; for
    /// `partywall.aio`.
    fn start_send(&self, payload: &Bound<'_, PyAny>, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let (end, bytes) = (self.end()?, Payload::of(payload)?.as_slice().to_vec());
        runtime::start(done, async move { end.send(&bytes).await }, nothing)
    }

    /// Begins to receive the next message, and calls `done` with it; for `partywall.aio`.
    fn start_recv(&self, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let end = self.end()?;
        runtime::start(done, async move { end.recv().await }, |py, received| {
            Ok(match raise(py, received)? {
                Some(message) => LinkMessage::new(py, message)?.into_any(),
                None => py.None(),
            })
        })
    }

    /// Begins to wait until the peer has acknowledged every sent message, and calls `done` then;
    /// for `partywall.aio`.
    fn start_wait_acked(&self, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let end = self.end()?;
        runtime::start(done, async move { end.wait_acked().await }, nothing)
    }

    /// Begins to wait until the link has a connection, and calls `done` then; for `partywall.aio`.
    fn start_wait_attached(&self, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let end = self.end()?;
        runtime::start(done, async move { end.wait_attached().await }, nothing)
    }

    /// Begins to wait for the next event of the link, and calls `done` with it; for
    /// `partywall.aio`.
    fn start_next_event(&self, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let end = self.end()?;
        runtime::start(done, async move { end.next_event().await }, |py, event| {
            Ok(Py::new(py, LinkEvent::from(&raise(py, event)?))?.into_any())
        })
    }

    /// Begins to close the link in good order, and calls `done` when it is closed; for
    /// `partywall.aio`. Cancelling the result closes the link at once.
    fn start_close(&self, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let end = self.end()?;
        runtime::start(done, async move { end.close().await }, nothing)
    }

    /// Closes this end in good order: all messages go out, the peer is told, and the file is
    /// written to the disk. Messages that the peer has not acknowledged stay in the file. Raises
    /// TimedOut if messages have not gone out within `timeout` seconds; the link is closed even
    /// then.
    #[pyo3(signature = (timeout = 5.0))]
    fn close(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
        let in_time = || {
            "not all messages went out before the deadline: the link is closed; a file keeps \
             them for the next process"
                .to_owned()
        };
        match Self::wait_for(py, timeout, self.end()?.close(), in_time) {
            Err(error) if error::code_of(py, &error) == Some(CLOSED) => Ok(()),
            closed => closed,
        }
    }

    /// Closes this end without telling the peer that it has finished, so the peer waits until it is
    /// opened again. Raises an error if the file could not be written to the disk.
    fn detach(&self, py: Python<'_>) -> PyResult<()> {
        let detached = wait(py, &Deadline::Never, self.end()?.detach())?;
        raise(py, detached.unwrap_or(Ok(())))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let end = self.end()?;
        let (key, status) = (end.key(), py.detach(|| end.status()));
        let (local, remote, link) = (key.local(), key.remote(), key.link());
        Ok(format!("<partywall.links.Link {link} of {local} to {remote}, {status}>"))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Ends the `with` block: closes the link in good order. If the block has raised, closes the
    /// link without telling the peer that this end has finished.
    #[pyo3(signature = (exception = None, *_rest))]
    fn __exit__(
        &self,
        py: Python<'_>,
        exception: Option<&Bound<'_, PyAny>>,
        _rest: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        if exception.is_some() { self.detach(py) } else { self.close(py, Some(CLOSE_MAX)) }
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<LinkMessage>>> {
        self.receive(py, &Deadline::Never)
    }
}

/// A received message of a link: a read-only buffer, to be acknowledged by `ack` or `reply`.
///
/// A message that was not acknowledged is received again after `rewind` or a restart.
#[pyclass(frozen, extends = Message, module = "partywall._native")]
pub struct LinkMessage {
    /// The message of the link, as long as it is not acknowledged.
    message: Mutex<Detached<partywall_link::tokio::Message>>,
    position: u64,
    attempt: u32,
    is_poison: bool,
    token: Token,
}

impl LinkMessage {
    fn new(py: Python<'_>, message: partywall_link::tokio::Message) -> PyResult<Py<Self>> {
        let bytes = Message::of(Content::Bytes(message.bytes()));
        let (position, attempt) = (message.position(), message.attempt());
        let (is_poison, token) = (message.is_poison(), message.token());
        let message = Mutex::new(Detached::new(message));
        let made = Self { message, position, attempt, is_poison, token };
        Py::new(py, PyClassInitializer::from(bytes).add_subclass(made))
    }

    fn take(&self) -> PyResult<partywall_link::tokio::Message> {
        let taken = self.message.lock().unwrap_or_else(PoisonError::into_inner).take();
        taken.ok_or_else(|| {
            PyValueError::new_err("this message was acknowledged, or answering it has failed")
        })
    }
}

#[pymethods]
impl LinkMessage {
    /// Acknowledges this message and all messages that were received before it.
    fn ack(&self, py: Python<'_>) -> PyResult<()> {
        let message = self.take()?;
        raise(py, py.detach(|| message.ack()))
    }

    /// Sends `answer` over the same link and acknowledges this message: both or neither, also if
    /// the process dies. After TimedOut the message is received again, after `rewind` or a restart.
    #[pyo3(signature = (answer, timeout = None))]
    fn reply(
        &self,
        py: Python<'_>,
        answer: &Bound<'_, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let deadline = Deadline::after(timeout)?;
        let answer = Payload::of(answer)?;
        let message = self.take()?;
        let replied = wait(py, &deadline, message.reply(answer.as_slice()))?;
        let in_vain = partywall_link::ReplyError::Send(partywall_link::SendError::TimedOut);
        raise(py, replied.unwrap_or(Err(in_vain)))
    }

    /// Begins to send an answer and acknowledge this message, and calls `done` when both have
    /// happened; for `partywall.aio`.
    fn start_reply(&self, answer: &Bound<'_, PyAny>, done: &Bound<'_, PyAny>) -> PyResult<Pending> {
        let bytes = Payload::of(answer)?.as_slice().to_vec();
        let message = self.take()?;
        runtime::start(done, async move { message.reply(&bytes).await }, nothing)
    }

    /// Position at which the message begins in the peer's stream. Later messages have higher
    /// positions.
    #[getter]
    const fn position(&self) -> u64 {
        self.position
    }

    /// The delivery count: 1, and one more for each earlier process that received the message
    /// without acknowledging it.
    #[getter]
    const fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Whether `attempt` exceeds the setting `attempts_max`, so that the message may be what kills
    /// its receivers.
    #[getter]
    const fn is_poison(&self) -> bool {
        self.is_poison
    }

    /// Bytes that name this message in `Link.ack_to`. Store them together with the result of the
    /// message.
    #[getter]
    fn token<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.token.to_bytes())
    }
}

/// Maximum time in seconds for which the end of a `with` block waits until the link's messages have
/// gone out.
const CLOSE_MAX: f64 = 5.0;
/// Number of the error for a deadline that has passed (SPEC 17.1).
const TIMED_OUT: u32 = 4;
/// Number of the error for a call on a link that this process has closed (SPEC 17.6).
const CLOSED: u32 = 501;
