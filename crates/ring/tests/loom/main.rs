// SPDX-License-Identifier: MIT OR Apache-2.0
//! Models that check the memory orders of ring, slab, parking, lanes, biased lock and mutex, in
//! every interleaving within the stated bounds.
#![cfg(loom)]

#[path = "../model/mod.rs"]
mod model;
#[path = "../one_way/mod.rs"]
mod one_way;

mod bias;
mod lane;
mod mutex_word;
mod parking;
mod release;
mod ring;
