// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sessions and streams as futures, on tokio. [`crate::blocking`] has the same names for callers
//! without tokio.
//!
//! A [`Session`] carries any number of [`Stream`]s over one connection; both sides open them. Each
//! stream is a duplex pipe of messages with its own credit, so an unread stream does not block
//! other streams. [`Stream::into_io`] converts a stream to bytes, `AsyncRead + AsyncWrite`, for
//! protocols that run over bytes.
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
//! # Tasks
//!
//! Each session has one task, which receives records and delivers them to streams; it ends with the
//! session. A stream has no task. An idle session uses no processor time. An [`Incoming`] has one
//! more task for each session. A [`Pool`] has one for each place that it keeps filled. These tasks
//! end with the `Incoming` or `Pool`.
//!
//! # Ending
//!
//! Dropping the last handle of a session never waits: the session's task writes the pending
//! records. A runtime that shuts down drops that task, which closes the session. Over shared
//! memory, that takes no time, and records for which there is no room are lost.
//!
//! On a socket, bytes that the kernel has not accepted delay the shutdown by at most a second, and
//! are then lost. Over TCP, a session waits up to a second for its peer to close. A peer that runs
//! on the same runtime or is stopped does not close in that time. Several such sessions wait one
//! after the other.
//!
//! To be sure that everything was written, and to avoid that wait, [`close`](Session::close) the
//! session and await [`finished`](Session::finished) first. `Runtime::shutdown_background`, or a
//! process that exits without shutting its runtime down, loses unwritten records.
//!
//! # Sharing a thread
//!
//! Operations that send, commit, receive, open or accept take part in tokio's task budget. A task
//! whose messages have always arrived lets other tasks run after about a hundred operations. The
//! `try_` forms use no budget.
//!
//! # Cancelling
//!
//! Every future of this module may be dropped at any time. A dropped `send` has sent the whole
//! message or nothing; a dropped `recv` has taken no message.

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
