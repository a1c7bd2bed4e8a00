// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a C program which uses `partywall.h` echoes the messages of every implementation over
//! every transport, and that every implementation echoes the C program's messages. Each byte of
//! each answer must be right.

use anyhow::Result;
use conformance::exchange::{Exchange, Transport};
use conformance::roster::{Peer, has_c_compiler, present};

#[test]
fn a_c_program_echoes_every_implementation_in_both_roles() -> Result<()> {
    if !has_c_compiler() {
        return Ok(());
    }
    for peer in present() {
        for pair in [(Peer::C, peer), (peer, Peer::C)] {
            for transport in Transport::ALL {
                let exchange = Exchange::new(pair, transport)?;
                exchange.clean(&format!("--sizes {AROUND_SLICES} --streams 10 --count 16"), 160)?;
            }
        }
    }
    Ok(())
}

#[test]
fn a_c_program_sends_megabytes_to_shmipc_go_and_back() -> Result<()> {
    let peers = present();
    if !has_c_compiler() || !peers.contains(&Peer::Go) {
        return Ok(());
    }
    for pair in [(Peer::C, Peer::Go), (Peer::Go, Peer::C)] {
        let sizes = "--sizes 1048576,8388608 --streams 2 --count 4 --buffer-cap 268435456";
        Exchange::new(pair, Transport::UnixMemfd)?.clean(sizes, 8)?;
    }
    Ok(())
}

const AROUND_SLICES: &str = "1,8171,8172,8173,32748,32749,131052,131053";
