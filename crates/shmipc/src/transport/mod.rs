// SPDX-License-Identifier: MIT OR Apache-2.0
//! A line of this protocol, as the door of partywall wants it.
//!
//! ```text
//!   ConnectionSender ─ slices ─▶ chain ─▶ element in the ring ─▶ Polling, where the other side rests    sender.rs
//!              └ none left ─▶ fallback data on the socket                                         outlet.rs
//!   ConnectionReceiver ◀─ chain ◀─ element ◀─ ring                                                      receiver.rs
//!                ◀─ fallback data, ends of streams ◀─ socket                                      inlet.rs
//!                ◀─ ends that wait for what is left on the socket                             closing.rs
//! ```
//!
//! Both ends belong to one session. They share the socket, the region, and which streams there are (`streams.rs`);
//! everything else is each end's own, so that one can send while the other receives.
//!
//! # What is in which order
//!
//! A stream's data goes through the ring, or, where memory ran out, by the socket from then on. The two are not in
//! order of themselves. We make them so: what was put in the ring before is told of before fallback data is written,
//! and the end of such a stream goes by the socket as well. Of the other side's we take the ring's elements first,
//! and believe the end of a stream in the ring only when the socket has been read to its end after it.

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

/// What a line is made of once both sides are ready.
pub(crate) struct ConnectionParts {
    pub socket: Socket,
    /// Bytes of established traffic that were read along with the handshake.
    pub read: Vec<u8>,
    pub version: u8,
    pub region: Arc<BufferRegion>,
    pub queue: (Producer, Consumer),
    pub is_client: bool,
    pub trust: Trust,
    pub driver_waker: DriverWaker,
    pub policy: BackPressure,
    pub limits: FallbackLimits,
    /// Who is told the counters, and how often.
    pub monitor: Option<(Arc<dyn Monitor>, Duration)>,
    /// Who looks after the line.
    pub observer: Arc<dyn Observer>,
    pub description: &'static str,
    /// How many streams we may open.
    pub streams_max: u32,
    /// What must live as long as the line: files are removed when it is dropped.
    pub backing: Vec<Arc<crate::memory::Backing>>,
}

/// What may lie on our heap.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FallbackLimits {
    pub fallback_unread_max: u64,
    pub fallback_message_max: u32,
}

/// Both ends.
pub(crate) fn connection(parts: ConnectionParts) -> io::Result<Connection> {
    let ConnectionParts { socket, region, queue: (producer, consumer), .. } = parts;
    let socket = Arc::new(socket);
    let streams = Arc::new(Streams::new(parts.is_client, producer.capacity() as usize));
    let heap = Heap::new(parts.limits.fallback_unread_max, parts.driver_waker.clone());
    // Its own, beside those of other lines: what it takes is counted apart from theirs.
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
        // Only the connecting side opens any.
        peer_opens: !parts.is_client,
    })
}
