// SPDX-License-Identifier: MIT OR Apache-2.0
//! What shared memory says that cannot be.

use std::fmt;

/// Shared memory holds what no peer that keeps the rules writes. Whoever meets it ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage {
    what: &'static str,
    found: u64,
}

impl Damage {
    /// `what` is wrong, a whole phrase; `found` is the number that shows it.
    #[cold]
    pub(crate) fn new(what: &'static str, found: impl Into<u64>) -> Self {
        Self { what, found: found.into() }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (found {} = {:#x})", self.what, self.found, self.found)
    }
}

impl std::error::Error for Damage {}
