// SPDX-License-Identifier: MIT OR Apache-2.0
//! The table of a client's calls that wait for an answer, by call id (`spec/CALLS.md`, section 3).
//!
//! ```text
//!   begin ─▶ waiting ── answer ──▶ removed
//!               └─ leave ─ was the call sent? ─ yes ─▶ CANCEL is pending
//!                                          └─ no ──▶ removed: the server never received the call
//! ```
//!
//! # Invariants
//!
//! - Call ids rise by one from 1 and never repeat. Calls are added in the order in which they are
//!   sent.
//! - Each waiter, the value by which the answer reaches its call, is returned exactly once: when
//!   the call is answered, when the call is dropped, or when the stream ends.

use super::serving::CallViolation;
use std::collections::HashMap;

/// The calls that wait for an answer, each with a waiter `W` that will get the answer.
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

/// What the client has to do for a dropped call.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Left<W> {
    /// The call was sent and has no answer yet. The client has to send the message CANCEL, and to
    /// keep the call's slot in its limit of calls in flight until that message is sent.
    Cancel(W),
    /// The client has nothing to send: the call was answered, or never sent.
    Nothing,
}

impl<W> Pending<W> {
    pub(crate) fn new() -> Self {
        Self { last: 0, waiting: HashMap::new() }
    }

    /// Returns the next call id, for a one-way call. Such a call has no answer, so it is not added
    /// to the table.
    pub(crate) const fn one_way(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a call that is about to be sent, with the waiter that will get its answer. Returns the
    /// id of the new call.
    pub(crate) fn begin(&mut self, waiter: W) -> u64 {
        let id = self.one_way();
        self.waiting.insert(id, Waiting { waiter, was_sent: false });
        id
    }

    /// Records that the client has sent the call, so that dropping the call makes the client send
    /// the message CANCEL.
    pub(crate) fn sent(&mut self, id: u64) {
        if let Some(waiting) = self.waiting.get_mut(&id) {
            waiting.was_sent = true;
        }
    }

    /// Returns the waiter of an answered call. Returns `None` if the call was already cancelled or
    /// answered, which is allowed. An id that was never used is a violation.
    pub(crate) fn answered(&mut self, id: u64) -> Result<Option<W>, CallViolation> {
        if id > self.last {
            return Err(CallViolation::UnknownId { id, last: self.last });
        }
        Ok(self.waiting.remove(&id).map(|waiting| waiting.waiter))
    }

    /// Removes a call whose future was dropped. Returns whether the client has to send the message
    /// CANCEL.
    pub(crate) fn leave(&mut self, id: u64) -> Left<W> {
        match self.waiting.remove(&id) {
            Some(Waiting { waiter, was_sent: true }) => Left::Cancel(waiter),
            _ => Left::Nothing,
        }
    }

    /// Removes all calls and returns their waiters, so that the client can make them fail: no more
    /// answers will arrive.
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
        /// Rule: the table `Pending` agrees with a plain map of calls, for calls that are sent,
        /// answered and dropped in any order.
        #[test]
        fn each_waiter_is_returned_once(
            steps in proptest::collection::vec((0u8..6, 0u64..40), 1..300),
        ) {
            let mut pending = Pending::new();
            let mut model: BTreeMap<u64, bool> = BTreeMap::new();
            let mut last = 0;
            for (step, pick) in steps {
                match step {
                    0 => {
                        last += 1;
                        prop_assert_eq!(pending.begin(last), last);
                        model.insert(last, false);
                    }
                    1 => {
                        last += 1;
                        prop_assert_eq!(pending.one_way(), last);
                    }
                    2 => {
                        pending.sent(pick);
                        if let Some(was_sent) = model.get_mut(&pick) {
                            *was_sent = true;
                        }
                    }
                    3 if pick > last => {
                        prop_assert_eq!(
                            pending.answered(pick),
                            Err(CallViolation::UnknownId { id: pick, last })
                        );
                    }
                    3 => {
                        let expected = model.remove(&pick).map(|_| pick);
                        prop_assert_eq!(pending.answered(pick), Ok(expected));
                    }
                    _ => {
                        let expected = match model.remove(&pick) {
                            Some(true) => Left::Cancel(pick),
                            _ => Left::Nothing,
                        };
                        prop_assert_eq!(pending.leave(pick), expected);
                    }
                }
            }
            let mut rest = pending.end();
            rest.sort_unstable();
            prop_assert_eq!(rest, model.into_keys().collect::<Vec<_>>());
            prop_assert!(pending.end().is_empty());
        }
    }
}
