// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of an application and its log agent in two processes: if one is stopped or dies, the other
//! continues, and the counts of records stay consistent.

use partywall::{
    Begin, Channel, Config, Listener, RecvError, SendError, TransportPolicy, TryRecvError, Wait,
};
use partywall_extras::lossy::{
    DropReason, LossyConfig, LossyReceiver, LossyRecvError, LossySender, OnFull, SendOutcome,
};
use partywall_sys::signal::{Signal, kill, stop};
use partywall_testkit::{
    Directory, Second, Watchdog, argument, millis, number_of, pair, payload, role, second_process,
    within,
};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);

fn config() -> Config {
    // A sender loses records when its ring is full. So the tests share memory at once, and the ring
    // has only 4096 bytes.
    Config::default().begin(Begin::SharedMemory).ring_bytes(4096).inline_max(512)
}

/// The second process of a test: an agent that receives log records, or an application that logs
/// until it is killed.
#[test]
fn child() {
    match role().as_deref() {
        Some("agent") => agent(&argument("address")),
        Some("application") => application(&argument("address")),
        Some("filler") => filler(&argument("address")),
        _ => {}
    }
}

/// Role of the agent: receives all records, then sends the numbers of received and of lost records
/// to the test.
fn agent(address: &str) {
    let (mut counter_sender, receiver) =
        partywall::connect_with(address, &config()).unwrap().split();
    let mut records = LossyReceiver::new(receiver);
    records.set_wait(Wait::Poll(millis(1)));
    let mut next = 0;
    while let Some(record) = records.recv().unwrap() {
        next += record.lost_before;
        assert_eq!(number_of(&record.message), next, "in order, losses where they were");
        next += 1;
    }
    let counts = [records.received().to_le_bytes(), records.lost().to_le_bytes()].concat();
    counter_sender.send(&counts).unwrap();
}

fn application(address: &str) {
    let (sender, _receiver) = partywall::connect_with(address, &config()).unwrap().split();
    let log = LossySender::new(sender, OnFull::DropNewest);
    for number in 0.. {
        log.log(&payload(number, 100));
    }
}

/// Role of an application that fills the ring: logs until there is no room, sends the number of
/// sent records to the test, and waits to be killed.
fn filler(address: &str) {
    let (sender, _receiver) = partywall::connect_with(address, &config()).unwrap().split();
    let mut aside = partywall::connect_with(address, &config()).unwrap();
    let log = LossySender::new(sender, OnFull::DropNewest);
    log_until(&log, &mut 0, |_, outcome| outcome == SendOutcome::Dropped(DropReason::Full));
    aside.send(&log.stats().sent.to_le_bytes()).unwrap();
    let _ = aside.recv();
}

fn start_agent(place: &Directory, config: &Config) -> (Second, Channel) {
    let address = place.address("agent.sock");
    let mut listener = Listener::bind_with(&address, config).unwrap();
    let agent = Second::spawn(&mut second_process(
        "lossy_agents::child",
        "agent",
        &[("address", &address)],
    ));
    (agent, listener.accept_deadline(within(TIMEOUT)).unwrap())
}

/// Logs records that contain rising numbers, beginning with `next`, until the condition `enough` is
/// true.
fn log_until(
    log: &LossySender,
    next: &mut u64,
    enough: impl Fn(&LossySender, SendOutcome) -> bool,
) {
    loop {
        let outcome = log.log(&payload(*next, 100));
        *next += 1;
        if enough(log, outcome) {
            return;
        }
    }
}

fn stopped_agent(on_full: OnFull, transport: TransportPolicy) {
    let _watchdog = Watchdog::new("stopped agent", 2 * TIMEOUT);
    let place = Directory::new();
    let (mut agent, channel) = start_agent(&place, &config().transport(transport));
    let (sender, mut answers) = channel.split();
    let log = LossySender::with(sender, LossyConfig::new(on_full).queue_records(50));
    let mut next = 0;
    log_until(&log, &mut next, |_, _| next_is(&log, 100));
    stop(agent.pid(), within(TIMEOUT)).unwrap();
    // The stopped agent reads nothing, and the sender drops 10,000 records without waiting for the
    // agent.
    log_until(&log, &mut next, |log, _| log.stats().drops.full >= 10_000);
    // Expected: if records are queued, `flush` times out, because the channel has no room. If none
    // are queued, `flush` sends only the short report of losses, which may still fit.
    let flushed = log.flush(Instant::now() + millis(1));
    if on_full == OnFull::DropOldest {
        assert!(matches!(flushed, Err(SendError::TimedOut)), "{flushed:?}");
    }
    kill(agent.pid(), Signal::CONT).unwrap();
    log.flush(within(TIMEOUT)).unwrap();
    log_until(&log, &mut next, |_, outcome| {
        matches!(outcome, SendOutcome::Sent | SendOutcome::Queued)
    });
    log.flush(within(TIMEOUT)).unwrap();
    let stats = log.stats();
    assert_eq!((stats.queued, stats.sent + stats.drops.total()), (0, next));
    drop(log);
    let counts = answers.recv_deadline(within(TIMEOUT)).unwrap().unwrap();
    let count = |at: usize| u64::from_le_bytes(counts[at..at + 8].try_into().unwrap());
    assert_eq!((count(0), count(8)), (stats.sent, stats.drops.total()));
    assert!(agent.0.wait().unwrap().success());
}

fn next_is(log: &LossySender, count: u64) -> bool {
    let stats = log.stats();
    stats.sent + stats.queued + stats.drops.total() >= count
}

#[test]
fn stopped_agent_loses_counted_newest_records() {
    stopped_agent(OnFull::DropNewest, TransportPolicy::SharedMemory);
}

#[test]
fn stopped_agent_loses_counted_oldest_records() {
    stopped_agent(OnFull::DropOldest, TransportPolicy::SharedMemory);
}

#[test]
fn stopped_agent_over_socket_loses_counted_records() {
    stopped_agent(OnFull::DropOldest, TransportPolicy::Socket);
}

#[test]
fn killed_agent_does_not_block_application() {
    let _watchdog = Watchdog::new("killed agent", 2 * TIMEOUT);
    for on_full in [OnFull::DropNewest, OnFull::DropOldest, OnFull::Block(TIMEOUT)] {
        let place = Directory::new();
        let (mut agent, channel) = start_agent(&place, &config());
        let log = LossySender::new(channel.split().0, on_full);
        let mut next = 0;
        log_until(&log, &mut next, |_, _| next_is(&log, 100));
        agent.kill();
        log_until(&log, &mut next, |_, outcome| {
            outcome == SendOutcome::Dropped(DropReason::Closed)
        });
        assert!(log.is_closed());
        log.log(b"more");
        let stats = log.stats();
        assert_eq!((stats.queued, stats.sent + stats.drops.total()), (0, next + 1));
        assert!(matches!(log.flush(within(TIMEOUT)), Err(SendError::Closed(_)) | Ok(())));
    }
}

#[test]
fn committed_records_of_killed_application_arrive() {
    let _watchdog = Watchdog::new("killed application", 2 * TIMEOUT);
    let place = Directory::new();
    let address = place.address("agent.sock");
    let mut listener = Listener::bind_with(&address, &config()).unwrap();
    let mut application = Second::spawn(&mut second_process(
        "lossy_agents::child",
        "application",
        &[("address", &address)],
    ));
    let channel = listener.accept_deadline(within(TIMEOUT)).unwrap();
    let mut records = LossyReceiver::new(channel.split().1);
    let mut next = 0;
    let mut take = |records: &mut LossyReceiver| match records.recv_deadline(within(TIMEOUT)) {
        Ok(Some(record)) => {
            next += record.lost_before;
            assert_eq!(number_of(&record.message), next);
            next += 1;
            true
        }
        Ok(None) | Err(LossyRecvError::Recv(RecvError::Disconnected)) => false,
        Err(error) => panic!("{error}"),
    };
    for _ in 0..1000 {
        assert!(take(&mut records));
    }
    // While the application fills the ring, the agent receives nothing. The records in the ring
    // outlive the process of the application.
    application.kill();
    while take(&mut records) {}
    assert_eq!(records.received() + records.lost(), next);
}

#[test]
fn records_counted_as_sent_by_killed_application_arrive() {
    let _watchdog = Watchdog::new("killed application", 2 * TIMEOUT);
    let place = Directory::new();
    let address = place.address("agent.sock");
    let mut listener = Listener::bind_with(&address, &config()).unwrap();
    let mut application = Second::spawn(&mut second_process(
        "lossy_agents::child",
        "filler",
        &[("address", &address)],
    ));
    let channel = listener.accept_deadline(within(TIMEOUT)).unwrap();
    let mut aside = listener.accept_deadline(within(TIMEOUT)).unwrap();
    let count = aside.recv_deadline(within(TIMEOUT)).unwrap().unwrap();
    let sent = u64::from_le_bytes(count[..].try_into().unwrap());
    application.kill();
    let mut records = LossyReceiver::new(channel.split().1);
    let end = loop {
        match records.recv_deadline(within(TIMEOUT)) {
            Ok(Some(record)) => assert_eq!(number_of(&record.message), records.received() - 1),
            end => break end,
        }
    };
    let died = matches!(end, Err(LossyRecvError::Recv(RecvError::Disconnected)));
    assert!(died, "{end:?}");
    assert_eq!((records.received(), records.lost()), (sent, 0));
    assert!(sent > 0);
}

#[test]
fn records_of_concurrent_threads_are_all_counted() {
    let _watchdog = Watchdog::new("threads", 2 * TIMEOUT);
    for on_full in [OnFull::DropNewest, OnFull::DropOldest, OnFull::Block(TIMEOUT)] {
        let place = Directory::new();
        let (here, there) = pair(&place.address("a.sock"), &config(), &config());
        let log = LossySender::with(here.split().0, LossyConfig::new(on_full).queue_records(20));
        let mut records = LossyReceiver::new(there.split().1);
        let receiving = std::thread::spawn(move || {
            while records.recv_deadline(within(TIMEOUT)).unwrap().is_some() {}
            (records.received(), records.lost())
        });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let log = log.clone();
                scope.spawn(move || {
                    for number in 0..5000 {
                        log.log(&payload(number, 40));
                    }
                });
            }
            scope.spawn(|| {
                for _ in 0..20 {
                    let _ = log.flush(within(TIMEOUT));
                    log.try_flush();
                }
            });
        });
        log.flush(within(TIMEOUT)).unwrap();
        let stats = log.stats();
        assert_eq!(stats.sent + stats.drops.total(), 20_000, "{on_full:?}");
        if matches!(on_full, OnFull::Block(_)) {
            assert_eq!(stats.sent, 20_000);
        }
        drop(log);
        let (received, lost) = receiving.join().unwrap();
        assert_eq!((received, lost), (stats.sent, stats.drops.total()), "{on_full:?}");
    }
}

#[test]
fn policy_decides_which_records_remain_without_room() {
    let place = Directory::new();
    for (on_full, first_is_kept) in [(OnFull::DropNewest, true), (OnFull::DropOldest, false)] {
        let (here, there) = pair(&place.address("a.sock"), &config(), &config());
        let log = LossySender::with(here.split().0, LossyConfig::new(on_full).queue_records(10));
        let mut records = LossyReceiver::new(there.split().1);
        let mut next = 0;
        log_until(&log, &mut next, |log, _| log.stats().drops.full == 100);
        let sent_at_once = log.stats().sent;
        let mut numbers = Vec::new();
        loop {
            match records.try_recv() {
                Ok(Some(record)) => numbers.push(number_of(&record.message)),
                Ok(None) => panic!("the sender has finished"),
                Err(LossyRecvError::Recv(TryRecvError::Empty)) => log.try_flush(),
                Err(error) => panic!("{error}"),
            }
            if records.received() + records.lost() == next {
                break;
            }
        }
        assert!(numbers.iter().copied().take(sent_at_once as usize).eq(0..sent_at_once));
        let rest: Vec<u64> = numbers[sent_at_once as usize..].to_vec();
        let newest: Vec<u64> = (next - 10..next).collect();
        assert_eq!(rest, if first_is_kept { Vec::new() } else { newest }, "{on_full:?}");
        assert_eq!(records.lost(), 100);
    }
}

#[test]
fn log_without_wait_counts_nothing_as_long_as_there_is_no_room() {
    let place = Directory::new();
    let (here, there) = pair(&place.address("a.sock"), &config(), &config());
    let log = LossySender::new(here.split().0, OnFull::DropOldest);
    let mut records = LossyReceiver::new(there.split().1);
    let mut sent = 0;
    while let Some(outcome) = log.log_without_wait(&payload(sent, 100)) {
        assert_eq!(outcome, SendOutcome::Sent);
        sent += 1;
    }
    assert_eq!((log.stats().sent, log.stats().drops.total()), (sent, 0));
    assert_eq!(log.log(&payload(sent, 100)), SendOutcome::Queued);
    assert_eq!(log.log_without_wait(b""), None, "the queue has no room either");
    while records.try_recv().is_ok() {}
    assert_eq!(log.log_without_wait(b"last"), Some(SendOutcome::Sent));
    assert_eq!(log.stats().sent, sent + 2, "the queued record went first");
    drop(records);
    let gone = SendOutcome::Dropped(DropReason::Closed);
    let until = within(TIMEOUT);
    while log.log_without_wait(b"") != Some(gone) {
        assert!(Instant::now() < until, "the end of the agent is never found");
        std::thread::yield_now();
    }
}

#[test]
fn message_that_is_no_record_is_an_error() {
    let place = Directory::new();
    let (mut here, there) = pair(&place.address("a.sock"), &config(), &config());
    let mut records = LossyReceiver::new(there.split().1);
    here.send(b"hello").unwrap();
    let error = records.recv().unwrap_err();
    assert!(matches!(error, LossyRecvError::NotARecord { number: 0, len: 5, .. }), "{error:?}");
}
