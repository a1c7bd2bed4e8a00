// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the images of SPEC 10, the same bytes every time.
//!
//! ```text
//! cargo run -p partywall-layout --example vectors -- DIR             the golden vectors
//! cargo run -p partywall-layout --example vectors -- --hostile DIR   the hostile images
//! cargo run -p partywall-layout --example vectors -- --links DIR     files of links, good and bad
//! ```
#![forbid(unsafe_code)]

#[path = "../tests/vectors/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vectors;

use std::path::Path;
use std::process::ExitCode;
use vectors::{golden, hostile, index, links};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let written = match arguments[..] {
        ["--hostile", directory] => {
            index::write(Path::new(directory), hostile::PREFACE, &hostile::images())
        }
        ["--links", directory] => {
            index::write(Path::new(directory), links::PREFACE, &links::images())
        }
        [directory] if !directory.starts_with('-') => {
            index::write(Path::new(directory), golden::PREFACE, &golden::images())
        }
        _ => {
            eprintln!("usage: vectors [--hostile | --links] DIR");
            return ExitCode::FAILURE;
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot write the images: {error}");
            ExitCode::FAILURE
        }
    }
}
