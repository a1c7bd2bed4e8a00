// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of this dialect, as the door of partywall wants it.
