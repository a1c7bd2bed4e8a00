// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records that a full channel may drop: logs, traces and samples on their way to an agent.
//!
//! ```text
//!   any thread ── log ─▶ [queue, with DropOldest only] ─▶ channel ─▶ agent: LossyReceiver
//!                  └─ no room: counted, and reported in the header of the next record sent
//! ```
//!
//! A stalled log agent must not stall the application. So [`LossySender::log`] never waits for the
//! agent, except under [`OnFull::Block`]. If there is no room, a record is dropped as [`OnFull`]
//! says, and counted. The agent learns how many records were lost, and between which records.
//!
//! The sender starts no thread. Later calls of `log` send queued records. So do
//! [`try_flush`](LossySender::try_flush), [`flush`](LossySender::flush), and dropping the last
//! sender.
//!
//! # Invariants
//!
//! - At any moment, the logged records are the sent, the queued and the dropped ones.
//! - After a successful flush, the agent has received every sent record, and every dropped record
//!   was reported to it.
//! - Records arrive in the order of the calls, each with the number of records lost before it.
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

mod header;
mod queue;
mod receiver;
mod sender;

pub use queue::{Drops, LossyStats, OnFull};
pub use receiver::{LossyReceiver, LossyRecvError, Record};
pub use sender::{DropReason, LossyConfig, LossySender, SendOutcome};
