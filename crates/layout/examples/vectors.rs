// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writes the test vectors of SPEC 10, the same bytes in every run. Golden vectors are valid bytes
//! with their meaning; hostile images are region contents that a receiver must refuse. Usage:
//! `cargo run -p partywall-layout --example vectors -- …`
//!
//! ```text
//! DIR                  the golden vectors
//! --hostile DIR        the hostile images
//! --handshakes DIR     transcripts of handshakes
//! --sessions DIR       record sequences of sessions, valid and invalid
//! --links DIR          files of links, valid and invalid
//! --link-frames DIR    frames of links, valid and invalid
//! --link-records DIR   records of links, valid and invalid
//! ```
#![forbid(unsafe_code)]

#[path = "../tests/vectors/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod vectors;

use std::path::Path;
use std::process::ExitCode;
use vectors::{golden, handshakes, hostile, index, link_frames, link_records, links, sessions};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let written = match arguments[..] {
        ["--hostile", directory] => {
            index::write(Path::new(directory), hostile::PREFACE, &hostile::images())
        }
        ["--handshakes", directory] => handshakes::write(Path::new(directory)),
        ["--sessions", directory] => {
            index::write(Path::new(directory), sessions::PREFACE, &sessions::images())
        }
        ["--links", directory] => {
            index::write(Path::new(directory), links::PREFACE, &links::images())
        }
        ["--link-frames", directory] => {
            index::write(Path::new(directory), link_frames::PREFACE, &link_frames::images())
        }
        ["--link-records", directory] => {
            let images = link_records::images();
            index::write(Path::new(directory), link_records::PREFACE, &images)
        }
        [directory] if !directory.starts_with('-') => {
            index::write(Path::new(directory), golden::PREFACE, &golden::images())
        }
        _ => {
            eprintln!(
                "usage: vectors [--hostile | --handshakes | --sessions | --links | --link-frames | \
                 --link-records] DIR"
            );
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
