// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and streams with blocking calls, without a runtime. `partywall::tokio` has the same
//! names as futures.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! use partywall::blocking::{Listener, connect};
//!
//! let mut listener = Listener::bind(&address)?;
//! let server = std::thread::spawn(move || {
//!     let session = listener.accept()?;
//!     while let Some(mut stream) = session.accept()? {
//!         while let Some(question) = stream.recv()? {
//!             stream.send(&question)?;
//!         }
//!     }
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//!
//! let session = connect(&address)?;
//! let mut stream = session.open(b"echo")?;
//! stream.send(b"hello")?;
//! assert_eq!(stream.recv()?.ok_or("no answer")?, b"hello");
//! stream.finish();
//! session.close(0, "done");
//! # server.join().unwrap().map_err(|error| error.to_string())?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Threads
//!
//! Each session has one thread, which receives records and delivers them to streams; it ends with
//! the session. Dropping the last handle of a session (a clone or a stream) waits for the thread's
//! end. The thread and the callers wait as [`Config::wait`](crate::Config::wait) says. For the
//! lowest latency, use a [`Channel`](crate::Channel), whose caller receives without another thread.
//!
//! # Exiting
//!
//! A process may exit as soon as the last handle is dropped. By then all sent messages, and the end
//! in good order, are on their way to the peer. Dropping takes long only if the peer does not read:
//! at most [`Config::linger`](crate::Config::linger), and 2 s more on a socket.
//!
//! A handle in a `static`, or on the stack of another thread, is not dropped when the process
//! exits. [`close`](Session::close) such a session and wait until it has
//! [`finished`](Session::finished).
//!
//! # Deadlines
//!
//! Every call that waits either has a form with a deadline (`send_deadline`, `accept_deadline`, …)
//! or takes an optional deadline. Only streams as bytes have none. Opening, accepting, sending and
//! receiving also have a form that never waits (`try_send`, `try_accept`, …).

mod io;
mod listener;
mod park;
mod session;
mod stream;
mod thread;

pub use io::{ReadHalf, StreamIo, WriteHalf};
pub use listener::{Listener, connect, connect_with, connect_with_protocol};
pub use session::Session;
pub use stream::{RecvStream, Reservation, SendStream, Stream};
