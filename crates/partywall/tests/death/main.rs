// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests in which a process is killed or stopped. The tests count descriptors and mappings, so only
//! one of them runs at a time.

mod both_directions;
mod channels;
mod sessions;
mod stopped_moves;
