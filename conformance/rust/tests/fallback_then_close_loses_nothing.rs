// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests data that is sent over the socket because the region of shared memory is too small, and a
//! sender that closes the stream right after sending.
//!
//! All data must arrive before the end of the stream, in both directions. Pairs of shmipc-go and
//! shmipc-rs are known to lose data. Their exchange is performed all the same, and only this loss
//! is accepted.

use anyhow::{Context, Result, ensure};
use conformance::exchange::{Exchange, Transport};
use conformance::known_faults::fallback_then_close;
use conformance::roster::{Peer, pairs};

const TRAFFIC: &str = "--sizes 100,9000,300000,5 --streams 20 --count 9 --small-region";
const REQUESTS: u64 = 180;

#[test]
fn echo_in_a_region_that_is_too_small() -> Result<()> {
    for pair in pairs() {
        for transport in Transport::ALL {
            Exchange::new(pair, transport)?.clean(TRAFFIC, REQUESTS)?;
        }
    }
    Ok(())
}

#[test]
fn the_client_sends_and_closes_at_once() -> Result<()> {
    for (server, client) in pairs() {
        for transport in Transport::ALL {
            let exchange = Exchange::new((server, client), transport)?;
            close_at_once(&exchange, "upload", client, server)?;
        }
    }
    Ok(())
}

#[test]
fn the_server_sends_and_closes_at_once() -> Result<()> {
    for (server, client) in pairs() {
        for transport in Transport::ALL {
            let exchange = Exchange::new((server, client), transport)?;
            close_at_once(&exchange, "download", server, client)?;
        }
    }
    Ok(())
}

fn close_at_once(exchange: &Exchange, mode: &str, sender: Peer, receiver: Peer) -> Result<()> {
    let arguments = format!("{TRAFFIC} --mode {mode}");
    let Some(fault) = fallback_then_close(sender, receiver) else {
        exchange.clean(&arguments, REQUESTS)?;
        return Ok(());
    };
    let outcome = exchange.outcome(&arguments)?;
    let report = outcome.client.report.as_ref().context("no report")?;
    let known = |error: &String| error.contains("end of stream") || error.contains("cut short");
    ensure!(report.errors.iter().all(known), "more than {fault:?}: {outcome:?}");
    Ok(())
}
