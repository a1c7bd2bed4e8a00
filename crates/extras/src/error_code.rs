// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error codes: each error of calls and of lossy records has one number, the same in every
//! language.
//!
//! SPEC 17.7 lists the numbers.

use partywall::ErrorCode;

use crate::calls::{CallError, CallViolation, Lost, ServeError};
use crate::lossy::LossyRecvError;

impl ErrorCode for CallError {
    fn code(&self) -> u32 {
        match self {
            Self::Failed { .. } => 711,
            Self::Busy => 712,
            Self::Aborted => 713,
            Self::DeadlineExceeded => 4,
            Self::TooLarge(limit) => limit.code(),
            Self::Full => 5,
            Self::Lost(lost) => lost.code(),
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::Failed { code, .. } => *code,
            Self::Lost(lost) => lost.application_code(),
            _ => 0,
        }
    }
}

impl ErrorCode for Lost {
    fn code(&self) -> u32 {
        match self {
            Self::Finished => 9,
            Self::Recv(error) => error.code(),
            Self::Send(error) => error.code(),
            Self::Violation(violation) => violation.code(),
        }
    }

    fn application_code(&self) -> u32 {
        match self {
            Self::Recv(error) => error.application_code(),
            Self::Send(error) => error.application_code(),
            _ => 0,
        }
    }
}

impl ErrorCode for CallViolation {
    fn code(&self) -> u32 {
        match self {
            Self::Short { .. } => 721,
            Self::Header { .. } => 722,
            Self::Role { .. } => 723,
            Self::Id { .. } => 724,
            Self::UnknownId { .. } => 725,
        }
    }
}

impl ErrorCode for ServeError {
    fn code(&self) -> u32 {
        match self {
            Self::Recv(error) => error.code(),
            Self::Send(error) => error.code(),
            Self::Violation(violation) => violation.code(),
        }
    }
}

impl<E: ErrorCode> ErrorCode for LossyRecvError<E> {
    fn code(&self) -> u32 {
        match self {
            Self::Recv(error) => error.code(),
            Self::NotARecord { .. } => 701,
        }
    }
}

#[cfg(all(test, feature = "calls"))]
mod tests {
    use super::*;
    use partywall::{Limit, RecvError, StreamRecvError, StreamSendError, TooLarge};
    use partywall_testkit::error_numbers::NumberTable;
    use partywall_testkit::walk_variants;

    #[test]
    fn every_error_has_the_number_of_the_specification() {
        let mut table = NumberTable::of_section("17 Error numbers");
        let too_large = TooLarge { len: 2, max: 1, limit: Limit::PeerMessage };
        let detail = bytes::Bytes::new();
        walk_variants!(table, ErrorCode::code, CallError {
            Failed = CallError::Failed { code: 7, detail } => "call failed",
            Busy = CallError::Busy => "call refused",
            Aborted = CallError::Aborted => "call aborted",
            DeadlineExceeded = CallError::DeadlineExceeded => "timed out",
            TooLarge = CallError::TooLarge(too_large) => "message too long",
            Full = CallError::Full => "full",
            Lost = CallError::Lost(Lost::Finished) => "finished",
        });
        let role = CallViolation::Role { id: 1 };
        walk_variants!(table, ErrorCode::code, CallViolation {
            Short = CallViolation::Short { len: 1 } => "call too short",
            Header = CallViolation::Header { kind: 9, id: 1 } => "call header",
            Role = role => "call role",
            Id = CallViolation::Id { id: 1, last: 2 } => "call id",
            UnknownId = CallViolation::UnknownId { id: 2, last: 1 } => "call unknown",
        });
        walk_variants!(table, ErrorCode::code, Lost {
            Finished = Lost::Finished => "finished",
            Recv = Lost::Recv(StreamRecvError::Reset { code: 7 }) => "stream reset",
            Send = Lost::Send(StreamSendError::Stopped { code: 7 }) => "stream stopped",
            Violation = Lost::Violation(role) => "call role",
        });
        walk_variants!(table, ErrorCode::code, ServeError {
            Recv = ServeError::Recv(StreamRecvError::Reset { code: 7 }) => "stream reset",
            Send = ServeError::Send(StreamSendError::Stopped { code: 7 }) => "stream stopped",
            Violation = ServeError::Violation(role) => "call role",
        });
        walk_variants!(table, ErrorCode::code, LossyRecvError<RecvError> {
            Recv = LossyRecvError::Recv(RecvError::TimedOut) => "timed out",
            NotARecord = LossyRecvError::NotARecord { number: 0, len: 1 } => "not a record",
        });
        table.assert_all_met(700..=799);
    }
}
