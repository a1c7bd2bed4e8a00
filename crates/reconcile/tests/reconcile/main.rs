// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of reconciling: how the two sides of a link agree where its streams resume after a
//! disconnect, for any states of both.

mod admission;
mod any_moves;
mod any_views;
mod decision_vectors;
