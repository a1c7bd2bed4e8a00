// SPDX-License-Identifier: MIT OR Apache-2.0
//! What two ends agree on, for any views and moves of both.

mod admission;
mod any_moves;
mod any_views;
