// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps every error of this crate to its error number, which is the same in every language (SPEC
//! 17.8).

use partywall::ErrorCode;

use crate::config::ConfigError;
use crate::hot_restart::HandoverError;
use crate::memory::names::NameError;

impl ErrorCode for ConfigError {
    fn code(&self) -> u32 {
        match self {
            Self::Setting { .. } => 13,
            Self::Classes { .. } => 801,
            Self::Name(error) => error.code(),
        }
    }
}

impl ErrorCode for NameError {
    fn code(&self) -> u32 {
        match self {
            Self::Empty { .. } => 802,
            Self::Zero => 803,
            Self::TooLong { .. } => 804,
        }
    }
}

impl ErrorCode for HandoverError {
    fn code(&self) -> u32 {
        match self {
            Self::Pending { .. } => 811,
            Self::Zero => 812,
            Self::Repeated { .. } => 813,
        }
    }
}

#[cfg(feature = "tokio")]
impl ErrorCode for crate::SessionManagerError {
    fn code(&self) -> u32 {
        match self {
            Self::Address(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::Connect(error) => error.code(),
        }
    }
}

#[cfg(feature = "tokio")]
impl ErrorCode for crate::GetStreamError {
    fn code(&self) -> u32 {
        match self {
            Self::Connect(error) => error.code(),
            Self::Closed => 410,
            Self::Open(error) => error.code(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use partywall_testkit::error_numbers::NumberTable;
    use partywall_testkit::walk_variants;

    fn setting() -> ConfigError {
        ConfigError::Setting { setting: "", found: String::new(), advice: String::new() }
    }

    #[cfg(feature = "tokio")]
    fn walk_manager(table: &mut NumberTable) {
        use crate::{GetStreamError, SessionManagerError};
        use partywall::{AddressError, ConnectError, OpenError};
        use std::sync::Arc;

        let syntax = || AddressError::Syntax { address: String::new(), reason: "" };
        let connect = || Arc::new(ConnectError::Address(syntax()));
        walk_variants!(table, ErrorCode::code, SessionManagerError {
            Address = SessionManagerError::Address(syntax()) => "address syntax",
            Config = SessionManagerError::Config(setting()) => "setting",
            Connect = SessionManagerError::Connect(connect()) => "address syntax",
        });
        walk_variants!(table, ErrorCode::code, GetStreamError {
            Connect = GetStreamError::Connect(connect()) => "address syntax",
            Closed = GetStreamError::Closed => "pool closed",
            Open = GetStreamError::Open(OpenError::NoStreams) => "no streams",
        });
    }

    #[test]
    fn every_error_has_the_number_of_the_specification() {
        let mut table = NumberTable::of_section("17 Error numbers");
        let text = String::new;
        walk_variants!(table, ErrorCode::code, ConfigError {
            Setting = setting() => "setting",
            Classes = ConfigError::Classes { found: text(), advice: text() } => "slice classes",
            Name = ConfigError::Name(NameError::Zero) => "prefix with zero",
        });
        walk_variants!(table, ErrorCode::code, NameError {
            Empty = NameError::Empty { prefix: text() } => "prefix empty",
            Zero = NameError::Zero => "prefix with zero",
            TooLong = NameError::TooLong { prefix: text(), bytes: 9 } => "prefix too long",
        });
        walk_variants!(table, ErrorCode::code, HandoverError {
            Pending = HandoverError::Pending { epoch: 1 } => "handover pending",
            Zero = HandoverError::Zero => "handover zero",
            Repeated = HandoverError::Repeated { epoch: 1 } => "handover repeated",
        });
        #[cfg(feature = "tokio")]
        walk_manager(&mut table);
        table.assert_all_met(800..=899);
    }
}
