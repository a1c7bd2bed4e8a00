// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of sessions between peers that keep the rules: streams, credit, the interfaces `blocking`
//! and `tokio`, other protocols, and the end of a session.

#[cfg(feature = "tokio")]
#[path = "../support_protocol/mod.rs"]
mod support_protocol;

mod blocking;
mod byte_streams;
mod corners;
mod credit;
mod fronts_alike;
mod half_dead;
mod halves_race;
mod leaving;
mod lets_others_run;
mod model;
mod overflow_storm;
mod protocols;
mod smoke;
mod too_large;
mod unread;
#[cfg(feature = "tokio")]
mod who_closes;
