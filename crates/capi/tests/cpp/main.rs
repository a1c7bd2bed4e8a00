// SPDX-License-Identifier: MIT OR Apache-2.0
//! C++ programs against the library: the compiler of the system builds them, warnings are errors.
//!
//! ```text
//!   bindings/cpp/*/*.cpp ── c++, libpartywall_capi.a ──▶ program ─▶ exit status 0
//! ```
//!
//! The stage `cpp` runs this executable. Without a C++ compiler it fails: the stage is then
//! skipped.

#[path = "../c/compiler.rs"]
mod compiler;
mod examples;

use compiler::{Program, Sanitizers, compiles};
use std::fs;

/// Every standard in which the headers have to compile.
const STANDARDS: [&str; 3] = ["c++17", "c++20", "c++23"];

#[test]
fn headers_alone_compile_in_every_standard() {
    let directory = tempfile::tempdir().expect("a directory");
    for header in ["partywall.h", "partywall.hpp"] {
        for standard in STANDARDS {
            let source = directory.path().join("a.cpp");
            let text = format!("#include <{header}>\nint main() {{ return 0; }}\n");
            fs::write(&source, text).expect("a file");
            compiles(standard, &source);
        }
    }
}

#[test]
fn channel_carries_every_kind_of_message_with_and_without_span() {
    for standard in ["c++17", "c++20"] {
        Program::build_as(standard, "tests/channel.cpp", Sanitizers::On).run(&[]);
    }
}

#[test]
fn loop_serves_channels_below_poll() {
    Program::build_as("c++17", "tests/loop.cpp", Sanitizers::On).run(&[]);
}

#[test]
fn sessions_carry_streams_in_threads_and_in_a_loop() {
    Program::build_as("c++17", "tests/session.cpp", Sanitizers::On).run(&[]);
}

#[test]
fn links_keep_messages_over_a_restart_and_in_a_loop() {
    Program::build_as("c++17", "tests/link.cpp", Sanitizers::On).run(&[]);
}
