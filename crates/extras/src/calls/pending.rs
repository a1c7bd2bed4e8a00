// SPDX-License-Identifier: MIT OR Apache-2.0
//! The client's book: which calls wait for an answer (CALLS 3).
//!
//! ```text
//!   begin ─▶ waiting ── answer ──▶ gone
//!               └─ leave ─ sent before? ─ yes ─▶ CANCEL is owed
//!                                      └─ no ──▶ gone: the server never heard of it
//! ```
//!
//! # Invariants
//!
//! - Ids rise by one from 1 and never repeat; begin them in the order in which they are sent.
//! - Each waiter is handed out once: by its answer, by leaving, or at the end.

use super::serving::CallViolation;
use std::collections::HashMap;

/// Calls that wait, each with `W`: who is told.
#[derive(Debug)]
pub(crate) struct Pending<W> {
    last: u64,
    waiting: HashMap<u64, Waiting<W>>,
}

#[derive(Debug)]
struct Waiting<W> {
    waiter: W,
    was_sent: bool,
}

/// What is to be done for a call that nobody waits for any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left<W> {
    /// The server has it: tell it, and keep the waiter's place until that is done.
    Tell(W),
    /// It was answered, or never sent.
    Nothing,
}

impl<W> Pending<W> {
    pub(crate) fn new() -> Self {
        Self { last: 0, waiting: HashMap::new() }
    }

    /// The next id, for a call that nobody waits for.
    pub(crate) const fn one_way(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// A call is about to be sent; its id.
    pub(crate) fn begin(&mut self, waiter: W) -> u64 {
        let id = self.one_way();
        self.waiting.insert(id, Waiting { waiter, was_sent: false });
        id
    }

    /// It was sent.
    pub(crate) fn sent(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.was_sent = true;
        }
    }

    /// An answer came: who waits for it. Nobody, if it was cancelled or answered before: that is
    /// tolerated. An id that was never used is not.
    pub(crate) fn answered(&mut self, id: u64) -> Result<Option<W>, CallViolation> {
        if id > self.last {
            return Err(CallViolation::UnknownId { id, last: self.last });
        }
        Ok(self.waiting.remove(&id).map(|waiting| waiting.waiter))
    }

    /// Nobody waits for this call any more.
    pub(crate) fn leave(&mut self, id: u64) -> Left<W> {
        match self.waiting.remove(&id) {
            Some(Waiting { waiter, was_sent: true }) => Left::Tell(waiter),
            _ => Left::Nothing,
        }
    }

    /// No answers will come: everybody who waits.
    pub(crate) fn end(&mut self) -> Vec<W> {
        self.waiting.drain().map(|(_, waiting)| waiting.waiter).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Against a plain map: whatever order calls are sent, answered and left in.
        #[test]
        fn each_waiter_is_told_once(
            steps in proptest::collection::vec((0u8..6, 0u64..40), 1..300),
        ) {
            let mut book = Pending::new();
            let mut model: BTreeMap<u64, bool> = BTreeMap::new();
            let mut last = 0;
            for (step, pick) in steps {
                match step {
                    0 => {
                        last += 1;
                        prop_assert_eq!(book.begin(last), last);
                        model.insert(last, false);
                    }
                    1 => {
                        last += 1;
                        prop_assert_eq!(book.one_way(), last);
                    }
                    2 => {
                        book.sent(pick);
                        if let Some(was_sent) = model.get_mut(&pick) {
                            *was_sent = true;
                        }
                    }
                    3 if pick > last => {
                        prop_assert_eq!(
                            book.answered(pick),
                            Err(CallViolation::UnknownId { id: pick, last })
                        );
                    }
                    3 => {
                        let expected = model.remove(&pick).map(|_| pick);
                        prop_assert_eq!(book.answered(pick), Ok(expected));
                    }
                    _ => {
                        let expected = match model.remove(&pick) {
                            Some(true) => Left::Tell(pick),
                            _ => Left::Nothing,
                        };
                        prop_assert_eq!(book.leave(pick), expected);
                    }
                }
            }
            let mut rest = book.end();
            rest.sort_unstable();
            prop_assert_eq!(rest, model.into_keys().collect::<Vec<_>>());
            prop_assert!(book.end().is_empty());
        }
    }
}
