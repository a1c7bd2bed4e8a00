// SPDX-License-Identifier: MIT OR Apache-2.0
//! A server of shmipc-go or shmipc-rs is stopped while `partywall-shmipc` sends to it. Once the
//! queue or the buffer region is full, the sender waits or returns an error, as configured. After
//! the peer continues, every sent message arrives, and none twice.
//!
//! ```text
//!   ours    plan: n requests ─ 0 ─ 1 ─ … ─ k-1 ─ k ✗ ─────────── k ─ … ─ n-1 ─ end
//!   peer    checks each byte   ▲ SIGSTOP            ▲ SIGCONT
//! ```
//!
//! Request k, for which there was no room, is sent again. If an earlier request had been dropped,
//! or k had been sent before, the peer would find other bytes than it expects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use conformance::exchange::{Exchange, Transport};
use conformance::process::{Ended, Process};
use conformance::roster::{Peer, present};
use conformance_traffic::{Mode, Pattern, Plan};
use partywall::blocking::{Listener, Stream, connect_with_protocol};
use partywall::{BackPressure, StreamSendError};
use partywall_shmipc::{Config, MemMapType, Shmipc, SizePercentPair};
use rustix::process::Signal;

#[test]
fn a_stopped_server_receives_all_that_was_sent() -> Result<()> {
    each(|exchange, plan, policy| {
        let (mut server, address) = exchange.serve("")?;
        let address = match exchange.transport {
            Transport::TcpFile => format!("tcp:{address}"),
            _ => format!("unix:{address}"),
        };
        let config = partywall::Config::default().back_pressure(policy);
        let connected = connect_with_protocol(&*address, &config, ours(exchange)?);
        let session = connected.context("connecting")?;
        let mut stream = session.open(&[])?;
        // The client asks for the server's counts over a second stream, because the server counts
        // an upload only after the first stream has ended.
        let mut teller = session.open(&[])?;
        let counts = ask(&mut teller)?;
        ensure!(counts == [0, 0], "counts {counts:?}");
        stream.send_deadline(&plan.encode(), soon())?;
        send_past_a_stop(&mut stream, plan, policy, &server)?;
        stream.finish();
        let deadline = soon();
        while ask(&mut teller)? != [1, 0] {
            ensure!(Instant::now() < deadline, "{:?} of uploads", ask(&mut teller)?);
        }
        drop((stream, teller));
        // The server ends the session. If the client did, the server could still be processing the
        // wake-up for its last answer, and would report an error.
        server.end_stdin();
        let ended = server.finish(TIMEOUT)?;
        drop(session);
        content(&ended, plan)
    })
}

#[test]
fn a_stopped_client_receives_all_that_was_sent() -> Result<()> {
    each(|exchange, plan, policy| {
        let config = partywall::Config::default().back_pressure(policy);
        let address = match exchange.transport {
            Transport::TcpFile => "tcp:127.0.0.1:0".to_owned(),
            _ => format!("unix:{}", exchange.socket().display()),
        };
        let listener = Listener::bind_with(&*address, &config).context("binding")?;
        let mut listener = listener.with_protocol(ours(exchange)?);
        let address = listener.local_address().to_string();
        let (_, address) = address.split_once(':').context("an address without a scheme")?;
        let sizes: Vec<String> = plan.sizes.iter().map(usize::to_string).collect();
        let traffic = format!(
            "--mode download --seed {} --count {} --sizes {} {REGION}",
            plan.seed,
            plan.requests,
            sizes.join(",")
        );
        let client = exchange.run(address, &traffic)?;
        let session = listener.accept_deadline(soon()).context("accepting")?;
        let mut stream = session.accept_deadline(soon())?.context("no stream")?;
        let asked = stream.recv_deadline(soon())?.context("no plan")?;
        let expected = Plan { mode: Mode::Download, ..plan.clone() };
        ensure!(*asked == expected.encode(), "another plan: {asked:?}");
        send_past_a_stop(&mut stream, plan, policy, &client)?;
        // The drop of a stream of shmipc ends both of its directions.
        drop(stream);
        let ended = client.finish(TIMEOUT)?;
        content(&ended, plan)
    })
}

/// Calls `run` for shmipc-go and shmipc-rs as servers, and each transport: once with short requests
/// that fill the queue, and once with long ones that fill the buffer region.
fn each(run: impl Fn(&Exchange, &Plan, BackPressure) -> Result<()>) -> Result<()> {
    for peer in present().into_iter().filter(|&peer| peer != Peer::Ours) {
        for transport in Transport::ALL {
            for (policy, size) in [(BackPressure::Block, 100), (BackPressure::Error, 100)]
                .into_iter()
                .chain([(BackPressure::Block, 60_000), (BackPressure::Error, 60_000)])
            {
                // Only the server runs as a program of its own. The client, which is the sender
                // under test, runs in this process.
                let exchange = Exchange::new((peer, peer), transport)?;
                let plan =
                    Plan { mode: Mode::Upload, seed: 7, requests: 400, sizes: vec![size, 5] };
                run(&exchange, &plan, policy)
                    .with_context(|| format!("{peer:?}, {transport:?}, {policy:?}, {size}"))?;
            }
        }
    }
    Ok(())
}

/// Makes the sender under test: `partywall-shmipc` with a small region and a short queue. Its files
/// have the prefix of the exchange, so the exchange removes them.
fn ours(exchange: &Exchange) -> Result<Arc<Shmipc>> {
    let mapping = match exchange.transport {
        Transport::UnixMemfd => MemMapType::MemFd,
        _ => MemMapType::DevShmFile,
    };
    let classes =
        [(4096, 50), (65_536, 50)].map(|(size, percent)| SizePercentPair { size, percent });
    let config = Config::default()
        .share_memory_path_prefix(format!("{}-ours", exchange.prefix()))
        .share_memory_buffer_cap(1 << 20)
        .buffer_slice_sizes(classes)
        .queue_cap(QUEUE_CAP)
        .files_without_credentials(exchange.transport == Transport::TcpFile)
        .mem_map_type(mapping);
    Ok(Arc::new(Shmipc::new(config).context("settings")?))
}

/// Stops the server, sends requests until the queue or the buffer region is full, continues the
/// server, and sends the rest.
fn send_past_a_stop(
    stream: &mut Stream,
    plan: &Plan,
    policy: BackPressure,
    peer: &Process,
) -> Result<()> {
    peer.signal(Signal::STOP)?;
    await_stop(peer.id())?;
    let mut sent = 0;
    let full = loop {
        ensure!(sent < plan.requests - 10, "never full");
        match stream.send_deadline(&request(plan, sent), Instant::now() + WAIT) {
            Ok(()) => sent += 1,
            Err(full) => break full,
        }
    };
    match (policy, &full) {
        (BackPressure::Error, StreamSendError::Full)
        | (BackPressure::Block, StreamSendError::TimedOut) => {}
        _ => bail!("with {policy:?} it is {full:?}"),
    }
    let least = if plan.size(0) < SMALL { u64::from(QUEUE_CAP) - 1 } else { 10 };
    ensure!(sent >= least, "full after {sent}");
    peer.signal(Signal::CONT)?;
    for index in sent..plan.requests {
        send_until_accepted(stream, &request(plan, index))
            .with_context(|| format!("request {index}, once it goes on"))?;
    }
    Ok(())
}

fn request(plan: &Plan, index: u64) -> Vec<u8> {
    let mut bytes = vec![0; plan.size(index)];
    Pattern::new(plan.seed, index).fill(&mut bytes);
    bytes
}

/// Asks the server for the number of complete uploads, and of uploads that ended before their last
/// request.
fn ask(teller: &mut Stream) -> Result<[u64; 2]> {
    let plan = Plan { mode: Mode::Report, seed: 0, requests: 0, sizes: vec![1] };
    send_until_accepted(teller, &plan.encode())?;
    let answer = teller.recv_deadline(soon()).context("asking")?.context("no answer")?;
    let words = answer.as_chunks::<8>().0;
    ensure!(words.len() == 3, "an answer of {} bytes", answer.len());
    Ok([u64::from_be_bytes(words[0]), u64::from_be_bytes(words[1])])
}

/// Sends a request again and again until the server has freed space for it. Until then each send
/// returns an error, at once or after a wait, as the sender's policy `BackPressure` says.
fn send_until_accepted(stream: &mut Stream, bytes: &[u8]) -> Result<()> {
    let deadline = soon();
    loop {
        match stream.send_deadline(bytes, deadline) {
            Ok(()) => return Ok(()),
            Err(StreamSendError::Full) if Instant::now() < deadline => std::thread::yield_now(),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until SIGSTOP has stopped all threads of a process, as `/proc` shows; until then a thread
/// may still receive requests.
fn await_stop(process: u32) -> Result<()> {
    let deadline = soon();
    loop {
        let mut is_stopped = true;
        for thread in std::fs::read_dir(format!("/proc/{process}/task"))? {
            let stat = std::fs::read_to_string(thread?.path().join("stat"))?;
            let (_, state) = stat.rsplit_once(") ").context("no state")?;
            is_stopped &= state.starts_with('T');
        }
        if is_stopped {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "{process} does not stop");
        std::thread::yield_now();
    }
}

/// Checks, in the server's report, that the server received every byte of every request, in order,
/// and nothing else.
fn content(ended: &Ended, plan: &Plan) -> Result<()> {
    let report = ended.report.as_ref().with_context(|| format!("no report: {ended:?}"))?;
    let is_right = ended.code == Some(0) && report.failed == 0 && report.uploads_cut == 0;
    ensure!(is_right && report.requests == plan.requests, "{ended:?}");
    let bytes: u64 = (0..plan.requests).map(|index| plan.size(index) as u64).sum();
    ensure!(report.bytes == bytes, "{} bytes of {bytes}", report.bytes);
    Ok(())
}

fn soon() -> Instant {
    Instant::now() + TIMEOUT
}

const QUEUE_CAP: u32 = 64;
/// Requests of fewer bytes fill the queue of 64 elements before they fill the slices of the region.
const SMALL: usize = 1000;
/// Options that give a program of shmipc-go or shmipc-rs the same region as the function `ours`
/// gives the sender.
const REGION: &str = "--buffer-cap 1048576 --slices 4096:50,65536:50 --queue-cap 64";
/// Deadline of each send of the sender under test: under the policy `Block`, the send waits this
/// long for room, and then fails.
const WAIT: Duration = Duration::from_millis(100);
const TIMEOUT: Duration = Duration::from_secs(20);
