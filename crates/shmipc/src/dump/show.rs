// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text.

use super::{ListReport, QueueReport, Report, SliceReport};
use std::fmt;

impl Report {
    /// As text that says what became of unaccounted slices, for one who knows whether any process `has` the region.
    pub fn with_owners(&self, has: bool) -> impl fmt::Display + '_ {
        Shown { report: self, unaccounted: if has { HELD } else { LEAKED } }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Shown { report: self, unaccounted: HELD_OR_LEAKED }.fmt(f)
    }
}

struct Shown<'a> {
    report: &'a Report,
    /// What became of slices that are neither free nor pending.
    unaccounted: &'static str,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, unaccounted } = self;
        for (number, list) in report.lists.iter().enumerate() {
            show_list(f, number, list, unaccounted)?;
        }
        for (number, queue) in report.queues.iter().enumerate() {
            show_queue(f, number, queue)?;
        }
        let count = report.unaccounted().count();
        writeln!(f, "{count} slices are neither free nor in a pending message: {unaccounted}")?;
        if report.broken.is_empty() {
            return writeln!(f, "everything that was checked holds");
        }
        writeln!(f, "broken:")?;
        for what in report.broken.iter().take(SHOWN_MAX) {
            writeln!(f, "  {what}")?;
        }
        show_rest(f, report.broken.len())
    }
}

fn show_list(
    f: &mut fmt::Formatter<'_>,
    number: usize,
    list: &ListReport,
    unaccounted: &str,
) -> fmt::Result {
    let geometry = &list.geometry;
    writeln!(
        f,
        "list {number}: {} slices of {} bytes at {:#x}; free {}, walked {}, head {:#x}, tail {:#x}, \
         counters {} (creator) {} (mapper)",
        geometry.slices,
        geometry.capacity,
        geometry.area(),
        list.free,
        list.walked,
        list.head,
        list.tail,
        list.counters[0],
        list.counters[1],
    )?;
    for slice in list.slices.iter().take(SHOWN_MAX) {
        show_slice(f, slice, unaccounted)?;
    }
    show_rest(f, list.slices.len())
}

fn show_slice(f: &mut fmt::Formatter<'_>, slice: &SliceReport, unaccounted: &str) -> fmt::Result {
    write!(f, "  {:#010x} flags {} ", slice.offset, slice.flags)?;
    write!(f, "{} bytes from {}", slice.size, slice.start)?;
    if slice.flags & 1 != 0 {
        write!(f, ", next {:#x}", slice.next)?;
    }
    match slice.stream {
        Some(stream) => write!(f, ", pending on stream {stream}")?,
        None => write!(f, ", {unaccounted}")?,
    }
    writeln!(f, ": \"{}\"", slice.first.escape_ascii())
}

fn show_queue(f: &mut fmt::Formatter<'_>, number: usize, queue: &QueueReport) -> fmt::Result {
    writeln!(f, "queue {number}: {} elements per direction", queue.capacity)?;
    for (ring, name) in queue.rings.iter().zip(["client to server", "server to client"]) {
        let working = if ring.is_working { "working" } else { "idle" };
        let (head, tail, count) = (ring.head, ring.tail, ring.pending.len());
        writeln!(f, "  {name}: head {head}, tail {tail}, {count} pending, consumer {working}")?;
        for element in ring.pending.iter().take(SHOWN_MAX) {
            let (stream, offset, status) = (element.stream, element.offset, element.status);
            writeln!(f, "    stream {stream}, slice {offset:#x}, status {status}")?;
        }
        show_rest(f, ring.pending.len())?;
    }
    Ok(())
}

fn show_rest(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > SHOWN_MAX { writeln!(f, "  … and {} more", count - SHOWN_MAX) } else { Ok(()) }
}

/// Somebody has the region.
const HELD: &str = "held by a process, or kept by it for reuse";
/// Nobody has it any more.
const LEAKED: &str = "leaked";
/// Nobody knows.
const HELD_OR_LEAKED: &str = "held or leaked";
/// How many things of a kind are shown.
const SHOWN_MAX: usize = 64;
