// SPDX-License-Identifier: MIT OR Apache-2.0
//! The project's own commands, run as `cargo xtask COMMAND`.
//!
//! ```text
//! main ──▶ stages ──▶ tidy (one file for each group of rules)
//!     │          ├──▶ executables
//!     │          └──▶ faults, vectors
//!     ├──▶ vectors (gen)
//!     ├──▶ fuzz
//!     ├──▶ go (stages)
//!     ├──▶ install ◀── jdk (package java) ◀── netty
//!     ├──▶ matrix (stages) ──▶ programs (bench-languages) ──▶ install, jdk, python
//!     └──▶ torture (faults)
//! ```
//!
//! An arrow leads from a module to one that it uses. In parentheses stands the command that runs a
//! module, or another module with which it works. This crate has no dependencies, so that it
//! compiles in a moment, and its verdict depends only on the tree and the toolchain. It installs
//! and downloads no tools, except those that build and test the Python package and the module for
//! Netty: pip and Maven put them below `target/`. `install` installs the project's C library.
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::cast_possible_truncation))]
#![forbid(unsafe_code)]

mod builds;
mod command;
mod executables;
mod faults;
mod fuzz;
mod go;
mod install;
mod jdk;
mod matrix;
mod netty;
mod path;
mod programs;
mod python;
mod stages;
mod tidy;
mod torture;
mod tree;
mod vectors;

use command::Step;
use std::env;
use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = repository_root();
    if let Err(error) = env::set_current_dir(&root) {
        eprintln!("xtask: cannot enter the repository at {}: {error}", root.display());
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (name, rest) = match arguments.split_first() {
        Some((name, rest)) => (name.as_str(), rest),
        None => ("help", &[][..]),
    };
    let outcome = match name {
        "test" => stages::main(rest),
        "tidy" => tidy::main(rest),
        "package" => package(rest),
        "path" => path::main(rest),
        "gen" => vectors::main(rest),
        "go" => go::main(rest),
        "fuzz" => fuzz::main(rest),
        "install" => install::main(rest),
        "matrix" => matrix::main(rest),
        "bench-languages" => programs::bench(rest),
        "torture" => torture::main(rest),
        "help" | "--help" | "-h" => {
            println!("{}", help());
            Ok(())
        }
        other => Err(format!("unknown command `{other}`; `cargo xtask help` lists the commands")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// Makes the wheel of the Python package, or the jar of the Java package, for machines without
/// cargo.
fn package(arguments: &[String]) -> Result<(), String> {
    if arguments == ["java"] {
        let java = jdk::package()?.path("java");
        println!("the jars are in target/java; the echo example runs by");
        println!("    {java} -jar target/java/partywall-echo.jar serve --listen unix:/tmp/e.sock");
        return Ok(());
    }
    if arguments != ["python"] {
        return Err("`package` takes one argument: java or python".into());
    }
    let built = std::path::absolute("target/python")
        .map_err(|error| format!("no current directory: {error}"))?;
    Step::new("python3")
        .args("-m pip wheel --no-deps --wheel-dir target/wheels ./bindings/python")
        .variable("CARGO_TARGET_DIR", &built.to_string_lossy())
        .run()?;
    println!("the wheel is in target/wheels");
    Ok(())
}

/// The directory above this crate, according to cargo's environment variable; without the variable,
/// the current directory.
fn repository_root() -> PathBuf {
    env::var_os("CARGO_MANIFEST_DIR")
        .map(PathBuf::from)
        .and_then(|manifest| manifest.parent().map(PathBuf::from))
        .unwrap_or_else(|| PathBuf::from("."))
}

fn help() -> String {
    format!(
        "\
cargo xtask COMMAND

  test [--quick] [--only STAGE] [--require STAGE,...]
                                  run every stage in order and stop at the first that fails
                                  --require fails if a stage that it names is skipped
                                  --quick runs only: {}
                                  stages: {}
  tidy [--circles | --vocabulary]
                                  check the rules that a tool can check (CONTRIBUTING.md)
                                  --circles prints the circles of imports and their edges
                                  --vocabulary prints each use of a retired word, and counts them
  path [--link] [--unoptimised] | --write | --check
                                  the files a message enters, by callgrind; the table in ARCHITECTURE.md
  package python                  make the wheel of the Python package in target/wheels
  package java                    make the jar of the Java package in target/java, by a JDK from 22 on
  gen [--check]                   regenerate spec/vectors; --check only compares
  go [--full]                     the stage go; --full: every pair of Go and Rust, and a table of figures
  install [--prefix P] [--destdir D]
                                  build the C library; header, pkg-config and CMake files; default /usr/local
  matrix [KIND]                   every language against every other, and its page of the guide; KIND: only
                                  channel, session, link, chain or errors, without the page
  bench-languages [--write]       every language against its own Unix socket; --write: into README and the guide
  fuzz [--minutes N] [TARGET...]  run the fuzz targets, N minutes each (default {})
  torture [--kills N] [--minutes M] [--seed S]
                                  kill the ends of links (default {} times)
  torture --faults | --cuts N | --sweep [--kills N] | --idle
                                  with rules taken out; network cuts; death at each instruction; 10,000 idle links
  help                            print this",
        stages::names(true).join(" "),
        stages::names(false).join(" "),
        fuzz::MINUTES_DEFAULT,
        torture::KILLS_DEFAULT,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_names_every_command_and_stage() {
        let help = help();
        for word in [
            "test",
            "tidy",
            "path",
            "gen",
            "go",
            "fuzz",
            "install",
            "matrix",
            "bench-languages",
            "torture",
            "loom",
            "shuttle",
            "faults",
            "miri",
        ] {
            assert!(help.contains(word), "help does not mention {word}");
        }
    }
}
