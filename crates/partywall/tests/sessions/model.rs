// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares sessions with a model, in which every direction of a stream is a queue. Both ends open
//! random streams, send by every method, drop futures, finish, reset, stop and drop. Each message
//! must arrive once, whole, in order and on its own stream, and the receiver must get the end that
//! the sender chose.
//!
//! A failure prints its seed; `PARTYWALL_MODEL_SEED=…` repeats only that run.
#![cfg(feature = "tokio")]

use partywall::tokio::{RecvStream, SendStream, Session, Stream};
use partywall::{
    BackPressure, Config, DROPPED, OpenError, SessionError, StreamRecvError, StreamSendError, Wait,
};
use partywall_testkit::{Kind, give_up_after, run, session_pair_with, until_async};
use partywall_testkit::{Random, fill, is_pattern, pattern};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Number of seeds with which the model test runs over each transport.
const SEEDS: u64 = 40;
/// Time limit of one run. A run takes milliseconds, and much more on a busy machine, because each
/// call that fails for lack of room, credit or stream numbers is repeated. The most expensive run,
/// seed 4 over a Unix socket, takes half a second of processor time.
const LIMIT: Duration = Duration::from_secs(60);

/// How the sender of one direction of a stream is to end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendEnd {
    Close,
    Drop,
    Reset(u32),
}

/// How the receiver of one direction of a stream is to end it: after how many messages, and with
/// which code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RecvEnd {
    ToTheEnd,
    Stop(u64, u32),
    Drop(u64),
}

/// The model of one direction of a stream: how many messages it is to carry, how it is to end, and
/// the messages sent so far.
#[derive(Debug)]
struct Direction {
    messages: u64,
    send_end: SendEnd,
    recv_end: RecvEnd,
    /// Length and seed of each message that was sent or is being sent.
    sent: Mutex<Vec<(usize, u64)>>,
    /// Whether the sender has sent all messages planned for this direction.
    is_done: Mutex<bool>,
}

impl Direction {
    fn new(chance: &mut Random) -> Arc<Self> {
        let code = chance.below(1000) as u32;
        let messages = chance.below(12);
        let send_end = match chance.below(6) {
            0 => SendEnd::Reset(code),
            1 => SendEnd::Drop,
            _ => SendEnd::Close,
        };
        let recv_end = match chance.below(8) {
            0 => RecvEnd::Stop(chance.below(messages + 1), code),
            1 => RecvEnd::Drop(chance.below(messages + 1)),
            _ => RecvEnd::ToTheEnd,
        };
        let (sent, is_done) = Default::default();
        Arc::new(Self { messages, send_end, recv_end, sent, is_done })
    }

    fn begin(&self, len: usize, seed: u64) {
        self.sent.lock().unwrap().push((len, seed));
    }

    fn take_back(&self) {
        self.sent.lock().unwrap().pop();
    }
}

/// The random plan of one run, which the tasks of the client and of the server share.
struct World {
    seed: u64,
    size_max: u64,
    /// Whether receivers drop their messages before they wait for the next. Otherwise a receiver
    /// could wait for a message whose sender waits for the memory of those messages, unless
    /// messages overflow into the ring.
    lets_go: bool,
    /// Whether the run closes the session while streams are in use.
    is_cut: bool,
    streams: Mutex<HashMap<u64, [Arc<Direction>; 2]>>,
}

/// Returns the random parameters of a run: the configuration, the length of the longest message,
/// and whether receivers drop each message before they wait.
fn config(seed: u64, base: Config, is_shared_memory: bool) -> (Config, u64, bool) {
    let mut chance = Random::new(seed);
    let policy = [BackPressure::Block, BackPressure::Error, BackPressure::Overflow]
        [chance.below(3) as usize];
    let wait = match chance.below(8) {
        0 => Wait::Spin,
        1 => Wait::Park,
        2 => Wait::Poll(Duration::from_micros(500)),
        _ => Wait::Adaptive,
    };
    let mut config = base.back_pressure(policy).wait(wait);
    config = match chance.below(5) {
        0 => config.stream_window(0),
        1 => config.stream_window(64),
        2 => config.stream_window(1000),
        3 => config.stream_window(20_000),
        _ => config,
    };
    config = config.streams_max([2, 5, 1024][chance.below(3) as usize]);
    let mut size_max = 4 << 20;
    if chance.below(2) == 0 {
        config = config.ring_bytes(4096).inline_max(512);
        // The ring has only 4096 bytes, which the fragments of one message of up to 100,000 bytes
        // fill many times.
        size_max = 100_000;
    }
    if chance.below(2) == 0 {
        config = config.memory_max(128 << 10).message_max(8 << 20);
        if is_shared_memory && policy != BackPressure::Overflow {
            size_max = 128 << 10;
        }
    }
    (config, size_max, policy != BackPressure::Overflow)
}

/// Sends one message by a randomly chosen method. Returns whether it was sent, or an error if the
/// direction has ended.
async fn send_one(
    stream: &mut SendStream,
    model: &Direction,
    (len, seed): (usize, u64),
    chance: &mut Random,
) -> Result<bool, StreamSendError> {
    model.begin(len, seed);
    let way = chance.below(8);
    let polls = chance.below(4);
    let sent = match way {
        0 => stream.try_send(&pattern(len, seed)).map(|()| true),
        1 => {
            let sent = give_up_after(polls, stream.send(&pattern(len, seed))).await;
            sent.map_or(Ok(false), |sent| sent.map(|()| true))
        }
        2 => match give_up_after(polls, stream.reserve(len)).await {
            Some(Ok(mut reserved)) => {
                fill(&mut reserved, seed);
                let sent = give_up_after(chance.below(4), reserved.commit()).await;
                sent.map_or(Ok(false), |sent| sent.map(|()| true))
            }
            Some(Err(error)) => Err(error),
            None => Ok(false),
        },
        3 => stream.reserve(len).await.map(|_| false),
        4 | 5 => match stream.reserve(len + len / 3).await {
            Ok(mut reserved) => {
                reserved.truncate(len);
                fill(&mut reserved, seed);
                reserved.commit().await.map(|()| true)
            }
            Err(error) => Err(error),
        },
        _ => stream.send(&pattern(len, seed)).await.map(|()| true),
    };
    if !matches!(sent, Ok(true)) {
        model.take_back();
    }
    match sent {
        Err(StreamSendError::Full) => Ok(false),
        // `try_send` and a reservation must send a message whole, so they have less room than
        // `send`, which can send fragments. A reservation may also be larger than its message.
        Err(StreamSendError::TooLarge(_)) if way < 6 && len > 500 => Ok(false),
        other => other,
    }
}

/// Sends the messages that `model` plans for one direction of a stream, and ends it as planned.
async fn send_all(world: Arc<World>, mut stream: SendStream, model: Arc<Direction>, seed: u64) {
    let mut chance = Random::new(seed);
    let mut went = 0;
    while went < model.messages {
        let size_max = if chance.below(6) == 0 { world.size_max } else { 3000 };
        let len = chance.size(size_max);
        match send_one(&mut stream, &model, (len, chance.next()), &mut chance).await {
            Ok(true) => went += 1,
            Ok(false) => tokio::task::yield_now().await,
            Err(StreamSendError::Stopped { code }) => {
                let expected = match model.recv_end {
                    RecvEnd::Stop(_, code) => code,
                    RecvEnd::Drop(_) => DROPPED,
                    // If the run closes the session, the stream may have been dropped before its
                    // receiver read to the end.
                    RecvEnd::ToTheEnd if world.is_cut => DROPPED,
                    RecvEnd::ToTheEnd => panic!("stopped ({code}) by one who reads to the end"),
                };
                let expected = if world.is_cut && code == DROPPED { DROPPED } else { expected };
                return assert_eq!(code, expected);
            }
            Err(StreamSendError::Session(error)) => return assert!(world.is_cut, "{error}"),
            Err(error) => panic!("{error}"),
        }
    }
    *model.is_done.lock().unwrap() = true;
    match model.send_end {
        SendEnd::Close => {
            stream.finish();
            assert!(matches!(
                stream.send(b"late").await,
                Err(StreamSendError::ClosedHere | StreamSendError::Session(_))
                    | Err(StreamSendError::Stopped { .. })
            ));
        }
        SendEnd::Reset(code) => stream.reset(code),
        SendEnd::Drop => {}
    }
}

/// Receives the messages of one direction of a stream, until it ends or `model` plans that the
/// receiver stops it.
async fn receive_all(world: Arc<World>, mut stream: RecvStream, model: Arc<Direction>, seed: u64) {
    let mut chance = Random::new(seed);
    let mut held = Vec::new();
    for count in 0.. {
        match model.recv_end {
            RecvEnd::Stop(after, code) if after == count => {
                stream.stop(code);
                let after = stream.recv().await;
                // After a stop no message comes. The direction may have ended before the receiver
                // stopped it.
                return assert!(!matches!(after, Ok(Some(_))));
            }
            RecvEnd::Drop(after) if after == count => return,
            _ => {}
        }
        let received = loop {
            match chance.below(4) {
                0 => match stream.try_recv() {
                    Err(StreamRecvError::Empty) => tokio::task::yield_now().await,
                    other => break other,
                },
                1 => {
                    if let Some(received) = give_up_after(chance.below(3), stream.recv()).await {
                        break received;
                    }
                }
                _ => {
                    let received = stream.try_recv();
                    if !matches!(received, Err(StreamRecvError::Empty)) {
                        break received;
                    }
                    if world.lets_go {
                        held.clear();
                    }
                    break stream.recv().await;
                }
            }
        };
        match received {
            Ok(Some(message)) => {
                let sent = model.sent.lock().unwrap().get(count as usize).copied();
                let (len, seed) = sent.expect("nobody sent it");
                assert_eq!(message.len(), len, "message {count}");
                assert!(is_pattern(&message, seed), "message {count} of {len} bytes is another");
                // Up to two messages are held, so that the shared memory which they occupy stays in
                // use.
                held.push(message);
                if held.len() > 2 {
                    held.swap_remove(chance.below(3) as usize);
                }
            }
            Err(StreamRecvError::Session(error)) => return assert!(world.is_cut, "{error}"),
            end => return check_end(&world, &model, count, &end.map(drop)),
        }
    }
}

fn check_end(world: &World, model: &Direction, count: u64, end: &Result<(), StreamRecvError>) {
    let expected = match (end, model.send_end) {
        (Ok(()), SendEnd::Close | SendEnd::Drop) => true,
        (Err(StreamRecvError::Reset { code }), SendEnd::Reset(sent)) => *code == sent,
        _ => false,
    };
    let is_done = *model.is_done.lock().unwrap();
    // The direction may also end early because the session was closed, after which a sender drops
    // its half.
    assert!(expected || (world.is_cut && !is_done), "{end:?} instead of {:?}", model.send_end);
    assert!(count == model.messages || (world.is_cut && !is_done), "{count} of {}", model.messages);
}

/// Uses both directions of a stream; `side` is 0 for the stream's opener, and 1 for the side that
/// accepted the stream.
async fn use_stream(world: Arc<World>, stream: Stream, id: u64, side: usize) {
    let [out, back] = world.streams.lock().unwrap()[&id].clone();
    let (sending, receiving) = if side == 0 { (out, back) } else { (back, out) };
    let (send, recv) = stream.into_split();
    let seed = world.seed ^ (id << 8) ^ side as u64;
    let receiving = tokio::spawn(receive_all(world.clone(), recv, receiving, seed ^ 77));
    let sending = tokio::spawn(send_all(world, send, sending, seed));
    sending.await.unwrap();
    receiving.await.unwrap();
}

/// Opens streams one after the other, without waiting for earlier ones to end.
async fn open_many(world: Arc<World>, session: Session, side: u64) {
    let mut chance = Random::new(world.seed ^ (side + 10));
    let mut tasks = Vec::new();
    for index in 0..chance.below(14) {
        let id = side << 32 | index;
        let directions = [Direction::new(&mut chance), Direction::new(&mut chance)];
        world.streams.lock().unwrap().insert(id, directions);
        let metadata = id.to_le_bytes();
        let opened = loop {
            let opening = session.open(&metadata);
            let opened = match chance.below(3) {
                0 => give_up_after(chance.below(3), opening).await,
                _ => Some(opening.await),
            };
            match opened {
                Some(opened) => break opened,
                None => tokio::task::yield_now().await,
            }
        };
        match opened {
            Ok(stream) => tasks.push(tokio::spawn(use_stream(world.clone(), stream, id, 0))),
            Err(OpenError::Session(error)) => {
                assert!(world.is_cut, "{error}");
                break;
            }
            Err(error) => panic!("{error}"),
        }
    }
    for task in tasks {
        task.await.unwrap();
    }
}

async fn accept_all(world: Arc<World>, session: Session, side: u64) -> SessionError {
    let mut chance = Random::new(world.seed ^ (side + 20));
    let mut tasks = Vec::new();
    let end = loop {
        let accepting = session.accept();
        let accepted = match chance.below(3) {
            0 => give_up_after(chance.below(3), accepting).await,
            _ => Some(accepting.await),
        };
        match accepted {
            None => tokio::task::yield_now().await,
            Some(Err(end)) => break end,
            // `accept` returns `None` whichever side closed; the session's reason says which.
            Some(Ok(None)) => break session.close_reason().unwrap(),
            Some(Ok(Some(stream))) => {
                let id = u64::from_le_bytes(stream.metadata().try_into().unwrap());
                tasks.push(tokio::spawn(use_stream(world.clone(), stream, id, 1)));
            }
        }
    };
    for task in tasks {
        task.await.unwrap();
    }
    end
}

async fn one_run(kind: Kind, seed: u64) {
    // The limits of shared memory also apply to a connection that moves to it from the socket.
    let shares_memory = kind.is_shared_memory() || kind == Kind::Moving;
    let (config, size_max, lets_go) = config(seed, kind.config(), shares_memory);
    let (client, server) = session_pair_with(kind, &config, &config).await;
    let is_cut = seed % 8 == 7;
    let world = Arc::new(World { seed, size_max, lets_go, is_cut, streams: Mutex::default() });
    let accepting = [
        tokio::spawn(accept_all(world.clone(), client.clone(), 0)),
        tokio::spawn(accept_all(world.clone(), server.clone(), 1)),
    ];
    let opening = [
        tokio::spawn(open_many(world.clone(), client.clone(), 0)),
        tokio::spawn(open_many(world.clone(), server.clone(), 1)),
    ];
    if is_cut {
        let polls = Random::new(seed ^ 5).size(100_000) as u64;
        give_up_after(polls, client.closed()).await;
        client.close(0, "");
    }
    for task in opening {
        task.await.unwrap();
    }
    if !is_cut {
        client.ping().await.unwrap();
        client.drained().await.unwrap();
        server.drained().await.unwrap();
        assert_eq!((client.streams(), server.streams()), (0, 0));
        // `drained` has shown that no stream is left, so the session is closed.
        client.close(0, "");
    }
    let [at_client, at_server] = accepting;
    assert!(matches!(at_client.await.unwrap(), SessionError::ClosedHere { .. }));
    assert!(matches!(at_server.await.unwrap(), SessionError::Closed(_)));
    until_async("the session closes", || server.close_reason().is_some()).await;
}

fn runs(kind: Kind) {
    if let Ok(seed) = std::env::var("PARTYWALL_MODEL_SEED") {
        return run("model", LIMIT, one_run(kind, seed.parse().unwrap()));
    }
    for seed in 0..SEEDS {
        let repeat = Repeat(kind, seed);
        run(&format!("{} with seed {seed}", kind.name()), LIMIT, one_run(kind, seed));
        std::mem::forget(repeat);
    }
}

/// Prints how to repeat a failed run, by its transport and seed, when the failing test drops this
/// value.
struct Repeat(Kind, u64);

impl Drop for Repeat {
    fn drop(&mut self) {
        eprintln!("repeat: PARTYWALL_MODEL_SEED={} and the test of {}", self.1, self.0.name());
    }
}

#[test]
fn streams_over_a_shm_are_queues() {
    runs(Kind::SharedMemory);
}

#[test]
fn streams_over_an_untrusted_shm_are_queues() {
    runs(Kind::Untrusted);
}

#[test]
fn streams_over_a_unix_socket_are_queues() {
    runs(Kind::Unix);
}

#[test]
fn streams_from_a_unix_socket_to_the_shm_are_queues() {
    runs(Kind::Moving);
}

#[test]
fn streams_over_tcp_are_queues() {
    runs(Kind::Tcp);
}
