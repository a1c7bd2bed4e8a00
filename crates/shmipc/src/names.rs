// SPDX-License-Identifier: MIT OR Apache-2.0
//! What regions are called, and where their files lie.
