// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs against the library: the compiler of the system builds them, warnings are errors.
//!
//! ```text
//!   bindings/c/*/*.c ── cc, libpartywall_capi.a ──▶ program ─▶ exit status 0
//! ```
//!
//! `cargo xtask test --only c` runs this executable, and skips it if there is no C compiler. Run
//! without a compiler, it fails.

mod compiler;
mod examples;
mod life_and_death;

use compiler::{Program, Sanitizers, compiles};
use std::fs;

#[test]
fn header_alone_compiles_in_every_standard() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("a.c");
    fs::write(&source, "#include <partywall.h>\nint main(void) { return 0; }\n").expect("a file");
    for standard in ["c99", "c11"] {
        compiles(standard, &source);
    }
}

#[test]
fn channel_carries_every_kind_of_message() {
    Program::build_as("c11", "tests/channel.c", Sanitizers::Off).run(&[]);
}

#[test]
fn channel_is_clean_under_address_and_undefined_behaviour_sanitizers() {
    Program::build_as("c11", "tests/channel.c", Sanitizers::On).run(&[]);
}

#[test]
fn misuse_of_every_function_has_its_status() {
    Program::build_as("c11", "tests/misuse.c", Sanitizers::Off).run(&[]);
}

#[test]
fn misuse_is_clean_under_sanitizers() {
    Program::build_as("c11", "tests/misuse.c", Sanitizers::On).run(&[]);
}

#[test]
fn random_calls_of_threads_that_share_handles_neither_panic_nor_leave_anything() {
    Program::build_as("c11", "tests/random.c", Sanitizers::On).run(&[]);
}

#[test]
fn loop_serves_channels_and_fits_another_loop() {
    Program::build_as("c11", "tests/loop.c", Sanitizers::On).run(&[]);
}

#[test]
fn sessions_carry_streams_in_threads_and_in_a_loop() {
    Program::build_as("c11", "tests/session.c", Sanitizers::On).run(&[]);
}

#[test]
fn lost_records_are_counted_by_both_sides() {
    Program::build_as("c11", "tests/lossy.c", Sanitizers::On).run(&[]);
}

#[test]
fn shmipc_carries_streams_in_both_roles_with_threads_and_in_loops() {
    Program::build_as("c11", "tests/shmipc.c", Sanitizers::On).run(&[]);
}

#[test]
fn calls_are_answered_given_up_and_lost() {
    Program::build_as("c11", "tests/calls.c", Sanitizers::On).run(&[]);
}

#[test]
fn ends_of_links_and_sessions_say_whether_the_peer_was_killed() {
    Program::build_as("c11", "tests/ends.c", Sanitizers::On).run(&[]);
}

#[test]
fn links_keep_messages_over_a_restart() {
    Program::build_as("c11", "tests/link.c", Sanitizers::On).run(&[]);
}
