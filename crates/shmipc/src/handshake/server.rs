// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshake of the accepting side of shmipc, which creates no memory, and maps the client's
//! memory.
//!
//! ```text
//!   First ─ ShmByPath 2 ─▶ Body ─▶ Mapping ──────────────────────────────────────────────▶ Done 2
//!     ├──── ExchangeVersion 3… ─▶ Names ─ ShmByMemfd 3 ─▶ Body ─▶ Descriptors ─▶ Mapping ─▶ Done 3
//!     │                             └──── ShmByPath 3 ──▶ Body ────────────────▶ Mapping ─▶ Done 3
//!     └──── Negotiation 0: refused
//! ```
//!
//! The picture shows the machine's states, and between them the messages of the client. A number is
//! a version. The machine's owner decides whether a path may be opened, and checks the queue that
//! it maps. A client that supports more than version 3 gets the answer 3, because such a client can
//! use version 3, too. Other implementations hang up instead.

use super::intake::{self, Intake};
use super::{NegotiationError, PATH_BYTES_MAX, Step};
use crate::frame::{HEADER_BYTES, Header, Kind, encode};
use std::collections::VecDeque;

/// Limits of the values that a client may send in its handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Length of the longest name or path, in bytes; at most [`PATH_BYTES_MAX`].
    pub path_bytes_max: u16,
}

impl Default for HandshakeLimits {
    fn default() -> Self {
        Self { path_bytes_max: PATH_BYTES_MAX }
    }
}

/// The handshake of a server, as a state machine without a socket.
#[derive(Debug)]
pub struct ServerHandshake {
    limits: HandshakeLimits,
    state: State,
    intake: Intake,
    steps: VecDeque<Step>,
}

#[derive(Debug)]
enum State {
    /// The handshake awaits the first header of the client.
    First,
    /// Version 3 is agreed. The handshake awaits the message that says how the client shares its
    /// memory.
    Names,
    /// The handshake awaits the rest of the message that names the client's regions of memory.
    Body {
        kind: Kind,
        version: u8,
    },
    /// The handshake awaits the byte that comes with the descriptors.
    Descriptors {
        queue_name: String,
        buffer_name: String,
    },
    /// The handshake waits until the owner of this state machine has mapped the client's memory.
    Mapping {
        version: u8,
    },
    Done,
}

impl ServerHandshake {
    /// Begins a server's handshake, which first awaits bytes of the client.
    #[must_use]
    pub fn new(limits: HandshakeLimits) -> Self {
        let intake = Intake::new(HEADER_BYTES);
        Self { limits, state: State::First, intake, steps: VecDeque::new() }
    }

    /// The next step that the owner of this state machine performs. `None` if the owner must first
    /// read bytes or map memory, or if the handshake is done.
    #[expect(clippy::should_implement_trait, reason = "it goes on after a None")]
    pub fn next(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    /// Number of bytes that the owner of this state machine must read from the socket; it must not
    /// read more. The number is 0 while the owner maps memory, and once all bytes were read.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.intake.missing()
    }

    /// Whether the next byte that the handshake awaits is the one to which the client attaches its
    /// descriptors. Only this byte is read together with descriptors. Descriptors that come with
    /// another byte are lost, as in other implementations.
    #[must_use]
    pub const fn wants_descriptors(&self) -> bool {
        matches!(self.state, State::Descriptors { .. })
    }

    /// The message that the handshake waits for, as text for errors.
    #[must_use]
    pub const fn waiting_for(&self) -> &'static str {
        match &self.state {
            State::First => FIRST,
            State::Names => HOW,
            State::Body { .. } => "the rest of the client's names",
            State::Descriptors { .. } => DESCRIPTORS,
            State::Mapping { .. } | State::Done => "nothing",
        }
    }

    /// Processes bytes that the owner read from the socket; `descriptors` is the number of
    /// descriptors that came with them.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`NegotiationError`]; the handshake has then failed.
    ///
    /// # Panics
    /// If there are more bytes than [`missing`](Self::missing).
    pub fn feed(&mut self, bytes: &[u8], descriptors: usize) -> Result<(), NegotiationError> {
        if bytes.is_empty() {
            return Ok(());
        }
        if !self.wants_descriptors() && descriptors > 0 {
            let waiting_for = self.waiting_for();
            return Err(NegotiationError::Descriptors { waiting_for, found: descriptors });
        }
        let Some(bytes) = self.intake.feed(bytes, 0) else { return Ok(()) };
        match std::mem::replace(&mut self.state, State::Done) {
            State::First => self.on_first(intake::header(&bytes, FIRST)?),
            State::Names => self.on_mapping(intake::header(&bytes, HOW)?),
            State::Body { kind, version } => self.on_names(kind, version, &bytes),
            State::Descriptors { queue_name, buffer_name } => {
                self.on_descriptors(descriptors, queue_name, buffer_name)
            }
            state @ (State::Mapping { .. } | State::Done) => {
                self.state = state;
                Ok(())
            }
        }
    }

    /// The owner reports that it has mapped queue and buffers. Then [`next`](Self::next) returns
    /// the last steps.
    ///
    /// # Panics
    /// If the handshake did not request a mapping.
    pub fn mapped(&mut self) {
        let State::Mapping { version } = self.state else { panic!("nothing was to be mapped") };
        self.state = State::Done;
        if version == VERSION {
            self.steps.push_back(Step::Send(encode::ack_shm(version).to_vec()));
        }
        self.steps.push_back(Step::Done { version });
    }

    fn on_first(&mut self, header: Header) -> Result<(), NegotiationError> {
        match (header.kind, header.version) {
            (Kind::Negotiation, 0) => return Err(NegotiationError::Refused),
            (Kind::Negotiation, _) => intake::check(header, header.kind, false, "0", FIRST)?,
            (Kind::ShmByPath, version) => {
                intake::check(header, header.kind, version == 2, "2", FIRST)?;
                self.expect_body(header);
            }
            (_, version) => {
                let is_enough = version >= VERSION;
                intake::check(header, Kind::ExchangeVersion, is_enough, "3 or more", FIRST)?;
                self.steps.push_back(Step::Send(encode::exchange(VERSION).to_vec()));
                self.state = State::Names;
                self.intake.expect(HEADER_BYTES);
            }
        }
        Ok(())
    }

    fn on_mapping(&mut self, header: Header) -> Result<(), NegotiationError> {
        let kind = match header.kind {
            Kind::ShmByPath => Kind::ShmByPath,
            _ => Kind::ShmByMemfd,
        };
        intake::check(header, kind, header.version == VERSION, "3", HOW)?;
        self.expect_body(header);
        Ok(())
    }

    /// Begins to await the body of the message with this `header`. The length that the header
    /// states has been checked.
    fn expect_body(&mut self, header: Header) {
        self.state = State::Body { kind: header.kind, version: header.version };
        self.intake.expect(header.length as usize - HEADER_BYTES);
    }

    fn on_names(&mut self, kind: Kind, version: u8, body: &[u8]) -> Result<(), NegotiationError> {
        let (queue, buffer) = intake::names(body, self.limits.path_bytes_max)?;
        if kind == Kind::ShmByPath {
            self.steps.push_back(Step::MapPaths { queue, buffer });
            self.state = State::Mapping { version };
        } else {
            self.steps.push_back(Step::Send(encode::ack_ready_recv_fd(version).to_vec()));
            self.state = State::Descriptors { queue_name: queue, buffer_name: buffer };
            self.intake.expect(1);
        }
        Ok(())
    }

    /// Processes the arrival of the byte to which the client attaches its descriptors. The value of
    /// the byte has no meaning.
    fn on_descriptors(
        &mut self,
        found: usize,
        queue_name: String,
        buffer_name: String,
    ) -> Result<(), NegotiationError> {
        if found != 2 {
            return Err(NegotiationError::Descriptors { waiting_for: DESCRIPTORS, found });
        }
        self.steps.push_back(Step::MapDescriptors { queue_name, buffer_name });
        self.state = State::Mapping { version: VERSION };
        Ok(())
    }
}

const VERSION: u8 = super::client::VERSION;
/// The message that decides the version of the protocol, as the error texts of a server's handshake
/// name it.
const FIRST: &str = "a client's first message";
/// The message that decides how memory is shared, as the error texts of a server's handshake name
/// it.
const HOW: &str = "the names of the client's queue and buffers";
/// The byte that comes with the client's descriptors, as the error texts of a server's handshake
/// name it.
const DESCRIPTORS: &str = "the descriptors of the client's buffers and queue";
