// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that several commands share: flags of a channel, exit codes, signals and the texts of
//! errors.

pub mod access;
pub mod advice;
pub mod channel_options;
pub mod exit;
pub mod refusals;
pub mod report;
pub mod signals;
