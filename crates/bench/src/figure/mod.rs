// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text for the benchmark's numbers: quantities with their units, spreads of several values, and
//! tables.

pub mod quantity;
pub mod spread;
pub mod text_table;
