// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rings, slab and parking against forged words, misuse and random operations.
#![cfg(not(loom))]

#[path = "../one_way/mod.rs"]
mod one_way;

mod copies;
mod forged_words;
mod misuse_panics;
mod one_ring_per_epoch;
mod prop_hostile;
mod prop_ring;
mod prop_slab;
mod released_twice;
mod resumed;
mod ring_order;
