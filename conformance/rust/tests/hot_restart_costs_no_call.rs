// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests hot restart: a server hands its clients over to its successor during calls, and no call
//! fails.
//!
//! ```text
//! old      serve ──────── hot-restart 7 ── "restarted" ──────────────────────── end of stdin
//! new             serve, same address ───────────────────────────────────────────────────── end
//! client   run, until stdin ends ───────────────── renew ── "renewed" ───────── end of stdin
//! ```
//!
//! The old server closes when the client has leased each of its streams anew. By then no call uses
//! a session of the old server. (A fixed delay instead would make calls fail on a busy machine.)
//!
//! Over TCP the address is that of a forwarder, which sends later connections to the new server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use conformance::exchange::{Exchange, Transport};
use conformance::forwarder::Forwarder;
use conformance::process::{Ended, Process};
use conformance::roster::{Peer, pairs};

/// The pairs in which the server supports hot restart, and the client moves to the successor. The
/// published crate `shmipc` supports neither role, so it is in none of these pairs.
fn restarting_pairs() -> impl Iterator<Item = (Peer, Peer)> {
    pairs().into_iter().filter(|&(server, client)| server != Peer::Rust && client != Peer::Rust)
}

#[test]
fn a_hot_restart_under_load_over_memfds_fails_no_call() -> Result<()> {
    restart_all(Transport::UnixMemfd)
}

#[test]
fn a_hot_restart_under_load_over_files_fails_no_call() -> Result<()> {
    restart_all(Transport::UnixFile)
}

#[test]
fn a_hot_restart_under_load_over_tcp_fails_no_call() -> Result<()> {
    restart_all(Transport::TcpFile)
}

fn restart_all(transport: Transport) -> Result<()> {
    for pair in restarting_pairs() {
        let exchange = Exchange::new(pair, transport)?;
        restart(&exchange).with_context(|| exchange.to_string())?;
    }
    Ok(())
}

fn restart(exchange: &Exchange) -> Result<()> {
    let (mut old, address) = exchange.serve("")?;
    let load = "--streams 8 --sessions 2 --put-back --lease 4 --count 16 --sizes 1,9000,40000";
    let forwarder = match exchange.transport {
        Transport::TcpFile => Some(Forwarder::start(&address)?),
        Transport::UnixFile | Transport::UnixMemfd => None,
    };
    let address = forwarder.as_ref().map_or(address, Forwarder::address);
    let mut client = exchange.run(&address, &format!("{load} --until-stdin-ends"))?;
    client.wait_for_line("connected", TIMEOUT)?;
    // Calls are made on each session, because only a served call proves that the old server has
    // accepted the session. The hot restart would not move a session that is not accepted yet; that
    // session would be in use when the old server closes.
    for _ in 0..=SESSIONS * STREAMS_IN_A_ROW / LANES {
        renew(&mut client)?;
    }
    let (mut new, successor) = exchange.serve("")?;
    if let Some(forwarder) = forwarder {
        forwarder.turn_to(&successor)?;
    }
    old.command("hot-restart 7")?;
    old.wait_for_line("restarted", TIMEOUT)?;
    // The old server has moved its clients to the new server. It may close once no call uses a
    // stream of an old session, so the client first leases all its streams anew.
    renew(&mut client)?;
    old.end_stdin();
    let old = old.finish(TIMEOUT).context("old server")?;
    client.end_stdin();
    let client = client.finish(TIMEOUT).context("client")?;
    new.end_stdin();
    let new = new.finish(TIMEOUT).context("new server")?;
    let all = [&old, &client, &new];
    // The panic message has the results of all three programs, because the output of one program
    // may explain a failed call of another.
    ensure!(all.iter().all(|ended| ended.code == Some(0)), "old server, client, new: {all:#?}");
    let served = |ended: &Ended| ended.report.as_ref().map_or(0, |report| report.requests);
    ensure!(served(&old) > 0 && served(&new) > 0, "one server had nothing to do: {old:?} {new:?}");
    let (both, called) = (served(&old) + served(&new), served(&client));
    ensure!(both == called, "{both} answered of {called}");
    Ok(())
}

/// Asks the client to take each of its streams anew from the stream pool, and waits until it prints
/// "renewed". After that, no call uses a stream that was taken before.
fn renew(client: &mut Process) -> Result<()> {
    client.command("renew")?;
    client.wait_for_line("renewed", TIMEOUT)?;
    Ok(())
}

/// Number of the client's sessions, as in its options. `LANES` is the number of streams that it
/// uses at the same time.
const SESSIONS: u64 = 2;
const LANES: u64 = 8;
/// Number of streams that shmipc-go takes of one session before it takes streams of the next
/// session.
const STREAMS_IN_A_ROW: u64 = 32;
const TIMEOUT: Duration = Duration::from_secs(30);
