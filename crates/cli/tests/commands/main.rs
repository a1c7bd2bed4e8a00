// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the command `partywall`: its help, exit codes and output, and every subcommand but
//! `proxy` and `link`.

#[path = "../program/mod.rs"]
mod program;

mod bench_json;
mod doctor;
mod echo;
mod exit_codes;
mod half_close;
mod help;
mod inspect;
mod shmipc_dump;
mod signals;
mod stream;
mod summary;
