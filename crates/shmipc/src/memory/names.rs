// SPDX-License-Identifier: MIT OR Apache-2.0
//! Names of regions, and the paths of their files.
//!
//! ```text
//!   /dev/shm/shmipc _ 9f3c… _ 4242 [_epoch_7_123] _buffer           one for all sessions of a pool
//!                                                 _queue_0          one for each session
//!   └─ prefix ────┘   │       │      └ after a hot restart
//!      chosen       token    pid
//! ```
//!
//! Other implementations use the same names without the token, and their servers look regions up by
//! name. Two clients with one name, in two containers for example, would then write into one
//! region. So each naming draws a random token, and no name equals that of another process, dead or
//! alive.
//!
//! This module creates no files and checks no names that a client sent; `handshake/` and `memory/`
//! do.

use std::hash::{BuildHasher, RandomState};
use std::time::SystemTime;

/// Names of the regions of one pool.
///
/// ```
/// use partywall_shmipc::wire::Naming;
///
/// let naming = Naming::plain("/dev/shm/shmipc", 4242)?;
/// assert_eq!(naming.names(0).buffer, "/dev/shm/shmipc_4242_buffer");
/// assert_eq!(naming.names(3).queue, "/dev/shm/shmipc_4242_queue_3");
/// # Ok::<(), partywall_shmipc::wire::NameError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The start of the names of all regions of the pool: the chosen prefix with token and process
    /// id.
    prefix: String,
    /// The part that a hot restart adds to the name of each region; empty before the first hot
    /// restart.
    epoch: String,
}

/// Names of the regions of one session: paths of files, or plain names of memfds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Name of the session's queue region.
    pub queue: String,
    /// Name of the session's buffer region.
    pub buffer: String,
}

impl Naming {
    /// Makes a generator of names of regions that start with this prefix, and that no other process
    /// or pool uses.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`NameError`].
    pub fn unique(prefix: &str) -> Result<Self, NameError> {
        Self::checked(prefix, &format!("_{:016x}_{}", token(), std::process::id()))
    }

    /// Makes a generator of names of regions as other implementations name them, without a random
    /// token. `process` is the process id in the names.
    ///
    /// # Errors
    /// Fails for one of the reasons in [`NameError`].
    pub fn plain(prefix: &str, process: u32) -> Result<Self, NameError> {
        Self::checked(prefix, &format!("_{process}"))
    }

    fn checked(prefix: &str, added: &str) -> Result<Self, NameError> {
        if prefix.is_empty() || prefix.ends_with('/') {
            return Err(NameError::Empty { prefix: prefix.into() });
        }
        if prefix.contains('\0') {
            return Err(NameError::Zero);
        }
        let prefix = format!("{prefix}{added}");
        if prefix.len() > PREFIX_BYTES_MAX {
            return Err(NameError::TooLong { bytes: prefix.len(), prefix });
        }
        Ok(Self { prefix, epoch: String::new() })
    }

    /// Returns the generator of the names of regions that the pool uses after the hot restart with
    /// this epoch. Epoch 0 adds nothing, as in other implementations.
    #[must_use]
    pub fn in_epoch(&self, epoch: u64) -> Self {
        let epoch = match epoch {
            0 => String::new(),
            epoch => format!("_epoch_{epoch}_{}", token()),
        };
        Self { prefix: self.prefix.clone(), epoch }
    }

    /// Names of the regions of the session with this index. All sessions have the same buffers.
    #[must_use]
    pub fn names(&self, session_index: u64) -> Names {
        let Self { prefix, epoch } = self;
        Names {
            queue: format!("{prefix}{epoch}_queue_{session_index}"),
            buffer: format!("{prefix}{epoch}_buffer"),
        }
    }
}

/// Returns the process id in `name` if [`Naming::unique`] made the name with `prefix`. Prefix and
/// name are file names without a directory.
pub(crate) fn maker(prefix: &str, name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(prefix)?.strip_prefix('_')?.split('_');
    let (token, process, last) = (parts.next()?, parts.next()?, parts.find(|part| is_end(part))?);
    let is_token = token.len() == 16 && token.bytes().all(|byte| byte.is_ascii_hexdigit());
    let rest: Vec<&str> = parts.collect();
    let is_name = match last {
        "buffer" => rest.is_empty(),
        _ => rest.len() == 1 && rest[0].bytes().all(|byte| byte.is_ascii_digit()),
    };
    (is_token && is_name).then(|| process.parse().ok())?
}

fn is_end(part: &str) -> bool {
    matches!(part, "buffer" | "queue")
}

/// Why a prefix cannot begin the names of regions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameError {
    /// The prefix contains no file name, only a directory.
    #[error("`{prefix}` names no file: choose a share_memory_path_prefix like /dev/shm/shmipc")]
    Empty {
        /// The refused prefix.
        prefix: String,
    },
    /// The prefix contains a zero byte, which ends a path.
    #[error("share_memory_path_prefix contains a zero")]
    Zero,
    /// The prefix is too long: with the part that a hot restart adds, names would exceed the length
    /// of a file name.
    #[error(
        "with token and process, `{prefix}` has {bytes} bytes, and at most {PREFIX_BYTES_MAX} leave room for the rest: \
         choose a shorter share_memory_path_prefix"
    )]
    TooLong {
        /// The refused prefix.
        prefix: String,
        /// Length in bytes of the refused prefix, with the token and process id that follow it.
        bytes: usize,
    },
}

/// A random number that differs between any two [`Naming`]s, of one process or of two.
fn token() -> u64 {
    // The token is a hash of process id and time, with the random keys of a new `RandomState`. The
    // keys differ between any two `RandomState`s, except that a forked process repeats its parent's
    // keys; but its process id differs.
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    RandomState::new().hash_one((std::process::id(), time.as_nanos()))
}

/// Length in bytes of the longest prefix, with token, process id and directory. Of the 255 bytes of
/// a file name, other implementations reserve 48 for the epoch and 27 for the queue's number.
pub const PREFIX_BYTES_MAX: usize = 255 - EPOCH_BYTES_MAX - QUEUE_BYTES_MAX;
/// Length in bytes of the longest part that a hot restart adds to a name: `_epoch_`, 20 digits, `_`
/// and 20 digits.
const EPOCH_BYTES_MAX: usize = 48;
/// Length in bytes of the longest end of a queue's name: `_queue_` and 20 digits.
const QUEUE_BYTES_MAX: usize = 27;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_peers_make_them() {
        let naming = Naming::plain("/dev/shm/shmipc", 4242).unwrap();
        let names = naming.names(7);
        assert_eq!(names.queue, "/dev/shm/shmipc_4242_queue_7");
        assert_eq!(names.buffer, "/dev/shm/shmipc_4242_buffer");
        assert_eq!(naming.in_epoch(0), naming);
    }

    #[test]
    fn an_epoch_adds_itself_and_a_number_that_was_drawn() {
        let naming = Naming::plain("/dev/shm/shmipc", 4242).unwrap();
        let name = naming.in_epoch(9).names(0).buffer;
        let drawn = name.strip_prefix("/dev/shm/shmipc_4242_epoch_9_").unwrap();
        drawn.strip_suffix("_buffer").unwrap().parse::<u64>().unwrap();
        assert_ne!(naming.in_epoch(9), naming.in_epoch(9));
    }

    #[test]
    fn unique_names_are_all_different() {
        let naming = Naming::unique("/dev/shm/shmipc").unwrap();
        assert_ne!(naming, Naming::unique("/dev/shm/shmipc").unwrap());
        let buffer = naming.names(0).buffer;
        let token = buffer.strip_prefix("/dev/shm/shmipc_").unwrap();
        let token = token.strip_suffix(&format!("_{}_buffer", std::process::id())).unwrap();
        assert_eq!(token.len(), 16);
        u64::from_str_radix(token, 16).unwrap();
    }

    #[test]
    fn the_longest_prefix_leaves_room_for_all_that_is_added() {
        assert_eq!(PREFIX_BYTES_MAX, 180);
        let naming = Naming::plain(&"x".repeat(178), 1).unwrap();
        assert!(naming.in_epoch(u64::MAX).names(u64::MAX).queue.len() <= 255);
        let error = Naming::plain(&"x".repeat(179), 1).unwrap_err().to_string();
        assert!(error.ends_with(
            "_1` has 181 bytes, and at most 180 leave room for the rest: choose a shorter share_memory_path_prefix"
        ));
    }

    #[test]
    fn a_name_of_ours_tells_who_made_it_and_no_other_does() {
        let own = Naming::unique("shmipc").unwrap();
        for names in [own.names(0), own.names(77), own.in_epoch(9).names(3)] {
            assert_eq!(maker("shmipc", &names.queue), Some(std::process::id()));
            assert_eq!(maker("shmipc", &names.buffer), Some(std::process::id()));
            assert_eq!(maker("shm", &names.buffer), None);
        }
        for name in ["shmipc_4242_buffer", "shmipc_4242_queue_0", "shmipc", "shmipc_"] {
            assert_eq!(maker("shmipc", name), None, "{name}");
        }
        let token = "shmipc_0123456789abcdef";
        for rest in ["_1", "_1_buffer_2", "_1_queue", "_1_queue_x", "_x_buffer", "_1_other"] {
            assert_eq!(maker("shmipc", &format!("{token}{rest}")), None, "{rest}");
        }
    }

    #[test]
    fn a_prefix_that_names_nothing_is_refused() {
        for prefix in ["", "/dev/shm/", "/"] {
            let expected = NameError::Empty { prefix: prefix.into() };
            assert_eq!(Naming::unique(prefix), Err(expected.clone()));
            assert_eq!(Naming::plain(prefix, 1), Err(expected));
        }
        assert_eq!(Naming::plain("a\0b", 1), Err(NameError::Zero));
    }
}
