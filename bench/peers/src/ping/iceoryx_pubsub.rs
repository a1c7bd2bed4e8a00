// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rival `iceoryx2`, publish-subscribe: a service in each direction.
//!
//! ```text
//! parent   publisher  ── ask ────►  subscriber   child
//!          subscriber ◄── answer ── publisher
//! ```
//! As in the rival's own benchmark: one sample per subscriber, no history, safe overflow; and the next sample is loaned
//! while the other process works, which takes the loan out of the measured path.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{Node, ipc};
use iceoryx2::sample_mut_uninit::SampleMutUninit;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;

use super::iceoryx::{node, service_name, word_count};
use super::lane::{Door, Lane, Transport, spin_until};
use crate::pattern::{Pattern, inspect_words};
use crate::setup::Setup;

type Loaned = SampleMutUninit<ipc::Service, [MaybeUninit<u64>], ()>;

/// The transport `iceoryx2-0.10-pubsub`.
pub struct Pubsub;

/// One end; ready as soon as it is made.
pub struct PubsubLane {
    // Dropped in this order: what was made of a port before the port, ports before the node.
    next: Option<Loaned>,
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    _node: Node<ipc::Service>,
    size: usize,
}

impl Transport for Pubsub {
    type Asking = PubsubLane;
    type Door = PubsubLane;

    fn bind(setup: &Setup, size: usize) -> Result<PubsubLane> {
        PubsubLane::make(setup, size, "answer", "ask")
    }

    fn connect(setup: &Setup, size: usize, _: &str) -> Result<PubsubLane> {
        PubsubLane::make(setup, size, "ask", "answer")
    }
}

impl Door for PubsubLane {
    type Answering = Self;

    fn address(&self) -> String {
        String::new() // services are found by name
    }

    fn accept(self) -> Result<Self> {
        Ok(self)
    }
}

impl PubsubLane {
    fn make(setup: &Setup, size: usize, outward: &str, inward: &str) -> Result<Self> {
        let node = node(setup)?;
        let publisher = service(&node, setup, outward)?
            .publisher_builder()
            .initial_max_slice_len(word_count(size))
            .create()
            .context("making a publisher")?;
        let subscriber = service(&node, setup, inward)?
            .subscriber_builder()
            .create()
            .context("making a subscriber")?;
        let mut lane = Self { next: None, publisher, subscriber, _node: node, size };
        lane.next = Some(lane.loan()?);
        Ok(lane)
    }

    #[inline]
    fn loan(&self) -> Result<Loaned> {
        let sample = self.publisher.loan_slice_uninit(word_count(self.size));
        sample.context("loaning a sample")
    }
}

impl Lane for PubsubLane {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        let pattern = Pattern::of(sequence);
        let sample = self.next.take().context("no sample was loaned")?;
        let sample = sample.write_from_fn(|index| pattern.word(index));
        sample.send().context("publishing a sample")?;
        self.next = Some(self.loan()?);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<u64> {
        let sample = spin_until(|| self.subscriber.receive().context("receiving a sample"))?;
        inspect_words(sample.payload(), self.size)
    }
}

fn service(
    node: &Node<ipc::Service>,
    setup: &Setup,
    role: &str,
) -> Result<PortFactory<ipc::Service, [u64], ()>> {
    node.service_builder(&service_name(setup, role)?)
        .publish_subscribe::<[u64]>()
        .max_publishers(1)
        .max_subscribers(1)
        .history_size(0)
        .subscriber_max_buffer_size(1)
        .enable_safe_overflow(true)
        .open_or_create()
        .context("opening a publish-subscribe service")
}
