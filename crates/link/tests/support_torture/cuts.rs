// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rounds without kills: the network between the two ends is cut repeatedly. Each round measures
//! how long it takes until messages arrive again.
//!
//! ```text
//!   cut ──── the client can know of it: ─────── both ends ──── a message arrives over the
//!            a new connection is possible       attach         new connection
//!            │◀──────────────────── measured recovery time ─────────────────────▶│
//! ```
//!
//! A client whose old connection was kept learns of the cut only when its late bytes and its end
//! have arrived. The measured time ends when the oracle, the part of the test that checks the ends'
//! journal, reads of the message. That may be slightly late, but never early.
//!
//! On a busy machine each of the five threads involved waits for a processor, and the times mean
//! little. So the director, the test's main thread, marks each recovery during which it was itself
//! kept waiting, because the other threads probably were, too.

use super::content::{CLIENT, SERVER};
use super::figures::{Circumstances, Figures, Recovery};
use super::relay::{Harm, Relay};
use super::round::{Outcome, Round};
use super::settings::Via;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

impl Round {
    /// Starts client and server and cuts the network between them `cuts` times. Then lets both
    /// acknowledge all messages, and checks the journal of their operations.
    pub fn run_cuts(&mut self, cuts: u64, figures: &mut Figures) -> Outcome<()> {
        let before = figures.cuts;
        self.start(SERVER);
        self.start(CLIENT);
        self.wait_attached([0, 0])?;
        while figures.cuts - before < cuts {
            self.pause()?;
            let harm = Harm::draw(&mut self.chance);
            let time = Duration::from_micros(self.chance.size(LATE_MICROS_MAX) as u64);
            self.oracle.say(format!("{harm:?} {time:?}"));
            let attached = self.attached();
            self.held_up = Duration::ZERO;
            let at = Instant::now();
            if !self.relay.harm(harm, time) {
                // The relay has no connection to cut now: client or server has begun an epoch,
                // which ends the connection. So this iteration counts no cut; the client connects
                // again without help.
                continue;
            }
            let possible = match harm {
                Harm::Delay(_) => {
                    figures.delays += 1;
                    continue;
                }
                Harm::CutAndKeep(CLIENT) => at + time,
                Harm::Cut | Harm::CutAndKeep(_) => at,
            };
            figures.late += u64::from(harm != Harm::Cut);
            figures.cuts += 1;
            self.wait("no message comes after a cut", |oracle| {
                [CLIENT, SERVER].iter().any(|side| oracle.ends[*side].flowed > attached[*side])
            })?;
            let time = Instant::now().saturating_duration_since(possible);
            let circumstances = match (self.held_up > HELD_UP_MAX, self.has_epochs()) {
                (true, _) => Circumstances::Busy,
                (_, true) => Circumstances::Epochs,
                _ => Circumstances::Undisturbed,
            };
            figures.recoveries.push(Recovery { time, circumstances });
            // The loop waits until client and server have attached again, so that the next cut
            // concerns the new connection.
            self.wait_attached(attached)?;
        }
        self.finish(figures)
    }

    fn attached(&self) -> [u64; 2] {
        [CLIENT, SERVER].map(|side| self.oracle.ends[side].attached)
    }

    fn wait_attached(&mut self, before: [u64; 2]) -> Outcome<()> {
        self.wait("an end does not attach", |oracle| {
            [CLIENT, SERVER].iter().all(|side| oracle.ends[*side].attached > before[*side])
        })
    }
}

/// Measures the round-trip time of a relay: a byte goes over TCP, without links, to an echo and
/// back. Returns the median time.
pub fn round_trip() -> Duration {
    let directory = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    fs::write(directory.path().join("address"), address).unwrap();
    let echo = thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        socket.set_nodelay(true).unwrap();
        let mut byte = [0; 1];
        while matches!(socket.read(&mut byte), Ok(1)) {
            socket.write_all(&byte).unwrap();
        }
    });
    let relay = Relay::new(directory.path(), Via::Tcp);
    let mut socket = TcpStream::connect(relay.address().trim_start_matches("tcp:")).unwrap();
    socket.set_nodelay(true).unwrap();
    let mut times = [Duration::ZERO; ROUND_TRIPS];
    for time in &mut times {
        let start = Instant::now();
        socket.write_all(&[7]).unwrap();
        socket.read_exact(&mut [0; 1]).unwrap();
        *time = start.elapsed();
    }
    drop((socket, relay));
    echo.join().unwrap();
    times.sort_unstable();
    times[ROUND_TRIPS / 2]
}

/// Maximum time between two polls of the test's main thread on an undisturbed machine. The thread
/// polls every 200 µs; if two polls were more than ten times further apart, the machine was busy
/// with something else.
const HELD_UP_MAX: Duration = Duration::from_millis(2);
const ROUND_TRIPS: usize = 101;
const LATE_MICROS_MAX: u64 = 20_000;
