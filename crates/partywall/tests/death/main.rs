// SPDX-License-Identifier: MIT OR Apache-2.0
//! Processes that are killed at any instant. Descriptors and mappings are counted, so one test runs
//! at a time.

mod both_directions;
mod channels;
mod sessions;
