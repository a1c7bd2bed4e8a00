// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of links: what a named stream of messages leaves behind when its process is killed.
//!
//! ```text
//!  directory (ours, for us alone)
//!   ├─ 3f2a…c1.link    alice ▶ bob, orders     ◀── alice's process writes it, alone      key.rs       three names
//!   └─ 90be…07.link    bob ▶ alice, orders     ◀── bob's                                 directory.rs where
//!                                                                                        file.rs      made whole, opened, cut into parts
//!        header │ owner │ state │ control │ ring │ release ring │ slab    (SPEC 13)      owner.rs     one at a time
//!                                                                                        state.rs     images that replace each other whole
//!                                                                                        inspect.rs   to look without touching
//! ```
//!
//! Each end of a link owns one file. It survives that either process, or both, are killed at any instant; it does not
//! survive that the machine loses power. What the two ends say to each other is not here yet.
//!
//! Public are the [`LinkKey`] and what it takes to look into files: [`inspect()`], [`inspect_link`].
//!
//! # Invariants
//!
//! - A file has one owner at a time, in whatever process. Only proof of death takes it from one that has not left.
//! - What is refused is not changed, by not a single byte.

mod directory;
mod error;
#[doc(hidden)] // what a link will be made of; not for users
pub mod file;
mod inspect;
mod key;
mod owner;
#[doc(hidden)] // as above
pub mod state;

pub use directory::LinkDirectory;
pub use error::LinkError;
pub use inspect::{
    Found, LinkFacts, LinkPrevious, LinkReport, LinkSizes, Owner, OwnerStatus, inspect,
    inspect_link,
};
pub use key::{KeyError, LinkKey};
pub use partywall_layout::link::FileFault;
