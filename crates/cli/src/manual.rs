// SPDX-License-Identifier: MIT OR Apache-2.0
//! `partywall completions` and `partywall man`, generated from the definitions behind `--help`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::command::exit::usage;

/// Print the script with which a shell completes the arguments of partywall
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = COMPLETION_EXAMPLES)]
pub struct CompletionArguments {
    /// The shell for which the script is
    shell: Shell,
}

/// Print one manual page, or write the manual pages of all commands
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub struct ManArguments {
    /// The command whose manual page is printed, such as link send [default: `partywall` itself]
    #[arg(value_name = "COMMAND")]
    path: Vec<String>,
    /// Directory to write the pages of all commands to
    #[arg(long, value_name = "DIR", conflicts_with = "path")]
    out: Option<PathBuf>,
}

/// Prints the completion script for a shell.
pub fn completions(arguments: &CompletionArguments) -> Result<ExitCode> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut visible(), NAME, &mut script);
    print(&script)
}

/// Prints one manual page, or writes the pages of all commands to a directory.
pub fn man(arguments: &ManArguments) -> Result<ExitCode> {
    let mut root = visible();
    root.build();
    if let Some(directory) = &arguments.out {
        fs::create_dir_all(directory)
            .with_context(|| format!("making {} failed", directory.display()))?;
        write_pages(&root, NAME, directory)?;
        return Ok(ExitCode::SUCCESS);
    }
    let (mut command, mut name) = (&root, NAME.to_owned());
    for part in &arguments.path {
        let Some(found) = command.find_subcommand(part) else {
            return Err(usage(format!("{name} has no command {part}: see {name} --help")));
        };
        command = found;
        name = format!("{name}-{part}");
    }
    print(&page(command)?)
}

fn write_pages(command: &Command, name: &str, directory: &Path) -> Result<()> {
    let path = directory.join(format!("{name}.1"));
    fs::write(&path, page(command)?)
        .with_context(|| format!("writing {} failed", path.display()))?;
    for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
        write_pages(inner, &format!("{name}-{}", inner.get_name()), directory)?;
    }
    Ok(())
}

fn page(command: &Command) -> Result<Vec<u8>> {
    let mut text = Vec::new();
    Man::new(command.clone()).render(&mut text).context("making the page failed")?;
    Ok(text)
}

/// The `partywall` command without hidden subcommands, which the generators would include in
/// completions and manual pages.
fn visible() -> Command {
    let all = crate::Arguments::command();
    let visible: Vec<Command> =
        all.get_subcommands().filter(|command| !command.is_hide_set()).cloned().collect();
    let mut command = Command::new(NAME).version(partywall_bench::VERSION).subcommands(visible);
    if let Some(about) = all.get_about() {
        command = command.about(about.clone());
    }
    if let Some(examples) = all.get_after_help() {
        command = command.after_help(examples.clone());
    }
    command.subcommand_required(true)
}

fn print(bytes: &[u8]) -> Result<ExitCode> {
    match io::stdout().write_all(bytes) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        // A reader may close the pipe early, as in `partywall man | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("writing to stdout failed"),
    }
}

const NAME: &str = "partywall";

const COMPLETION_EXAMPLES: &str = "\
Examples:
  partywall completions bash > ~/.local/share/bash-completion/completions/partywall
  partywall completions zsh > ~/.zfunc/_partywall
  partywall completions fish > ~/.config/fish/completions/partywall.fish";

const MAN_EXAMPLES: &str = "\
Examples:
  partywall man | man -l -                  read it in the terminal
  partywall man echo run | man -l -         the page of one command
  partywall man --out ~/.local/share/man/man1";
