// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures each language against its own Unix socket: a client and a server in the language
//! exchange messages over a channel in shared memory and over a socket of the language's own
//! library, in turn.
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
    // Each round measures all languages, one after the other, so that a slow period of the machine
    // affects them all.
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

/// Number of rounds; in each, every task is measured once in each language and over both
/// transports.
const ROUNDS: usize = 11;
/// Maximum time of a whole run, which usually takes about a minute.
const LIMIT: Duration = Duration::from_secs(240);
/// There are four tasks, one for each column of the table.
const _: () = assert!(TASKS.len() == 4);
