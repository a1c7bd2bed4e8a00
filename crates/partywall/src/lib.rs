// SPDX-License-Identifier: MIT OR Apache-2.0
//! Local inter-process communication as fast as the memory bus, and safe by construction.
//!
//! Two processes exchange messages through shared memory that each writes on its own side only: a
//! *party wall*. If memory cannot be shared, the same API runs over a socket. Both transports are
//! meant for one machine: TCP works between hosts, but is neither encrypted nor authenticated.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! // one process
//! let mut listener = partywall::Listener::bind(&address)?;
//! # let client = std::thread::spawn(move || {
//! // the other
//! let mut channel = partywall::connect(&address).unwrap();
//! channel.send(b"hello").unwrap();
//! # });
//! // the first again
//! let mut channel = listener.accept()?;
//! assert_eq!(channel.recv()?.unwrap(), b"hello");
//! println!("received over {}", channel.transport());
//! # client.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What to use
//!
//! | | calls | opened by |
//! |---|---|---|
//! | [`Channel`]: two directions, the lowest latency | blocking | [`connect`], [`Listener`] |
//! | session: many streams over one connection | blocking | [`blocking`] |
//! | the same sessions, as futures | async | `partywall::tokio`, with the feature `tokio` |
//! | link: messages are kept until acknowledged | both | the crate `partywall-link` |
//!
//! The two sides of a connection use the same row, or two rows of sessions: a listener of channels
//! refuses sessions, and the reverse. The crate `partywall-extras` has requests and responses, and
//! log records that may be dropped.
//!
//! Every address is text such as `unix:/run/app.sock`; [`Address`] lists the forms. A Unix address
//! allows shared memory, TCP does not. [`Config`] has the settings of one side.
//!
//! # Errors
//!
//! Each operation has its own error enum. Waiting, a deadline and the end of the peer are variants:
//!
//! | error | would block | deadline passed | peer is gone |
//! |---|---|---|---|
//! | [`SendError`] | `Full` | `TimedOut` | `Closed` |
//! | [`TrySendError`] | `Full`, `Busy` | | `Closed` |
//! | [`RecvError`] | | `TimedOut` | `Disconnected` |
//! | [`TryRecvError`] | `Empty` | | `Disconnected` |
//! | [`StreamSendError`] | `Full` | `TimedOut` | `Stopped`, `Session` |
//! | [`StreamRecvError`] | `Empty` | `TimedOut` | `Reset`, `Session` |
//! | [`OpenError`] | `WouldBlock` | `TimedOut` | `GoingAway`, `Session` |
//! | [`WaitError`] | `WouldBlock` | `TimedOut` | `Session` |
//! | [`AcceptError`] | `TimedOut` | `TimedOut` | |
//!
//! A peer that finishes in good order causes no error of `recv`, which returns `None`. `Session`
//! contains a [`SessionError`]: `Closed` and `ClosedByPeer` mean the peer, `ClosedHere` this side.
//! Futures take no deadline: a caller wraps them in `tokio::time::timeout`.
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! # let mut listener = partywall::Listener::bind(&address)?;
//! # let client = std::thread::spawn(move || partywall::connect(&address).map(drop));
//! # let mut channel = listener.accept()?;
//! use partywall::RecvError;
//! use std::time::{Duration, Instant};
//!
//! match channel.recv_deadline(Instant::now() + Duration::from_secs(1)) {
//!     Ok(Some(message)) => println!("{} bytes", message.len()),
//!     Ok(None) => println!("the peer has finished"),
//!     Err(RecvError::TimedOut) => println!("nothing came in time"),
//!     Err(RecvError::Disconnected) => println!("the peer died"),
//!     Err(error) => return Err(error.into()),
//! }
//! # client.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Features
//!
//! None is on by default.
//!
//! - `tokio`: sessions and streams as futures, in `partywall::tokio`.
//! - `serde`: values of serde types as messages, by `send_value` and `recv_value`.
//! - `zerocopy`: plain structs as messages, by `send_plain` and `recv_plain`.
//! - `hyper`, `axum`, `tonic`: HTTP and gRPC over streams, in the modules of the same names.
//!
//! # Folders of the source
//!
//! ```text
//!  base/        configuration, errors, peers, messages    protocol/    traits of other protocols
//!  handshake/   listeners, connecting, negotiation        typed/       values as messages
//!  channel/     sending and receiving messages            session/     streams over a connection
//!  transport/   the interface of a transport        tokio/ blocking/ event/   APIs of sessions
//!    shm/  shared memory     socket/  records on a socket     protocol/  another protocol
//!  error_code   the stable number of every error
//! ```
//!
//! The crate starts no thread but one for each session of `blocking`, installs no signal handler,
//! and contains no `unsafe`. A protocol may do more: `partywall-shmipc` has `partywall-sys` install
//! a handler of SIGBUS when it first maps memory that its peer could truncate.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]
#![cfg(target_os = "linux")]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("Partywall maps memory by 64-bit offsets: 32-bit machines are not supported");

mod base;
pub mod blocking;
mod channel;
mod error_code;
pub mod event;
#[cfg(doctest)]
mod guide;
mod handshake;
#[cfg(any(feature = "axum", feature = "hyper"))]
mod http;
pub mod protocol;
mod session;
#[cfg(feature = "tokio")]
pub mod tokio;
mod transport;
#[cfg(any(feature = "serde", feature = "zerocopy"))]
mod typed;

pub(crate) use base::{address, cache_padded, config, error, message, peer, stats};

pub use address::{Address, AddressError};
pub use channel::{
    Batch, Channel, ChannelInfo, MessageRef, Readiness, Receiver, ReceiverParker, Reservation,
    Sender, SharedSender,
};
pub use config::{BackPressure, Begin, Config, TransportPolicy, TrustPolicy};
pub use error::{
    AcceptError, BindError, Closed, ConfigError, ConnectError, Fault, HandshakeError, Limit,
    RecvError, SendError, TooLarge, TryRecvError, TrySendError,
};
pub use error_code::ErrorCode;
pub use handshake::{Listener, connect, connect_with};
#[cfg(feature = "axum")]
pub use http::axum;
#[cfg(feature = "hyper")]
pub use http::hyper;
#[cfg(feature = "tonic")]
pub use http::tonic;
pub use message::Message;
pub use partywall_layout::{FallbackReason, Refusal, Violation};
pub use partywall_sys::Credentials;
pub use partywall_wait::Wait;
pub use peer::{Admission, Distrust, Peer, Trust};
pub use session::{
    DROPPED, METADATA_BYTES_MAX, OpenError, REFUSED, ReplyError, SessionError, StreamRecvError,
    StreamSendError, WaitError,
};
pub use stats::{ReceiverStats, SenderStats};
pub use transport::{OwnedReservation, Transport};
#[cfg(feature = "serde")]
pub use typed::{DecodeError, EncodeError, RecvValueError, SendValueError};
#[cfg(feature = "zerocopy")]
pub use typed::{NotPlain, Plain, RecvPlainError};
