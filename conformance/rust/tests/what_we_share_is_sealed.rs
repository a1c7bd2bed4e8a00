// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests the shared memory of `partywall-shmipc` while shmipc-go or shmipc-rs echoes its messages.
//! The memfds are sealed, the files have mode 0600, and the names contain a random token. All
//! descriptors are close-on-exec, so a program that the process starts would inherit none.
//!
//! ```text
//!   /proc/PID/fd/N ──▶ /memfd:shmipc…_TOKEN_PID_buffer  F_GET_SEALS: shrink, grow, seal; not write
//!   /proc/PID/fdinfo/N ──▶ flags: close-on-exec         /dev/shm/…_TOKEN_PID_buffer: 0600
//! ```
//!
//! The test inspects the running processes from outside, and relies on no report of them.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use conformance::exchange::{Exchange, Outcome, Transport};
use conformance::known_faults::opening_files_to_everybody;
use conformance::process::Process;
use conformance::roster::{Peer, present};
use rustix::fs::SealFlags;

fn published() -> impl Iterator<Item = Peer> {
    present().into_iter().filter(|&peer| peer != Peer::Ours)
}

#[test]
fn what_our_client_makes_is_sealed_or_for_our_user_alone() -> Result<()> {
    for peer in published() {
        for transport in Transport::ALL {
            let exchange = Exchange::new((peer, Peer::Ours), transport)?;
            clients_make(&exchange).with_context(|| exchange.to_string())?;
        }
    }
    Ok(())
}

/// Runs two clients, and inspects the shared memory that they create. Each has two sessions. The
/// names of all their memory begin with the prefix of the exchange.
fn clients_make(exchange: &Exchange) -> Result<()> {
    let (mut server, address) = exchange.serve("")?;
    let traffic = format!("{TRAFFIC} --until-stdin-ends");
    let mut clients = [exchange.run(&address, &traffic)?, exchange.run(&address, &traffic)?];
    let mut tokens = BTreeSet::new();
    for client in &mut clients {
        client.wait_for_line("connected", TIMEOUT)?;
        nothing_is_inherited(client)?;
        let shared = shared(client, exchange.prefix())?;
        let ends: BTreeSet<_> = shared.iter().filter_map(|one| one.name.rsplit_once("_")).collect();
        ensure!(shared.len() == 3, "one region, and a queue for each session: {ends:?}");
        for one in &shared {
            one.is_protected(exchange)?;
            tokens.insert(one.token(client.id())?);
        }
    }
    ensure!(tokens.len() == 2, "two clients drew {tokens:?}");
    let mut requests = 0;
    for mut client in clients {
        client.end_stdin();
        let ended = client.finish(TIMEOUT).context("client")?;
        let report = ended.report.clone().context("no report")?;
        ensure!(ended.code == Some(0) && report.failed == 0 && report.requests > 0, "{ended:?}");
        requests += report.requests;
    }
    server.end_stdin();
    let server = server.finish(TIMEOUT).context("server")?;
    let served = server.report.as_ref().map(|report| report.requests);
    ensure!(server.code == Some(0) && served == Some(requests), "{requests} asked; {server:?}");
    Ok(())
}

#[test]
fn what_our_server_received_is_not_inherited() -> Result<()> {
    for peer in published() {
        for transport in Transport::ALL {
            let exchange = Exchange::new((Peer::Ours, peer), transport)?;
            server_keeps(&exchange).with_context(|| exchange.to_string())?;
        }
    }
    Ok(())
}

fn server_keeps(exchange: &Exchange) -> Result<()> {
    let (mut server, address) = exchange.serve("")?;
    let mut client = exchange.run(&address, &format!("{TRAFFIC} --until-stdin-ends"))?;
    client.wait_for_line("connected", TIMEOUT)?;
    nothing_is_inherited(&server)?;
    client.end_stdin();
    let client = client.finish(TIMEOUT).context("client")?;
    server.end_stdin();
    let server = server.finish(TIMEOUT).context("server")?;
    let requests = client.report.as_ref().map_or(0, |report| report.requests);
    Outcome { client, server }.judge(requests)
}

/// Shared memory that a process has open, as `/proc` shows it.
struct Shared {
    /// Path in `/proc`, `/proc/PID/fd/N`, of the process's descriptor of the memory.
    link: PathBuf,
    /// Name of the file or memfd that holds the memory, as `/proc` shows it.
    name: String,
}

impl Shared {
    fn is_protected(&self, exchange: &Exchange) -> Result<()> {
        let name = &self.name;
        let file = File::open(&self.link).with_context(|| format!("opening {name}"))?;
        if exchange.transport == Transport::UnixMemfd {
            ensure!(name.starts_with("/memfd:shmipc"), "{name} is no memfd");
            let seals = rustix::fs::fcntl_get_seals(&file)?;
            let expected = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
            ensure!(seals.contains(expected), "{name} has only {seals:?}");
            // Seals against writing must be absent, because the peer must be able to write the
            // memory.
            let never = SealFlags::WRITE | SealFlags::FUTURE_WRITE;
            ensure!(!seals.intersects(never), "{name} cannot be written: {seals:?}");
            return Ok(());
        }
        let mode = std::fs::metadata(name).with_context(|| format!("{name} has gone"))?;
        let mode = mode.permissions().mode() & 0o7777;
        let known = opening_files_to_everybody(exchange.server);
        let is_known = known.is_some() && mode == 0o777;
        ensure!(mode == 0o600 || is_known, "{name} has mode {mode:o}");
        Ok(())
    }

    /// The random token in the memory's name, which stands before the process id. Other processes
    /// cannot guess a name with a token.
    fn token(&self, process: u32) -> Result<String> {
        let (before, _) =
            self.name.split_once(&format!("_{process}_")).context("a name without a process")?;
        let (_, token) = before.rsplit_once('_').context("a name without a token")?;
        let is_token = token.len() == 16 && token.bytes().all(|digit| digit.is_ascii_hexdigit());
        ensure!(is_token, "{token} in {} is not drawn", self.name);
        Ok(token.to_owned())
    }
}

/// The shared memory that `process` has open and whose name begins with `prefix`.
fn shared(process: &Process, prefix: &str) -> Result<Vec<Shared>> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{}/fd", process.id()))? {
        let link = entry?.path();
        let Ok(name) = std::fs::read_link(&link) else { continue };
        let name = name.to_string_lossy().into_owned();
        if name.contains(prefix) {
            all.push(Shared { link, name });
        }
    }
    Ok(all)
}

/// Checks that each descriptor, except those that the process inherited from this test, has the
/// flag close-on-exec.
fn nothing_is_inherited(process: &Process) -> Result<()> {
    let inherited = open_across_execution("self")?.0;
    let (open, closed) = open_across_execution(&process.id().to_string())?;
    ensure!(!closed.is_empty(), "it has no descriptors");
    let surplus: Vec<_> = open.difference(&inherited).filter(|&&number| number > 2).collect();
    let whose = process.id();
    let link = |number| std::fs::read_link(format!("/proc/{whose}/fd/{number}"));
    let links: Vec<_> = surplus.into_iter().map(link).collect();
    ensure!(links.is_empty(), "these would be inherited: {links:?}");
    Ok(())
}

/// Two sets of a process's descriptors: those that stay open across exec, and those that exec
/// closes.
fn open_across_execution(process: &str) -> Result<(BTreeSet<u32>, BTreeSet<u32>)> {
    let (mut open, mut closed) = (BTreeSet::new(), BTreeSet::new());
    for entry in std::fs::read_dir(format!("/proc/{process}/fdinfo"))? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()).context("no number")?;
        // If the file in `/proc` is missing, the process has closed the descriptor, so no program
        // inherits it.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let flags =
            text.lines().find_map(|line| line.strip_prefix("flags:")).context("no flags")?;
        let is_closed = u32::from_str_radix(flags.trim(), 8)? & CLOSE_ON_EXEC != 0;
        let of = if is_closed { &mut closed } else { &mut open };
        of.insert(number.parse()?);
    }
    Ok((open, closed))
}

const TRAFFIC: &str = "--streams 4 --sessions 2 --count 8 --sizes 1,9000,40000";
/// The flag `O_CLOEXEC` as `/proc` shows it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;
const TIMEOUT: Duration = Duration::from_secs(30);
