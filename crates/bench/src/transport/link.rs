// SPDX-License-Identifier: MIT OR Apache-2.0
//! The transports `link-shm`, `link-uds` and `link-tcp`: durable links, in which each end stores
//! its sent messages in a file and acknowledges received ones.
//!
//! ```text
//! send      send_with(size): built in the link's memory, where the peer or the kernel reads it
//! receive   recv_with: read in the link's memory, then acknowledged
//! ```
//! The files lie on a memory file system if a writable one exists, because the scenario measures
//! the link and not a disk.

use std::fs::DirBuilder;
use std::marker::PhantomData;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use partywall::TransportPolicy;
use partywall_link::{Client, Config, Link, MessageView, Receiver, Sender, Server, Storage};

use super::shm::wait_strategy;
use super::{Acceptor, ChannelTransport, Endpoint};
use crate::harness::clock::monotonic_ns;
use crate::harness::workspace::Setup;

/// The transport that measures a link whose ends are connected by the carrier `C`: shared memory, a
/// Unix socket or TCP.
pub struct LinkOver<C>(PhantomData<C>);

/// The transport `link-shm`: a link over shared memory.
pub type LinkShm = LinkOver<SharedMemory>;
/// The transport `link-tcp`: a link over TCP.
pub type LinkTcp = LinkOver<Tcp>;
/// The transport `link-uds`: a link over a Unix socket.
pub type LinkUds = LinkOver<Uds>;

/// The kind of connection that carries a link's records between its two ends.
pub trait Carrier {
    /// The transport of the library that both ends require, so that no other one is measured by
    /// accident.
    const POLICY: TransportPolicy;

    /// The address at which the server of links listens.
    fn address(setup: &Setup) -> String {
        format!("unix:{}", setup.path("link").display())
    }
}

/// The carrier of `link-shm`: shared memory, without a socket as fallback.
pub struct SharedMemory;
/// The carrier of `link-uds`: a Unix socket, although the two ends could share memory.
pub struct Uds;
/// The carrier of `link-tcp`: TCP on loopback.
pub struct Tcp;

impl Carrier for SharedMemory {
    const POLICY: TransportPolicy = TransportPolicy::SharedMemory;
}

impl Carrier for Uds {
    const POLICY: TransportPolicy = TransportPolicy::Socket;
}

impl Carrier for Tcp {
    const POLICY: TransportPolicy = TransportPolicy::Auto;

    fn address(_setup: &Setup) -> String {
        "tcp:127.0.0.1:0".to_owned()
    }
}

/// The end of the child process over links: a server of links, at which the child waits for the
/// link of the parent process.
pub struct LinkAcceptor {
    server: Server,
    address: String,
    directory: Directory,
}

/// One end of a link, with which messages are sent and received.
pub struct LinkEndpoint {
    sender: Sender,
    receiver: Receiver,
    _directory: Directory,
}

impl<C: Carrier> ChannelTransport for LinkOver<C> {
    type Endpoint = LinkEndpoint;
    type Acceptor = LinkAcceptor;

    fn bind(setup: &Setup) -> Result<LinkAcceptor> {
        let directory = Directory::new(setup)?;
        let storage = Storage::directory(&directory.0.path);
        let config = config(setup).transport(C::POLICY);
        let server = Server::bind(C::address(setup), storage, "server", config)?;
        let address = server.local_address().to_string();
        Ok(LinkAcceptor { server, address, directory })
    }

    fn connect(setup: &Setup, address: &str) -> Result<LinkEndpoint> {
        let directory = Directory::new(setup)?;
        let config = config(setup).transport(C::POLICY);
        let client = Client::new(Storage::directory(&directory.0.path), "client", config)?;
        let link = client.connect(address, "server", "bench")?;
        link.wait_attached(Instant::now() + ACCEPT_TIMEOUT)?;
        Ok(LinkEndpoint::new(link, directory))
    }
}

impl Acceptor for LinkAcceptor {
    type Endpoint = LinkEndpoint;

    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<LinkEndpoint> {
        let deadline = Instant::now() + ACCEPT_TIMEOUT;
        let link = self.server.accept_deadline(deadline).context("waiting for a client")?;
        Ok(LinkEndpoint::new(link, self.directory.clone()))
    }
}

impl LinkEndpoint {
    fn new(link: Link, directory: Directory) -> Self {
        let (sender, receiver) = link.split();
        Self { sender, receiver, _directory: directory }
    }
}

impl Endpoint for LinkEndpoint {
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        self.sender.send_with(size, fill).context("sending a message")
    }

    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let read = |message: MessageView<'_>| match message.len() {
            len if len == size => Ok(read(&message)),
            len => Err(len),
        };
        let value = self.receiver.recv_with(read).context("receiving a message")?;
        value
            .context("the peer has finished")?
            .map_err(|len| anyhow!("received {len} bytes instead of {size}"))
    }

    fn settle(&mut self) -> Result<()> {
        self.sender
            .wait_sent(Instant::now() + ACCEPT_TIMEOUT)
            .context("waiting until all messages are sent")
    }
}

fn config(setup: &Setup) -> Config {
    let slab = (setup.size as u64 * MESSAGES_IN_FLIGHT).next_multiple_of(SLAB_UNIT).max(SLAB_MIN);
    Config::default()
        .wait(wait_strategy(setup.wait))
        .ring_bytes(RING)
        .slab_bytes(slab)
        .peer_max(RING, slab)
        .allow_anonymous_tcp(true)
}

/// A directory of link files. The directory is removed when the last endpoint that uses it is
/// dropped, or else by the parent process at the end of the run.
#[derive(Clone)]
struct Directory(Arc<OwnedDirectory>);

struct OwnedDirectory {
    path: PathBuf,
}

impl Directory {
    fn new(setup: &Setup) -> Result<Self> {
        let path = setup.memory.join(format!("{}-{}", std::process::id(), monotonic_ns()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making the directory {}", path.display()))?;
        Ok(Self(Arc::new(OwnedDirectory { path })))
    }
}

impl Drop for OwnedDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Maximum time that the child process waits for the parent's link, which the parent connects as
/// soon as it knows the address.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
const RING: u64 = 4 << 20;
/// Number of large messages for which the link's memory has room, so that `throughput` has as many
/// in flight.
const MESSAGES_IN_FLIGHT: u64 = 8;
const SLAB_MIN: u64 = 16 << 20;
const SLAB_UNIT: u64 = 64 << 10;
