// SPDX-License-Identifier: MIT OR Apache-2.0
//! The server of a run: it answers the requests that the plans of all streams announce,
//! until a command ends it.
//!
//! ```text
//! stdin: end of file, or any other line ── close ── report
//!        hot-restart EPOCH ── Server::hot_restart ── "restarted EPOCH"; serves until the next line
//! ```
//! The command `hot-restart` moves the clients to another server and prints "restarted"; the server
//! then goes on until the next line of stdin ends it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, BufReader, stdin};
use tokio::signal::unix::{SignalKind, signal};

use super::options::Options;
use super::pattern::Pattern;
use super::plan::{Mode, Plan};
use super::report::SharedReport;
use super::stream::{Conversation, Receiver, Sender, Server};

/// Serves until stdin ends or SIGTERM arrives; returns the exit code.
///
/// # Errors
/// If signals cannot be received, or the server cannot accept streams.
pub async fn serve<S: Server>(
    options: &Options,
    peer: &str,
    address: &str,
    mut server: S,
) -> Result<u8> {
    let report = SharedReport::new("server", peer);
    let mut terminate = signal(SignalKind::terminate())?;
    let mut commands = BufReader::new(stdin()).lines();
    println!("ready {address}");
    let mut has_restarted = false;
    loop {
        tokio::select! {
            accepted = server.accept() => start(accepted.context("accepting")?, report.clone()),
            _ = terminate.recv() => break,
            line = commands.next_line() => {
                let line = line.ok().flatten().unwrap_or_default();
                let Some(epoch) = line.strip_prefix("hot-restart ") else { break };
                let epoch = epoch.trim().parse().context("the epoch")?;
                has_restarted = true;
                if let Err(error) = hand_over(&mut server, epoch, &report).await {
                    report.fail(&error.context("hot restart"));
                    break;
                }
                // This server still serves the streams in use. Once none is in use, the harness
                // ends this server.
                println!("restarted {epoch}");
            }
        }
    }
    if !has_restarted {
        // A client's disconnection may arrive before the ends of its streams, so the server waits
        // until no stream is open.
        await_ends(&report).await;
    }
    let metrics = server.close().await;
    await_ends(&report).await;
    super::remove_leftovers(&options.prefix);
    Ok(report.print(metrics))
}

/// Waits until no stream is open, or the deadline passes; the report then states the number of open
/// streams.
async fn await_ends(report: &SharedReport) {
    let deadline = Instant::now() + ENDS_TIMEOUT;
    while report.with(|report| report.streams_open) > 0 && Instant::now() < deadline {
        tokio::time::sleep(ENDS_PAUSE).await;
    }
}

/// Performs a hot restart: makes the clients reconnect to the successor server, and serves their
/// streams until they have.
async fn hand_over<S: Server>(server: &mut S, epoch: u64, report: &SharedReport) -> Result<()> {
    let mut restarting = std::pin::pin!(server.hot_restart(epoch));
    loop {
        tokio::select! {
            restarted = &mut restarting => return restarted,
            accepted = server.accept() => start(accepted.context("accepting")?, report.clone()),
        }
    }
}

fn start<C: Conversation>(stream: C, report: SharedReport) {
    report.with(|report| {
        report.streams += 1;
        report.streams_open += 1;
    });
    tokio::spawn(async move {
        let (mut sender, mut receiver) = stream.split();
        if let Err(error) = answer(&mut sender, &mut receiver, &report).await {
            eprintln!("server: {error:#}");
            report.fail(&error);
        }
        report.with(|report| report.streams_open -= 1);
        if let Err(error) = C::join(sender, receiver).close().await {
            eprintln!("server, closing: {error:#}");
        }
    });
}

async fn answer(
    sender: &mut impl Sender,
    receiver: &mut impl Receiver,
    report: &SharedReport,
) -> Result<()> {
    while let Some(plan) = Plan::read(receiver).await? {
        match plan.mode {
            Mode::Echo => echo(sender, receiver, &plan, report).await?,
            Mode::Upload => {
                upload(receiver, &plan, report).await;
                return Ok(());
            }
            Mode::Download => return download(sender, &plan, report).await,
            Mode::Report => tell(sender, report).await?,
        }
    }
    Ok(())
}

async fn echo(
    sender: &mut impl Sender,
    receiver: &mut impl Receiver,
    plan: &Plan,
    report: &SharedReport,
) -> Result<()> {
    let mut message = Vec::new();
    for request in 0..plan.requests {
        receive_request(receiver, plan, request, PIECE_BYTES, &mut message).await?;
        sender.send(&message).await.with_context(|| format!("answer {request}"))?;
        report.request(message.len());
    }
    Ok(())
}

/// Receives the requests that a plan announced. Counts the upload as whole if all arrived before
/// the end of the stream, otherwise as cut.
async fn upload(receiver: &mut impl Receiver, plan: &Plan, report: &SharedReport) {
    let mut message = Vec::new();
    for request in 0..plan.requests {
        let received = receive_request(receiver, plan, request, PIECE_BYTES, &mut message).await;
        if let Err(error) = received {
            eprintln!("upload: {error:#}");
            report.with(|report| report.uploads_cut += 1);
            return;
        }
        report.request(message.len());
    }
    report.with(|report| report.uploads_whole += 1);
}

/// Sends all requests that a plan announced. The caller then closes the stream at once.
async fn download(sender: &mut impl Sender, plan: &Plan, report: &SharedReport) -> Result<()> {
    let mut message = Vec::new();
    for request in 0..plan.requests {
        make_request(plan, request, &mut message);
        sender.send(&message).await.with_context(|| format!("download {request}"))?;
        report.request(message.len());
    }
    Ok(())
}

async fn tell(sender: &mut impl Sender, report: &SharedReport) -> Result<()> {
    let words =
        report.with(|report| [report.uploads_whole, report.uploads_cut, report.streams_open]);
    let answer: Vec<u8> = words.into_iter().flat_map(u64::to_be_bytes).collect();
    sender.send(&answer).await.context("telling the counts")
}

/// Fills `message` with the bytes of the request with number `request` of the plan.
pub(crate) fn make_request(plan: &Plan, request: u64, message: &mut Vec<u8>) {
    message.resize(plan.size(request), 0);
    Pattern::new(plan.seed, request).fill(message);
}

/// Receives the request with number `request` of the plan into `message`, in pieces, and checks its
/// bytes.
pub(crate) async fn receive_request(
    receiver: &mut impl Receiver,
    plan: &Plan,
    request: u64,
    piece_bytes: usize,
    message: &mut Vec<u8>,
) -> Result<()> {
    let size = plan.size(request);
    message.clear();
    while message.len() < size {
        let piece = piece_bytes.min(size - message.len());
        let before = message.len();
        receiver
            .receive_exact(piece, message)
            .await
            .with_context(|| format!("request {request} of {size} bytes, after {before}"))?;
    }
    if let Some(wrong) = Pattern::new(plan.seed, request).check(message) {
        anyhow::bail!("request {request} of {size} bytes: byte {wrong} is wrong");
    }
    Ok(())
}

pub(crate) const PIECE_BYTES: usize = 64 << 10;
const ENDS_TIMEOUT: Duration = Duration::from_secs(15);
const ENDS_PAUSE: Duration = Duration::from_millis(10);
