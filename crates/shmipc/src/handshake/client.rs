// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of the connecting side of shmipc. The client has created the regions of queue and
//! buffers before, and gives the server access to them.
//!
//! ```text
//!   File     ▶ ShmByPath 2 ─────────────────────────────────────────────────────────▶ Done 2
//!   Memfd    ▶ ExchangeVersion 3 ─▶ Version ─▶ names ─▶ Ready ─▶ descriptors ─▶ Mapped ▶ Done 3
//! ```
//!
//! A number is the version of a message. In the states `Version`, `Ready` and `Mapped` the client
//! awaits the server's answer: its version, that it is ready for descriptors, that it has mapped
//! the memory. Files use version 2, in which the server does not answer: a client learns that
//! mapping failed only when the server hangs up. Memfds use version 3. Clients of other
//! implementations try version 2 if the server does not support 3. This client does not, because
//! version 2 has only paths, and a memfd has none.

use super::intake::{self, Intake};
use super::{NegotiationError, Step};
use crate::frame::{HEADER_BYTES, Kind, encode};
use crate::memory::names::Names;
use std::collections::VecDeque;

/// How the server gets access to the client's regions of queue and buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mapping {
    /// The server receives descriptors of memfds, in version 3. Only a Unix socket carries
    /// descriptors.
    Memfd,
    /// The server opens files by path, in version 2.
    File,
}

/// The handshake of a client, as a state machine without a socket.
///
/// ```
/// use partywall_shmipc::wire::{ClientHandshake, Mapping, Names, Step};
///
/// let names = Names { queue: "/dev/shm/q".into(), buffer: "/dev/shm/b".into() };
/// let mut client = ClientHandshake::new(Mapping::File, &names);
/// assert!(matches!(client.next(), Some(Step::Send(bytes)) if bytes.len() == 32));
/// assert_eq!(client.next(), Some(Step::Done { version: 2 }));
/// ```
#[derive(Debug)]
pub struct ClientHandshake {
    awaited: Awaited,
    intake: Intake,
    steps: VecDeque<Step>,
    /// The message with the names of queue and buffers, which the client sends once the version is
    /// agreed.
    names: Vec<u8>,
}

/// The message for which a client's handshake waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    Version,
    Ready,
    Mapped,
    Nothing,
}

impl ClientHandshake {
    /// Begins a handshake; [`next`](Self::next) returns a step at once.
    ///
    /// # Panics
    /// If a name has more than 65,535 bytes. The names that
    /// [`Naming`](crate::memory::names::Naming) makes are far shorter.
    #[must_use]
    pub fn new(mapping: Mapping, names: &Names) -> Self {
        let (queue, buffer) = (&names.queue, &names.buffer);
        let (steps, awaited, names) = match mapping {
            Mapping::File => {
                let steps =
                    [Step::Send(encode::by_path(2, queue, buffer)), Step::Done { version: 2 }];
                (VecDeque::from(steps), Awaited::Nothing, Vec::new())
            }
            Mapping::Memfd => {
                let steps = [Step::Send(encode::exchange(VERSION).to_vec())];
                (VecDeque::from(steps), Awaited::Version, encode::by_memfd(VERSION, queue, buffer))
            }
        };
        let expected = if awaited == Awaited::Nothing { 0 } else { HEADER_BYTES };
        Self { awaited, intake: Intake::new(expected), steps, names }
    }

    /// The next step that the owner of this state machine performs. `None` if the owner must first
    /// read bytes, or if the handshake is done.
    #[expect(clippy::should_implement_trait, reason = "it goes on after a None")]
    pub fn next(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Number of bytes that the owner of this state machine must read from the socket; it must not
    /// read more. The number is 0 once all bytes of the handshake were read.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.intake.missing()
    }

    /// The message that the handshake waits for, as text for errors.
    #[must_use]
    pub const fn waiting_for(&self) -> &'static str {
        match self.awaited {
            Awaited::Version => "the server's version",
            Awaited::Ready => "the server's word that it is ready for descriptors",
            Awaited::Mapped => "the server's word that it mapped queue and buffers",
            Awaited::Nothing => "nothing",
        }
    }

    /// Processes bytes that the owner read from the socket.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`NegotiationError`]; the handshake has then failed.
    ///
    /// # Panics
    /// If there are more bytes than [`missing`](Self::missing).
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), NegotiationError> {
        if bytes.is_empty() {
            return Ok(());
        }
        let next = if self.awaited == Awaited::Mapped { 0 } else { HEADER_BYTES };
        let Some(bytes) = self.intake.feed(bytes, next) else { return Ok(()) };
        let waiting_for = self.waiting_for();
        let header = intake::header(&bytes, waiting_for)?;
        let version = header.version;
        match self.awaited {
            Awaited::Version => {
                let is_enough = version >= VERSION;
                let expected = "3 or more (with less, only files can be shared)";
                intake::check(header, Kind::ExchangeVersion, is_enough, expected, waiting_for)?;
                self.steps.push_back(Step::Send(std::mem::take(&mut self.names)));
                self.awaited = Awaited::Ready;
            }
            Awaited::Ready => {
                let is_agreed = version == VERSION;
                intake::check(header, Kind::AckReadyRecvFd, is_agreed, "3", waiting_for)?;
                self.steps.push_back(Step::SendDescriptors { byte: 0 });
                self.awaited = Awaited::Mapped;
            }
            Awaited::Mapped => {
                let is_agreed = version == VERSION;
                intake::check(header, Kind::AckShm, is_agreed, "3", waiting_for)?;
                self.steps.push_back(Step::Done { version: VERSION });
                self.awaited = Awaited::Nothing;
            }
            Awaited::Nothing => {}
        }
        Ok(())
    }
}

/// Newest version of the protocol that this crate supports.
pub(super) const VERSION: u8 = 3;
