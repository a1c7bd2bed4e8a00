// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transport that measures request-response of the crate `iceoryx2`: each message is a request,
//! and its reply is the response.
//!
//! ```text
//! parent   client ── request ──►  server   child
//!                 ◄── response ──
//! ```
//! Each request has one response and then ends, as in most programs. (The benchmark of that crate
//! streams many responses to one request, or sends requests without a response.) The next request
//! is loaned while the peer works. A response can only be loaned after its request has arrived. It
//! is zeroed within the measured path, because safe code writes only to initialised memory.

use anyhow::{Context, Result, ensure};
use iceoryx2::active_request::ActiveRequest;
use iceoryx2::pending_response::PendingResponse;
use iceoryx2::port::client::Client;
use iceoryx2::port::server::Server;
use iceoryx2::prelude::{Node, ipc};
use iceoryx2::request_mut::RequestMut;
use iceoryx2::service::port_factory::request_response::PortFactory;
use partywall_bench::harness::workspace::Setup;
use partywall_bench::transport::{Acceptor, ChannelTransport, Endpoint};
use zerocopy::IntoBytes;

use super::iceoryx::{node, service_name, spin_until, word_count};

type Loaned = RequestMut<ipc::Service, [u64], (), [u64], ()>;
type Pending = PendingResponse<ipc::Service, [u64], (), [u64], ()>;
type Active = ActiveRequest<ipc::Service, [u64], (), [u64], ()>;
type Services = PortFactory<ipc::Service, [u64], (), [u64], ()>;

/// The transport `iceoryx2-0.10-reqres`, which measures request-response of the crate `iceoryx2`.
pub struct Reqres;

/// The end of the child process, which `bind` makes and `accept` returns. Its port thereby exists
/// already when the parent process connects, so the parent finds it.
pub struct ReqresAcceptor(Option<ReqresServer>);

/// One end of the connection: that of the parent process or that of the child process.
pub enum ReqresEndpoint {
    /// The end of the parent process, which sends requests.
    Client(ReqresClient),
    /// The end of the child process, which sends responses.
    Server(ReqresServer),
}

/// The end of the parent process, which sends each message as a request and receives the response
/// as its reply.
pub struct ReqresClient {
    // Fields are dropped in the order of declaration: the loaned request before its port, and the
    // port before the node.
    next: Option<Loaned>,
    pending: Option<Pending>,
    client: Client<ipc::Service, [u64], (), [u64], ()>,
    _node: Node<ipc::Service>,
    size: usize,
}

/// The end of the child process, which receives requests and sends each reply as a response.
pub struct ReqresServer {
    // Fields are dropped in the order of declaration: the received request before its port, and the
    // port before the node.
    active: Option<Active>,
    server: Server<ipc::Service, [u64], (), [u64], ()>,
    _node: Node<ipc::Service>,
    size: usize,
}

impl ChannelTransport for Reqres {
    type Endpoint = ReqresEndpoint;
    type Acceptor = ReqresAcceptor;

    fn bind(setup: &Setup) -> Result<ReqresAcceptor> {
        let (node, size) = (node(setup)?, setup.size);
        let server = service(&node, setup)?
            .server_builder()
            .initial_max_slice_len(word_count(size))
            .create()
            .context("making a server")?;
        Ok(ReqresAcceptor(Some(ReqresServer { active: None, server, _node: node, size })))
    }

    fn connect(setup: &Setup, _: &str) -> Result<ReqresEndpoint> {
        let (node, size) = (node(setup)?, setup.size);
        let client = service(&node, setup)?
            .client_builder()
            .initial_max_slice_len(word_count(size))
            .create()
            .context("making a client")?;
        let mut endpoint = ReqresClient { next: None, pending: None, client, _node: node, size };
        endpoint.next = Some(endpoint.loan()?);
        Ok(ReqresEndpoint::Client(endpoint))
    }
}

impl Acceptor for ReqresAcceptor {
    type Endpoint = ReqresEndpoint;

    fn address(&self) -> String {
        String::new() // no address is needed: services are found by name
    }

    fn accept(&mut self) -> Result<ReqresEndpoint> {
        self.0.take().map(ReqresEndpoint::Server).context("there is one connection only")
    }
}

impl Endpoint for ReqresEndpoint {
    #[inline]
    fn send(&mut self, _: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        match self {
            Self::Client(client) => client.send(fill),
            Self::Server(server) => server.send(fill),
        }
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        match self {
            Self::Client(client) => client.receive(size, read),
            Self::Server(server) => server.receive(size, read),
        }
    }
}

impl ReqresClient {
    #[inline]
    fn loan(&self) -> Result<Loaned> {
        self.client.loan_slice(word_count(self.size)).context("loaning a request")
    }

    #[inline]
    fn send(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut request = self.next.take().context("no request was loaned")?;
        fill(request.payload_mut().as_mut_bytes());
        self.pending = Some(request.send().context("sending a request")?);
        self.next = Some(self.loan()?);
        Ok(())
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let pending = self.pending.take().context("no request is pending")?;
        let response = spin_until(|| pending.receive().context("receiving a response"))?;
        let bytes = response.payload().as_bytes();
        ensure!(bytes.len() == size, "received {} bytes instead of {size}", bytes.len());
        Ok(read(bytes))
    }
}

impl ReqresServer {
    #[inline]
    fn send(&mut self, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        let request = self.active.take().context("no request has arrived")?;
        let response = request.loan_slice(word_count(self.size));
        let mut response = response.context("loaning a response")?;
        fill(response.payload_mut().as_mut_bytes());
        response.send().context("sending a response")
    }

    #[inline]
    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let request = spin_until(|| self.server.receive().context("receiving a request"))?;
        let bytes = request.payload().as_bytes();
        ensure!(bytes.len() == size, "received {} bytes instead of {size}", bytes.len());
        let value = read(bytes);
        self.active = Some(request);
        Ok(value)
    }
}

fn service(node: &Node<ipc::Service>, setup: &Setup) -> Result<Services> {
    node.service_builder(&service_name(setup, "request")?)
        .request_response::<[u64], [u64]>()
        .max_servers(1)
        .max_clients(1)
        .max_response_buffer_size(1)
        .open_or_create()
        .context("opening a request-response service")
}
