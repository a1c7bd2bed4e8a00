// SPDX-License-Identifier: MIT OR Apache-2.0
//! Where regions lie: memfds and files, made by us or opened on the word of the other side.
