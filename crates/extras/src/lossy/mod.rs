// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that may be lost rather than waited for: logs, traces, samples, on their way to an agent.
//!
//! ```text
//!   any thread ── log ─▶ [queue, drop-oldest only] ─▶ channel ─▶ agent: LossyReceiver
//!                  └─ no room: counted, and told in the header of the next record that goes
//! ```
//!
//! An application must not stand still because its log agent does. [`LossySender::log`] therefore never
//! waits for the agent, unless [`OnFull::Block`] asks for it; what there is no room for is dropped as
//! [`OnFull`] says, and counted. The agent learns how many were lost, and where.
//!
//! There is no thread behind it: what waits in the queue goes with later calls to `log`, with
//! [`try_flush`](LossySender::try_flush) and [`flush`](LossySender::flush), and for a while when the last sender is
//! dropped.
//!
//! # Invariants
//!
//! - Records logged = sent + queued + dropped, at any moment.
//! - Once a flush succeeded, records sent = received, and dropped = the sum of what was told to the agent.
//! - Records arrive in the order of the calls, each with how many were lost between it and the one before.
//!
//! ```
//! use partywall_extras::lossy::{LossyReceiver, LossySender, OnFull};
//! # let directory = tempfile::tempdir()?;
//! # let address = format!("unix:{}/log.sock", directory.path().display());
//! # let mut listener = partywall::Listener::bind(&address)?;
//! # let client = std::thread::spawn(move || partywall::connect(&address).unwrap());
//! # let there = listener.accept()?;
//! # let channel = client.join().unwrap();
//! // in the application
//! let log = LossySender::new(channel.split().0, OnFull::DropNewest);
//! log.log(b"started");
//! // in the agent
//! let mut records = LossyReceiver::new(there.split().1);
//! let record = records.recv()?.unwrap();
//! assert_eq!((record.lost_before, &record.message[..]), (0, &b"started"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod book;
mod header;
mod receiver;
mod sender;

pub use book::{Drops, LossyStats, OnFull};
pub use receiver::{LossyReceiver, LossyRecvError, Record};
pub use sender::{DropReason, LossyConfig, LossySender, SendOutcome};
