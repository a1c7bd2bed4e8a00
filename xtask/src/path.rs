// SPDX-License-Identifier: MIT OR Apache-2.0
//! `cargo xtask path`: measures with callgrind in which source files the code lies that sends or
//! receives a message of 48 bytes. These files are the path of a message. A message enters a file
//! if code of that file is executed for it.
//!
//! ```text
//! xtask/probe ──▶ callgrind, on inside measured_send or measured_receive ──▶ one dump a message
//! dump:  fl= fi= fe= (the file of the next lines, inlined code included)  ──▶ files, instructions
//! files ∩ this repository ──▶ table ──▶ ARCHITECTURE.md, between two markers
//! ```
//! A file is on the path if at least half of the messages enter it. Files that fewer messages enter
//! are listed below the table: some messages read a clock, for example, and most do not.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use crate::command::Step;
use crate::tree::Tree;

/// Measures the path of a message, and prints, writes or compares the tables.
///
/// # Errors
/// If the arguments are wrong, a tool is missing, the probe fails, a bound is exceeded, or the page
/// ARCHITECTURE.md differs.
pub fn main(arguments: &[String]) -> Result<(), String> {
    let chosen = parse(arguments)?;
    if !is_available() {
        return Err("callgrind is needed: install the package `valgrind`".to_owned());
    }
    let tree = Tree::read()?;
    match chosen.act {
        Act::Print(probe) => {
            let measured = measure(probe, chosen.is_unoptimised)?;
            print!("{}", table(&tree, probe, &measured));
            probe.judge(&tree, &measured)
        }
        Act::Write => {
            let page = page(&tree, &tables(&tree)?)?;
            fs::write(PAGE, page).map_err(|error| format!("cannot write {PAGE}: {error}"))
        }
        Act::Check => check(&tree),
    }
}

/// Whether callgrind can be run.
pub fn is_available() -> bool {
    Step::new("valgrind").args("--version").works()
}

/// Measures the path of a message, and compares the tables in ARCHITECTURE.md with the result.
///
/// # Errors
/// If a bound is exceeded, or the page lists other files than those that a message enters.
pub fn check(tree: &Tree) -> Result<(), String> {
    let mut expected = String::new();
    for probe in PROBES {
        let measured = measure(probe, false)?;
        probe.judge(tree, &measured)?;
        expected.push_str(&table(tree, probe, &measured));
    }
    let text = &tree.get(PAGE).ok_or(format!("there is no {PAGE}"))?.text;
    let (_, rest) = text.split_once(BEGIN).ok_or(format!("{PAGE} has no line {BEGIN}"))?;
    let found = rest.split(END).next().unwrap_or_default();
    if rows(found) == rows(&expected) {
        return Ok(());
    }
    Err(format!(
        "{PAGE} does not list the files that a message enters; `cargo xtask path --write` does:\n{expected}"
    ))
}

/// Returns the files in a table of ARCHITECTURE.md, each with the directions (sending, receiving)
/// in which messages enter it. Counts of instructions are left out, because they may differ by
/// compiler.
fn rows(table: &str) -> Vec<(String, Vec<bool>)> {
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let file = cells.first().filter(|cell| cell.starts_with('`'))?;
        let is_entered = |cell: &&str| *cell != "–";
        Some(((*file).to_owned(), cells.iter().skip(1).take(2).map(is_entered).collect()))
    };
    table.lines().filter_map(row).collect()
}

fn tables(tree: &Tree) -> Result<String, String> {
    let mut text = String::new();
    for probe in PROBES {
        text.push_str(&table(tree, probe, &measure(probe, false)?));
    }
    Ok(text)
}

/// Returns the text of ARCHITECTURE.md with `tables` between the page's two markers.
fn page(tree: &Tree, tables: &str) -> Result<String, String> {
    let text = &tree.get(PAGE).ok_or(format!("there is no {PAGE}"))?.text;
    let parts =
        text.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let Some((before, (_, after))) = parts else {
        return Err(format!("{PAGE} needs the lines {BEGIN} and {END}, around the table"));
    };
    Ok(format!("{before}{BEGIN}\n{tables}{END}{after}"))
}

#[derive(Debug, PartialEq, Eq)]
struct Chosen {
    act: Act,
    is_unoptimised: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Act {
    Print(Probe),
    Write,
    Check,
}

fn parse(arguments: &[String]) -> Result<Chosen, String> {
    let mut chosen = Chosen { act: Act::Print(PROBES[0]), is_unoptimised: false };
    for argument in arguments {
        match argument.as_str() {
            "--link" => chosen.act = Act::Print(PROBES[1]),
            "--unoptimised" => chosen.is_unoptimised = true,
            "--write" => chosen.act = Act::Write,
            "--check" => chosen.act = Act::Check,
            other => return Err(format!("`path` does not know the argument `{other}`")),
        }
    }
    Ok(chosen)
}

/// A program of `xtask/probe` whose messages are measured, and the bounds of their path (the files
/// whose code sends or receives a message): the number of files, and of code lines in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Probe {
    title: &'static str,
    program: &'static str,
    files_max: usize,
    code_lines_max: usize,
}

impl Probe {
    fn judge(self, tree: &Tree, measured: &Measured) -> Result<(), String> {
        let files = measured.on_path();
        let code: usize = files.iter().map(|(file, _)| code_lines(tree, file)).sum();
        if files.len() <= self.files_max && code <= self.code_lines_max {
            return Ok(());
        }
        Err(format!(
            "{} enters {} files with {code} code lines; the bounds are {} files and {} lines",
            self.title,
            files.len(),
            self.files_max,
            self.code_lines_max
        ))
    }
}

/// The counts of callgrind for one source file, either for sending a message or for receiving one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    instructions: u64,
    /// Number of measured messages for which code of the file was executed.
    messages: u64,
}

/// The measured files of this repository, each with its counts of instructions and messages in
/// sending and in receiving.
#[derive(Debug, Default)]
struct Measured {
    files: BTreeMap<String, [Share; 2]>,
    messages: u64,
}

impl Measured {
    /// Files that at least half of the messages enter, in sending or in receiving.
    fn on_path(&self) -> Vec<(&str, [Share; 2])> {
        let half = |share: &Share| share.messages * 2 >= self.messages.max(1);
        let files = self.files.iter().filter(|(_, shares)| shares.iter().any(half));
        files.map(|(file, shares)| (file.as_str(), *shares)).collect()
    }

    /// Files that some messages enter, but fewer than half of the messages.
    fn outside_path(&self) -> Vec<&str> {
        let path = self.on_path();
        let is_on_path = |file: &str| path.iter().any(|(on_path, _)| *on_path == file);
        self.files.keys().map(String::as_str).filter(|file| !is_on_path(file)).collect()
    }

    /// Adds the counts of one dump of callgrind, which covers one message, to those of the given
    /// direction.
    fn add(&mut self, direction: usize, dump: &str) {
        for (file, instructions) in instructions_by_file(dump) {
            let share = &mut self.files.entry(file).or_default()[direction];
            share.instructions += instructions;
            share.messages += 1;
        }
    }
}

/// Builds the program `probe`, and runs it under callgrind twice: to count sending, and to count
/// receiving.
fn measure(probe: Probe, is_unoptimised: bool) -> Result<Measured, String> {
    let profile = if is_unoptimised { "dev" } else { "release" };
    let build = |step: Step| {
        step.args("-p partywall-probe --target-dir target/path")
            .arg("--config")
            .arg(&format!("profile.{profile}.debug=\"line-tables-only\""))
            // Under valgrind, rustix does not find the functions that the kernel maps (vDSO). So
            // the crate rustix, which makes the system calls, is built to use the C library.
            .variable("RUSTFLAGS", "--cfg rustix_use_libc")
    };
    let (step, directory) = if is_unoptimised {
        let step = build(Step::cargo("build --quiet"))
            .args("--config profile.dev.opt-level=0 --config profile.dev.debug-assertions=false");
        (step, "debug")
    } else {
        (
            build(Step::cargo("build --quiet --release --config profile.release.lto=false")),
            "release",
        )
    };
    step.run()?;
    let program = PathBuf::from("target/path").join(directory).join(probe.program);
    let mut measured = Measured::default();
    for (direction, function) in ["measured_send", "measured_receive"].iter().enumerate() {
        // callgrind needs the full name of the function: it accepts a pattern for collecting, but
        // not for dumping.
        let function = format!("{}::{function}", probe.program);
        let dumps = PathBuf::from("target/path/dumps");
        let _ = fs::remove_dir_all(&dumps);
        fs::create_dir_all(&dumps).map_err(|error| format!("{}: {error}", dumps.display()))?;
        let output = Step::new("valgrind")
            .args("--tool=callgrind --collect-atstart=no --compress-strings=no --compress-pos=no")
            .arg(&format!("--toggle-collect={function}"))
            .arg(&format!("--dump-after={function}"))
            .arg(&format!("--callgrind-out-file={}/dump", dumps.display()))
            .arg(&program.to_string_lossy())
            .capture()?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("{} failed under callgrind:\n{errors}", program.display()));
        }
        for entry in fs::read_dir(&dumps).map_err(|error| error.to_string())?.flatten() {
            let dump = fs::read_to_string(entry.path()).unwrap_or_default();
            measured.add(direction, &dump);
        }
        let messages = String::from_utf8_lossy(&output.stdout).trim().parse();
        measured.messages = messages.map_err(|_| "the probe prints how many messages it sent")?;
    }
    Ok(measured)
}

fn instructions_by_file(dump: &str) -> BTreeMap<String, u64> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let (mut file, mut is_of_callee) = (None, false);
    for line in dump.lines() {
        if let Some((_, path)) = ["fl=", "fi=", "fe="]
            .iter()
            .find_map(|key| line.strip_prefix(key).map(|path| (key, path)))
        {
            file = ours(path);
        } else if line.starts_with("calls=") {
            is_of_callee = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c)) {
            // In a dump of callgrind, the line after `calls=` states the cost of the called
            // function with all its callees. That cost is left out here, because the callees' own
            // lines state it again.
            if std::mem::take(&mut is_of_callee) {
                continue;
            }
            let count = line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok());
            if let (Some(file), Some(count)) = (&file, count) {
                *found.entry(String::clone(file)).or_default() += count;
            }
        }
    }
    found
}

/// The path of the file relative to the repository; `None` if the file is no source of this
/// project's crates.
fn ours(path: &str) -> Option<String> {
    let at = path.find("crates/")?;
    let is_foreign = ["/registry/", "/rustc/"].iter().any(|part| path.contains(part));
    let path = &path[at..];
    (!is_foreign && !path.starts_with("crates/core_arch/")).then(|| path.to_owned())
}

fn table(tree: &Tree, probe: Probe, measured: &Measured) -> String {
    let files = measured.on_path();
    let code: usize = files.iter().map(|(file, _)| code_lines(tree, file)).sum();
    let mut text = format!(
        "\n{}: {} files, {code} lines of code.\n\n\
         | file | send | receive | code lines | what it is |\n|---|--:|--:|--:|---|\n",
        probe.title,
        files.len()
    );
    for (file, shares) in &files {
        let cell = |share: &Share| match share.messages {
            0 => "–".to_owned(),
            _ => (share.instructions / measured.messages.max(1)).to_string(),
        };
        let [send, receive] = shares.each_ref().map(cell);
        let lines = code_lines(tree, file);
        let _ =
            writeln!(text, "| `{file}` | {send} | {receive} | {lines} | {} |", title(tree, file));
    }
    let outside = measured.outside_path();
    if !outside.is_empty() {
        let names: Vec<String> = outside.iter().map(|file| format!("`{file}`")).collect();
        let _ = writeln!(text, "\nFewer than half of the messages enter {}.", names.join(", "));
    }
    text.push('\n');
    text
}

/// Number of lines of `file` that have code; its unit tests do not count.
fn code_lines(tree: &Tree, file: &str) -> usize {
    let source = tree.get(file).and_then(|file| file.source.as_ref());
    source.map_or(0, |source| source.shipped().filter(|(_, line)| line.is_code()).count())
}

/// The first sentence of the module documentation of `file`.
fn title(tree: &Tree, file: &str) -> String {
    let text = tree.get(file).map_or("", |file| file.text.as_str());
    let lines = text.lines().skip_while(|line| !line.starts_with("//! "));
    let paragraph: Vec<&str> = lines.map_while(|line| line.strip_prefix("//! ")).collect();
    let paragraph = paragraph.join(" ");
    let end = paragraph.find(". ").unwrap_or(paragraph.len());
    paragraph[..end].trim_end_matches(['.', ':']).replace('|', "\\|")
}

const PROBES: [Probe; 2] = [
    Probe {
        title: "A message of 48 bytes over shared memory",
        program: "channel_probe",
        files_max: 10,
        code_lines_max: 2_500,
    },
    Probe {
        title: "The same on a link over shared memory",
        program: "link_probe",
        files_max: 14,
        // For the path of a link's message, only the number of files is bounded, not the number of
        // code lines.
        code_lines_max: usize::MAX,
    },
];

const PAGE: &str = "ARCHITECTURE.md";
const BEGIN: &str = "<!-- path: written by `cargo xtask path --write` -->";
const END: &str = "<!-- path: end -->";

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "events: Ir\nfl=/w/crates/a/src/x.rs\nfn=f\n16 5\nfi=/w/crates/b/src/y.rs\n7 2\n\
                        fe=/w/crates/a/src/x.rs\n17 1\ncfn=g\ncalls=1 30\n18 400\n19 1\n\
                        fl=/rustc/1/library/crates/z.rs\nfn=g\n30 400\n";

    #[test]
    fn dump_counts_inlined_code_and_no_callees() {
        let found = instructions_by_file(DUMP);
        let expected = [("crates/a/src/x.rs".to_owned(), 7), ("crates/b/src/y.rs".to_owned(), 2)];
        assert_eq!(found, BTreeMap::from(expected));
    }

    #[test]
    fn file_of_few_messages_is_outside_path() {
        let mut measured = Measured { messages: 2, ..Measured::default() };
        measured.add(0, DUMP);
        measured.add(0, "fl=/w/crates/a/src/x.rs\nfn=f\n16 5\n");
        measured.messages = 3;
        assert_eq!(measured.on_path().len(), 1);
        assert_eq!(measured.outside_path(), ["crates/b/src/y.rs"]);
    }

    #[test]
    fn page_is_replaced_between_markers() {
        let text = format!("# A\n{BEGIN}\nold\n{END}\nrest\n");
        let tree = Tree::of(&[(PAGE, &text)]);
        assert_eq!(page(&tree, "new\n"), Ok(format!("# A\n{BEGIN}\nnew\n{END}\nrest\n")));
        assert!(page(&Tree::of(&[(PAGE, "# A\n")]), "new\n").is_err());
    }

    #[test]
    fn rows_ignore_counts() {
        let old = rows("| `a.rs` | 12 | – | 100 | A |\n|---|\n");
        assert_eq!(old, rows("| `a.rs` | 13 | – | 90 | B |\n"));
        assert_ne!(old, rows("| `a.rs` | 13 | 1 | 100 | A |\n"));
    }

    #[test]
    fn wrong_argument_is_refused() {
        assert!(parse(&["--links".to_owned()]).is_err());
        let chosen = parse(&["--link".to_owned(), "--unoptimised".to_owned()]).unwrap();
        assert_eq!(chosen, Chosen { act: Act::Print(PROBES[1]), is_unoptimised: true });
    }
}
