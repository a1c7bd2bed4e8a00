// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of `inspect --json`. Positions, sizes and counts have 64 bits; times are nanoseconds
//! since 1970, and 0 if they are not stated.

use anyhow::Result;
use partywall_layout::identity::RegionIdentity;
use partywall_layout::segment::{receiving, sending};
use serde::Serialize;

use super::connection::{Connection, kind, role, service, sleep, state};
use super::found::Found;
use crate::command::report::{self, hex};

/// The connections and links as one JSON object, followed by a newline.
pub fn text(found: &Found) -> Result<String> {
    let unusable = |(source, why)| Unusable { source, why };
    let of = |list: &[(String, String)]| list.iter().cloned().map(unusable).collect();
    report::json(&Whole {
        version: partywall_bench::VERSION,
        pid: found.pid,
        connections: found.connections().map(|connection| connection_json(&connection)).collect(),
        links: found
            .links
            .iter()
            .map(|link| {
                let [local, remote, name] = &link.names;
                LinkJson {
                    local,
                    remote,
                    link: name,
                    source: &link.source,
                    created_ns: link.created_ns,
                }
            })
            .collect(),
        inherited: &found.inherited,
        damaged: of(&found.damaged),
        unreadable: of(&found.unreadable),
    })
}

#[derive(Serialize)]
struct Whole<'a> {
    version: &'static str,
    pid: Option<u32>,
    connections: Vec<ConnectionJson>,
    links: Vec<LinkJson<'a>>,
    /// The regions and links that the inspected process has open and does not map, because it
    /// inherited them by fork.
    inherited: &'a [String],
    damaged: Vec<Unusable>,
    unreadable: Vec<Unusable>,
}

#[derive(Serialize)]
struct ConnectionJson {
    session: String,
    own: Side,
    /// The region of the peer; `null` if it was not found or could not be read.
    peer: Option<Side>,
}

#[derive(Serialize)]
struct Side {
    kind: String,
    role: String,
    service: String,
    address: String,
    program: String,
    pid: u32,
    state: String,
    error: u64,
    created_ns: u64,
    changed_ns: u64,
    region_bytes: u64,
    sent_messages: u64,
    sent_bytes: u64,
    /// Bytes of the ring that the peer has not read; `null` if the peer's region was not found, or
    /// if the two regions contradict each other.
    unread_ring_bytes: Option<u64>,
    received_messages: u64,
    received_bytes: u64,
    sleep: &'static str,
}

#[derive(Serialize)]
struct LinkJson<'a> {
    local: &'a str,
    remote: &'a str,
    link: &'a str,
    source: &'a str,
    created_ns: u64,
}

#[derive(Serialize)]
struct Unusable {
    source: String,
    why: String,
}

fn connection_json(connection: &Connection<'_>) -> ConnectionJson {
    let side = |region: &RegionIdentity<'_>| Side {
        kind: kind(region.kind()),
        role: role(region.role()),
        service: service(region.service()),
        address: region.address().to_owned(),
        program: region.program().to_owned(),
        pid: region.owner_pid(),
        state: state(region.state()),
        error: region.last_error(),
        created_ns: region.created_ns(),
        changed_ns: region.changed_ns(),
        region_bytes: region.region_bytes(),
        sent_messages: region.sending(sending::MESSAGES),
        sent_bytes: region.sending(sending::BYTES),
        unread_ring_bytes: connection.unread(region),
        received_messages: region.receiving(receiving::MESSAGES),
        received_bytes: region.receiving(receiving::BYTES),
        sleep: sleep(region),
    };
    ConnectionJson {
        session: hex(connection.own.session_id()),
        own: side(&connection.own),
        peer: connection.peer.as_ref().map(side),
    }
}
