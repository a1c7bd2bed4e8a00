// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server's book: which calls run, which wait to run, which are refused (CALLS 4).
//!
//! ```text
//!   arrive ─┬─ fewer than `running_max` run ──▶ running ── finished ──▶ gone; the oldest that waits runs
//!           ├─ fewer than `waiting_max` wait ─▶ waiting ──▶ running
//!           └─ else ──────────────────────────▶ refused
//!   cancel ─▶ running: its handler is to be dropped · waiting: forgotten · unknown: tolerated
//! ```
//!
//! # Invariants
//!
//! - At most `running_max` run and `waiting_max` wait; none waits while fewer than `running_max` run.
//! - Ids rise. A call that was cancelled while running holds its place until its handler is gone.

use std::collections::{HashMap, VecDeque};

/// How the other side broke the rules of calls. The stream is reset with
/// [`VIOLATION`](super::VIOLATION); the session goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallViolation {
    /// A message has no room for a header.
    #[error(
        "a message of {len} bytes is shorter than the header of a call: is this a stream of calls?"
    )]
    Short {
        /// Its length in bytes.
        len: usize,
    },
    /// A header has an unknown kind, or something where zeros must be.
    #[error("a header of kind {kind} with id {id} is none of a call: is this a stream of calls?")]
    Header {
        /// Its kind.
        kind: u8,
        /// Its id.
        id: u64,
    },
    /// A frame that only the other role sends.
    #[error("the frame with id {id} came from the wrong side: are both sides clients, or servers?")]
    Role {
        /// Its id.
        id: u64,
    },
    /// A call whose id does not rise.
    #[error("call {id} came after call {last}: ids must rise")]
    Id {
        /// Its id.
        id: u64,
        /// The highest id before.
        last: u64,
    },
    /// An answer to a call that was never made.
    #[error("an answer to call {id} came, and {last} was the last one made")]
    UnknownId {
        /// Its id.
        id: u64,
        /// The last id that was used.
        last: u64,
    },
}

/// Calls that run, each with `H` (what ends its handler), and calls that wait, each with `C`.
#[derive(Debug)]
pub(crate) struct Serving<C, H> {
    running_max: usize,
    waiting_max: usize,
    last: u64,
    running: HashMap<u64, Option<H>>,
    waiting: VecDeque<(u64, C)>,
}

/// What to do with a call that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived<C> {
    /// Run it, then say `started`.
    Run(C),
    /// It waits for its turn.
    Waits,
    /// There are too many.
    Refused(C),
}

impl<C, H> Serving<C, H> {
    /// At least one call can run.
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running_max: running_max.max(1),
            waiting_max,
            last: 0,
            running: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// A call arrived.
    pub(crate) fn arrive(&mut self, id: u64, call: C) -> Result<Arrived<C>, CallViolation> {
        if id <= self.last {
            return Err(CallViolation::Id { id, last: self.last });
        }
        self.last = id;
        if self.running.len() < self.running_max {
            self.running.insert(id, None);
            return Ok(Arrived::Run(call));
        }
        if self.waiting.len() < self.waiting_max {
            self.waiting.push_back((id, call));
            return Ok(Arrived::Waits);
        }
        Ok(Arrived::Refused(call))
    }

    /// A call runs; what ends it.
    pub(crate) fn started(&mut self, id: u64, handler: H) {
        if let Some(place) = self.running.get_mut(&id) {
            *place = Some(handler);
        }
    }

    /// The client wants no answer: what ends its handler, if it runs.
    pub(crate) fn cancel(&mut self, id: u64) -> Option<H> {
        if let Some(place) = self.running.get_mut(&id) {
            return place.take();
        }
        // Ids rise in the queue, too.
        if let Ok(index) = self.waiting.binary_search_by_key(&id, |(waiting, _)| *waiting) {
            self.waiting.remove(index);
        }
        None
    }

    /// A handler is gone: whether it was one of ours, and the call that runs next.
    pub(crate) fn finished(&mut self, id: u64) -> Option<(u64, C)> {
        self.running.remove(&id)?;
        let (id, call) = self.waiting.pop_front()?;
        self.running.insert(id, None);
        Some((id, call))
    }

    /// Whether nothing runs; then nothing waits either.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against two plain lists: however calls come, end and are cancelled.
        #[test]
        fn calls_run_wait_and_are_refused_as_the_limits_say(
            running_max in 1usize..4,
            waiting_max in 0usize..4,
            steps in proptest::collection::vec((0u8..4, 0u64..30), 1..300),
        ) {
            let mut book: Serving<u64, u64> = Serving::new(running_max, waiting_max);
            let (mut running, mut waiting) = (Vec::<(u64, bool)>::new(), Vec::new());
            let mut last = 0;
            for (step, pick) in steps {
                match step {
                    0 | 1 => {
                        let id = last + 1 + pick % 3;
                        last = id;
                        let arrived = book.arrive(id, id).unwrap();
                        if running.len() < running_max {
                            prop_assert_eq!(arrived, Arrived::Run(id));
                            book.started(id, id);
                            running.push((id, false));
                        } else if waiting.len() < waiting_max {
                            prop_assert_eq!(arrived, Arrived::Waits);
                            waiting.push(id);
                        } else {
                            prop_assert_eq!(arrived, Arrived::Refused(id));
                        }
                        let again = book.arrive(id, id);
                        prop_assert_eq!(again, Err(CallViolation::Id { id, last }));
                    }
                    2 => {
                        let mut expected = None;
                        if let Some(place) = running.iter_mut().find(|(id, _)| *id == pick) {
                            expected = (!place.1).then_some(pick);
                            place.1 = true;
                        }
                        waiting.retain(|id| *id != pick);
                        prop_assert_eq!(book.cancel(pick), expected);
                    }
                    _ => {
                        let was_running = running.iter().any(|(id, _)| *id == pick);
                        running.retain(|(id, _)| *id != pick);
                        let mut next = None;
                        if was_running && !waiting.is_empty() {
                            let id = waiting.remove(0);
                            next = Some((id, id));
                            running.push((id, false));
                        }
                        prop_assert_eq!(book.finished(pick), next);
                        if let Some((id, _)) = next {
                            book.started(id, id);
                        }
                    }
                }
                prop_assert_eq!(book.is_idle(), running.is_empty());
                prop_assert!(waiting.is_empty() || running.len() == running_max);
            }
        }
    }
}
