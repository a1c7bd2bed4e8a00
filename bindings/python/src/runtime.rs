// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tokio runtime that drives sessions, calls and links, and how threads wait for its futures.
//!
//! ```text
//!   future ── poll ─▶ pending ─▶ poll(eventfd of the thread) ─┬─ the waker wrote ─▶ poll
//!                                                             ├─ EINTR ─▶ handlers of signals
//!                                                             └─ deadline ─▶ future is dropped
//! ```
//!
//! The runtime has one thread, which starts with the first session or link. A Python thread that
//! waits for a future has no timer but its deadline. Dropping a future gives its operation up.
//!
//! # Invariants
//!
//! - The lock of the runtime is taken with the GIL held, so no thread holds it during a fork.
//! - A forked child uses neither the runtime nor an eventfd of its parent.

use crate::wait::{Deadline, take_interrupt};
use pyo3::prelude::*;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::mem;
use std::os::fd::OwnedFd;
use std::pin::{Pin, pin};
use std::process;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::AbortHandle;

/// The runtime of one process; a forked child makes its own.
struct Process {
    id: u32,
    runtime: Runtime,
    /// The queue to the thread that passes results to Python; `None` until there is a result to
    /// pass.
    notifier: Option<mpsc::Sender<Notice>>,
}

/// A closure that passes one result to Python.
type Notice = Box<dyn FnOnce() + Send>;

static RUNTIME: Mutex<Option<Process>> = Mutex::new(None);

/// Returns the runtime of this process, and starts it at the first call.
pub fn handle(py: Python<'_>) -> PyResult<Handle> {
    with_process(py, |own| Ok(own.runtime.handle().clone()))
}

/// Returns the queue to the thread that passes results to Python, and starts that thread at the
/// first call.
///
/// The thread does nothing else, because passing a result takes the GIL, which may last. The thread
/// of the runtime drives all sessions and links, and its threads for blocking work may all be
/// running handlers of calls.
fn notifier(py: Python<'_>) -> PyResult<mpsc::Sender<Notice>> {
    with_process(py, |own| {
        if let Some(notifier) = &own.notifier {
            return Ok(notifier.clone());
        }
        let (sender, notices) = mpsc::channel::<Notice>();
        let tell = move || notices.into_iter().for_each(|notice| notice());
        thread::Builder::new().name("partywall-notify".to_owned()).spawn(tell)?;
        own.notifier = Some(sender.clone());
        Ok(sender)
    })
}

fn with_process<T>(_: Python<'_>, act: impl FnOnce(&mut Process) -> PyResult<T>) -> PyResult<T> {
    let mut place = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let id = process::id();
    if let Some(own) = place.as_mut().filter(|own| own.id == id) {
        return act(own);
    }
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("partywall")
        .enable_all()
        .build()?;
    // The runtime of the parent process is leaked: its threads do not exist in a forked child, so
    // dropping it would wait for them endlessly.
    mem::forget(place.take());
    act(place.insert(Process { id, runtime, notifier: None }))
}

/// Ends the runtime when the interpreter exits, after sessions have written what they sent.
#[pyfunction]
pub fn _shut_down(py: Python<'_>) {
    let taken = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner).take();
    match taken {
        Some(own) if own.id == process::id() => {
            py.detach(|| own.runtime.shutdown_timeout(SHUT_DOWN_MAX));
        }
        parent => mem::forget(parent),
    }
}

/// Waits for `future` without the GIL. Returns `None` if the deadline passes first; the future is
/// then dropped.
///
/// # Errors
/// Fails with the exception that a handler of a signal raised, such as KeyboardInterrupt.
pub fn wait<F>(py: Python<'_>, deadline: &Deadline, future: F) -> PyResult<Option<F::Output>>
where
    F: Future + Send,
    F::Output: Send,
{
    let runtime = handle(py)?;
    let sleeper = Sleeper::of_this_thread()?;
    let mut future = pin!(future);
    loop {
        let step = py.detach(|| step(&runtime, &sleeper, deadline, future.as_mut()));
        match step {
            Ok(Step::Done(value)) => return Ok(Some(value)),
            Ok(Step::TimedOut) => return Ok(None),
            Err(Errno::INTR) => py.check_signals()?,
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
    }
}

enum Step<T> {
    Done(T),
    TimedOut,
}

/// Polls `future` without the GIL until it is ready, the deadline has passed, or a signal has come.
fn step<F: Future>(
    runtime: &Handle,
    sleeper: &Arc<Sleeper>,
    deadline: &Deadline,
    mut future: Pin<&mut F>,
) -> Result<Step<F::Output>, Errno> {
    let _entered = runtime.enter();
    let waker = Waker::from(Arc::clone(sleeper));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(Step::Done(value));
        }
        if take_interrupt() {
            return Err(Errno::INTR);
        }
        if deadline.has_passed() {
            return Ok(Step::TimedOut);
        }
        sleeper.sleep(deadline)?;
    }
}

/// A running operation of the runtime, for callers that wait for it without a thread, such as tasks
/// of asyncio.
#[pyclass(frozen, module = "partywall._native")]
pub struct Pending {
    task: AbortHandle,
}

#[pymethods]
impl Pending {
    /// Gives the operation up, unless it has ended.
    fn cancel(&self) {
        self.task.abort();
    }
}

/// Starts `future` in the runtime. When it is ready, a thread calls `done(value, error)`, of which
/// one argument is `None`. `convert` makes the Python value of the future's output.
pub fn start<F, C>(done: &Bound<'_, PyAny>, future: F, convert: C) -> PyResult<Pending>
where
    F: Future<Output: Send + 'static> + Send + 'static,
    C: FnOnce(Python<'_>, F::Output) -> PyResult<Py<PyAny>> + Send + 'static,
{
    let (runtime, notifier) = (handle(done.py())?, notifier(done.py())?);
    let done = done.clone().unbind();
    let task = runtime.spawn(async move {
        let output = future.await;
        // While the interpreter exits, no caller waits for the result any more.
        let tell = move || {
            Python::try_attach(|py| notify(py, &done, convert(py, output)));
        };
        // Sending fails only if the thread that passes results has panicked.
        let _ = notifier.send(Box::new(tell));
    });
    Ok(Pending { task: task.abort_handle() })
}

fn notify(py: Python<'_>, done: &Py<PyAny>, result: PyResult<Py<PyAny>>) {
    let (value, error) = match result {
        Ok(value) => (value, py.None()),
        Err(raised) => (py.None(), raised.into_value(py).into_any()),
    };
    if let Err(raised) = done.call1(py, (value, error)) {
        raised.write_unraisable(py, Some(done.bind(py)));
    }
}

/// The eventfd on which one thread sleeps while it waits for a future; the future's waker writes to
/// it.
struct Sleeper {
    process: u32,
    notified: OwnedFd,
}

thread_local! {
    static SLEEPER: RefCell<Option<Arc<Sleeper>>> = const { RefCell::new(None) };
}

impl Sleeper {
    /// Returns the sleeper of the calling thread, and makes it at the first call. A forked child
    /// makes a new one: the eventfd that it inherited is its parent's too.
    fn of_this_thread() -> PyResult<Arc<Self>> {
        let process = process::id();
        let present = SLEEPER.with_borrow(Option::clone);
        if let Some(own) = present.filter(|own| own.process == process) {
            return Ok(own);
        }
        let notified = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let made = Arc::new(Self { process, notified: notified.map_err(io::Error::from)? });
        SLEEPER.with_borrow_mut(|place| *place = Some(Arc::clone(&made)));
        Ok(made)
    }

    fn sleep(&self, deadline: &Deadline) -> Result<(), Errno> {
        let mut descriptors = [PollFd::new(&self.notified, PollFlags::IN)];
        poll(&mut descriptors, deadline.timespec().as_ref())?;
        let mut count = [0; 8];
        match rustix::io::read(&self.notified, &mut count) {
            Ok(_) | Err(Errno::AGAIN) => Ok(()),
            Err(errno) => Err(errno),
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The write fails only if the eventfd holds a sum of almost 2^64; the eventfd is readable
        // then, too.
        let _ = rustix::io::write(&self.notified, &1u64.to_ne_bytes());
    }
}

/// A value that is dropped without the GIL. Dropping the value takes locks, and another thread may
/// hold these locks while it calls Python and so waits for the GIL.
pub struct Detached<T: Send>(Option<T>);

impl<T: Send> Detached<T> {
    pub const fn new(value: T) -> Self {
        Self(Some(value))
    }

    pub const fn get(&self) -> Option<&T> {
        self.0.as_ref()
    }

    pub fn take(&mut self) -> Option<T> {
        self.0.take()
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        if let Some(value) = self.0.take() {
            Python::attach(|py| py.detach(|| drop(value)));
        }
    }
}

/// Maximum time for which the exit of the interpreter waits until sessions have written what they
/// sent.
const SHUT_DOWN_MAX: Duration = Duration::from_secs(2);
