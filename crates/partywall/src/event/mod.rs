// SPDX-License-Identifier: MIT OR Apache-2.0
//! One event loop for everything: listeners, channels, sessions with all their streams, and groups
//! of links, in one thread.
//!
//! ```text
//!   Loop ─┬─ ChannelListener, Channel ─ Sender, Receiver     descriptors, armed by their own calls
//!         ├─ Listener, Session ─ Stream ─ SendStream, RecvStream       driver run by the loop
//!         └─ Source: a group of links                                 polled by the loop
//!   wait ─▶ (tag, kinds) … ─▶ the application tries: try_recv, try_send, try_accept …
//! ```
//!
//! Sessions have the same names here as in `partywall::tokio` and [`blocking`](crate::blocking),
//! but neither a runtime nor a thread. An echo server for any number of channels, in one thread:
//!
//! ```
//! use partywall::event::{Channel, Event, Loop};
//! use partywall::{AcceptError, Listener, TryRecvError};
//! use std::collections::HashMap;
//!
//! const LISTENER: u64 = 0;
//!
//! /// Answers every message that has arrived. Returns false at the end of the channel.
//! fn answer(channel: &mut Channel) -> Result<bool, Box<dyn std::error::Error>> {
//!     loop {
//!         match channel.try_recv() {
//!             Ok(Some(message)) => channel.try_send(&message)?, // or keep it until there is room
//!             Ok(None) | Err(TryRecvError::Disconnected) => return Ok(false),
//!             Err(TryRecvError::Empty) => return Ok(true), // the loop reports the next message
//!             Err(fault) => return Err(fault.into()),
//!         }
//!     }
//! }
//!
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/app.sock", directory.path().display());
//! let events = Loop::new()?;
//! let mut listener = events.add_listener(Listener::bind(&address)?, LISTENER)?;
//! # let clients = std::thread::spawn(move || {
//! #     let mut one = partywall::connect(&address).unwrap();
//! #     let mut two = partywall::connect(&address).unwrap();
//! #     one.send(b"one").unwrap();
//! #     two.send(b"two").unwrap();
//! #     assert_eq!(two.recv().unwrap().unwrap(), b"two");
//! #     assert_eq!(one.recv().unwrap().unwrap(), b"one");
//! # });
//! let mut channels = HashMap::new();
//! let (mut ready, mut tags) = (Vec::new(), 1..);
//! # let mut served = 0;
//! loop {
//!     events.wait(&mut ready, None)?;
//!     for Event { tag, .. } in ready.drain(..) {
//!         if tag == LISTENER {
//!             match listener.try_accept() {
//!                 Ok(channel) => {
//!                     let tag = tags.next().ok_or("no tag is left")?;
//!                     channels.insert(tag, events.add_channel(channel, tag)?);
//!                 }
//!                 Err(AcceptError::TimedOut) => {} // a handshake is under way
//!                 Err(error) => return Err(error.into()),
//!             }
//!         } else if let Some(channel) = channels.get_mut(&tag) {
//!             if !answer(channel)? {
//!                 channels.remove(&tag); // dropping a channel removes it from the loop
//! #               served += 1;
//!             }
//!         }
//!     }
//! #   if served == 2 {
//! #       break;
//! #   }
//! }
//! # clients.join().unwrap();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Events
//!
//! An event names a source by the tag that the application chose, and what may be possible. No call
//! asks for the next event of a source: an attempt that finds nothing does. A source with more to
//! receive is reported again by the next turn, so an application may take one message a turn.
//! Sources are reported in rotation, and no source keeps another from being reported.
//!
//! # Above another event loop
//!
//! A [`Loop`] is itself a descriptor (`AsFd`). When it is readable, call [`Loop::poll`]. It fits
//! level-triggered and edge-triggered loops.
//!
//! # What may block
//!
//! - [`Loop::connect`] blocks for the handshake.
//! - Dropping a channel over TCP waits for the peer to close, at most 1 s, if bytes of the peer are
//!   unread: the kernel would otherwise discard the last sent messages. Nothing else of a channel
//!   or a session waits for its end: later turns of the loop write what is left.
//! - Dropping the loop waits for such bytes of channels, at most until 1 s after their drop.

mod channel;
#[expect(clippy::module_inception, reason = "an event is one object of this folder")]
mod event;
mod event_loop;
mod forked;
mod listener;
mod ready_list;
mod registration;
mod session;
mod source;
mod stream;
mod task;

pub use channel::{Channel, Receiver, Sender};
pub use event::{Event, Kinds};
pub use event_loop::Loop;
pub use forked::Forked;
pub use listener::{ChannelListener, Listener};
pub use session::Session;
pub use source::{Attached, Source};
pub use stream::{RecvStream, SendStream, Stream};
