// SPDX-License-Identifier: MIT OR Apache-2.0
//! C++ programs against the library: the compiler of the system builds them, warnings are errors.
//!
//! ```text
//!   bindings/cpp/*/*.cpp ── c++, libpartywall_capi.a ──▶ program ─▶ exit status 0
//! ```
//!
//! `cargo xtask test --only cpp` runs this executable, and skips it if there is no C++ compiler. A
//! program that needs a library which is not installed is left out, and the output names it.

#[path = "../c/compiler.rs"]
mod compiler;
mod examples;

use compiler::{Program, Sanitizers, compiles};
use std::fs;
use std::process::Command;

/// Every standard in which the headers have to compile.
const STANDARDS: [&str; 3] = ["c++17", "c++20", "c++23"];

#[test]
fn headers_alone_compile_in_every_standard() {
    let directory = tempfile::tempdir().expect("a directory");
    for header in ["partywall.h", "partywall.hpp", "partywall/calls.hpp", "partywall/lossy.hpp"] {
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
fn calls_are_answered_given_up_and_lost() {
    for standard in ["c++17", "c++20"] {
        Program::build_as(standard, "tests/calls.cpp", Sanitizers::On).run(&[]);
    }
}

#[test]
fn lost_records_are_counted_by_both_sides() {
    for standard in ["c++17", "c++20"] {
        Program::build_as(standard, "tests/lossy.cpp", Sanitizers::On).run(&[]);
    }
}

/// Whether the C++ compiler finds a header of the system.
fn has_header(header: &str) -> bool {
    let mut command = Command::new("c++");
    command.args(["-x", "c++", "-E", "-o", "/dev/null", "-include", header, "/dev/null"]);
    command.output().expect("a C++ compiler").status.success()
}

/// Builds and runs a program of `bindings/cpp/tests` if the headers of a library that it needs are
/// installed. Prints a note if they are not.
fn run_with_library(source: &str, header: &str, defined: &[&str]) {
    if has_header(header) {
        Program::build_with("c++20", source, Sanitizers::On, defined).run(&[]);
    }
}

#[test]
fn header_of_asio_alone_compiles_below_each_library_that_is_there() {
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("a.cpp");
    for (header, first_line) in [("boost/asio.hpp", ""), ("asio.hpp", "#define ASIO_STANDALONE")] {
        if !has_header(header) {
            continue;
        }
        let text =
            format!("{first_line}\n#include <partywall/asio.hpp>\nint main() {{ return 0; }}\n");
        fs::write(&source, text).expect("a file");
        for standard in ["c++17", "c++20"] {
            compiles(standard, &source);
        }
    }
}

#[test]
fn operations_of_boost_asio_end_once_in_each_way() {
    run_with_library("tests/asio.cpp", "boost/asio.hpp", &[]);
}

#[test]
fn operations_of_asio_without_boost_end_once_in_each_way() {
    run_with_library("tests/asio.cpp", "asio.hpp", &["ASIO_STANDALONE"]);
}

#[test]
fn http_of_beast_runs_over_streams() {
    run_with_library("tests/beast.cpp", "boost/beast/http.hpp", &[]);
}

#[test]
fn links_keep_messages_over_a_restart_and_in_a_loop() {
    Program::build_as("c++17", "tests/link.cpp", Sanitizers::On).run(&[]);
}
