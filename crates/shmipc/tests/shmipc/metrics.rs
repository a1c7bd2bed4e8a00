// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the metrics of sessions: exact figures after a known exchange of messages, and a
//! monitor (the application's callback) that gets reports even of idle sessions.

#![cfg(feature = "tokio")]

use crate::support_async;

use partywall::tokio::Listener;
use partywall_shmipc::{
    Config, Monitor, PerformanceMetrics, SessionManager, ShareMemoryMetrics, Shmipc,
    StabilityMetrics,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support_async::until;

#[derive(Default)]
struct Notes {
    reports: Mutex<Vec<(PerformanceMetrics, StabilityMetrics, ShareMemoryMetrics)>>,
    flushed: Mutex<usize>,
}

impl Monitor for Notes {
    fn on_emit_session_metrics(
        &self,
        performance: &PerformanceMetrics,
        stability: &StabilityMetrics,
        share_memory: &ShareMemoryMetrics,
    ) {
        self.reports.lock().unwrap().push((*performance, *stability, *share_memory));
    }

    fn flush(&self) {
        *self.flushed.lock().unwrap() += 1;
    }
}

/// Returns whether the metrics of both sides are final: the queues are empty, and the side `there`
/// has read every wake-up (Polling message) that the side `here` sent.
fn is_settled(here: &PerformanceMetrics, there: &PerformanceMetrics) -> bool {
    let pending = |one: &PerformanceMetrics| one.send_queue_count + one.receive_queue_count;
    let is_read = there.receive_sync_event_count == here.send_sync_event_count;
    is_read && pending(here) + pending(there) == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_known_exchange_has_the_right_figures_on_both_sides() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/s.sock", directory.path().display());
    let shmipc = Shmipc::default();
    let listener = Listener::bind(&*address).unwrap().with_protocol(Arc::new(shmipc.clone()));
    let notes = Arc::new(Notes::default());
    let config = Config::default()
        .monitor(Arc::clone(&notes) as Arc<dyn Monitor>)
        .monitor_interval(Duration::from_millis(20));
    let made = SessionManager::new(&*address, config, partywall::Config::default());
    let (manager, accepted) = tokio::join!(made, listener.accept());
    let (manager, accepted) = (manager.unwrap(), accepted.unwrap());

    let mut stream = manager.get_stream().await.unwrap();
    stream.send(&[7; 1000]).await.unwrap();
    let mut there = accepted.accept().await.unwrap().unwrap();
    let question = there.recv().await.unwrap().unwrap();
    // While the application holds the received message, the metrics show one allocated slice of the
    // smallest size.
    let held = shmipc.metrics()[0].share_memory;
    assert_eq!(held.capacity_of_share_memory_in_bytes, 32 << 20);
    assert_eq!(held.all_in_used_share_memory_in_bytes, 8172);
    drop(question);
    there.send(&[8; 300]).await.unwrap();
    assert_eq!(stream.recv().await.unwrap().unwrap().len(), 300);

    // The receiving side stores the head of the ring only when the ring is empty, and may read a
    // wake-up after the message that it announced. So the test waits until the figures are final.
    until("empty queues, and a wake-up read", || {
        is_settled(&manager.stats().total.performance, &shmipc.metrics()[0].performance)
    })
    .await;
    let (here, accepting) = (manager.stats(), shmipc.metrics());
    assert_eq!((here.sessions.len(), accepting.len()), (1, 1));
    let (client, server) = (here.sessions[0], accepting[0]);
    assert_eq!((client.performance.out_flow_bytes, client.performance.in_flow_bytes), (1000, 300));
    assert_eq!((server.performance.out_flow_bytes, server.performance.in_flow_bytes), (300, 1000));
    let sent = client.performance.send_sync_event_count;
    assert_eq!((sent, server.performance.receive_sync_event_count), (1, 1));
    assert_eq!(client.stability.active_stream_count, 1);
    assert_eq!(server.stability.active_stream_count, 1);
    assert_eq!(client.share_memory.all_in_used_share_memory_in_bytes, 0);
    for one in [client, server] {
        assert_eq!((one.performance.send_queue_count, one.performance.receive_queue_count), (0, 0));
        let rest = StabilityMetrics::default();
        let mut stability = one.stability;
        stability.active_stream_count = 0;
        assert_eq!(stability, rest);
    }
    assert_eq!(here.total, client);

    // The sessions are idle from here on. Expected: the monitor gets reports of them all the same.
    let reports = notes.reports.lock().unwrap().len();
    until("the monitor", || notes.reports.lock().unwrap().len() >= reports + 3).await;
    let (performance, stability, memory) = *notes.reports.lock().unwrap().last().unwrap();
    assert_eq!((performance.out_flow_bytes, performance.in_flow_bytes), (1000, 300));
    assert_eq!((stability, memory), (client.stability, client.share_memory));

    drop(stream);
    assert_eq!(*notes.flushed.lock().unwrap(), 0);
    manager.close().await;
    until("the last figures", || *notes.flushed.lock().unwrap() == 1).await;
    let (performance, stability, _) = *notes.reports.lock().unwrap().last().unwrap();
    assert_eq!(performance.out_flow_bytes, 1000);
    assert_eq!(stability.active_stream_count, 0);
    let after = manager.stats();
    assert_eq!((after.sessions.len(), after.total.performance.out_flow_bytes), (0, 1000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_servers_monitor_hears_of_idle_sessions_when_it_is_asked_to() {
    let directory = tempfile::tempdir().unwrap();
    let address = format!("unix:{}/s.sock", directory.path().display());
    let notes = Arc::new(Notes::default());
    let config = Config::default()
        .monitor(Arc::clone(&notes) as Arc<dyn Monitor>)
        .monitor_interval(Duration::from_millis(20));
    let shmipc = Shmipc::new(config).unwrap();
    let listener = Listener::bind(&*address).unwrap().with_protocol(Arc::new(shmipc.clone()));
    let made = SessionManager::new(&*address, Config::default(), partywall::Config::default());
    let (manager, accepted) = tokio::join!(made, listener.accept());
    let (manager, accepted) = (manager.unwrap(), accepted.unwrap());
    until("the monitor", || {
        shmipc.tell_monitor();
        notes.reports.lock().unwrap().len() >= 3
    })
    .await;
    drop((manager, accepted));
    until("the end", || *notes.flushed.lock().unwrap() == 1).await;
}
