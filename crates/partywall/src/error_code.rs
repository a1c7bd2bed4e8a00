// SPDX-License-Identifier: MIT OR Apache-2.0
//! Assigns one stable number to every error of the crate, the same in every language (SPEC 17).
//!
//! ```text
//!   1..99     common to all operations          300..399  addresses, listeners, connecting
//!   101..199  violation: 100 and its number     400..499  sessions, streams, values
//!   200..299  handshake                         500..     links and other crates
//! ```
//!
//! # Invariants
//!
//! - A number names one cause. The same cause has the same number in every operation.
//! - An error that contains another error, and adds nothing to it, has the number of the inner
//!   error.
//! - The `match`es have no wildcard: a new variant does not compile without a number. The test
//!   compares all numbers with the table of SPEC.md.

use crate::error::{
    AcceptError, BindError, Closed, ConfigError, ConnectError, Fault, HandshakeError, Limit,
    ProtocolError, RecvError, SendError, TooLarge, TryRecvError, TrySendError,
};
use crate::{
    AddressError, OpenError, ReplyError, SessionError, StreamRecvError, StreamSendError, WaitError,
};

/// The stable number of an error, for logs and for other languages (SPEC 17).
///
/// Texts are for people and may change; a number keeps its meaning in every version.
///
/// ```
/// use partywall::ErrorCode as _;
///
/// let error = partywall::connect("no address").unwrap_err();
/// assert_eq!(error.code(), 301);
/// ```
pub trait ErrorCode {
    /// Returns the number of the error, which is never 0.
    fn code(&self) -> u32;

    /// Returns the code with which the peer's application ended a stream or session or failed a
    /// call, or with which this side closed its session; 0 if the error carries no such code.
    fn application_code(&self) -> u32 {
        0
    }
}

impl ErrorCode for Closed {
    fn code(&self) -> u32 {
        self.number()
    }
}

impl ErrorCode for Fault {
    fn code(&self) -> u32 {
        Self::code(self)
    }
}

impl ErrorCode for crate::event::Forked {
    fn code(&self) -> u32 {
        FORKED
    }
}

impl ErrorCode for ProtocolError {
    fn code(&self) -> u32 {
        match self {
            Self::Violation { .. } => 21,
            Self::Refused { .. } => 22,
            Self::HungUp => 23,
            Self::System { .. } => SYSTEM,
        }
    }
}

impl ErrorCode for SendError {
    fn code(&self) -> u32 {
        match self {
            Self::Closed(closed) => closed.code(),
            Self::TimedOut => TIMED_OUT,
            Self::Full => FULL,
            Self::TooLarge(limit) => limit.code(),
            Self::ForeignReservation => FOREIGN_RESERVATION,
            Self::Fault(fault) => fault.code(),
        }
    }
}

impl ErrorCode for TrySendError {
    fn code(&self) -> u32 {
        match self {
            Self::Full => FULL,
            Self::Busy => 8,
            Self::Closed(closed) => closed.code(),
            Self::TooLarge(limit) => limit.code(),
            Self::ForeignReservation => FOREIGN_RESERVATION,
            Self::Fault(fault) => fault.code(),
        }
    }
}

impl ErrorCode for TooLarge {
    fn code(&self) -> u32 {
        match self.limit {
            Limit::OwnMemory | Limit::PeerMap | Limit::PeerMessage | Limit::Protocol => 11,
            Limit::Batch => 12,
        }
    }
}

impl ErrorCode for RecvError {
    fn code(&self) -> u32 {
        match self {
            Self::Disconnected => DISCONNECTED,
            Self::TimedOut => TIMED_OUT,
            Self::Fault(fault) => fault.code(),
        }
    }
}

impl ErrorCode for TryRecvError {
    fn code(&self) -> u32 {
        match self {
            Self::Empty => EMPTY,
            Self::Disconnected => DISCONNECTED,
            Self::Fault(fault) => fault.code(),
        }
    }
}

impl ErrorCode for ConfigError {
    fn code(&self) -> u32 {
        13
    }
}

impl ErrorCode for AddressError {
    fn code(&self) -> u32 {
        match self {
            Self::Syntax { .. } => 301,
            Self::TooLong { .. } => 302,
            Self::Unresolved { .. } => 303,
        }
    }
}

impl ErrorCode for BindError {
    fn code(&self) -> u32 {
        match self {
            Self::Address(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::NotLoopback { .. } => 304,
            Self::System(error) => error.code(),
            Self::Setup(_) => SYSTEM,
        }
    }
}

impl ErrorCode for partywall_sys::BindError {
    fn code(&self) -> u32 {
        Self::code(self)
    }
}

impl ErrorCode for AcceptError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::System(error) => error.code(),
            Self::Wait(_) => SYSTEM,
            Self::Forked => FORKED,
        }
    }
}

impl ErrorCode for partywall_sys::AcceptError {
    fn code(&self) -> u32 {
        Self::code(self)
    }
}

impl ErrorCode for ConnectError {
    fn code(&self) -> u32 {
        match self {
            Self::Address(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::System(error) => error.code(),
            Self::Handshake(error) => error.code(),
        }
    }
}

impl ErrorCode for partywall_sys::ConnectError {
    fn code(&self) -> u32 {
        Self::code(self)
    }
}

impl ErrorCode for HandshakeError {
    fn code(&self) -> u32 {
        Self::code(self)
    }
}

impl ErrorCode for SessionError {
    fn code(&self) -> u32 {
        match self {
            Self::ClosedHere { .. } => 401,
            Self::ClosedByPeer { .. } => 411,
            Self::Closed(closed) => closed.code(),
            Self::Fault(fault) => fault.code(),
            Self::Unsupported { .. } => 402,
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::ClosedHere { code, .. } | Self::ClosedByPeer { code, .. } => *code,
            _ => 0,
        }
    }
}

impl ErrorCode for WaitError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::WouldBlock => WOULD_BLOCK,
            Self::Session(error) => error.code(),
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::Session(error) => error.application_code(),
            _ => 0,
        }
    }
}

impl ErrorCode for OpenError {
    fn code(&self) -> u32 {
        match self {
            Self::GoingAway { .. } => 403,
            Self::NoStreams => 404,
            Self::MetadataTooLong { .. } => 405,
            Self::TimedOut => TIMED_OUT,
            Self::WouldBlock => WOULD_BLOCK,
            Self::Session(error) => error.code(),
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::GoingAway { code } => *code,
            Self::Session(error) => error.application_code(),
            _ => 0,
        }
    }
}

impl ErrorCode for ReplyError {
    fn code(&self) -> u32 {
        match self {
            Self::Recv(error) => error.code(),
            Self::Send(error) => error.code(),
        }
    }
}

impl ErrorCode for StreamSendError {
    fn code(&self) -> u32 {
        match self {
            Self::Stopped { .. } => 406,
            Self::ClosedHere => 408,
            Self::Full => FULL,
            Self::TimedOut => TIMED_OUT,
            Self::TooLarge(limit) => limit.code(),
            Self::ForeignReservation => FOREIGN_RESERVATION,
            Self::Session(error) => error.code(),
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::Stopped { code } => *code,
            Self::Session(error) => error.application_code(),
            _ => 0,
        }
    }
}

impl ErrorCode for StreamRecvError {
    fn code(&self) -> u32 {
        match self {
            Self::Reset { .. } => 407,
            Self::StoppedHere => 409,
            Self::Empty => EMPTY,
            Self::TimedOut => TIMED_OUT,
            Self::Session(error) => error.code(),
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::Reset { code } => *code,
            Self::Session(error) => error.application_code(),
            _ => 0,
        }
    }
}

#[cfg(feature = "tokio")]
impl ErrorCode for crate::tokio::PoolOpenError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut { .. } => TIMED_OUT,
            Self::Closed => 410,
            Self::Open(error) => error.code(),
        }
    }
}

#[cfg(feature = "serde")]
impl ErrorCode for crate::EncodeError {
    fn code(&self) -> u32 {
        421
    }
}

#[cfg(feature = "serde")]
impl ErrorCode for crate::DecodeError {
    fn code(&self) -> u32 {
        422
    }
}

#[cfg(feature = "serde")]
impl<E: ErrorCode> ErrorCode for crate::SendValueError<E> {
    fn code(&self) -> u32 {
        match self {
            Self::Encode(error) => error.code(),
            Self::Send(error) => error.code(),
        }
    }
}

#[cfg(feature = "serde")]
impl<E: ErrorCode> ErrorCode for crate::RecvValueError<E> {
    fn code(&self) -> u32 {
        match self {
            Self::Decode(error) => error.code(),
            Self::Recv(error) => error.code(),
        }
    }
}

#[cfg(feature = "zerocopy")]
impl ErrorCode for crate::NotPlain {
    fn code(&self) -> u32 {
        423
    }
}

#[cfg(feature = "zerocopy")]
impl<E: ErrorCode> ErrorCode for crate::RecvPlainError<E> {
    fn code(&self) -> u32 {
        match self {
            Self::NotPlain(error) => error.code(),
            Self::Recv(error) => error.code(),
        }
    }
}

/// Error code: a system call failed that does not fail in normal operation.
const SYSTEM: u32 = 2;
/// Error code: the calling process is a forked child, and the channel, session or other object
/// belongs to the parent process.
const FORKED: u32 = 1;
/// Error code: the deadline passed before the operation completed.
const TIMED_OUT: u32 = 4;
/// Error code: the ring, the shared memory or the socket has no room for a message.
const FULL: u32 = 5;
/// Error code: no message has arrived.
const EMPTY: u32 = 6;
/// Error code: a call that never waits would have to wait.
const WOULD_BLOCK: u32 = 7;
/// Error code: an owned reservation was committed on another connection.
const FOREIGN_RESERVATION: u32 = 14;
/// Error code: the peer died or hung up without closing.
const DISCONNECTED: u32 = Closed::Disconnected.number();

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use partywall_layout::{FallbackReason, Violation};
    use partywall_testkit::error_numbers::NumberTable;
    use partywall_testkit::walk_variants;
    use std::io;

    fn system() -> io::Error {
        io::Error::from_raw_os_error(5)
    }

    fn violation() -> Violation {
        Violation::Block { id: 7 }
    }

    fn over() -> SessionError {
        SessionError::Unsupported { what: "" }
    }

    fn too_large(limit: Limit) -> TooLarge {
        TooLarge { len: 2, max: 1, limit }
    }

    fn config() -> ConfigError {
        ConfigError { setting: "", found: 0, wanted: "" }
    }

    /// Reads the tables of SPEC.md that assign numbers to errors. The test compares these numbers
    /// with those in this file.
    fn table() -> NumberTable {
        let violations = NumberTable::of_section("9.3 Violations");
        NumberTable::of_section("17 Error numbers").with(100, "violation: ", &violations)
    }

    fn walk_channels(table: &mut NumberTable) {
        table.check("Forked", crate::event::Forked.code(), "forked");
        let peer = String::new;
        let foreign = ProtocolError::HungUp;
        walk_variants!(table, ErrorCode::code, Closed {
            Finished = Closed::Finished => "finished",
            Disconnected = Closed::Disconnected => "disconnected",
        });
        walk_variants!(table, ErrorCode::code, ProtocolError {
            Violation = ProtocolError::Violation { what: peer() } => "foreign violation",
            Refused = ProtocolError::Refused { what: peer() } => "foreign refusal",
            HungUp = ProtocolError::HungUp => "foreign hang-up",
            System = ProtocolError::System { what: "", source: system() } => "system",
        });
        walk_variants!(table, ErrorCode::code, Fault {
            Violation = Fault::Violation { peer: peer(), violation: violation() } => "violation: block",
            Protocol = Fault::Protocol { peer: peer(), protocol: "", reason: foreign } => "foreign protocol",
            Forked = Fault::Forked => "forked",
            System = Fault::System { what: "", source: system() } => "system",
        });
        walk_variants!(table, ErrorCode::code, SendError {
            Closed = SendError::Closed(Closed::Finished) => "finished",
            TimedOut = SendError::TimedOut => "timed out",
            Full = SendError::Full => "full",
            TooLarge = SendError::TooLarge(too_large(Limit::PeerMap)) => "message too long",
            ForeignReservation = SendError::ForeignReservation => "foreign reservation",
            Fault = SendError::Fault(Fault::Forked) => "forked",
        });
        walk_variants!(table, ErrorCode::code, TrySendError {
            Full = TrySendError::Full => "full",
            Busy = TrySendError::Busy => "busy",
            Closed = TrySendError::Closed(Closed::Disconnected) => "disconnected",
            TooLarge = TrySendError::TooLarge(too_large(Limit::Batch)) => "batch too long",
            ForeignReservation = TrySendError::ForeignReservation => "foreign reservation",
            Fault = TrySendError::Fault(Fault::Forked) => "forked",
        });
        walk_variants!(table, ErrorCode::code, RecvError {
            Disconnected = RecvError::Disconnected => "disconnected",
            TimedOut = RecvError::TimedOut => "timed out",
            Fault = RecvError::Fault(Fault::Forked) => "forked",
        });
        walk_variants!(table, ErrorCode::code, TryRecvError {
            Empty = TryRecvError::Empty => "empty",
            Disconnected = TryRecvError::Disconnected => "disconnected",
            Fault = TryRecvError::Fault(Fault::Forked) => "forked",
        });
        table.check("ConfigError", config().code(), "setting");
        for limit in [Limit::OwnMemory, Limit::PeerMap, Limit::PeerMessage, Limit::Protocol] {
            table.check("TooLarge", too_large(limit).code(), "message too long");
        }
    }

    fn walk_connecting(table: &mut NumberTable) {
        let address = String::new;
        let syntax = || AddressError::Syntax { address: address(), reason: "" };
        walk_variants!(table, ErrorCode::code, AddressError {
            Syntax = syntax() => "address syntax",
            TooLong = AddressError::TooLong { address: address(), bytes: 0, max: 0 } => "address too long",
            Unresolved = AddressError::Unresolved { address: address(), reason: address() } => "address unresolved",
        });
        walk_variants!(table, ErrorCode::code, BindError {
            Address = BindError::Address(syntax()) => "address syntax",
            Config = BindError::Config(config()) => "setting",
            NotLoopback = BindError::NotLoopback { address: address() } => "not loopback",
            System = BindError::System(partywall_sys::BindError::Denied { to: address() }) => "listening denied",
            Setup = BindError::Setup(system()) => "system",
        });
        let limit = partywall_sys::AcceptError::DescriptorLimit { source: system() };
        walk_variants!(table, ErrorCode::code, AcceptError {
            TimedOut = AcceptError::TimedOut => "timed out",
            System = AcceptError::System(limit) => "descriptor limit",
            Wait = AcceptError::Wait(system()) => "system",
            Forked = AcceptError::Forked => "forked",
        });
        let (timed_out, no_listener) = (
            HandshakeError::TimedOut { peer: address(), hint: "" },
            partywall_sys::ConnectError::Refused { to: address() },
        );
        walk_variants!(table, ErrorCode::code, ConnectError {
            Address = ConnectError::Address(syntax()) => "address syntax",
            Config = ConnectError::Config(config()) => "setting",
            System = ConnectError::System(no_listener) => "no listener",
            Handshake = ConnectError::Handshake(timed_out) => "handshake timed out",
        });
    }

    fn walk_handshake(table: &mut NumberTable) {
        let peer = String::new;
        let (ours_min, ours_max, theirs_min, theirs_max) = (1, 1, 2, 2);
        let refusal = partywall_layout::Refusal::Busy;
        walk_variants!(table, ErrorCode::code, HandshakeError {
            TimedOut = HandshakeError::TimedOut { peer: peer(), hint: "" } => "handshake timed out",
            HungUp = HandshakeError::HungUp { peer: peer(), hint: "" } => "handshake hang-up",
            NotPartywall = HandshakeError::NotPartywall { peer: peer(), found: peer(), advice: "" } => "not Partywall",
            Version = HandshakeError::Version { peer: peer(), theirs_min, theirs_max, ours_min, ours_max } => "version",
            Refused = HandshakeError::Refused { peer: peer(), refusal, text: peer() } => "refused by the peer",
            NotAdmitted = HandshakeError::NotAdmitted { peer: peer(), reason: peer() } => "not admitted",
            Service = HandshakeError::Service { peer: peer(), asked: 1, offered: 2 } => "service",
            NoTransport = HandshakeError::NoTransport { reason: FallbackReason::Remote } => "no transport",
            Violation = HandshakeError::Violation { peer: peer(), violation: violation() } => "handshake violation",
            Descriptor = HandshakeError::Descriptor { peer: peer(), reason: peer() } => "descriptor",
            System = HandshakeError::System { peer: peer(), what: "", source: system() } => "handshake system",
            Protocol = HandshakeError::Protocol { peer: peer(), protocol: "", reason: ProtocolError::HungUp } => "foreign handshake",
        });
    }

    fn walk_sessions(table: &mut NumberTable) {
        let metadata = OpenError::MetadataTooLong { len: 2, max: 1 };
        walk_variants!(table, ErrorCode::code, SessionError {
            ClosedHere = SessionError::closed_here() => "session closed here",
            ClosedByPeer = SessionError::ClosedByPeer { code: 7, reason: "".into() } => "session closed by the peer",
            Closed = SessionError::Closed(Closed::Finished) => "finished",
            Fault = SessionError::from(Fault::Forked) => "forked",
            Unsupported = over() => "unsupported",
        });
        walk_variants!(table, ErrorCode::code, WaitError {
            TimedOut = WaitError::TimedOut => "timed out",
            WouldBlock = WaitError::WouldBlock => "would block",
            Session = WaitError::Session(over()) => "unsupported",
        });
        walk_variants!(table, ErrorCode::code, OpenError {
            GoingAway = OpenError::GoingAway { code: 0 } => "going away",
            NoStreams = OpenError::NoStreams => "no streams",
            MetadataTooLong = metadata.clone() => "metadata too long",
            TimedOut = OpenError::TimedOut => "timed out",
            WouldBlock = OpenError::WouldBlock => "would block",
            Session = OpenError::Session(over()) => "unsupported",
        });
        walk_variants!(table, ErrorCode::code, StreamSendError {
            Stopped = StreamSendError::Stopped { code: 0 } => "stream stopped",
            ClosedHere = StreamSendError::ClosedHere => "stream finished here",
            Full = StreamSendError::Full => "full",
            TimedOut = StreamSendError::TimedOut => "timed out",
            TooLarge = StreamSendError::TooLarge(too_large(Limit::PeerMessage)) => "message too long",
            ForeignReservation = StreamSendError::ForeignReservation => "foreign reservation",
            Session = StreamSendError::Session(over()) => "unsupported",
        });
        walk_variants!(table, ErrorCode::code, StreamRecvError {
            Reset = StreamRecvError::Reset { code: 0 } => "stream reset",
            Empty = StreamRecvError::Empty => "empty",
            TimedOut = StreamRecvError::TimedOut => "timed out",
            StoppedHere = StreamRecvError::StoppedHere => "stream stopped here",
            Session = StreamRecvError::Session(over()) => "unsupported",
        });
        walk_variants!(table, ErrorCode::code, ReplyError {
            Recv = ReplyError::Recv(StreamRecvError::TimedOut) => "timed out",
            Send = ReplyError::Send(StreamSendError::Full) => "full",
        });
    }

    #[cfg(feature = "tokio")]
    fn walk_pool(table: &mut NumberTable) {
        use crate::tokio::PoolOpenError;
        walk_variants!(table, ErrorCode::code, PoolOpenError {
            TimedOut = PoolOpenError::TimedOut { failure: None } => "timed out",
            Closed = PoolOpenError::Closed => "pool closed",
            Open = PoolOpenError::Open(OpenError::NoStreams) => "no streams",
        });
    }

    #[cfg(feature = "serde")]
    fn walk_values(table: &mut NumberTable) {
        use crate::typed::samples::{decode_error, encode_error};
        use crate::{RecvValueError, SendValueError};
        walk_variants!(table, ErrorCode::code, SendValueError<SendError> {
            Encode = SendValueError::Encode(encode_error()) => "value not encodable",
            Send = SendValueError::Send(SendError::Full) => "full",
        });
        walk_variants!(table, ErrorCode::code, RecvValueError<RecvError> {
            Decode = RecvValueError::Decode(decode_error()) => "value not decodable",
            Recv = RecvValueError::Recv(RecvError::TimedOut) => "timed out",
        });
    }

    #[cfg(feature = "zerocopy")]
    fn walk_plain(table: &mut NumberTable) {
        use crate::RecvPlainError;
        walk_variants!(table, ErrorCode::code, RecvPlainError<RecvError> {
            NotPlain = RecvPlainError::NotPlain(crate::typed::samples::not_plain()) => "not plain",
            Recv = RecvPlainError::Recv(RecvError::TimedOut) => "timed out",
        });
    }

    #[test]
    fn every_error_has_the_number_of_the_specification() {
        let mut table = table();
        walk_channels(&mut table);
        walk_connecting(&mut table);
        walk_handshake(&mut table);
        walk_sessions(&mut table);
        #[cfg(feature = "tokio")]
        walk_pool(&mut table);
        #[cfg(feature = "serde")]
        walk_values(&mut table);
        #[cfg(feature = "zerocopy")]
        walk_plain(&mut table);
        table.assert_all_met(1..=99);
        table.assert_all_met(200..=299);
        #[cfg(all(feature = "tokio", feature = "serde", feature = "zerocopy"))]
        table.assert_all_met(400..=499);
    }

    #[test]
    fn table_of_the_guide_is_that_of_the_specification() {
        let guide = include_str!("../../../docs/guide/src/errors.md");
        table().assert_same_rows(guide);
    }
}
