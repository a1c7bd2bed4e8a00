// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rule for retired words: words that names in this project no longer use, because POSIX, QUIC,
//! HTTP/2, virtio, Kafka or tokio have another word.
//!
//! ```text
//! ring_doorbell, RingBell, ring-bell.md, "ring_bell"   ──▶ parts: ring, bell ──▶ rows of WORDS
//! struct Core, fn commit_to, Trust::Peer               ──▶ definitions, paths ──▶ rows of NAMES
//! ```
//! `WORDS` and `NAMES` are the tables of what is retired. The rule reads identifiers and string
//! literals of code, paths of files, keys and strings of TOML and JSON, code spans and code blocks
//! of Markdown, and headings and tables in `spec/`. Sentences of comments and of Markdown are free:
//! a metaphor may explain a thing, but not name it.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use super::Finding;
use super::source::Source;
use crate::tree::{File, Tree};

/// Reports every use of a retired word.
pub fn check(tree: &Tree, findings: &mut Vec<Finding>) {
    findings.extend(uses(tree).into_iter().map(Use::finding));
}

/// Lists every use of a retired word, and then the number of uses of each word and in each file.
pub fn report(tree: &Tree) -> String {
    let uses = uses(tree);
    let mut text = String::new();
    let (mut by_word, mut by_file) = (BTreeMap::new(), BTreeMap::new());
    for used in &uses {
        *by_word.entry(used.word).or_insert(0_usize) += 1;
        *by_file.entry(used.path.clone()).or_insert(0_usize) += 1;
    }
    let total = uses.len();
    for used in uses {
        let _ = writeln!(text, "{}", used.finding());
    }
    for (title, counts) in [
        ("by file", by_file.into_iter().collect::<Vec<(String, usize)>>()),
        ("by word", by_word.into_iter().map(|(word, count)| (word.to_owned(), count)).collect()),
    ] {
        let _ = writeln!(text, "\n{title}");
        let mut counts = counts;
        counts.sort_by_key(|(_, count)| *count);
        for (name, count) in counts {
            let _ = writeln!(text, "{count:6} {name}");
        }
    }
    let _ = writeln!(text, "\n{total} uses of retired words");
    text
}

/// A place that uses a retired word, and the word to use instead.
#[derive(Clone, Debug)]
struct Use {
    path: String,
    line: usize,
    word: &'static str,
    /// The name in the text that contains the retired word.
    name: String,
    instead: &'static str,
}

impl Use {
    fn finding(self) -> Finding {
        let Use { path, line, word, name, instead } = self;
        let advice = format!("`{word}` in `{name}` is retired: write {instead}");
        Finding::at(&path, line, "vocabulary", advice)
    }
}

/// A word that no name may contain any more.
struct Word {
    /// All forms of the word, such as singular and plural, in lower case.
    forms: &'static [&'static str],
    instead: &'static str,
    /// Beginnings of the paths of the files in which the word is retired; empty if it is retired
    /// everywhere.
    under: &'static [&'static str],
    /// Whether a string that is a sentence may use the word. Such a word is plain English, and
    /// retired only as a name.
    is_plain: bool,
}

/// The kind of use in which a name is retired; other uses of the name are allowed.
enum As {
    /// A struct, enum, union, trait or type alias with exactly the retired name.
    Type,
    /// A type whose name is longer and begins with the retired name, in files under these paths.
    TypePrefix(&'static [&'static str]),
    /// A function with exactly this name, in files under these paths.
    Function(&'static [&'static str]),
    /// An identifier with exactly this name, anywhere in code.
    Identifier,
    /// Two identifiers with `::` between them, such as `Trust::Peer`.
    Path,
}

struct Name {
    name: &'static str,
    kind: As,
    instead: &'static str,
}

/// An exception: a place that may use a retired word, and the reason.
struct Exception {
    /// The beginning of the paths of the files that may use the word.
    path: &'static str,
    /// The retired word that the file may use; empty for every word.
    word: &'static str,
    /// The reason for the exception, which only people read.
    #[allow(dead_code, reason = "a reason is written to be read in the table")]
    why: &'static str,
}

fn is_excepted(path: &str, word: &str) -> bool {
    EXCEPTIONS
        .iter()
        .any(|row| path.starts_with(row.path) && (row.word.is_empty() || row.word == word))
}

fn uses(tree: &Tree) -> Vec<Use> {
    let mut words = HashMap::new();
    for word in WORDS {
        for form in word.forms {
            words.insert(*form, word);
        }
    }
    let mut reader = Reader { words, path: "", found: Vec::new() };
    for path in tree.paths() {
        reader.path = path;
        reader.names(0, path.rsplit('/').next().unwrap_or(path));
    }
    for file in &tree.files {
        reader.path = &file.path;
        reader.file(file);
    }
    reader.found.retain(|used| !is_excepted(&used.path, used.word));
    reader.found
}

struct Reader<'a> {
    words: HashMap<&'static str, &'static Word>,
    path: &'a str,
    found: Vec<Use>,
}

impl Reader<'_> {
    fn file(&mut self, file: &File) {
        let extension = file.path.rsplit('.').next().unwrap_or_default();
        match extension {
            "rs" => {
                if let Some(source) = &file.source {
                    self.source(source);
                }
            }
            "go" | "c" | "h" | "cpp" | "java" => self.source(&Source::scan(&file.text)),
            "md" => self.markdown(&file.text),
            "json" => self.lines(&file.text, ""),
            "toml" | "py" | "sh" | "yml" | "yaml" => self.lines(&file.text, "#"),
            _ if file.text.starts_with("#!") => self.lines(&file.text, "#"),
            _ => {}
        }
    }

    fn source(&mut self, source: &Source) {
        for (index, line) in source.lines.iter().enumerate() {
            self.names(index, &line.code);
            let is_sentence = line.literal.split_whitespace().count() >= SENTENCE_WORDS_MIN;
            self.names_in(index, &line.literal, is_sentence);
            self.definitions(index, &line.code);
            self.phrases(index, &line.literal);
        }
    }

    fn lines(&mut self, text: &str, comment: &str) {
        for (index, line) in text.lines().enumerate() {
            let is_comment = !comment.is_empty() && line.trim_start().starts_with(comment);
            if !is_comment {
                let end = if comment.is_empty() { None } else { line.find(&format!(" {comment}")) };
                self.names(index, &line[..end.unwrap_or(line.len())]);
            }
        }
    }

    fn markdown(&mut self, text: &str) {
        let is_spec = self.path.starts_with("spec/");
        let mut in_fence = false;
        for (index, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
                continue;
            }
            let is_term = is_spec && (line.starts_with('#') || line.trim_start().starts_with('|'));
            if in_fence || is_term {
                // The rule reads code blocks of Markdown without their comments, because comments
                // are sentences, which the rule does not read.
                let end = if in_fence { line.find("//") } else { None };
                self.names(index, &line[..end.unwrap_or(line.len())]);
                continue;
            }
            for span in line.split('`').skip(1).step_by(2) {
                self.names(index, span);
            }
        }
    }

    /// Reports the retired words that are parts of names in a text.
    fn names(&mut self, line: usize, text: &str) {
        self.names_in(line, text, false);
    }

    /// Reports the retired words that are parts of names in a text that may be a sentence. In a
    /// sentence, words of plain English are allowed.
    fn names_in(&mut self, line: usize, text: &str, is_sentence: bool) {
        for name in text.split(|c: char| !is_word(c)).filter(|name| !name.is_empty()) {
            for part in parts(name) {
                let Some(word) = self.words.get(part.as_str()) else { continue };
                let is_split = word.forms[0] == "half" && is_half_of_split(name);
                let is_free = is_split || is_sentence && word.is_plain;
                if (word.under.is_empty() || self.is_under(word.under)) && !is_free {
                    self.report(line, word.forms[0], name, word.instead);
                }
            }
        }
    }

    /// Reports retired phrases, which have more than one word.
    fn phrases(&mut self, line: usize, text: &str) {
        for (phrase, instead) in PHRASES {
            if text.contains(phrase) {
                self.report(line, phrase, phrase, instead);
            }
        }
    }

    fn is_under(&self, prefixes: &[&str]) -> bool {
        prefixes.iter().any(|prefix| self.path.starts_with(prefix))
    }

    /// Reports names in code that the table [`NAMES`] retires for one kind of use, such as a type
    /// with a retired name.
    fn definitions(&mut self, line: usize, code: &str) {
        let tokens: Vec<&str> = code.split_whitespace().flat_map(split_marks).collect();
        for (at, token) in tokens.iter().enumerate() {
            let before = at.checked_sub(1).map_or("", |before| tokens[before]);
            let is_type = TYPES.contains(&before);
            for row in NAMES {
                let is_meant = match &row.kind {
                    As::Type => is_type && *token == row.name,
                    As::TypePrefix(under) => {
                        let rest = token.strip_prefix(row.name);
                        let is_prefix =
                            rest.is_some_and(|rest| rest.starts_with(char::is_uppercase));
                        is_type && is_prefix && self.is_under(under)
                    }
                    As::Function(under) => {
                        before == "fn" && *token == row.name && self.is_under(under)
                    }
                    As::Identifier => *token == row.name,
                    As::Path => row.name.split_once("::").is_some_and(|(first, second)| {
                        *token == first
                            && tokens.get(at + 1) == Some(&"::")
                            && tokens.get(at + 2) == Some(&second)
                    }),
                };
                if is_meant {
                    self.report(line, row.name, token, row.instead);
                }
            }
        }
    }

    fn report(&mut self, line: usize, word: &'static str, name: &str, instead: &'static str) {
        let (path, name) = (self.path.to_owned(), name.to_owned());
        self.found.push(Use { path, line, word, name, instead });
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a name that contains the retired word `half` is allowed, because it means one direction
/// of a stream, such as `ReadHalf` and `half_closed`.
fn is_half_of_split(name: &str) -> bool {
    let directions = ["read", "write", "send", "recv", "close", "closed", "open", "split"];
    parts(name).iter().any(|part| directions.contains(&part.as_str()))
}

/// Splits a text without blanks into words, `::`, and other marks, each of one character.
fn split_marks(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        found.push(&rest[..end]);
        rest = &rest[end..];
    }
    found
}

/// Returns the words of which a name consists, in lower case: `RingBell_v2` has `ring`, `bell` and
/// `v`.
fn parts(name: &str) -> Vec<String> {
    let chars: Vec<char> = name.chars().collect();
    let mut found = Vec::new();
    let mut part = String::new();
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(at + 1);
        let begins = c.is_uppercase()
            && (before.is_some_and(char::is_lowercase)
                || (before.is_some_and(char::is_uppercase)
                    && after.is_some_and(|after| after.is_lowercase())));
        if begins || !c.is_alphabetic() {
            found.push(std::mem::take(&mut part));
        }
        if c.is_alphabetic() {
            part.extend(c.to_lowercase());
        }
    }
    found.push(part);
    found.retain(|part| !part.is_empty());
    found
}

const TYPES: [&str; 5] = ["struct", "enum", "union", "trait", "type"];

const fn word(forms: &'static [&'static str], instead: &'static str) -> Word {
    Word { forms, instead, under: &[], is_plain: false }
}

const fn plain(forms: &'static [&'static str], instead: &'static str) -> Word {
    Word { forms, instead, under: &[], is_plain: true }
}

const fn word_under(
    under: &'static [&'static str],
    forms: &'static [&'static str],
    instead: &'static str,
) -> Word {
    Word { forms, instead, under, is_plain: false }
}

const fn named(name: &'static str, kind: As, instead: &'static str) -> Name {
    Name { name, kind, instead }
}

/// Words that no name may contain any more, each with a replacement.
const WORDS: &[Word] = &[
    // Retired words that named things of the protocol and of memory layout.
    word(
        &["wall", "walls", "walled"],
        "`shm` or `SharedMemory`; the wall is the project's name alone",
    ),
    word(&["neighbour", "neighbours", "neighbor"], "`peer`"),
    word(&["beside"], "`control_socket`, or what is meant"),
    word(&["bell", "bells"], "`doorbell`"),
    word(&["rung", "rang", "ringing"], "`notified`, `notify`: a ring is the data structure"),
    word(&["bare"], "`compact`"),
    word(&["lineage", "lineages"], "`store_id`"),
    word_under(
        &["crates/link/", "crates/partywall/src/link/", "crates/reconcile/", "spec/links/"],
        &["generation", "generations"],
        "`connection_number`",
    ),
    // "half" is retired as a name for memory; the halves that `into_split` returns keep their name.
    word_under(
        &[
            "crates/layout/",
            "crates/sys/",
            "crates/partywall/src/region",
            "crates/partywall/src/handshake/",
            "crates/partywall/src/transport/",
            "fuzz/",
            "spec/",
        ],
        &["half"],
        "`region`",
    ),
    // Retired words that named objects inside the libraries.
    word(&["door", "doors"], "transport, wait point, accept loop, condvar or listener"),
    word(&["standing"], "connection state, or snapshot"),
    word(&["twin", "twins"], "fake transport"),
    word(&["glance", "glances"], "`ProgressSnapshot`"),
    word(&["books"], "`SessionState`, `DurableState`"),
    word(&["patience", "patient"], "`timeout`, or idle policy"),
    word(&["owed", "owes", "owe"], "`pending`"),
    plain(&["told", "untold", "heard"], "notified, acknowledged, received"),
    plain(&["news"], "events"),
    plain(&["facts"], "snapshot"),
    plain(&["shown"], "peer memory"),
    plain(&["watched"], "observer"),
    word(&["doze", "dozes", "dozed", "dozing"], "`arm`"),
    word(&["foreigner", "foreigners"], "external event loop"),
    word(&["hub", "hubs"], "reactor"),
    word(&["spot", "spots"], "monitor"),
    plain(&["lent"], "borrowed"),
    plain(&["keeper", "keepers"], "supervisor"),
    plain(&["taker", "takers"], "sink"),
    plain(&["shortly"], "`fast_path`"),
    plain(&["heed", "heeds"], "`handle_events`"),
    plain(&["desk", "desks"], "connection task"),
    plain(&["gate", "gates"], "limiter"),
    plain(&["attendant", "attendants"], "connection task"),
    plain(&["mover", "movers"], "migrator"),
    plain(&["upkeep"], "maintenance"),
    plain(&["tally", "tallies"], "counters"),
    plain(&["trouble", "troubles"], "error"),
    // Retired words that named things of the public interface and of the command.
    plain(&["speak", "speaks", "spoken"], "`connect_with` a protocol"),
    word(&["dialect", "dialects"], "`protocol`"),
    // These words are retired as names of benchmarks only; in tests a hostile peer may flood.
    word_under(BENCH, &["crowd", "crowds", "crowded"], "`oversubscribe`"),
    word_under(BENCH, &["flood", "floods", "flooded"], "`throughput`"),
    word_under(BENCH, &["floor", "floors"], "`baseline`"),
];

const BENCH: &[&str] = &["crates/bench/", "crates/cli/src/bench", "bench/"];

/// Phrases of several words that no string literal may contain any more, each with a replacement.
const PHRASES: &[(&str, &str)] =
    &[("other side", "`peer`"), ("other end", "`peer`"), ("not to be had", "unavailable")];

/// Names that are retired for one kind of use, such as for a type or a function.
const NAMES: &[Name] = &[
    named("Core", As::Type, "`Registry`, `SessionShared`, `LinkState`: what it is"),
    named("Kept", As::Type, "a name for the object"),
    named("Parts", As::Type, "plain arguments, or `<Type>Parts`"),
    named("Fate", As::Type, "`Liveness`, `SendOutcome`"),
    named("Room", As::Type, "`SpaceWaiter`"),
    named("Apart", As::Type, "`CachePadded`"),
    named("Book", As::Type, "`Registry`, `DurableState`"),
    named("Line", As::TypePrefix(&["crates/partywall/", "crates/shmipc/"]), "`Connection…`"),
    named("Lent", As::Type, "`RecvBuffer`"),
    named("Loan", As::Type, "`SendBuffer`"),
    named("Meeting", As::Type, "`Handshake`"),
    named("Caller", As::Type, "`ConnectInfo`, `DriverWaker`"),
    named("Armed", As::Type, "`Readiness`"),
    named("Unsent", As::Type, "`TrySendError`"),
    named("NoWall", As::Identifier, "`FallbackReason`"),
    named("LinkPlace", As::Identifier, "`Storage`"),
    named("Proof", As::Type, "`RecordDigest`"),
    named("Mark", As::Type, "`AckedOffset`"),
    named(
        "Link",
        As::TypePrefix(&["crates/link/src/"]),
        "the name without `Link`, inside the crate of links",
    ),
    named("spins_paid", As::Identifier, "`spin_hits`"),
    named("blocks_out", As::Identifier, "`blocks_in_flight`"),
    named("release_entries", As::Identifier, "`peer_blocks_max`"),
    named("idle_memory_after", As::Identifier, "`idle_memory_timeout`"),
    named("in_hand", As::Identifier, "`in_flight`"),
    named("put_down", As::Identifier, "`undeliver`"),
    named("by_chance", As::Identifier, "`random`"),
    named("lie_down", As::Identifier, "`arm`"),
    named("look_or_doze", As::Identifier, "`poll` and `arm`"),
    named("multiplex", As::Identifier, "`enable_streams`"),
    named("look", As::Function(&[""]), "`check` or `poll`"),
    named("tend", As::Function(&[""]), "`try_flush`, `service`"),
    named("rest", As::Function(&["crates/link/src/"]), "`arm`"),
    named("push", As::Function(&["crates/link/src/batch"]), "`send`"),
    named("publish", As::Function(&["crates/link/src/batch"]), "`commit`"),
    named("commit_to", As::Identifier, "`ack_to`"),
    named("flush", As::Function(LINK_HANDLES), "`wait_acked`"),
    named(
        "commit",
        As::Function(LINK_HANDLES),
        "`ack`; `commit` publishes a reservation or a batch",
    ),
    named("Trust::Peer", As::Path, "`Trust::Trusted`"),
    named("Trust::Isolated", As::Path, "`Trust::Untrusted`"),
    named("Wait::Timed", As::Path, "`Wait::Poll`"),
    named("Storage::Volatile", As::Path, "`Storage::Memory`"),
];

/// Minimum number of words of a string literal that counts as a sentence. A shorter one is a name,
/// such as a flag, a key or a title.
const SENTENCE_WORDS_MIN: usize = 3;

/// The files that define the handles of links. In these files the function name `commit` is
/// retired, because the function would acknowledge a message.
const LINK_HANDLES: &[&str] = &[
    "crates/link/src/handle/link",
    "crates/link/src/handle/halves",
    "crates/link/src/handle/message",
    "crates/link/src/tokio/link",
    "crates/link/src/tokio/halves",
    "crates/link/src/tokio/message",
    "crates/partywall/src/link/handle",
    "crates/partywall/src/link/halves",
    "crates/partywall/src/link/message",
    "crates/partywall/src/tokio/link/",
];

const fn except(path: &'static str, word: &'static str, why: &'static str) -> Exception {
    Exception { path, word, why }
}

const EXCEPTIONS: &[Exception] = &[
    except("xtask/src/tidy/vocabulary.rs", "", "this table"),
    except("CHANGELOG.md", "", "its table leads from the old names to the new ones"),
    except("crates/bench/src/former_names.rs", "", "the errors that lead to the new names"),
    except("fuzz/corpus", "", "named by their bytes"),
    except(
        "crates/link/src/link_state/",
        "Link",
        "`LinkState`, which this table gives as the name",
    ),
    except("xtask/src/tidy/source.rs", "Line", "a line of a file"),
    except("crates/link/tests/support_sweep/stepper.rs", "wall", "a flag of wait(2): __WALL"),
    except("crates/partywall/tests/opening/", "wall", "a flag of wait(2): __WALL"),
    except("crates/capi/tests/c/compiler.rs", "wall", "an option of the C compiler: -Wall"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn words(samples: &[(&str, &str)]) -> Vec<String> {
        let uses = uses(&Tree::of(samples));
        uses.iter().map(|used| format!("{} {}", used.line + 1, used.word)).collect()
    }

    #[test]
    fn part_of_identifier_is_reported() {
        assert_eq!(
            words(&[("a.rs", "fn ring_bell() {}\nstruct RingBELLFast;\n")]),
            ["1 bell", "2 bell"]
        );
        assert_eq!(words(&[("a.rs", "fn doorbell() { partywall() }\n")]), [""; 0]);
        assert_eq!(words(&[("a.go", "// bell\nfunc RingBell() {}\n")]), ["2 bell"]);
    }

    #[test]
    fn comment_is_free() {
        assert_eq!(words(&[("a.rs", "// the bell\n/// a door\n"), ("a.md", "A door.\n")]), [""; 0]);
        assert_eq!(words(&[("Cargo.toml", "# a wall\na = \"b\" # wall\n")]), [""; 0]);
    }

    #[test]
    fn string_key_flag_and_file_name_are_reported() {
        assert_eq!(words(&[("a.rs", "f(\"--transport wall\\nbell\");\n")]), ["1 wall", "1 bell"]);
        assert_eq!(words(&[("a.rs", "f(\"the other side is gone\");\n")]), ["1 other side"]);
        assert_eq!(words(&[("a.rs", "f(\"what it was told\"); g(\"told\");\n")]), [""; 0]);
        assert_eq!(
            words(&[("a.rs", "g(\"told\");\nh(\"no wall is there\");\n")]),
            ["1 told", "2 wall"]
        );
        assert_eq!(words(&[("a.json", "{\"bells\": 1}\n")]), ["1 bell"]);
        assert_eq!(words(&[("src/door/mod.rs", "")]), ["1 door"]);
        assert_eq!(words(&[("src/open-door.bin", "")]), ["1 door"]);
    }

    #[test]
    fn term_of_specification_is_reported() {
        let text = "# The bell\n| door | 2 |\nA wall and a `hub`.\n```\nspot // books\n```\n";
        assert_eq!(words(&[("spec/SPEC.md", text)]), ["1 bell", "2 door", "3 hub", "5 spot"]);
        assert_eq!(words(&[("docs/a.md", text)]), ["3 hub", "5 spot"]);
    }

    #[test]
    fn name_of_something_is_reported_where_it_is_that() {
        assert_eq!(words(&[("a.rs", "struct Core {}\nfn f(core: http::Core) {}\n")]), ["1 Core"]);
        assert_eq!(words(&[("a.rs", "x == Trust::Peer;\nWho::Peer;\n")]), ["1 Trust::Peer"]);
        let handle = "pub fn commit(&self) {}\n";
        assert_eq!(words(&[("crates/link/src/handle/link.rs", handle)]), ["1 commit"]);
        assert_eq!(words(&[("crates/partywall/src/sender.rs", handle)]), [""; 0]);
    }

    #[test]
    fn excepted_place_is_left_out() {
        assert_eq!(words(&[("CHANGELOG.md", "`wall`\n")]), [""; 0]);
    }

    #[test]
    fn parts_split_at_marks_and_case() {
        assert_eq!(parts("RingBell_v2HTTPPort"), ["ring", "bell", "v", "http", "port"]);
    }
}
