// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of rings, slab and parking: forged words of the peer, misuse by the caller, and random
//! operations.
#![cfg(not(loom))]

#[path = "../one_way/mod.rs"]
mod one_way;

mod copy;
mod double_release;
mod forged_words;
mod misuse;
mod prop_hostile;
mod prop_ring;
mod prop_slab;
mod resume;
mod ring_order;
mod sleep_epochs;
