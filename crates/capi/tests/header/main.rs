// SPDX-License-Identifier: MIT OR Apache-2.0
//! Checks that `partywall.h`, the list of exported symbols and the Rust functions agree: names,
//! arguments, their types and order, and the numbers of statuses.

use partywall_testkit::error_numbers::NumberTable;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const HEADER: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/c/include/partywall.h"));
const SYMBOLS: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bindings/c/partywall.map"));

/// Functions as the header declares them: for each name, the result and the arguments with type and
/// name.
type Prototypes = BTreeMap<String, String>;

fn declared() -> Prototypes {
    let mut text = String::new();
    let mut rest = HEADER;
    while let Some((before, comment)) = rest.split_once("/*") {
        text.push_str(before);
        rest = comment.split_once("*/").expect("a comment ends").1;
    }
    text.push_str(rest);
    let code = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let code: Vec<&str> = code.flat_map(str::split_whitespace).collect();
    let mut found = Prototypes::new();
    for statement in code.join(" ").split(';') {
        let Some((head, arguments)) = statement.split_once('(') else { continue };
        let (_, name) = head.rsplit_once([' ', '*']).expect("a result and a name");
        let result = head[..head.len() - name.len()].trim().trim_start_matches(['{', '}', ' ']);
        let result = result.strip_prefix("extern \"C\" { ").unwrap_or(result);
        let arguments = arguments.trim_end_matches([')', ' ']);
        let former = found.insert(name.to_owned(), format!("{} ({arguments})", tight(result)));
        assert_eq!(former, None, "{name} is declared twice");
    }
    found
}

/// Writes the asterisks of a C type without a space before the name that follows.
fn tight(c_type: &str) -> String {
    c_type.replace(" *", "*").replace('*', " *").replace("* *", "**").trim().to_owned()
}

/// Returns the functions that the Rust sources export, as the header should declare them.
fn exported() -> Prototypes {
    let mut found = Prototypes::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(sources).expect("the sources") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a source");
        for (at, _) in text.match_indices("    fn partywall_") {
            let (name, rest) = text[at + "    fn ".len()..].split_once('(').expect("arguments");
            if name == "partywall_test_panic" {
                continue; // only builds with debug assertions have it
            }
            let (arguments, rest) = rest.split_once(')').expect("an end of the arguments");
            let result = rest.split_once('{').expect("a body").0.trim();
            let result = result.strip_prefix("->").map_or("int32_t".to_owned(), c_type);
            let arguments = arguments.split(',').filter(|argument| !argument.trim().is_empty());
            let arguments: Vec<String> = arguments.map(c_argument).collect();
            let arguments =
                if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
            found.insert(name.to_owned(), format!("{result} ({arguments})"));
        }
    }
    found
}

fn c_argument(argument: &str) -> String {
    let (name, rust) = argument.split_once(':').expect("a name and a type");
    let (name, c_type) = (name.trim().trim_start_matches("r#"), c_type(rust));
    let space = if c_type.ends_with('*') { "" } else { " " };
    format!("{c_type}{space}{name}")
}

fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(inner) = rust.strip_prefix("Out<").and_then(|rest| rest.strip_suffix('>')) {
        let inner = c_type(inner);
        let space = if inner.ends_with('*') { "" } else { " " };
        return format!("{inner}{space}*");
    }
    if let Some(object) = rust.strip_prefix("Handle<").and_then(|rest| rest.strip_suffix("Object>"))
    {
        return format!("partywall_{} *", words(object));
    }
    if let Some(object) = rust.strip_prefix('C').filter(|rest| rest.starts_with(char::is_uppercase))
    {
        return format!("partywall_{}", words(object));
    }
    match rust {
        "Text" | "*const c_char" => "const char *",
        "Bytes" | "*const c_void" => "const void *",
        "Buffer" | "*mut c_void" => "void *",
        "Errors" => "partywall_error **",
        "usize" => "size_t",
        "i32" => "int32_t",
        "u32" => "uint32_t",
        "i64" => "int64_t",
        "u64" => "uint64_t",
        other => panic!("the header has no type for {other}"),
    }
    .to_owned()
}

/// Converts a name of Rust to the style of C: `LinkGroup` to `link_group`.
fn words(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

#[test]
fn header_declares_exactly_the_exported_functions() {
    let (declared, exported) = (declared(), exported());
    assert!(exported.len() > 30, "the sources were not understood: {exported:?}");
    for (name, prototype) in &exported {
        assert_eq!(declared.get(name), Some(prototype), "{name} in partywall.h");
    }
    let extra: Vec<_> = declared.keys().filter(|name| !exported.contains_key(*name)).collect();
    assert!(extra.is_empty(), "partywall.h declares functions that are not there: {extra:?}");
}

#[test]
fn objects_have_numbers_of_their_own() {
    let mut kinds = BTreeMap::new();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    for entry in fs::read_dir(sources).expect("the sources") {
        let text = fs::read_to_string(entry.expect("an entry").path()).expect("a source");
        for (at, _) in text.match_indices("    const KIND: u8 = ") {
            let (kind, rest) = text[at..].split_once(';').expect("an end");
            let name = rest.split('"').nth(1).expect("a name").to_owned();
            assert_eq!(kinds.insert(kind.to_owned(), name.clone()), None, "the number of {name}");
        }
    }
    assert!(kinds.len() > 15, "the sources were not understood: {kinds:?}");
}

#[test]
fn symbol_list_names_exactly_the_declared_functions() {
    let lines = SYMBOLS.lines().map(str::trim).filter(|line| line.starts_with("partywall_"));
    let symbols: BTreeSet<String> =
        lines.map(|line| line.trim_end_matches(';').to_owned()).collect();
    let declared: BTreeSet<String> = declared().into_keys().collect();
    assert_eq!(symbols, declared);
}

#[test]
fn statuses_of_the_header_are_numbers_of_the_specification() {
    let mut table = NumberTable::of_section("17 Error numbers");
    let names = [
        ("FINISHED_HERE", "stream finished here"),
        ("STOPPED_HERE", "stream stopped here"),
        ("MESSAGE_TOO_LONG", "message too long"),
    ];
    // In `partywall.h` the numbers of statuses stand before the first function.
    let last = HEADER.lines().position(|line| line.ends_with(");")).expect("a function");
    let mut count = 0;
    for line in HEADER.lines().take(last) {
        let Some(rest) = line.strip_prefix("#define PARTYWALL_") else { continue };
        let Some((name, number)) = rest.split_once(' ') else { continue };
        let number: u32 = number.trim().parse().expect("a number");
        if number == 0 {
            continue;
        }
        let own = name.to_lowercase().replace('_', " ");
        let own = names.iter().find(|(it, _)| *it == name).map_or(own.as_str(), |(_, own)| own);
        table.check(name, number, own);
        count += 1;
    }
    assert!(count > 15, "only {count} statuses were found");
    table.assert_all_met(900..=999);
}
