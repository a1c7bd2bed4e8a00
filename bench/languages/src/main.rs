// SPDX-License-Identifier: MIT OR Apache-2.0
//! Every language against its own Unix socket: two processes a language, which exchange messages
//! over a channel in shared memory and over a socket of the language's own library, in turn.
//!
//! ```text
//! bench-languages [--write] {--program LANGUAGE WORD…}…
//!
//! pair ─ nanoseconds of one task ─▶ series ─ medians, spreads ─▶ table, plot ─▶ pages
//! ```
//!
//! `cargo xtask bench-languages` builds the programs, and starts this one in the directory of the
//! repository.

mod page;
mod pair;
mod plot;
mod series;
mod table;

use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use pair::Pair;
use series::{Series, TASKS};

fn main() -> ExitCode {
    thread::spawn(|| {
        thread::sleep(LIMIT);
        eprintln!("bench-languages: not done within {LIMIT:?}");
        std::process::exit(1);
    });
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-languages: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let mut parts = arguments.split(|word| word == "--program");
    let writes = match parts.next() {
        Some([]) => false,
        Some([option]) if option == "--write" => true,
        _ => return Err("the options are --write and --program LANGUAGE WORD…".to_owned()),
    };
    let mut pairs = Vec::new();
    for words in parts {
        pairs.push(Pair::start(words)?);
    }
    let mut languages = Vec::new();
    for pair in &mut pairs {
        languages.push((pair.language.clone(), Series::begin(pair)?));
    }
    // All languages take part in each round, so that a slow moment of the machine meets all.
    for round in 0..ROUNDS {
        for (pair, (_, series)) in pairs.iter_mut().zip(&mut languages) {
            for one in series {
                one.measure(pair, round % 2 == 1)?;
            }
        }
    }
    let table = table::of(&languages, ROUNDS);
    println!("{table}");
    if writes { page::write(&table, &plot::of(&languages)) } else { Ok(()) }
}

/// Rounds in which everything is measured once.
const ROUNDS: usize = 11;
/// The longest time of a run. One takes about a minute.
const LIMIT: Duration = Duration::from_secs(240);
/// The number of tasks of each language.
const _: () = assert!(TASKS.len() == 4);
