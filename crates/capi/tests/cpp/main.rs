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
use std::path::Path;

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

/// Builds and runs a program of `tests`, if the headers of a library that it needs are there.
fn run_with_library(source: &str, header: &str, defined: &[&str]) {
    let directories = ["/usr/include", "/usr/local/include"];
    if directories.iter().any(|it| Path::new(it).join(header).exists()) {
        Program::build_with("c++20", source, Sanitizers::On, defined).run(&[]);
    } else {
        println!("skipped: there is no <{header}>");
    }
}

#[test]
fn operations_of_boost_asio_end_once_in_each_way() {
    run_with_library("tests/asio.cpp", "boost/asio/any_io_executor.hpp", &[]);
}

#[test]
fn operations_of_asio_without_boost_end_once_in_each_way() {
    run_with_library("tests/asio.cpp", "asio/any_io_executor.hpp", &["ASIO_STANDALONE"]);
}

#[test]
fn http_of_beast_runs_over_streams() {
    run_with_library("tests/beast.cpp", "boost/beast/http.hpp", &[]);
}

#[test]
fn links_keep_messages_over_a_restart_and_in_a_loop() {
    Program::build_as("c++17", "tests/link.cpp", Sanitizers::On).run(&[]);
}
