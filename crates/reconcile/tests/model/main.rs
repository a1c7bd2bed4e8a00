// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of links: its explorations try all events in every order, up to a maximum number of
//! each kind of event (SPEC 12).
//!
//! ```text
//!  bounds.rs      the limits of an exploration, and the safeguard that it leaves out
//!  file.rs        the state that survives a process, and the updates that change it
//!  world.rs       two sides, and the network between them
//!  handshake.rs   ATTACH, ATTACHED, CONFIRM, BEGIN
//!  traffic.rs     records, acknowledgements, refusals
//!  steps.rs       everything that can happen next: sends, cuts, crashes, lost files …
//!  invariants.rs  what holds in each state, and after a run without faults from each state
//!  safe.rs        explorations with all safeguards: no invariant breaks
//!  safeguards.rs  explorations without one safeguard: the named invariant breaks
//! ```
//!
//! The crate's own functions make all decisions. Each record is one position long. Layouts, batches
//! and growth are not modelled, nor more faults of a kind than the bounds allow.
//!
//! The table gives the bounds of each exploration, as far as they differ from `Bounds::PLAIN`. In
//! those bounds the client sends 2 messages and the server 1 (2 + 1), each side keeps at most 2
//! unacknowledged records (its window), and the client makes 2 connections. Two entries with a
//! semicolon are two explorations.
//!
//! | exploration | bounds that differ | states |
//! |---|---|---|
//! | cuts | 1 cut | 59,773 |
//! | full window | 3 + 0 messages, window 1, 3 connections, 1 cut | 1,274 |
//! | crashes | 1 crash of each side | 102,692 |
//! | replies | 2 + 0 messages, 2 replies, trimming as a step, 1 crash of each side | 110,733 |
//! | epochs | 1 + 1 messages, 3 connections, 1 epoch of each side | 80,867 |
//! | epoch and crash | 1 + 1 messages, 1 epoch of the server, 1 crash of the client | 16,590 |
//! | lost file | the client's file is lost; the server's file is lost | 71,172; 18,684 |
//! | lost file, epoch | 1 + 1 messages, the client's file is lost, 1 epoch of the server | 33,715 |
//! | older file | older copy of the client's file; of the server's file | 356,242; 89,225 |
//! | older file, fenced | 1 + 0 messages, older copy and 3 crashes of the client | 64,969 |
//! | lost, older file | 2 + 0 messages, 3 connections, client's lost, server's older | 161,158 |
//! | replay | 1 + 0 messages, 1 replayed connection, 1 cut, 1 crash of the server | 27,985 |
//! | switch | 1 + 1 messages, from shared memory to socket, 1 cut | 40,579 |
//! | switch and crash | from shared memory to socket, 1 crash of the client | 190,428 |
//!
//! The explorations have 1,426,086 states together. `PARTYWALL_MODEL=large` explores larger bounds,
//! which takes minutes and gigabytes. The large explorations that were run to the end have the
//! following numbers of states: full window 20,878, crashes 1,709,172, epoch and crash 1,968,220.
//! A lost file has 3,674,766 (the client's) and 566,011 (the server's), a lost file and epoch
//! 1,567,888, the server's older file 275,111.
//!
//! ```sh
//! PARTYWALL_MODEL=large cargo test -p partywall-reconcile --test model safe -- \
//!     --nocapture --test-threads 1
//! ```
#![forbid(unsafe_code)]

mod bounds;
mod file;
mod handshake;
mod invariants;
mod safe;
mod safeguards;
mod steps;
mod traffic;
mod world;

use stateright::{Checker, HasDiscoveries, Model, Property};

use bounds::Bounds;
use invariants::{Invariant, judge};
use steps::Step;
use world::World;

/// An exploration of all states (worlds) of the model within the bounds. It searches for a state
/// for which the function returns true or, without a function, for a broken invariant.
pub(crate) struct Explored(pub Bounds, Option<fn(&World) -> bool>);

impl Model for Explored {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(&self.0)]
    }

    fn actions(&self, state: &World, actions: &mut Vec<Step>) {
        state.steps(&self.0, actions);
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        world.take(step, &self.0);
        (world != *last).then_some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if self.1.is_some() {
            return vec![Property::sometimes(REACHED, |model: &Self, state| {
                model.1.is_some_and(|sought| sought(state))
            })];
        }
        vec![Property::always(HOLDS, |model, state| judge(state, &model.0).is_none())]
    }
}

const HOLDS: &str = "I1 to I6, I10, I11, I13, I15, I16";

pub(crate) struct Verdict {
    pub states: usize,
    pub depth: usize,
    /// The broken invariant, and the steps that lead to it.
    pub broken: Option<(Invariant, Vec<Step>)>,
}

/// Explores all states of the model within `bounds`, until an invariant breaks.
pub(crate) fn explore(bounds: Bounds) -> Verdict {
    let checker = Explored(bounds, None)
        .checker()
        .threads(THREADS)
        .finish_when(HasDiscoveries::Any)
        .spawn_bfs()
        .join();
    let broken = checker.discovery(HOLDS).map(|path| {
        let invariant = judge(path.last_state(), &bounds).unwrap();
        (invariant, path.into_actions())
    });
    Verdict { states: checker.unique_state_count(), depth: checker.max_depth(), broken }
}

/// Whether the model has a state within `bounds` for which `sought` returns true.
pub(crate) fn reaches(bounds: Bounds, sought: fn(&World) -> bool) -> bool {
    let checker = Explored(bounds, Some(sought)).checker().threads(THREADS);
    checker.finish_when(HasDiscoveries::Any).spawn_bfs().join().discovery(REACHED).is_some()
}

const REACHED: &str = "reached";

/// Number of threads of one exploration: 1, because the tests already run in parallel.
const THREADS: usize = 1;
