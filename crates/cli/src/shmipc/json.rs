// SPDX-License-Identifier: MIT OR Apache-2.0
//! The output of `shmipc dump --json`: all slices and queue elements. The output as text shows only
//! the first of many.

use super::dump::Dump;
use super::pair::Group;
use crate::command::report;
use anyhow::Result;
use partywall_shmipc::regions::{ListReport, QueueReport, Report, RingReport, SliceReport};
use serde::Serialize;

/// The dump as one JSON object, followed by a newline.
pub fn text(dump: &Dump) -> Result<String> {
    let whole = Whole {
        version: partywall_bench::VERSION,
        sound: dump.is_sound(),
        processes: &dump.processes,
        moves: dump.moves,
        regions: dump.groups.iter().map(|(group, report)| region(dump, group, report)).collect(),
        unrecognised: dump
            .unrecognised
            .iter()
            .map(|(memory, why)| Unusable { name: &memory.name, why })
            .collect(),
        unreadable: dump.unreadable.iter().map(|(name, why)| Unusable { name, why }).collect(),
    };
    report::json(&whole)
}

#[derive(Serialize)]
struct Whole<'a> {
    version: &'static str,
    sound: bool,
    processes: &'a [u32],
    /// Whether a process changed the memory while it was copied, so that faults of single copies
    /// may be changes in progress.
    moves: bool,
    regions: Vec<BufferRegion<'a>>,
    unrecognised: Vec<Unusable<'a>>,
    unreadable: Vec<Unusable<'a>>,
}

#[derive(Serialize)]
struct Unusable<'a> {
    name: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct BufferRegion<'a> {
    /// The buffer region; `null` if only queues were found.
    buffers: Option<Place<'a>>,
    lists: Vec<List>,
    queues: Vec<Queue<'a>>,
    held_or_leaked: usize,
    leaked: usize,
    broken: &'a [String],
}

#[derive(Serialize)]
struct Place<'a> {
    name: &'a str,
    source: &'a str,
    bytes: usize,
}

#[derive(Serialize)]
struct List {
    capacity: u32,
    slices: u32,
    area: u32,
    free: i32,
    walked: u32,
    head: u32,
    tail: u32,
    counter_creator: i32,
    counter_mapper: i32,
    taken: Vec<Slice>,
}

#[derive(Serialize)]
struct Slice {
    offset: u32,
    flags: u8,
    size: u32,
    start: u32,
    next: u32,
    /// Stream of the slice's pending message; `null` if the slice is in no pending message.
    stream: Option<u32>,
    first_bytes: Vec<u8>,
}

#[derive(Serialize)]
struct Queue<'a> {
    place: Option<Place<'a>>,
    capacity: u32,
    client_to_server: Ring,
    server_to_client: Ring,
}

#[derive(Serialize)]
struct Ring {
    head: u64,
    tail: u64,
    consumer_works: bool,
    pending: Vec<Element>,
}

#[derive(Serialize)]
struct Element {
    stream: u32,
    offset: u32,
    status: u32,
}

fn region<'a>(dump: &Dump, group: &'a Group, report: &'a Report) -> BufferRegion<'a> {
    let mut queues = group.queues.iter().map(place);
    BufferRegion {
        buffers: group.buffers.as_ref().map(place),
        lists: report.lists.iter().map(list).collect(),
        queues: report.queues.iter().map(|report| queue(queues.next(), report)).collect(),
        held_or_leaked: report.unaccounted().count(),
        leaked: dump.leaked(report),
        broken: &report.broken,
    }
}

fn place(memory: &super::memory::Memory) -> Place<'_> {
    Place { name: &memory.name, source: &memory.source, bytes: memory.bytes.len() }
}

fn list(report: &ListReport) -> List {
    let geometry = &report.geometry;
    List {
        capacity: geometry.capacity,
        slices: geometry.slices,
        area: geometry.area(),
        free: report.free,
        walked: report.walked,
        head: report.head,
        tail: report.tail,
        counter_creator: report.counters[0],
        counter_mapper: report.counters[1],
        taken: report.slices.iter().map(slice).collect(),
    }
}

fn slice(report: &SliceReport) -> Slice {
    let SliceReport { offset, flags, size, start, next, stream, .. } = *report;
    Slice { offset, flags, size, start, next, stream, first_bytes: report.first.clone() }
}

fn queue<'a>(place: Option<Place<'a>>, report: &QueueReport) -> Queue<'a> {
    let [client_to_server, server_to_client] = [ring(&report.rings[0]), ring(&report.rings[1])];
    Queue { place, capacity: report.capacity, client_to_server, server_to_client }
}

fn ring(report: &RingReport) -> Ring {
    let pending = report.pending.iter();
    let pending = pending.map(|element| Element {
        stream: element.stream,
        offset: element.offset,
        status: element.status,
    });
    Ring {
        head: report.head,
        tail: report.tail,
        consumer_works: report.is_working,
        pending: pending.collect(),
    }
}
