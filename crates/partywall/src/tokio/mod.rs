// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and streams as futures, on tokio. [`crate::blocking`] has the same names without it.
//!
//! A [`Session`] carries any number of [`Stream`]s over one connection; both sides open them. Each
//! stream is a duplex pipe of messages with its own credit, so an unread stream holds up no other.
//! [`Stream::into_io`] makes bytes of it, `AsyncRead + AsyncWrite`, for protocols that run over
//! bytes.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! use partywall::tokio::{Listener, connect};
//!
//! let listener = Listener::bind(&address)?;
//! let server = tokio::spawn(async move {
//!     let session = listener.accept().await?;
//!     while let Some(mut stream) = session.accept().await? {
//!         while let Some(question) = stream.recv().await? {
//!             stream.send(&question).await?;
//!         }
//!     }
//!     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
//! });
//!
//! let session = connect(&address).await?;
//! let mut stream = session.open(b"echo").await?;
//! stream.send(b"hello").await?;
//! assert_eq!(stream.recv().await?.ok_or("no answer")?, b"hello");
//! stream.finish();
//! session.close(0, "done");
//! # server.await?.map_err(|error| error.to_string())?;
//! # Ok(())
//! # }
//! ```
//!
//! # What runs
//!
//! Each session has one task of its own, which receives and delivers; it ends with the session.
//! Nothing runs for a stream. An idle session does nothing at all. An [`Incoming`] has one more
//! task for each session, a [`Pool`] one for each place that it keeps filled; those end with it.
//!
//! # Ending
//!
//! Dropping the last handle of a session waits for nothing: its task writes the pending records. A
//! runtime that shuts down drops that task, and the session closes. Over shared memory that takes
//! no time, and ends of streams without room are not sent.
//!
//! On a socket, bytes that the kernel has not taken delay the shutdown by at most a second, and are
//! then lost. A session over TCP whose peer does not close meanwhile, because it runs on the same
//! runtime or is stopped, takes up to a second, one session after the other.
//!
//! To be sure that everything was written, and to avoid that wait, [`close`](Session::close) the
//! session and await [`finished`](Session::finished) first. `Runtime::shutdown_background`, or a
//! process that exits without shutting its runtime down, loses what was not written.
//!
//! # Sharing a thread
//!
//! Operations that send, commit, receive, open or accept take part in tokio's budget: a task whose
//! messages are always there lets others run after about a hundred. The `try_` forms do not.
//!
//! # Cancelling
//!
//! Every future here may be dropped at any time. A dropped `send` sent the whole message or nothing
//! of it; a dropped `recv` took nothing.

mod backoff;
mod connect_info;
mod incoming;
mod io;
mod listener;
mod pool;
mod pool_config;
mod runtime;
mod session;
mod stream;
mod supervisor;
mod task;

pub use connect_info::ConnectInfo;
pub use incoming::Incoming;
pub use io::{ReadHalf, StreamIo, WriteHalf};
pub use listener::{Listener, connect, connect_with, connect_with_protocol};
pub use pool::{Pool, PoolOpenError};
pub use pool_config::{PoolConfig, PoolEvent};
pub use runtime::watch_readable;
pub use session::Session;
pub use stream::{RecvStream, Reservation, SendStream, Stream};
