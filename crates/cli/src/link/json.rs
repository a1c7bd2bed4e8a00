// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of `link inspect --json`. A stream id is text of 16 hexadecimal digits. Positions
//! have 64 bits and count bytes of the stream; times are seconds since 1970.

use std::time::SystemTime;

use anyhow::Result;

use partywall_link::{Found, Inspection, StorageError};
use serde::Serialize;

use super::inspect::{Inspected, status};
use crate::command::report::{self, hex};

/// The inspected links as one JSON object, followed by a newline.
pub fn text(inspected: &Inspected) -> Result<String> {
    let Inspected { found, missing } = inspected;
    let sound = found
        .iter()
        .filter_map(|one| one.inspection.as_ref().ok().map(|inspection| link(one, inspection)));
    let unsound =
        found.iter().filter_map(|one| one.inspection.as_ref().err().map(|e| unusable(one, e)));
    let whole = Whole {
        version: partywall_bench::VERSION,
        links: sound.collect(),
        damaged: unsound.collect(),
        missing: missing.iter().map(|file| file.display().to_string()).collect(),
    };
    report::json(&whole)
}

#[derive(Serialize)]
struct Whole<'a> {
    version: &'static str,
    links: Vec<Link<'a>>,
    damaged: Vec<Unusable>,
    /// Link files that the directory's own list of its links names, and that do not exist.
    missing: Vec<String>,
}

#[derive(Serialize)]
struct Unusable {
    file: String,
    /// The number of the rule of SPEC 13.6 that the damaged file breaks; `null` if the file could
    /// not be read.
    fault: Option<u32>,
    why: String,
}

#[derive(Serialize)]
struct Link<'a> {
    file: String,
    local: &'a str,
    remote: &'a str,
    link: &'a str,
    store_id: String,
    created_s: u64,
    incarnation: u64,
    owner: Owner,
    epoch: u64,
    sending: Sending,
    receiving: Receiving,
    peer: Option<Peer>,
    previous: Option<Previous>,
    quarantine: Option<Quarantine>,
    reports: Vec<Report>,
    reports_dropped: u64,
    sizes: Sizes,
}

#[derive(Serialize)]
struct Owner {
    status: &'static str,
    pid: u32,
    since_s: u64,
}

#[derive(Serialize)]
struct Sending {
    /// The id of the stream that this end of the link sends, as text; `null` if there is no stream
    /// yet.
    stream: Option<String>,
    base_bytes: u64,
    acked_bytes: u64,
}

#[derive(Serialize)]
struct Receiving {
    /// The id of the stream that this end of the link receives, as text; `null` if there is no
    /// stream yet.
    stream: Option<String>,
    consumed_bytes: u64,
}

#[derive(Serialize)]
struct Peer {
    store_id: String,
    incarnation: u64,
}

#[derive(Serialize)]
struct Previous {
    epoch: u64,
    acked_bytes: u64,
    tail_bytes: u64,
    consumed_bytes: u64,
    settled: bool,
}

#[derive(Serialize)]
struct Quarantine {
    why: &'static str,
    receiving: bool,
}

#[derive(Serialize)]
struct Report {
    kind: &'static str,
    receiving: bool,
    exact: bool,
    open: bool,
    epoch: u64,
    from_bytes: u64,
    to_bytes: u64,
}

#[derive(Serialize)]
struct Sizes {
    file_bytes: u64,
    ring_bytes: u64,
    release_ring_bytes: u64,
    slab_bytes: u64,
}

fn link<'a>(found: &Found, inspection: &'a Inspection) -> Link<'a> {
    let (owner, sizes) = (&inspection.owner, &inspection.sizes);
    Link {
        file: found.path.display().to_string(),
        local: inspection.key.local(),
        remote: inspection.key.remote(),
        link: inspection.key.link(),
        store_id: hex(inspection.store_id),
        created_s: seconds(inspection.created),
        incarnation: inspection.incarnation,
        owner: Owner {
            status: status(owner.status),
            pid: owner.pid,
            since_s: seconds(owner.since),
        },
        epoch: inspection.epoch,
        sending: Sending {
            stream: stream(inspection.sending_stream),
            base_bytes: inspection.base,
            acked_bytes: inspection.acked,
        },
        receiving: Receiving {
            stream: stream(inspection.receiving_stream),
            consumed_bytes: inspection.consumed,
        },
        peer: inspection
            .peer
            .map(|(store_id, incarnation)| Peer { store_id: hex(store_id), incarnation }),
        previous: inspection.previous.map(|old| Previous {
            epoch: old.epoch,
            acked_bytes: old.acked,
            tail_bytes: old.tail,
            consumed_bytes: old.consumed,
            settled: old.is_settled,
        }),
        quarantine: inspection.quarantine.map(|quarantine| Quarantine {
            why: quarantine.why,
            receiving: quarantine.is_receiving,
        }),
        reports: inspection.reports.iter().map(report).collect(),
        reports_dropped: inspection.reports_dropped,
        sizes: Sizes {
            file_bytes: sizes.file,
            ring_bytes: sizes.ring,
            release_ring_bytes: sizes.release_ring,
            slab_bytes: sizes.slab,
        },
    }
}

fn report(report: &partywall_link::ReportSnapshot) -> Report {
    let partywall_link::ReportSnapshot { kind, epoch, from, to, .. } = *report;
    let (exact, open) = (report.is_exact, report.is_open);
    Report {
        kind,
        receiving: report.is_receiving,
        exact,
        open,
        epoch,
        from_bytes: from,
        to_bytes: to,
    }
}

fn stream(id: u64) -> Option<String> {
    (id != 0).then(|| format!("{id:016x}"))
}

fn unusable(found: &Found, error: &StorageError) -> Unusable {
    let fault = match error {
        StorageError::File { fault, .. } => Some(fault.code()),
        _ => None,
    };
    Unusable { file: found.path.display().to_string(), fault, why: error.to_string() }
}

fn seconds(moment: SystemTime) -> u64 {
    moment.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs()
}
