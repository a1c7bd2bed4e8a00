// SPDX-License-Identifier: MIT OR Apache-2.0
//! Measures what a message costs in an event loop with 10,000 idle streams, compared with a loop
//! that has one stream. One thread holds both ends, so the times are those of the software alone.
//!
//! ```sh
//! cargo run --release -p partywall --example idle_streams
//! ```

use partywall::event::{Event, Loop, Session, Stream};
use partywall::{AcceptError, Config, StreamRecvError, Wait, WaitError};
use std::error::Error;
use std::time::{Duration, Instant};

const IDLE_STREAMS: u64 = 10_000;
const SESSIONS: u64 = 10;
/// Number of rounds, in each of which both loops are measured once.
const ROUNDS: u32 = 30;
/// Number of round trips that each measurement makes over one stream.
const MESSAGES: u32 = 2_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut one = Pair::new(1, 1)?;
    let mut many = Pair::new(SESSIONS, IDLE_STREAMS / SESSIONS)?;
    let mut best = [Duration::MAX; 2];
    for _ in 0..ROUNDS {
        for (pair, best) in [&mut one, &mut many].into_iter().zip(&mut best) {
            *best = (*best).min(pair.measure()?);
        }
    }
    let [alone, among_many] = best.map(|time| time.as_secs_f64() * 1e9 / f64::from(MESSAGES));
    println!("round trip of a message of 48 bytes, best of {ROUNDS} rounds");
    println!("  in a loop with one stream              {alone:8.0} ns");
    println!("  in a loop with {IDLE_STREAMS} idle streams     {among_many:8.0} ns");
    println!("  ratio                                  {:8.3}", among_many / alone);
    Ok(())
}

/// Two event loops, one for each end of the same streams. One stream carries messages, and the
/// others are idle.
struct Pair {
    client: Loop,
    server: Loop,
    asking: Stream,
    answering: Stream,
    _idle: Vec<(Stream, Stream)>,
    _sessions: Vec<(Session, Session)>,
}

impl Pair {
    fn new(sessions: u64, streams: u64) -> Result<Self, Box<dyn Error>> {
        let config = Config::default().wait(Wait::Park).streams_max(1 << 16);
        let park = || Loop::with_wait(Wait::Park, Duration::ZERO);
        let (client, server) = (park()?, park()?);
        let address = format!("unix:@partywall-idle-{}-{sessions}", std::process::id());
        let mut listener = server.bind(&address[..], &config, u64::MAX)?;
        let mut ready = Vec::new();
        let (mut pairs, mut idle) = (Vec::new(), Vec::new());
        for _ in 0..sessions {
            let ours = std::thread::scope(|scope| {
                let connecting = scope.spawn(|| client.connect(&address[..], &config, u64::MAX));
                let theirs = loop {
                    match listener.try_accept(u64::MAX) {
                        Ok(session) => break session,
                        Err(AcceptError::TimedOut) => drop(server.wait(&mut ready, None)),
                        Err(error) => return Err(Box::<dyn Error>::from(error)),
                    }
                };
                let ours = connecting.join().map_err(|_| "the connecting thread panicked")??;
                Ok((ours, theirs))
            })?;
            for _ in 0..streams {
                let tag = idle.len() as u64;
                let mut ours_stream = ours.0.try_open(b"", tag)?;
                let mut theirs_stream = loop {
                    match ours.1.try_accept(tag) {
                        Ok(stream) => break stream.ok_or("the session is over")?,
                        Err(WaitError::WouldBlock) => drop(server.wait(&mut ready, None)),
                        Err(error) => return Err(error.into()),
                    }
                };
                is_empty(&mut ours_stream)?;
                is_empty(&mut theirs_stream)?;
                idle.push((ours_stream, theirs_stream));
            }
            pairs.push(ours);
        }
        let (asking, answering) = idle.swap_remove(idle.len() / 2);
        Ok(Self { client, server, asking, answering, _idle: idle, _sessions: pairs })
    }

    /// Measures the round trips of one stream. Returns their total time.
    fn measure(&mut self) -> Result<Duration, Box<dyn Error>> {
        let mut ready = Vec::new();
        let begin = Instant::now();
        for _ in 0..MESSAGES {
            self.asking.try_send(&[7; 48])?;
            let question = receive(&self.server, &mut ready, &mut self.answering)?;
            self.answering.try_send(&question)?;
            receive(&self.client, &mut ready, &mut self.asking)?;
        }
        Ok(begin.elapsed())
    }
}

/// Waits in an event loop until the stream has a message, receives it, and checks that no other
/// message follows.
fn receive(
    events: &Loop,
    ready: &mut Vec<Event>,
    stream: &mut Stream,
) -> Result<partywall::Message, Box<dyn Error>> {
    loop {
        events.wait(ready, None)?;
        for event in ready.drain(..) {
            if event.kinds.is_readable() {
                match stream.try_recv() {
                    Ok(message) => {
                        let message = message.ok_or("the stream has ended")?;
                        is_empty(stream)?;
                        return Ok(message);
                    }
                    Err(StreamRecvError::Empty) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}

fn is_empty(stream: &mut Stream) -> Result<(), Box<dyn Error>> {
    match stream.try_recv() {
        Err(StreamRecvError::Empty) => Ok(()),
        Ok(_) => Err("more than was sent".into()),
        Err(error) => Err(error.into()),
    }
}
