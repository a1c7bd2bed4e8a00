// SPDX-License-Identifier: MIT OR Apache-2.0
//! The error code of every error of a link: a number that is the same in every language (SPEC 17).
//!
//! The codes 500 to 699 belong to links. An error that channels have, too, has the same code for
//! both.

use partywall::ErrorCode;

use crate::error::{
    AcceptError, AckError, BindError, ConfigError, OpenError, RecvError, ReplyError, SendError,
    Stopped, SwitchError, TryRecvError, TrySendError, WaitError,
};
use crate::{EpochError, KeyError, RepairError, StaleEpoch, StorageError};

impl ErrorCode for Stopped {
    fn code(&self) -> u32 {
        match self {
            Self::Closed => 501,
            Self::Fenced => 502,
            Self::Quarantined => 503,
            Self::Forked => FORKED,
            Self::System(_) => SYSTEM,
        }
    }
}

impl ErrorCode for SendError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::TooLarge { .. } => 11,
            Self::BatchTooLarge { .. } => 12,
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for TrySendError {
    fn code(&self) -> u32 {
        match self {
            Self::Full => 5,
            Self::Never(error) => error.code(),
        }
    }
}

impl ErrorCode for RecvError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for TryRecvError {
    fn code(&self) -> u32 {
        match self {
            Self::Empty => 6,
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for AckError {
    fn code(&self) -> u32 {
        match self {
            Self::Consumed => 504,
            Self::Stale => 505,
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for ReplyError {
    fn code(&self) -> u32 {
        match self {
            Self::Ack(error) => error.code(),
            Self::Send(error) => error.code(),
        }
    }
}

impl ErrorCode for WaitError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut { .. } => TIMED_OUT,
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for SwitchError {
    fn code(&self) -> u32 {
        match self {
            Self::Address(error) => error.code(),
            Self::Served => 506,
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for ConfigError {
    fn code(&self) -> u32 {
        13
    }
}

impl ErrorCode for OpenError {
    fn code(&self) -> u32 {
        match self {
            Self::Key(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::Address(error) => error.code(),
            Self::File(error) => error.code(),
            Self::AlreadyOpen => 507,
            Self::TooMany(_) => 508,
            Self::Damaged(_) => 509,
            Self::Setup(_) => SYSTEM,
            Self::Closed => 501,
            Self::Forked => FORKED,
        }
    }
}

impl ErrorCode for BindError {
    fn code(&self) -> u32 {
        match self {
            Self::Key(error) => error.code(),
            Self::Config(error) => error.code(),
            Self::Address(error) => error.code(),
            Self::Directory(error) => error.code(),
            Self::NotLoopback { .. } => 304,
            Self::Anonymous { .. } => 305,
            Self::System(error) => error.code(),
            Self::Setup(_) => SYSTEM,
            Self::Forked => FORKED,
        }
    }
}

impl ErrorCode for AcceptError {
    fn code(&self) -> u32 {
        match self {
            Self::TimedOut => TIMED_OUT,
            Self::Wait(_) => SYSTEM,
            Self::Forked => FORKED,
        }
    }
}

impl ErrorCode for EpochError {
    fn code(&self) -> u32 {
        match self {
            Self::NotHigher(error) => error.code(),
            Self::Stopped(stopped) => stopped.code(),
        }
    }
}

impl ErrorCode for StaleEpoch {
    fn code(&self) -> u32 {
        510
    }
}

impl ErrorCode for KeyError {
    fn code(&self) -> u32 {
        match self {
            Self::Empty { .. } => 511,
            Self::TooLong { .. } => 512,
        }
    }
}

impl ErrorCode for StorageError {
    fn code(&self) -> u32 {
        match self {
            Self::NoDirectory { .. } => 521,
            Self::DirectoryNotOurs { .. } => 522,
            Self::DirectoryWritable { .. } => 523,
            Self::NotAFile { .. } => 524,
            Self::NotOurs { .. } => 525,
            Self::Mode { .. } => 526,
            Self::File { fault, .. } => 600 + fault.code(),
            Self::Busy { .. } => 527,
            Self::Opening { .. } => 528,
            Self::NoSpace { .. } => 529,
            Self::Unsupported { .. } => 530,
            Self::Sizes { .. } => 531,
            Self::System { .. } => 532,
            Self::OtherBoot { .. } => 533,
            Self::Missing { .. } => 534,
        }
    }
}

impl ErrorCode for RepairError {
    fn code(&self) -> u32 {
        match self {
            Self::File(error) => error.code(),
            Self::Missing { .. } => 541,
            Self::Damaged { .. } => 542,
            Self::NotQuarantined { .. } => 543,
            Self::Copy { .. } => 544,
        }
    }
}

/// Code of an error: this process is a forked child, and the object that it uses, such as a link,
/// belongs to its parent.
const FORKED: u32 = 1;
/// Code of an error: a system call failed, although it does not fail in normal operation.
const SYSTEM: u32 = 2;
/// Code of an error: the deadline of the operation passed.
const TIMED_OUT: u32 = 4;

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::FileFault;
    use crate::error::Awaited;
    use partywall::AddressError;
    use partywall_testkit::error_numbers::NumberTable;
    use partywall_testkit::walk_variants;

    fn system() -> io::Error {
        io::Error::from_raw_os_error(5)
    }

    fn syntax() -> AddressError {
        AddressError::Syntax { address: String::new(), reason: "" }
    }

    fn config() -> ConfigError {
        ConfigError { setting: "", found: 0, wanted: "" }
    }

    fn missing() -> StorageError {
        StorageError::NoDirectory { path: PathBuf::new(), cause: system() }
    }

    fn walk_messages(table: &mut NumberTable) {
        let stopped = || Stopped::Closed;
        walk_variants!(table, ErrorCode::code, Stopped {
            Closed = Stopped::Closed => "link closed",
            Fenced = Stopped::Fenced => "fenced",
            Quarantined = Stopped::Quarantined => "quarantined",
            Forked = Stopped::Forked => "forked",
            System = Stopped::System(Arc::new(system())) => "system",
        });
        walk_variants!(table, ErrorCode::code, SendError {
            TimedOut = SendError::TimedOut => "timed out",
            TooLarge = SendError::TooLarge { len: 2, max: 1 } => "message too long",
            BatchTooLarge = SendError::BatchTooLarge { len: 2 } => "batch too long",
            Stopped = SendError::Stopped(stopped()) => "link closed",
        });
        walk_variants!(table, ErrorCode::code, TrySendError {
            Full = TrySendError::Full => "full",
            Never = TrySendError::Never(SendError::TooLarge { len: 2, max: 1 }) => "message too long",
        });
        walk_variants!(table, ErrorCode::code, RecvError {
            TimedOut = RecvError::TimedOut => "timed out",
            Stopped = RecvError::Stopped(stopped()) => "link closed",
        });
        walk_variants!(table, ErrorCode::code, TryRecvError {
            Empty = TryRecvError::Empty => "empty",
            Stopped = TryRecvError::Stopped(stopped()) => "link closed",
        });
        walk_variants!(table, ErrorCode::code, AckError {
            Consumed = AckError::Consumed => "acknowledged before",
            Stale = AckError::Stale => "message stale",
            Stopped = AckError::Stopped(stopped()) => "link closed",
        });
        walk_variants!(table, ErrorCode::code, ReplyError {
            Ack = ReplyError::Ack(AckError::Stale) => "message stale",
            Send = ReplyError::Send(SendError::TimedOut) => "timed out",
        });
        walk_variants!(table, ErrorCode::code, WaitError {
            TimedOut = WaitError::TimedOut { awaited: Awaited::Acked, link: String::new(), last: String::new() } => "timed out",
            Stopped = WaitError::Stopped(stopped()) => "link closed",
        });
        walk_variants!(table, ErrorCode::code, EpochError {
            NotHigher = EpochError::NotHigher(StaleEpoch { present: 7 }) => "epoch not higher",
            Stopped = EpochError::Stopped(stopped()) => "link closed",
        });
    }

    fn walk_opening(table: &mut NumberTable) {
        let key = || KeyError::Empty { which: "link" };
        walk_variants!(table, ErrorCode::code, KeyError {
            Empty = key() => "name empty",
            TooLong = KeyError::TooLong { which: "link", len: 256 } => "name too long",
        });
        walk_variants!(table, ErrorCode::code, SwitchError {
            Address = SwitchError::Address(syntax()) => "address syntax",
            Served = SwitchError::Served => "served end",
            Stopped = SwitchError::Stopped(Stopped::Fenced) => "fenced",
        });
        walk_variants!(table, ErrorCode::code, OpenError {
            Key = OpenError::Key(key()) => "name empty",
            Config = OpenError::Config(config()) => "setting",
            Address = OpenError::Address(syntax()) => "address syntax",
            File = OpenError::File(missing()) => "directory not opened",
            AlreadyOpen = OpenError::AlreadyOpen => "link in use",
            TooMany = OpenError::TooMany(1) => "too many links",
            Damaged = OpenError::Damaged(String::new()) => "link damaged",
            Setup = OpenError::Setup(system()) => "system",
            Closed = OpenError::Closed => "link closed",
            Forked = OpenError::Forked => "forked",
        });
        let in_use = partywall_sys::BindError::AddressInUse { to: String::new() };
        walk_variants!(table, ErrorCode::code, BindError {
            Key = BindError::Key(key()) => "name empty",
            Config = BindError::Config(config()) => "setting",
            Address = BindError::Address(syntax()) => "address syntax",
            Directory = BindError::Directory(missing()) => "directory not opened",
            NotLoopback = BindError::NotLoopback { address: String::new() } => "not loopback",
            Anonymous = BindError::Anonymous { address: String::new() } => "anonymous clients",
            System = BindError::System(in_use) => "address in use",
            Setup = BindError::Setup(system()) => "system",
            Forked = BindError::Forked => "forked",
        });
        walk_variants!(table, ErrorCode::code, AcceptError {
            TimedOut = AcceptError::TimedOut => "timed out",
            Wait = AcceptError::Wait(system()) => "system",
            Forked = AcceptError::Forked => "forked",
        });
    }

    fn walk_files(table: &mut NumberTable) {
        let path = PathBuf::new;
        walk_variants!(table, ErrorCode::code, StorageError {
            NoDirectory = missing() => "directory not opened",
            DirectoryNotOurs = StorageError::DirectoryNotOurs { path: path(), owner: 1, user: 2 } => "directory of another user",
            DirectoryWritable = StorageError::DirectoryWritable { path: path(), mode: 0o777 } => "directory writable",
            NotAFile = StorageError::NotAFile { path: path() } => "no regular file",
            NotOurs = StorageError::NotOurs { path: path(), owner: 1, user: 2 } => "file of another user",
            Mode = StorageError::Mode { path: path(), mode: 0o644 } => "file mode",
            File = StorageError::File { path: path(), fault: FileFault::Foreign } => "file foreign",
            Busy = StorageError::Busy { path: path(), pid: 1, since: UNIX_EPOCH } => "link busy",
            Opening = StorageError::Opening { path: path() } => "link being opened",
            NoSpace = StorageError::NoSpace { path: path(), size: 1, available: None, cause: system() } => "no space",
            Unsupported = StorageError::Unsupported { path: path(), what: "", cause: system() } => "file system unsupported",
            Sizes = StorageError::Sizes { ring: 0, entries: 0, slab: 0 } => "sizes",
            System = StorageError::System { path: path(), what: "", cause: system() } => "file system call",
            OtherBoot = StorageError::OtherBoot { path: path(), evidence: Box::default() } => "file of another boot",
            Missing = StorageError::Missing { path: path() } => "file missing",
        });
        walk_variants!(table, ErrorCode::code, RepairError {
            File = RepairError::File(missing()) => "directory not opened",
            Missing = RepairError::Missing { path: path() } => "link missing",
            Damaged = RepairError::Damaged { path: path(), words: String::new() } => "records damaged",
            NotQuarantined = RepairError::NotQuarantined { path: path() } => "not quarantined",
            Copy = RepairError::Copy { path: path(), cause: system() } => "not copied",
        });
        let (expected, actual, found) = (2, 1, 0);
        let faults = [
            (FileFault::Foreign, "file foreign"),
            (FileFault::Truncated { expected, actual }, "file truncated"),
            (FileFault::Older { version: 0 }, "file older"),
            (FileFault::Newer { version: 2 }, "file newer"),
            (FileFault::HeaderDamaged, "file header damaged"),
            (FileFault::OtherLayout { found }, "file of another layout"),
            (FileFault::TooLong { expected, actual }, "file too long"),
            (FileFault::Name { which: "" }, "file name field"),
            (FileFault::OtherLink, "file of another link"),
            (FileFault::Geometry { field: "", found }, "file geometry"),
            (FileFault::OwnerDamaged, "file owner damaged"),
            (FileFault::StateDamaged, "file state damaged"),
            (FileFault::ConsumedDamaged, "file consumed damaged"),
            (FileFault::Contradiction { what: "", found }, "file contradiction"),
        ];
        for (fault, name) in faults {
            let error = StorageError::File { path: path(), fault };
            table.check("StorageError::File", error.code(), name);
        }
    }

    #[test]
    fn every_error_has_the_number_of_the_specification() {
        let mut table = NumberTable::of_section("17 Error numbers");
        walk_messages(&mut table);
        walk_opening(&mut table);
        walk_files(&mut table);
        table.check("ConfigError", config().code(), "setting");
        table.assert_all_met(500..=699);
    }
}
