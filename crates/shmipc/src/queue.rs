// SPDX-License-Identifier: MIT OR Apache-2.0
//! The ring of one direction: twelve bytes an element, and the flag that saves wake-ups.
