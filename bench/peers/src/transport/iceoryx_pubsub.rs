// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport that measures publish-subscribe of the crate `iceoryx2`, with one service per
//! direction.
//!
//! ```text
//! parent   publisher  ── request ──►  subscriber   child
//!          subscriber ◄── reply ──── publisher
//! ```
//! As in the benchmark of that crate, a subscriber holds one unread sample (a message), a newer
//! sample replaces it (safe overflow), and no history is kept. The memory of the next sample is
//! loaned while the peer works, so loaning and zeroing it are outside the measured path.

use anyhow::{Context, Result, ensure};
use iceoryx2::port::publisher::Publisher;
use iceoryx2::port::subscriber::Subscriber;
use iceoryx2::prelude::{Node, ipc};
use iceoryx2::sample_mut::SampleMut;
use iceoryx2::service::port_factory::publish_subscribe::PortFactory;
use partywall_bench::harness::workspace::Setup;
use partywall_bench::transport::{Acceptor, ChannelTransport, Endpoint};
use zerocopy::IntoBytes;

use super::iceoryx::{node, service_name, spin_until, word_count};

type Loaned = SampleMut<ipc::Service, [u64], ()>;

/// The transport `iceoryx2-0.10-pubsub`, which measures publish-subscribe of the crate `iceoryx2`.
pub struct Pubsub;

/// The end of the child process, which `bind` makes and `accept` returns. Its ports thereby exist
/// already when the parent process connects, so the parent finds them.
pub struct PubsubAcceptor(Option<PubsubEndpoint>);

/// One end of a connection: it publishes messages of one direction and subscribes to the other
/// direction.
pub struct PubsubEndpoint {
    // Fields are dropped in the order of declaration: the loaned sample before its port, and the
    // ports before the node.
    next: Option<Loaned>,
    publisher: Publisher<ipc::Service, [u64], ()>,
    subscriber: Subscriber<ipc::Service, [u64], ()>,
    _node: Node<ipc::Service>,
    size: usize,
}

impl ChannelTransport for Pubsub {
    type Endpoint = PubsubEndpoint;
    type Acceptor = PubsubAcceptor;

    fn bind(setup: &Setup) -> Result<PubsubAcceptor> {
        Ok(PubsubAcceptor(Some(PubsubEndpoint::make(setup, "reply", "request")?)))
    }

    fn connect(setup: &Setup, _: &str) -> Result<PubsubEndpoint> {
        PubsubEndpoint::make(setup, "request", "reply")
    }
}

impl Acceptor for PubsubAcceptor {
    type Endpoint = PubsubEndpoint;

    fn address(&self) -> String {
        String::new() // no address is needed: services are found by name
    }

    fn accept(&mut self) -> Result<PubsubEndpoint> {
        self.0.take().context("there is one connection only")
    }
}

impl PubsubEndpoint {
    fn make(setup: &Setup, outgoing: &str, incoming: &str) -> Result<Self> {
        let (node, size) = (node(setup)?, setup.size);
        let publisher = service(&node, setup, outgoing)?
            .publisher_builder()
            .initial_max_slice_len(word_count(size))
            .create()
            .context("making a publisher")?;
        let subscriber = service(&node, setup, incoming)?
            .subscriber_builder()
            .create()
            .context("making a subscriber")?;
        let mut endpoint = Self { next: None, publisher, subscriber, _node: node, size };
        endpoint.next = Some(endpoint.loan()?);
        Ok(endpoint)
    }

    #[inline]
    fn loan(&self) -> Result<Loaned> {
        self.publisher.loan_slice(word_count(self.size)).context("loaning a sample")
    }
}

impl Endpoint for PubsubEndpoint {
    #[inline]
    fn send(&mut self, _: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut sample = self.next.take().context("no sample was loaned")?;
        fill(sample.payload_mut().as_mut_bytes());
        sample.send().context("publishing a sample")?;
        self.next = Some(self.loan()?);
        Ok(())
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let sample = spin_until(|| self.subscriber.receive().context("receiving a sample"))?;
        let bytes = sample.payload().as_bytes();
        ensure!(bytes.len() == size, "received {} bytes instead of {size}", bytes.len());
        Ok(read(bytes))
    }
}

/// Opens the publish-subscribe service of this measurement for one role.
pub fn service(
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
