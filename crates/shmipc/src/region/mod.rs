// SPDX-License-Identifier: MIT OR Apache-2.0
//! The region of buffers: lists of slices, and chains of them that carry messages.
