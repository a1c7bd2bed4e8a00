// SPDX-License-Identifier: MIT OR Apache-2.0
//! An application that logs and counts, and an agent in a separate process that collects both.
//!
//! ```text
//!   application                                      agent (polls every 10 ms, is never notified)
//!     4 threads ── log ──▶ LossySender ─────────────▶ LossyReceiver   lines, count of losses
//!     1 thread ─── counters every 20 ms ────────────▶ recv_plain      a plain struct
//! ```
//!
//! `cargo run -p partywall-extras --example log_agent` runs both processes and ends by itself. The
//! application never waits for the agent: a record without room is dropped and counted.

use partywall::{Begin, Channel, Config, Listener, TrySendError, Wait};
use partywall_extras::lossy::{LossyReceiver, LossySender, OnFull};
use std::process::Command;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The counters of the application, as a plain struct: without padding, and valid for any bytes.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Counters {
    sent: u64,
    dropped: u64,
    uptime_us: u64,
}

const THREADS: u64 = 4;
const LINES_PER_THREAD: u64 = 50_000;
/// Ring size: room for about 200,000 lines of 64 bytes with headers between two polls of the agent.
const RING_BYTES: u64 = 16 << 20;
const POLL_EVERY: Duration = Duration::from_millis(10);
const COUNT_EVERY: Duration = Duration::from_millis(20);
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("agent"), Some(address)) => agent(&address),
        (None, _) => application(),
        _ => Err("usage: log_agent [agent ADDRESS]".into()),
    }
}

/// Listens, starts the agent process, and connects to it one channel for lines and one for
/// counters.
fn application() -> Result<(), Failure> {
    let address = format!("unix:@log-agent-{}", std::process::id());
    let config = Config::default().ring_bytes(RING_BYTES);
    let mut listener = Listener::bind_with(&address, &config)?;
    let mut agent = Command::new(std::env::current_exe()?).args(["agent", &address]).spawn()?;
    let lines = listener.accept_deadline(Instant::now() + TIMEOUT)?;
    let counters = listener.accept_deadline(Instant::now() + TIMEOUT)?;

    let log = LossySender::new(lines.split().0, OnFull::DropNewest);
    let started = Instant::now();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let log = log.clone();
                    move || work(&log, thread)
                })
            })
            .collect();
        let counting = || workers.iter().any(|worker| !worker.is_finished());
        count(counters, &log, started, counting)
    })?;
    // `flush` waits until all queued records are sent. Dropping the last `LossySender` would flush
    // too, but wait for only 100 ms.
    log.flush(Instant::now() + TIMEOUT)?;
    let stats = log.stats();
    let took = started.elapsed();
    drop(log);
    println!(
        "application: {} lines sent, {} dropped, in {took:?}",
        stats.sent,
        stats.drops.total()
    );
    let status = agent.wait()?;
    if status.success() { Ok(()) } else { Err(format!("the agent ended with {status}").into()) }
}

fn work(log: &LossySender, thread: u64) {
    for line in 0..LINES_PER_THREAD {
        log.log(format!("thread {thread}: line {line}").as_bytes());
    }
}

/// Sends the counters at intervals, and once more at the end, without ever waiting for the agent.
fn count(
    channel: Channel,
    log: &LossySender,
    started: Instant,
    goes_on: impl Fn() -> bool,
) -> Result<(), Failure> {
    let (mut sender, _receiver) = channel.split();
    loop {
        let is_last = !goes_on();
        let stats = log.stats();
        let counters = Counters {
            sent: stats.sent,
            dropped: stats.drops.total(),
            uptime_us: started.elapsed().as_micros().try_into()?,
        };
        match sender.try_send_plain(&counters) {
            // If the channel has no room, this set of counters is dropped: the next one has newer
            // values.
            Ok(()) | Err(TrySendError::Full) => {}
            Err(error) => return Err(error.into()),
        }
        if is_last {
            return Ok(());
        }
        std::thread::sleep(COUNT_EVERY);
    }
}

/// Collects lines in this thread and counters in another, until the application closes both.
fn agent(address: &str) -> Result<(), Failure> {
    // The application at the other end only sends. A connection that begins on the socket stays on
    // the socket if its acceptor never receives, so the agent asks for shared memory at once.
    let config = Config::default().begin(Begin::SharedMemory);
    let mut lines = LossyReceiver::new(partywall::connect_with(address, &config)?.split().1);
    let (_sender, mut counters) = partywall::connect_with(address, &config)?.split();
    lines.set_wait(Wait::Poll(POLL_EVERY));
    counters.set_wait(Wait::Poll(POLL_EVERY));

    let counting = std::thread::spawn(move || -> Result<_, Failure> {
        let (mut count, mut last) = (0_u64, Counters::default());
        while let Some(counters) =
            counters.recv_plain::<Counters>().map_err(|error| error.to_string())?
        {
            (count, last) = (count + 1, *counters);
        }
        Ok((count, last))
    });
    let (mut bytes, mut gaps) = (0, 0_u64);
    while let Some(record) = lines.recv()? {
        bytes += record.message.len();
        gaps += u64::from(record.lost_before > 0);
    }
    let (count, last) = counting.join().map_err(|_| "the counting thread panicked")??;
    println!(
        "agent: {} lines ({bytes} bytes), {} lost in {gaps} places; counters {count} times, the last: {last:?}",
        lines.received(),
        lines.lost()
    );
    Ok(())
}
