// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that the help of each command has examples, and that completions and manual pages have the
//! same texts as the help.

use crate::program;

use program::{run, text};

/// All commands and subcommands of `partywall` that its help shows; the empty text is `partywall`
/// itself.
const COMMANDS: [&str; 20] = [
    "",
    "bench",
    "listen",
    "connect",
    "echo",
    "echo serve",
    "echo run",
    "proxy",
    "doctor",
    "inspect",
    "shmipc",
    "shmipc dump",
    "link",
    "link send",
    "link recv",
    "link inspect",
    "link adopt",
    "link reset",
    "completions",
    "man",
];

fn words(command: &str) -> Vec<&str> {
    command.split_whitespace().collect()
}

fn prints(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{arguments:?}");
    text(&output.stdout)
}

#[test]
fn every_command_has_examples_of_itself() {
    for command in COMMANDS {
        let help = prints(&[&words(command)[..], &["--help"]].concat());
        let (_, examples) = help.split_once("Examples:").unwrap_or_else(|| panic!("{command}"));
        assert!(examples.contains(&format!("partywall {command}")), "{command}: {examples}");
        assert!(!help.contains("bench-child"), "{command}");
    }
}

#[test]
fn options_in_the_examples_exist() {
    for command in COMMANDS {
        let help = prints(&[&words(command)[..], &["--help"]].concat());
        let (_, examples) = help.split_once("Examples:").unwrap();
        let own = format!("partywall {command} ");
        // The help of a group of commands shows examples of its subcommands. The test checks these
        // examples with the help of each subcommand.
        let is_group = ["", "echo", "shmipc", "link"].contains(&command);
        for line in examples.lines().filter(|line| line.contains(&own)) {
            for option in line.split_whitespace().filter(|word| word.starts_with("--")) {
                let options = help.split_once("Examples:").unwrap().0;
                assert!(is_group || options.contains(option), "{command} has no {option}: {line}");
            }
        }
    }
}

#[test]
fn help_of_commands_for_scripts_has_exit_codes() {
    for command in [
        "listen",
        "connect",
        "echo run",
        "echo serve",
        "proxy",
        "doctor",
        "inspect",
        "shmipc dump",
        "link send",
        "link recv",
        "link inspect",
        "link adopt",
        "link reset",
    ] {
        let help = prints(&[&words(command)[..], &["--help"]].concat());
        assert!(help.contains("Exit codes:"), "{command}");
    }
}

#[test]
fn version_names_the_commit() {
    let version = prints(&["--version"]);
    let (number, commit) = version.trim().split_once(" (").expect("a commit");
    assert_eq!(number, concat!("partywall ", env!("CARGO_PKG_VERSION")));
    assert!(commit.len() > 7 && commit.ends_with(')'), "{version}");
}

#[test]
fn completions_are_made_for_each_shell() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef"), ("fish", "complete -c")] {
        let script = prints(&["completions", shell]);
        assert!(script.contains(mark), "{shell}");
        for word in [
            "listen", "connect", "echo", "serve", "doctor", "retry", "shmipc", "dump", "link",
            "inspect", "send", "recv", "adopt", "reset",
        ] {
            assert!(script.contains(word), "{shell} completes no {word}");
        }
        assert!(!script.contains("bench-child"), "{shell}");
    }
    assert_eq!(run(&["completions", "nonsense"]).status.code(), Some(2));
}

#[test]
fn manual_pages_are_made_for_each_command() {
    let directory = tempfile::tempdir().unwrap();
    let pages = directory.path().join("man1");
    assert_eq!(prints(&["man", "--out", pages.to_str().unwrap()]), "");
    for command in COMMANDS {
        let name = format!("partywall {command}").trim().replace(' ', "-");
        let page = std::fs::read_to_string(pages.join(format!("{name}.1"))).expect(&name);
        assert!(page.contains(&format!(".TH {name} 1")), "{name}: {page}");
        assert!(page.contains("Examples:") && !page.contains("bench\\-child"), "{name}");
        assert_eq!(prints(&[&["man"], &words(command)[..]].concat()), page, "{name}");
    }
    assert_eq!(std::fs::read_dir(&pages).unwrap().count(), COMMANDS.len(), "and no others");
    assert_eq!(run(&["man", "nonsense"]).status.code(), Some(2));
}
