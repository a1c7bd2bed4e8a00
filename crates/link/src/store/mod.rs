// SPDX-License-Identifier: MIT OR Apache-2.0
//! The store of one end of a link: the file or memory that outlives its connections (SPEC 13).
//!
//! ```text
//!  directory.rs  where the files are            inspect.rs  looks into a file and changes nothing
//!  key.rs        the three names of an end      repair.rs   an operator adopts or resets a file
//!  file.rs       our own file: created, checked, owned, mapped, cut into parts
//!  owner.rs      one owner at a time
//!  slots.rs      images that replace each other whole: the state, and how far was consumed
//!  durable.rs    the state in the terms of `partywall_reconcile`
//! ```

mod directory;
pub(crate) mod durable;
mod error;
pub(crate) mod file;
mod inspect;
mod key;
pub(crate) mod owner;
mod repair;
pub(crate) mod slots;

pub use directory::Directory;
pub use durable::{DurableState, Quarantine};
pub use error::StorageError;
pub use file::{FileHandle, OwnFile, Sizes};
pub use inspect::{
    Found, Inspection, MemorySizes, Owner, OwnerStatus, PreviousStream, QuarantineSnapshot,
    ReportSnapshot, inspect, inspect_link,
};
pub use key::{Key, KeyError};
pub use repair::{Adopted, RepairError, Reset, adopt, reset};
pub use slots::{ConsumedSlots, StateSlots};
