// SPDX-License-Identifier: MIT OR Apache-2.0
//! A million small messages there and back, many under way, over two sessions.

use anyhow::Result;
use conformance::exchange::{Exchange, Transport};
use conformance::roster::pairs;

#[test]
fn a_million_messages_arrive_in_order_and_whole() -> Result<()> {
    let lanes = "--streams 50 --count 20000 --sessions 2 --pipeline 64 --ignore-boundaries";
    for pair in pairs() {
        Exchange::new(pair, Transport::UnixMemfd)?
            .clean(&format!("--sizes 64,1,300 {lanes} --buffer-cap 134217728"), 1_000_000)?;
    }
    Ok(())
}
