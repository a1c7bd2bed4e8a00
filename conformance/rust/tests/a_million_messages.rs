// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a million small messages are sent and echoed, many of them in flight, over two
//! sessions. shmipc-go and shmipc-rs are each the server and the client of `partywall-shmipc`, over
//! each transport.

use anyhow::Result;
use conformance::exchange::{Exchange, Transport};
use conformance::roster::{Peer, pairs};

#[test]
fn a_million_messages_arrive_in_order_and_whole() -> Result<()> {
    let lanes = "--streams 50 --count 20000 --sessions 2 --pipeline 64 --ignore-boundaries";
    // Each message takes one slice, and 6,400 messages are in flight at a time. With larger slices
    // the region would not have enough of them.
    let region = "--slices 1024:100 --buffer-cap 67108864";
    for pair in pairs() {
        for transport in Transport::ALL {
            if pair == (Peer::Ours, Peer::Ours) && transport != Transport::UnixMemfd {
                continue;
            }
            Exchange::new(pair, transport)?
                .clean(&format!("--sizes 64,1,300 {lanes} {region}"), 1_000_000)?;
        }
    }
    Ok(())
}
