// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and streams as calls that block, without any runtime. `partywall::tokio` has the same
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
//! # What runs
//!
//! Each session has one thread of its own, which receives and delivers; it ends with the session.
//! Dropping the last handle of a session (a clone of it, or a stream) waits for that end. The
//! thread and its callers wait as [`Config::wait`](crate::Config::wait) says. For the lowest
//! latency, use a [`Channel`](crate::Channel): there, the caller itself receives.
//!
//! # Exiting
//!
//! A process may exit as soon as the last handle is dropped: by then the peer gets everything that
//! was sent, and the end in good order. That takes longer than a moment only if the peer does not
//! read, and at most [`Config::linger`](crate::Config::linger), on a socket 2 s more.
//!
//! A handle in a `static`, or on the stack of another thread, is not dropped at exit.
//! [`close`](Session::close) that session and wait until it has [`finished`](Session::finished).
//!
//! # Deadlines
//!
//! Every call that waits has a form with a deadline (`send_deadline`, `accept_deadline`, …) or
//! takes one that may be `None`, except streams as bytes. Opening, accepting, sending and receiving
//! also have a form that never waits (`try_send`, `try_accept`, …).

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
