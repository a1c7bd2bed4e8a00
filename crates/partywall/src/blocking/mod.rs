// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and streams as blocking calls, without any runtime. `partywall::tokio` has the same
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
//! Each session has one thread, its driver, which receives records and passes messages on. It ends
//! with the session. Dropping the last handle of a session (a clone of it, or a stream) waits for
//! that. The driver waits as [`Config::wait`](crate::Config::wait) says, and so do the callers. For
//! the lowest latency use a [`Channel`](crate::Channel), where the waiting thread itself receives.
//!
//! # Exiting
//!
//! A process may exit once the last handle is dropped: by then the peer gets all sent messages and
//! the end in good order. Dropping blocks only while the peer does not read, and at most for
//! [`Config::linger`](crate::Config::linger), on a socket 2 s more. A handle in a `static`, or on
//! the stack of another thread, is not dropped at exit: [`close`](Session::close) the session and
//! wait until it has [`finished`](Session::finished).
//!
//! # Deadlines
//!
//! Each blocking call has a form with a deadline (`send_deadline`, `accept_deadline`, …) or takes
//! an optional deadline, except streams as bytes. Opening, accepting, sending and receiving also
//! have a form that never waits (`try_send`, `try_accept`, …).

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
