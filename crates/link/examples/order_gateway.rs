// SPDX-License-Identifier: MIT OR Apache-2.0
//! A trading strategy and its gateway to an exchange: the strategy sends orders, the gateway
//! replies with reports, and each trading day is an epoch.
//!
//! ```sh
//! mkdir -m 700 /tmp/gateway /tmp/strategy
//! cargo run --example order_gateway -- gateway unix:/tmp/orders.sock /tmp/gateway
//! cargo run --example order_gateway -- strategy unix:/tmp/orders.sock /tmp/strategy 20261123 100
//! ```
//!
//! Kill either process at any moment and start it again with the same arguments: no order is
//! executed twice, none is missing, and each has one report. If the strategy is started with
//! another day, both processes report the orders of the previous day that were not executed.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use partywall_link::{Client, Config, Link, RecvError, Server, Storage};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["gateway", address, directory] => gateway(address, directory),
        ["strategy", address, directory, day, orders] => {
            strategy(address, directory, day.parse()?, orders.parse()?)
        }
        _ => bail!(
            "order_gateway gateway ADDRESS DIR, or order_gateway strategy ADDRESS DIR DAY ORDERS"
        ),
    }
}

/// Runs the gateway: executes orders as they arrive, until an error ends the process.
fn gateway(address: &str, directory: &str) -> Result<()> {
    let place = Storage::directory(directory);
    let server = Server::bind(address, place, "gateway", Config::default())?;
    let link = server.accept()?;
    println!("a strategy is here: {}", link.key());
    loop {
        tell_what_was_left(&link)?;
        match link.recv_deadline(Instant::now() + Duration::from_secs(1)) {
            Ok(Some(order)) => {
                let number = number_of(&order)?;
                if order.attempt() > 1 {
                    println!("order {number} was here before, and was not reported");
                }
                // The link sends the report and acknowledges the order in one step: after a crash
                // both have happened, or neither.
                order.reply(&number.to_le_bytes())?;
            }
            // The strategy process may be started again, so the gateway does not end: its next call
            // of `recv` waits for that process.
            Ok(None) => println!("the strategy has finished"),
            Err(RecvError::TimedOut) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Runs the strategy: sends the orders of a day, and waits until each has its report.
fn strategy(address: &str, directory: &str, day: u64, orders: u64) -> Result<()> {
    let place = Storage::directory(directory);
    let client = Client::new(place, "strategy", Config::default())?;
    let link = client.connect(address, "gateway", "orders")?;
    if link.epoch()? < day {
        link.begin_epoch(day)?;
    }
    ensure!(link.epoch()? == day, "the link is on day {} already", link.epoch()?);
    tell_what_was_left(&link)?;
    // Each order takes one slot, and so does each report, so the link's positions give the number
    // of orders and reports of this day.
    let mut sent = link.sent_position()?.position / SLOT_BYTES;
    let mut reported = link.acked_position()?.map_or(0, |place| place.position / SLOT_BYTES);
    println!("{sent} orders of day {day} were sent before, {reported} reports were received");
    while reported < orders {
        // The strategy receives reports before it sends more orders. Otherwise its ring would fill
        // with unacknowledged orders, and the gateway's ring with reports.
        if sent < orders && sent - reported < UNREPORTED_MAX {
            link.send(&sent.to_le_bytes())?;
            sent += 1;
            continue;
        }
        let received = link.recv_deadline(Instant::now() + Duration::from_secs(60))?;
        let report = received.context("the gateway has finished")?;
        ensure!(
            number_of(&report)? == reported,
            "reports come in the order of what they are about"
        );
        report.ack()?;
        reported += 1;
    }
    tell_what_was_left(&link)?;
    println!("{orders} orders of day {day} were executed");
    link.close(Instant::now() + Duration::from_secs(10))?;
    Ok(())
}

/// Maximum number of orders that wait for their reports. Their 64 bytes each fill only a small part
/// of the link's ring of 1 MiB.
const UNREPORTED_MAX: u64 = 1000;
/// Bytes of the stream that a message of 8 bytes takes.
const SLOT_BYTES: u64 = 64;

fn tell_what_was_left(link: &Link) -> Result<()> {
    let reports = link.reports()?;
    for report in &reports {
        println!("not delivered: {report:?}");
    }
    Ok(link.acknowledge_reports(&reports)?)
}

fn number_of(message: &[u8]) -> Result<u64> {
    Ok(u64::from_le_bytes(message.try_into().context("an order is a number of 8 bytes")?))
}
