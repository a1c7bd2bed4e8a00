// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of reconciling, for any views and moves of two sides.

mod admission;
mod any_moves;
mod any_views;
mod decision_vectors;
