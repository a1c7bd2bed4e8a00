// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall listen` and `partywall connect`: one channel joined to stdin and stdout.

pub mod connect;
mod input;
pub mod listen;
mod pipe;
pub mod summary;
