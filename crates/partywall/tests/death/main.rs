// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with processes that are killed or stopped. They count descriptors and mappings, so one
//! test runs at a time.

mod both_directions;
mod channels;
mod sessions;
mod stopped_moves;
