// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that every server echoes the messages of every client over every transport: each byte of
//! each answer is right. Servers and clients are shmipc-go, shmipc-rs and `partywall-shmipc`.
//!
//! The sizes are around the capacities of the default slices (8,172, 32,748 and 131,052 bytes), and
//! far above.

use anyhow::{Context, Result};
use conformance::exchange::{Exchange, Transport};
use conformance::roster::pairs;

fn with_all(arguments: &str, requests: u64) -> Result<()> {
    for pair in pairs() {
        for transport in Transport::ALL {
            Exchange::new(pair, transport)?.clean(arguments, requests)?;
        }
    }
    Ok(())
}

#[test]
fn sizes_around_the_slices_in_one_stream() -> Result<()> {
    with_all(&format!("--sizes {AROUND_SLICES} --streams 1 --count 8"), 8)
}

#[test]
fn sizes_around_the_slices_in_ten_streams() -> Result<()> {
    with_all(&format!("--sizes {AROUND_SLICES} --streams 10 --count 16"), 160)
}

#[test]
fn sizes_of_many_megabytes() -> Result<()> {
    // The region must have room for the requests and the answers of two streams at the same time.
    with_all("--sizes 1048576,8388608,25165824 --streams 2 --count 3 --buffer-cap 268435456", 6)
}

#[test]
fn five_hundred_streams() -> Result<()> {
    let sizes = "--sizes 1,8172,32749";
    with_all(&format!("{sizes} --streams 500 --count 3 --buffer-cap 134217728"), 1500)
}

#[test]
fn four_sessions_whose_streams_go_back_to_the_pool() -> Result<()> {
    let lanes = "--streams 200 --sessions 4 --put-back --lease 3 --count 9";
    with_all(&format!("--sizes 1,8172,32749,100 {lanes} --buffer-cap 134217728"), 1800)
}

#[test]
fn requests_ahead_of_answers_and_reads_that_ignore_boundaries() -> Result<()> {
    let ahead = "--pipeline 16 --ignore-boundaries --buffer-cap 134217728";
    with_all(&format!("--sizes 64,8173,5,70000,1 --streams 4 --count 500 {ahead}"), 2000)
}

/// Input: a region whose queue has a capacity that is no power of two, and whose slices have other
/// sizes than the defaults. Expected: each server echoes all requests correctly.
#[test]
fn a_region_of_unusual_shape() -> Result<()> {
    let region = "--queue-cap 48 --slices 4096:40,100000:60 --buffer-cap 67108864";
    with_all(&format!("--sizes 1,4096,4097,250000 --streams 8 --count 40 {region}"), 320)
}

#[test]
fn reads_of_odd_pieces_without_pipelining() -> Result<()> {
    let pair = pairs().pop().context("nobody takes part")?;
    let sizes = format!("--sizes {AROUND_SLICES} --ignore-boundaries --streams 3 --count 16");
    Exchange::new(pair, Transport::UnixMemfd)?.clean(&sizes, 48)?;
    Ok(())
}

const AROUND_SLICES: &str = "1,8171,8172,8173,32748,32749,131052,131053";
