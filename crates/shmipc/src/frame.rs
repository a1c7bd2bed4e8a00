// SPDX-License-Identifier: MIT OR Apache-2.0
//! The messages on the socket: header, bodies, and what is wrong with them.
