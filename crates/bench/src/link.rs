// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links (class Crash): each end keeps what it sends in a file, and commits what it has received.
//!
//! ```text
//! send      send_with(size): built without a buffer before; from where it is kept the kernel, or the other end, takes it
//! receive   recv_with: read in the link's own memory, and committed when that is done
//! ```
//!
//! The files lie on a memory file system if this machine has a writable one: what is measured is the link and not a disk.

use std::fs::DirBuilder;
use std::marker::PhantomData;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use partywall::TransportPolicy;
use partywall_link::{
    Link, LinkClient, LinkConfig, LinkMessageView, LinkReceiver, LinkSender, LinkServer, Storage,
};

use super::lane::{Door, Lane, Setup, Transport};
use super::shm::wait_of;
use super::system::monotonic_ns;

/// Links over one of the ways there are.
pub struct LinkOver<W>(PhantomData<W>);

/// The transport `link-shm`.
pub type LinkShm = LinkOver<SharedMemory>;
/// The transport `link-tcp`.
pub type LinkTcp = LinkOver<Tcp>;
/// The transport `link-uds`.
pub type LinkUds = LinkOver<Uds>;

/// Where its ends meet, and what they insist on.
pub trait Way {
    const POLICY: TransportPolicy;

    fn address(setup: &Setup) -> String {
        format!("unix:{}", setup.directory.join("links.sock").display())
    }
}

/// Shared memory, and nothing else.
pub struct SharedMemory;
/// A Unix socket, though memory could be shared.
pub struct Uds;
/// TCP on loopback.
pub struct Tcp;

impl Way for SharedMemory {
    const POLICY: TransportPolicy = TransportPolicy::SharedMemory;
}

impl Way for Uds {
    const POLICY: TransportPolicy = TransportPolicy::Socket;
}

impl Way for Tcp {
    const POLICY: TransportPolicy = TransportPolicy::Auto;

    fn address(_setup: &Setup) -> String {
        "tcp:127.0.0.1:0".to_owned()
    }
}

/// A server of links.
pub struct LinkDoor {
    server: LinkServer,
    address: String,
    directory: Directory,
}

/// One end of a link.
pub struct LinkLane {
    sender: LinkSender,
    receiver: LinkReceiver,
    _directory: Directory,
}

impl<W: Way> Transport for LinkOver<W> {
    type Lane = LinkLane;
    type Door = LinkDoor;

    fn bind(setup: &Setup) -> Result<LinkDoor> {
        let directory = Directory::new(setup)?;
        let place = Storage::directory(&directory.0.path);
        let config = config(setup).transport(W::POLICY);
        let server = LinkServer::bind(W::address(setup), place, "server", config)?;
        let address = server.local_address().to_string();
        Ok(LinkDoor { server, address, directory })
    }

    fn connect(setup: &Setup, address: &str) -> Result<LinkLane> {
        let directory = Directory::new(setup)?;
        let config = config(setup).transport(W::POLICY);
        let client = LinkClient::new(Storage::directory(&directory.0.path), "client", config)?;
        let link = client.connect(address, "server", "bench")?;
        link.wait_attached(Instant::now() + ACCEPT_TIMEOUT)?;
        Ok(LinkLane::new(link, directory))
    }
}

impl Door for LinkDoor {
    type Lane = LinkLane;

    fn address(&self) -> String {
        self.address.clone()
    }

    fn accept(&mut self) -> Result<LinkLane> {
        let deadline = Instant::now() + ACCEPT_TIMEOUT;
        let link = self.server.accept_deadline(deadline).context("waiting for a client")?;
        Ok(LinkLane::new(link, self.directory.clone()))
    }
}

impl LinkLane {
    fn new(link: Link, directory: Directory) -> Self {
        let (sender, receiver) = link.split();
        Self { sender, receiver, _directory: directory }
    }
}

impl Lane for LinkLane {
    fn send(&mut self, size: usize, fill: impl FnOnce(&mut [u8])) -> Result<()> {
        self.sender.send_with(size, fill).context("sending a message")
    }

    fn receive<R>(&mut self, size: usize, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let read = |message: LinkMessageView<'_>| match message.len() {
            len if len == size => Ok(read(&message)),
            len => Err(len),
        };
        let value = self.receiver.recv_with(read).context("receiving a message")?;
        value.map_err(|len| anyhow!("received {len} bytes instead of {size}"))
    }

    fn settle(&mut self) -> Result<()> {
        self.sender.wait_sent(Instant::now() + ACCEPT_TIMEOUT).context("waiting until all is sent")
    }
}

fn config(setup: &Setup) -> LinkConfig {
    let slab = (setup.size as u64 * MESSAGES_IN_FLIGHT).next_multiple_of(SLAB_UNIT).max(SLAB_MIN);
    LinkConfig::default()
        .wait(wait_of(setup))
        .ring_bytes(RING)
        .slab_bytes(slab)
        .peer_max(RING, slab)
        .allow_anonymous_tcp(true)
}

/// A directory for link files, removed with the last lane that uses it; by the first process at the latest.
#[derive(Clone)]
struct Directory(Arc<Removed>);

struct Removed {
    path: PathBuf,
}

impl Directory {
    /// A new one, for us alone.
    fn new(setup: &Setup) -> Result<Self> {
        let path = setup.memory.join(format!("{}-{}", std::process::id(), monotonic_ns()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.with_context(|| format!("making the directory {}", path.display()))?;
        Ok(Self(Arc::new(Removed { path })))
    }
}

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// The other process has been told to come and is on its way.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);
const RING: u64 = 4 << 20;
/// A flood of large messages may have so many under way.
const MESSAGES_IN_FLIGHT: u64 = 8;
const SLAB_MIN: u64 = 16 << 20;
const SLAB_UNIT: u64 = 64 << 10;
