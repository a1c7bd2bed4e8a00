// SPDX-License-Identifier: MIT OR Apache-2.0
//! Figures: quantities with their units, spreads of several values, and tables of text.

pub mod quantity;
pub mod spread;
pub mod text_table;
