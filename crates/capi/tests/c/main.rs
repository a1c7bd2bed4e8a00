// SPDX-License-Identifier: MIT OR Apache-2.0
//! C programs against the library: the compiler of the system builds them, warnings are errors.
//!
//! ```text
//!   bindings/c/*/*.c ── cc, libpartywall_capi.a ──▶ program ─▶ exit status 0
//! ```
//!
//! The stage `c` runs this executable. Without a C compiler it fails: the stage is then skipped.

mod compiler;
mod examples;
mod life_and_death;

use compiler::{Program, Sanitizers, compiles};
use std::fs;

/// Every standard in which the header has to compile alone, with its compiler.
const STANDARDS: [(&str, &str); 4] =
    [("cc", "c99"), ("cc", "c11"), ("c++", "c++17"), ("c++", "c++20")];

#[test]
fn header_alone_compiles_in_every_standard() {
    let directory = tempfile::tempdir().expect("a directory");
    for (compiler, standard) in STANDARDS {
        let source = directory.path().join(if compiler == "cc" { "a.c" } else { "a.cpp" });
        fs::write(&source, "#include <partywall.h>\nint main(void) { return 0; }\n")
            .expect("a file");
        compiles(compiler, standard, &source);
    }
}

#[test]
fn channel_carries_every_kind_of_message() {
    Program::build("tests/channel.c", Sanitizers::Off).run(&[]);
}

#[test]
fn channel_is_clean_under_address_and_undefined_behaviour_sanitizers() {
    Program::build("tests/channel.c", Sanitizers::On).run(&[]);
}

#[test]
fn misuse_of_every_function_has_its_status() {
    Program::build("tests/misuse.c", Sanitizers::Off).run(&[]);
}

#[test]
fn misuse_is_clean_under_sanitizers() {
    Program::build("tests/misuse.c", Sanitizers::On).run(&[]);
}

#[test]
fn loop_serves_channels_and_fits_another_loop() {
    Program::build("tests/loop.c", Sanitizers::On).run(&[]);
}

#[test]
fn channel_in_cpp_carries_every_kind_of_message_in_both_standards() {
    for standard in ["c++17", "c++20"] {
        Program::build_as(standard, "tests/channel.cpp", Sanitizers::On).run(&[]);
    }
}

#[test]
fn loop_in_cpp_serves_channels_below_poll() {
    Program::build_as("c++17", "tests/loop.cpp", Sanitizers::On).run(&[]);
}

#[test]
fn sessions_carry_streams_in_threads_and_in_a_loop() {
    Program::build("tests/session.c", Sanitizers::On).run(&[]);
}

#[test]
fn lost_records_are_counted_by_both_sides() {
    Program::build("tests/lossy.c", Sanitizers::On).run(&[]);
}

#[test]
fn shmipc_carries_streams_in_both_roles_with_threads_and_in_loops() {
    Program::build("tests/shmipc.c", Sanitizers::On).run(&[]);
}

#[test]
fn links_keep_messages_over_a_restart() {
    Program::build("tests/link.c", Sanitizers::On).run(&[]);
}
