// SPDX-License-Identifier: MIT OR Apache-2.0
//! The rival `iceoryx2`, request-response: each ping is a request, each answer its response.
//!
//! ```text
//! parent   client ── request ──►  server   child
//!                 ◄── response ──
//! ```
//! A request is answered once and then over: a new one each time, as a caller would. (The rival's own benchmark
//! instead streams many responses to one request, or sends requests that nobody answers.) As there, the next request
//! is loaned while the other process works; a response can only be loaned once its request is there.

use std::mem::MaybeUninit;

use anyhow::{Context, Result};
use iceoryx2::active_request::ActiveRequest;
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::{Node, ipc};
use iceoryx2::request_mut_uninit::RequestMutUninit;
use iceoryx2::service::port_factory::request_response::PortFactory;

use super::iceoryx::{node, service_name, word_count};
use super::lane::{Door, Lane, Transport, spin_until};
use crate::pattern::{Pattern, inspect_words};
use crate::setup::Setup;

/// The transport `iceoryx2-0.10-reqres`.
pub struct Reqres;

type Loaned = RequestMutUninit<ipc::Service, [MaybeUninit<u64>], (), [u64], ()>;
type Pending = PendingResponse<ipc::Service, [u64], (), [u64], ()>;
type Active = ActiveRequest<ipc::Service, [u64], (), [u64], ()>;
type Services = PortFactory<ipc::Service, [u64], (), [u64], ()>;

/// The end that asks.
pub struct ReqresClient {
    // Dropped in this order: what was made of a port before the port, ports before the node.
    next: Option<Loaned>,
    pending: Option<Pending>,
    client: Client<ipc::Service, [u64], (), [u64], ()>,
    _node: Node<ipc::Service>,
    size: usize,
}

/// The end that answers; ready as soon as it is made.
pub struct ReqresServer {
    // Dropped in this order, as above.
    active: Option<Active>,
    server: Server<ipc::Service, [u64], (), [u64], ()>,
    _node: Node<ipc::Service>,
    size: usize,
}

impl Transport for Reqres {
    type Asking = ReqresClient;
    type Door = ReqresServer;

    fn bind(setup: &Setup, size: usize) -> Result<ReqresServer> {
        let node = node(setup)?;
        let server = service(&node, setup)?
            .server_builder()
            .initial_max_slice_len(word_count(size))
            .create()
            .context("making a server")?;
        Ok(ReqresServer { active: None, server, _node: node, size })
    }

    fn connect(setup: &Setup, size: usize, _: &str) -> Result<ReqresClient> {
        let node = node(setup)?;
        let client = service(&node, setup)?
            .client_builder()
            .initial_max_slice_len(word_count(size))
            .create()
            .context("making a client")?;
        let mut lane = ReqresClient { next: None, pending: None, client, _node: node, size };
        lane.next = Some(lane.loan()?);
        Ok(lane)
    }
}

impl ReqresClient {
    #[inline]
    fn loan(&self) -> Result<Loaned> {
        self.client.loan_slice_uninit(word_count(self.size)).context("loaning a request")
    }
}

impl Door for ReqresServer {
    type Answering = Self;

    fn address(&self) -> String {
        String::new() // services are found by name
    }

    fn accept(self) -> Result<Self> {
        Ok(self)
    }
}

impl Lane for ReqresClient {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        let pattern = Pattern::of(sequence);
        let request = self.next.take().context("no request was loaned")?;
        let request = request.write_from_fn(|index| pattern.word(index));
        self.pending = Some(request.send().context("sending a request")?);
        self.next = Some(self.loan()?);
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<u64> {
        let pending = self.pending.take().context("nothing was asked")?;
        let response = spin_until(|| pending.receive().context("receiving a response"))?;
        inspect_words(response.payload(), self.size)
    }
}

impl Lane for ReqresServer {
    #[inline]
    fn send(&mut self, sequence: u64) -> Result<()> {
        let pattern = Pattern::of(sequence);
        let request = self.active.take().context("nothing was asked")?;
        let response = request.loan_slice_uninit(word_count(self.size));
        let response = response.context("loaning a response")?;
        let response = response.write_from_fn(|index| pattern.word(index));
        response.send().context("sending a response")
    }

    #[inline]
    fn receive(&mut self) -> Result<u64> {
        let request = spin_until(|| self.server.receive().context("receiving a request"))?;
        let sequence = inspect_words(request.payload(), self.size)?;
        self.active = Some(request);
        Ok(sequence)
    }
}

fn service(node: &Node<ipc::Service>, setup: &Setup) -> Result<Services> {
    node.service_builder(&service_name(setup, "ask")?)
        .request_response::<[u64], [u64]>()
        .max_servers(1)
        .max_clients(1)
        .max_response_buffer_size(1)
        .open_or_create()
        .context("opening a request-response service")
}
