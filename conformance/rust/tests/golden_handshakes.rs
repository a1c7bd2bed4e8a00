// SPDX-License-Identifier: MIT OR Apache-2.0
//! The handshakes in `spec/shmipc` equal those of shmipc-go and shmipc-rs with each other, and of
//! each of them with `partywall-shmipc`.
//!
//! With `CONFORMANCE_RECORD=1` the test writes the files instead of comparing them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use conformance::exchange::{Exchange, Transport};
use conformance::roster::{Peer, present};
use conformance_recorder::Recorder;
use conformance_recorder::normal::{self, Client};

/// Tests that all handshakes equal the recorded ones in `spec/shmipc`. One test covers all
/// recordings, because the names of the shared memory are fixed: two clients at the same time would
/// remove each other's files.
#[test]
fn the_handshakes_are_the_recorded_ones() -> Result<()> {
    for (transport, name) in RECORDED {
        record(transport, name)?;
        compare_with_ours(transport, name)?;
    }
    Ok(())
}

fn record(transport: Transport, name: &str) -> Result<()> {
    for peer in present().into_iter().filter(|&peer| peer != Peer::Ours) {
        let exchange = Exchange::new((peer, peer), transport)?;
        let text = heading(peer, transport) + &exchange_of(&exchange)?;
        let file = vectors().join(format!("{name}-{}.txt", peer.name()));
        if std::env::var_os("CONFORMANCE_RECORD").is_some() {
            std::fs::write(&file, &text)?;
        }
        let golden = golden(&file)?;
        ensure!(text == golden, "{} is not what passes now:\n{text}", file.display());
    }
    Ok(())
}

/// Compares the handshakes of `partywall-shmipc` with the recording: as server and as client,
/// against shmipc-go, shmipc-rs and itself.
fn compare_with_ours(transport: Transport, name: &str) -> Result<()> {
    let peers = present().into_iter().filter(|&peer| peer != Peer::Ours);
    let pairs = peers.flat_map(|peer| [(peer, (peer, Peer::Ours)), (peer, (Peer::Ours, peer))]);
    for (peer, pair) in pairs.chain([(Peer::Rust, (Peer::Ours, Peer::Ours))]) {
        let exchange = Exchange::new(pair, transport)?;
        let text = exchange_of(&exchange).with_context(|| exchange.to_string())?;
        let golden = golden(&vectors().join(format!("{name}-{}.txt", peer.name())))?;
        let golden = golden.strip_prefix(&heading(peer, transport)).context("another heading")?;
        ensure!(text == golden, "{exchange}: what passes is not what was recorded:\n{text}");
    }
    Ok(())
}

fn golden(file: &Path) -> Result<String> {
    std::fs::read_to_string(file)
        .with_context(|| format!("reading {}; record it first", file.display()))
}

fn exchange_of(exchange: &Exchange) -> Result<String> {
    let (mut server, address) = exchange.serve("")?;
    let between = exchange.socket().with_extension("recorded");
    let recorder = Recorder::start(&between, PathBuf::from(address))?;
    let between = between.display().to_string();
    let client = exchange.run(&between, &format!("--sizes 1 --prefix {PREFIX}"))?;
    let named = match exchange.client {
        Peer::Ours | Peer::C => Client::Ours(client.id()),
        Peer::Go | Peer::Rust => Client::Published(client.id()),
    };
    let client = client.finish(TIMEOUT)?;
    ensure!(client.code == Some(0), "{client:?}");
    server.end_stdin();
    let server = server.finish(TIMEOUT)?;
    ensure!(server.code == Some(0), "{server:?}");
    normal::write(&recorder.passed(), named)
}

fn heading(peer: Peer, transport: Transport) -> String {
    let version = if peer == Peer::Go { "0.2.0" } else { "0.2.1" };
    let name = peer.name();
    format!(
        "# {name} {version} as client and as server, {transport:?}, default sizes. See README.md.\n\
         # prefix {PREFIX}\n# pid {}\n",
        normal::PID
    )
}

fn vectors() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec/shmipc")
}

const RECORDED: [(Transport, &str); 2] =
    [(Transport::UnixFile, "v2-file"), (Transport::UnixMemfd, "v3-memfd")];
/// Prefix of the names of shared memory in all recordings. It is fixed, because the names are part
/// of the compared handshakes.
const PREFIX: &str = "/dev/shm/conformance-golden";
const TIMEOUT: Duration = Duration::from_secs(30);
