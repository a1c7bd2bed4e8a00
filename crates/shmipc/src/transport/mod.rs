// SPDX-License-Identifier: MIT OR Apache-2.0
//! A connection of the protocol shmipc, as Partywall's sessions use it. An element is an entry of
//! the ring that names a message's slices; fallback data is a message that is sent over the socket.
//!
//! ```text
//!   ConnectionSender ─ slices ─▶ chain ─▶ element in the ring ─▶ Polling if idle    sender.rs
//!              └ none left ─▶ fallback data on the socket                           outlet.rs
//!   ConnectionReceiver ◀─ chain ◀─ element ◀─ ring                                  receiver.rs
//!                ◀─ fallback data, closes of streams ◀─ socket                      inlet.rs
//!                ◀─ closes that wait for data on the socket                 pending_closes.rs
//! ```
//!
//! Sender and receiver belong to one session. They share the socket, the region, and the table of
//! streams (`streams.rs`). All other state belongs to one of them, so that one can send while the
//! other receives.
//!
//! # Order of ring and socket
//!
//! A stream's data goes through the ring or, once memory was exhausted, over the socket. Ring and
//! socket are not ordered by themselves. A sender orders them: it notifies the peer of elements in
//! the ring before it writes fallback data, and it closes a stream with fallback data over the
//! socket. A receiver takes the peer's elements from the ring first. It reports a close from the
//! ring only after it has read everything from the socket.

mod control;
mod counters;
mod heap;
mod inlet;
pub mod metrics;
mod outlet;
mod pending_closes;
mod receiver;
mod sender;
mod space_waiter;
mod streams;

pub(crate) use control::{Control, Observer};

use crate::memory::queue::{Consumer, Producer};
use crate::region::BufferRegion;
use crate::transport::metrics::Monitor;
use counters::ConnectionCounters;
use heap::Heap;
use outlet::{Outlet, SharedOutlet};
use partywall::protocol::{Connection, DriverWaker};
use partywall::{BackPressure, Trust};
use partywall_sys::Socket;
use receiver::Receiver;
use sender::Sender;
use space_waiter::SpaceWaiter;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use streams::Streams;

/// Arguments of [`connection`]: socket, memory and settings of an established connection.
pub(crate) struct ConnectionParts {
    pub socket: Socket,
    /// Bytes of the established connection that were read together with the handshake.
    pub read: Vec<u8>,
    pub version: u8,
    pub region: Arc<BufferRegion>,
    pub queue: (Producer, Consumer),
    pub is_client: bool,
    pub trust: Trust,
    pub driver_waker: DriverWaker,
    pub policy: BackPressure,
    pub limits: FallbackLimits,
    /// The monitor of the connection, and the shortest interval between two reports to it.
    pub monitor: Option<(Arc<dyn Monitor>, Duration)>,
    /// The observer that acts on hot restarts and on the connection's end.
    pub observer: Arc<dyn Observer>,
    pub description: &'static str,
    /// Upper bound of the streams that this side may have open.
    pub streams_max: u32,
    /// The memfds or files of the connection's regions. They live as long as the connection;
    /// dropping them removes the files.
    pub backing: Vec<Arc<crate::memory::Backing>>,
}

/// Limits of fallback data (messages received over the socket) on this process's heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FallbackLimits {
    pub fallback_unread_max: u64,
    pub fallback_message_max: u32,
}

pub(crate) fn connection(parts: ConnectionParts) -> io::Result<Connection> {
    let ConnectionParts { socket, region, queue: (producer, consumer), .. } = parts;
    let socket = Arc::new(socket);
    let streams = Arc::new(Streams::new(parts.is_client, producer.capacity() as usize));
    let heap = Heap::new(parts.limits.fallback_unread_max, parts.driver_waker.clone());
    // The connection gets a `BufferRegion` of its own, so that its allocations are counted apart
    // from those of other connections.
    let region = region.another();
    let room = Arc::new(SpaceWaiter::new(&socket, producer.room_watch(), Arc::clone(&region))?);
    region.join();
    let counters =
        Arc::new(ConnectionCounters::new(Arc::clone(&region), Arc::clone(&streams), parts.monitor));
    let outlet =
        Outlet::new(Arc::clone(&socket), parts.version, parts.limits, Arc::clone(&counters));
    let outlet = Arc::new(SharedOutlet::new(outlet));
    let control = Arc::new(Control::new(control::ControlParts {
        is_client: parts.is_client,
        outlet: Arc::downgrade(&outlet),
        counters: Arc::clone(&counters),
        rings: (producer.fill_watch(), consumer.fill_watch()),
        driver_waker: parts.driver_waker,
        observer: Arc::clone(&parts.observer),
    }));
    let sender = Sender::new(
        outlet,
        (Arc::clone(&region), producer),
        (Arc::clone(&streams), parts.policy),
        room,
        Arc::clone(&counters),
    );
    let inlet = inlet::Inlet::new(socket, &parts.read, parts.limits);
    let receiver = Receiver::new(
        inlet,
        (region, consumer),
        streams,
        (heap, parts.trust == Trust::Untrusted),
        (counters, Arc::clone(&control)),
        parts.backing,
    );
    parts.observer.joined(&control);
    Ok(Connection {
        sender: Box::new(sender),
        receiver: Box::new(receiver),
        description: parts.description,
        streams_max: parts.streams_max,
        // In shmipc only the connecting side, the client, opens streams. So the peer opens streams
        // if this side is no client.
        peer_opens: !parts.is_client,
    })
}
