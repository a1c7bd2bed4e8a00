// SPDX-License-Identifier: MIT OR Apache-2.0
//! Properties of a connection: the peer process, the transport, and the counters.
//!
//! Each structure has the layout of the structure of the same name in `partywall.h`, without
//! padding. A later version may add fields at the end, so callers pass the size of their structure.

use crate::argument::{Buffer, Out};
use crate::failure::Failure;
use partywall::{Distrust, Peer, ReceiverStats, SenderStats, Transport, Trust};

/// What is known of the peer process, in the layout of the header's structure.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CPeer {
    has_credentials: i32,
    pid: i32,
    uid: u32,
    gid: u32,
    is_trusted: i32,
    distrust: i32,
}

impl From<&Peer> for CPeer {
    fn from(peer: &Peer) -> Self {
        let who = peer.credentials;
        Self {
            has_credentials: i32::from(who.is_some()),
            pid: who.map_or(0, |who| who.pid),
            uid: who.map_or(0, |who| who.uid),
            gid: who.map_or(0, |who| who.gid),
            is_trusted: i32::from(peer.trust == Trust::Trusted),
            distrust: peer.distrust.map_or(0, number),
        }
    }
}

/// Returns the number of the constant in `partywall.h` for a reason why the peer is not trusted.
const fn number(distrust: Distrust) -> i32 {
    match distrust {
        Distrust::Policy => 1,
        Distrust::NoCredentials => 2,
        Distrust::OtherUser => 3,
        Distrust::OtherPidNamespace => 4,
        Distrust::OtherUserNamespace => 5,
        Distrust::UnknownNamespaces => 6,
        Distrust::NoProcess => 7,
        // A newer version of `partywall` can have reasons that `partywall.h` does not name yet.
        _ => -1,
    }
}

/// Copies a description of the peer process into a C program's buffer, as text for logs.
pub(crate) fn write_peer(
    peer: &Peer,
    buffer: Buffer,
    capacity: usize,
    len: Out<usize>,
) -> Result<(), Failure> {
    let text = match peer.distrust {
        Some(reason) => format!("{peer}, not trusted because {reason}"),
        None => format!("{peer}, trusted"),
    };
    buffer.write_text(&text, capacity, len)
}

/// Writes the number of a connection's transport, and the number of the reason why memory is not
/// shared, or 0 if it is.
pub(crate) fn write_transport(found: Transport, transport: Out<i32>, reason: Out<u32>) {
    let (number, why) = match found {
        Transport::SharedMemory => (SHARED_MEMORY, 0),
        Transport::Socket(why) => (SOCKET, why.number()),
        _ => (PROTOCOL, 0),
    };
    transport.write(number);
    reason.write(why);
}

// Numbers of transports, as constants of `partywall.h`.
const SHARED_MEMORY: i32 = 1;
const SOCKET: i32 = 2;
const PROTOCOL: i32 = 3;

/// The counters of a sending direction, in the layout of `partywall_sender_stats` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CSenderStats {
    messages: u64,
    bytes: u64,
    zero_copy: u64,
    overflows: u64,
    wakeups_sent: u64,
    sleeps: u64,
    memory_bytes: u64,
    memory_used_bytes: u64,
    blocks_in_flight: u64,
}

impl From<SenderStats> for CSenderStats {
    fn from(stats: SenderStats) -> Self {
        Self {
            messages: stats.messages,
            bytes: stats.bytes,
            zero_copy: stats.zero_copy,
            overflows: stats.overflows,
            wakeups_sent: stats.wakeups_sent,
            sleeps: stats.sleeps,
            memory_bytes: stats.memory_bytes,
            memory_used_bytes: stats.memory_used_bytes,
            blocks_in_flight: stats.blocks_in_flight,
        }
    }
}

/// The counters of a receiving direction, in the layout of `partywall_receiver_stats` of the
/// header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CReceiverStats {
    messages: u64,
    bytes: u64,
    zero_copy: u64,
    wakeups_sent: u64,
    sleeps: u64,
    spin_hits: u64,
}

impl From<ReceiverStats> for CReceiverStats {
    fn from(stats: ReceiverStats) -> Self {
        Self {
            messages: stats.messages,
            bytes: stats.bytes,
            zero_copy: stats.zero_copy,
            wakeups_sent: stats.wakeups_sent,
            sleeps: stats.sleeps,
            spin_hits: stats.spin_hits,
        }
    }
}
