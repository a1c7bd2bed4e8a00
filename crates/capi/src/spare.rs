// SPDX-License-Identifier: MIT OR Apache-2.0
//! Spare slots: each thread keeps one vacant slot of the table of handles for each type of object.
//! So a thread that makes and frees an object in turn does not lock the table.
//!
//! ```text
//!   insert ◀─ take ─ spare of this thread ◀─ give ─ remove
//!                       │ empty: from the table      │ taken already: back to the table
//!                       └─ end of the thread ────────┘
//! ```

use crate::table::Object;
use std::cell::Cell;

/// Returns the index of a vacant slot: the calling thread's spare slot, or another one of the table
/// of handles. `None` if the table can hold no more objects of the type.
#[inline]
pub(crate) fn take<O: Object>() -> Option<u32> {
    let spare = SPARES.try_with(|spares| spares.of::<O>().and_then(Cell::take));
    match spare {
        Ok(Some(spare)) => Some(spare.index),
        _ => O::table().take_vacant(),
    }
}

/// Keeps a slot of the table of handles, which has become vacant, as the calling thread's spare.
/// Gives the slot back to the table if the thread has a spare slot already, or is ending.
#[inline]
pub(crate) fn give<O: Object>(index: u32) {
    let is_kept = SPARES.try_with(|spares| match spares.of::<O>() {
        Some(place) if place.get().is_none() => {
            place.set(Some(Spare { index, give_back: give_back::<O> }));
            true
        }
        _ => false,
    });
    if !is_kept.unwrap_or(false) {
        give_back::<O>(index);
    }
}

fn give_back<O: Object>(index: u32) {
    O::table().give_vacant(index);
}

thread_local! {
    static SPARES: Spares = const { Spares { places: [const { Cell::new(None) }; KINDS_MAX] } };
}

/// The spare slots of a thread: vacant slots of the tables of handles, at most one for each type of
/// object. The index is the type's number, `Object::KIND`.
struct Spares {
    places: [Cell<Option<Spare>>; KINDS_MAX],
}

#[derive(Clone, Copy)]
struct Spare {
    index: u32,
    give_back: fn(u32),
}

impl Spares {
    #[inline]
    fn of<O: Object>(&self) -> Option<&Cell<Option<Spare>>> {
        self.places.get(usize::from(O::KIND))
    }
}

impl Drop for Spares {
    fn drop(&mut self) {
        for spare in self.places.iter().filter_map(Cell::take) {
            (spare.give_back)(spare.index);
        }
    }
}

/// The length of a thread's array of spare slots: more than the largest `Object::KIND`. A type with
/// a larger number would have no spare slots.
const KINDS_MAX: usize = 32;
