// SPDX-License-Identifier: MIT OR Apache-2.0
//! The key of one end of a link: its three names, from which the name of its file is formed.
//!
//! ```text
//!   (local, remote, link)      alice's end: (alice, bob, orders)      bob's: (bob, alice, orders)
//! ```
//! The names are never joined into one text: `("a", "bc")` and `("ab", "c")` are two keys.

use std::fmt;

use partywall_layout::link::file_name_hash;
use partywall_layout::link::header::{NAME_BYTES_MAX, NAME_FIELDS};

/// The three names of one end of a link: its own (local), its peer's (remote), and the link's.
///
/// ```
/// use partywall_link::Key;
///
/// let alice = Key::new("alice", "bob", "orders")?;
/// let bob = Key::new("bob", "alice", "orders")?;
/// assert_eq!(alice.mirrored(), bob);
/// # Ok::<(), partywall_link::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    names: [String; 3],
}

impl Key {
    /// The key of the end called `local`, of the link called `link` with the end called `remote`.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if a name is empty or longer than 255 bytes.
    pub fn new(local: &str, remote: &str, link: &str) -> Result<Self, KeyError> {
        for (name, which) in [local, remote, link].into_iter().zip(NAME_FIELDS) {
            if name.is_empty() {
                return Err(KeyError::Empty { which });
            }
            if name.len() > NAME_BYTES_MAX {
                return Err(KeyError::TooLong { which, len: name.len() });
            }
        }
        Ok(Self { names: [local, remote, link].map(str::to_owned) })
    }

    /// The name of the local end.
    pub fn local(&self) -> &str {
        &self.names[0]
    }

    /// The name of the remote end, the peer.
    pub fn remote(&self) -> &str {
        &self.names[1]
    }

    /// The name of the link.
    pub fn link(&self) -> &str {
        &self.names[2]
    }

    /// The key of the peer's end of the same link: local and remote name exchanged.
    pub fn mirrored(&self) -> Self {
        let [local, remote, link] = self.names.clone();
        Self { names: [remote, local, link] }
    }

    /// The name of the link file of this end (SPEC 13.1).
    pub fn file_name(&self) -> String {
        format!("{:016x}{FILE_NAME_END}", self.hash())
    }

    /// The hash of the three names of the link, from which the name of the link file is formed.
    pub(crate) fn hash(&self) -> u64 {
        file_name_hash(self.names())
    }

    pub(crate) fn names(&self) -> [&str; 3] {
        [self.local(), self.remote(), self.link()]
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link {:?} of {:?} with {:?}", self.link(), self.local(), self.remote())
    }
}

/// Reason why three names do not form a key, the identity of one end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A name is empty.
    #[error("the {which} name is empty: each end and the link need a name of 1 to 255 bytes")]
    Empty {
        /// The name that is empty: `local`, `remote` or `link`.
        which: &'static str,
    },
    /// A name is longer than the 255 bytes that a link file has room for.
    #[error("the {which} name has {len} bytes: choose one of at most 255")]
    TooLong {
        /// The name that is too long: `local`, `remote` or `link`.
        which: &'static str,
        /// The length in bytes of the name that is too long.
        len: usize,
    },
}

/// The suffix of the name of every link file, after 16 hexadecimal digits.
pub(crate) const FILE_NAME_END: &str = ".link";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_one_by_one() {
        let long = "x".repeat(256);
        assert_eq!(Key::new("", "b", "c"), Err(KeyError::Empty { which: "local" }));
        assert_eq!(Key::new("a", "", "c"), Err(KeyError::Empty { which: "remote" }));
        let too_long = KeyError::TooLong { which: "link", len: 256 };
        assert_eq!(Key::new("a", "b", &long), Err(too_long));
        assert!(Key::new(&long[1..], "b", "é").is_ok());
    }

    #[test]
    fn names_are_not_joined() {
        let keys = [["a", "bc", "d"], ["ab", "c", "d"], ["a", "b", "cd"], ["bc", "a", "d"]];
        let names = keys.map(|[a, b, c]| Key::new(a, b, c).unwrap().file_name());
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name) && name.len() == 21, "{name}");
        }
    }
}
