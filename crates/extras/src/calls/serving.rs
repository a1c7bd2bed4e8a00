// SPDX-License-Identifier: MIT OR Apache-2.0
//! The calls that a server has received: it runs some, keeps some waiting, and refuses the others
//! (`spec/CALLS.md`, section 4).
//!
//! ```text
//!   arrive ─┬─ fewer than `running_max` run ──▶ running ── finished ──▶ removed; the next runs
//!           ├─ fewer than `waiting_max` wait ─▶ waiting ──▶ running
//!           └─ else ──────────────────────────▶ refused
//!   cancel ─▶ running call: handler dropped · waiting call: removed · unknown id: ignored
//! ```
//!
//! # Invariants
//!
//! - At most `running_max` calls run and `waiting_max` wait. No call waits while fewer than
//!   `running_max` run.
//! - The ids of calls rise. A running call that was cancelled keeps its place until its handler has
//!   ended.

use std::collections::{HashMap, VecDeque};

/// A violation of the call protocol by the peer. This side resets the stream with
/// [`VIOLATION`](super::VIOLATION); the session continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallViolation {
    /// A message is shorter than a header.
    #[error(
        "a message of {len} bytes is shorter than the header of a call: is this a stream of calls?"
    )]
    Short {
        /// Length in bytes of the message that is too short.
        len: usize,
    },
    /// A header has an unknown kind, or a reserved field is not 0.
    #[error("invalid call header (kind {kind}, id {id}): is this a stream of calls?")]
    Header {
        /// The kind of the message according to its header.
        kind: u8,
        /// The id of the call according to the header.
        id: u64,
    },
    /// The peer sent a message of a kind that only a side with the role of this side, client or
    /// server, may send. So both sides are clients, or both are servers.
    #[error(
        "the frame with id {id} is not allowed from the peer: are both sides clients, or servers?"
    )]
    Role {
        /// The id of the call according to the header of that message.
        id: u64,
    },
    /// A call has an id that is not higher than the id of the call before.
    #[error("call {id} came after call {last}: ids must rise")]
    Id {
        /// The id of the call according to its header.
        id: u64,
        /// Highest id of the calls that arrived before.
        last: u64,
    },
    /// An answer arrived for a call that was never made.
    #[error("an answer to call {id} came, and {last} was the last one made")]
    UnknownId {
        /// The id of the call according to the answer's header.
        id: u64,
        /// Highest id that the client has used.
        last: u64,
    },
}

/// The running calls, each with a handle `H` that ends its handler, and the waiting calls, each
/// with its data `C`.
#[derive(Debug)]
pub(crate) struct Serving<C, H> {
    running_max: usize,
    waiting_max: usize,
    last: u64,
    running: HashMap<u64, Option<H>>,
    waiting: VecDeque<(u64, C)>,
}

/// What the server has to do with a call that arrived.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Arrived<C> {
    /// The server has to run the handler of the call, and then to report that by `started`.
    Run(C),
    /// The server does nothing yet: the call waits until a running call ends.
    Waits,
    /// The server has to refuse the call: too many calls run and wait already.
    Refused(C),
}

impl<C, H> Serving<C, H> {
    /// Makes the state of a server that has received no calls. At least one call can run, even if
    /// `running_max` is 0.
    pub(crate) fn new(running_max: usize, waiting_max: usize) -> Self {
        Self {
            running_max: running_max.max(1),
            waiting_max,
            last: 0,
            running: HashMap::new(),
            waiting: VecDeque::new(),
        }
    }

    /// Adds a call that arrived. Returns what the server has to do with the call.
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

    /// Stores the handle that ends the handler of a running call.
    pub(crate) fn started(&mut self, id: u64, handler: H) {
        if let Some(place) = self.running.get_mut(&id) {
            *place = Some(handler);
        }
    }

    /// Cancels a call. If the call was running, returns the handle that ends its handler.
    pub(crate) fn cancel(&mut self, id: u64) -> Option<H> {
        if let Some(place) = self.running.get_mut(&id) {
            return place.take();
        }
        // Calls enter the queue of waiting calls in the order of rising ids, so the queue is sorted
        // by id.
        if let Ok(index) = self.waiting.binary_search_by_key(&id, |(waiting, _)| *waiting) {
            self.waiting.remove(index);
        }
        None
    }

    /// Removes a call whose handler has ended. Returns the waiting call that runs next.
    pub(crate) fn finished(&mut self, id: u64) -> Option<(u64, C)> {
        self.running.remove(&id)?;
        let (id, call) = self.waiting.pop_front()?;
        self.running.insert(id, None);
        Some((id, call))
    }

    /// Whether no call runs. A call waits only while other calls run, so an idle server has no
    /// waiting calls either.
    pub(crate) fn is_idle(&self) -> bool {
        self.running.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Rule: the server's state `Serving` agrees with two plain lists, of running and of
        /// waiting calls, whatever the order in which calls arrive, end and are cancelled.
        #[test]
        fn limits_decide_whether_call_runs_waits_or_is_refused(
            running_max in 1usize..4,
            waiting_max in 0usize..4,
            steps in proptest::collection::vec((0u8..4, 0u64..30), 1..300),
        ) {
            let mut serving: Serving<u64, u64> = Serving::new(running_max, waiting_max);
            let (mut running, mut waiting) = (Vec::<(u64, bool)>::new(), Vec::new());
            let mut last = 0;
            for (step, pick) in steps {
                match step {
                    0 | 1 => {
                        let id = last + 1 + pick % 3;
                        last = id;
                        let arrived = serving.arrive(id, id).unwrap();
                        if running.len() < running_max {
                            prop_assert_eq!(arrived, Arrived::Run(id));
                            serving.started(id, id);
                            running.push((id, false));
                        } else if waiting.len() < waiting_max {
                            prop_assert_eq!(arrived, Arrived::Waits);
                            waiting.push(id);
                        } else {
                            prop_assert_eq!(arrived, Arrived::Refused(id));
                        }
                        let again = serving.arrive(id, id);
                        prop_assert_eq!(again, Err(CallViolation::Id { id, last }));
                    }
                    2 => {
                        let mut expected = None;
                        if let Some(place) = running.iter_mut().find(|(id, _)| *id == pick) {
                            expected = (!place.1).then_some(pick);
                            place.1 = true;
                        }
                        waiting.retain(|id| *id != pick);
                        prop_assert_eq!(serving.cancel(pick), expected);
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
                        prop_assert_eq!(serving.finished(pick), next);
                        if let Some((id, _)) = next {
                            serving.started(id, id);
                        }
                    }
                }
                prop_assert_eq!(serving.is_idle(), running.is_empty());
                prop_assert!(waiting.is_empty() || running.len() == running_max);
            }
        }
    }
}
