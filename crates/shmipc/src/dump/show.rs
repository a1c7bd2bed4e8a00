// SPDX-License-Identifier: MIT OR Apache-2.0
//! A report as text.

use super::{ListReport, QueueReport, Report, SliceReport};
use std::fmt;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, list) in self.lists.iter().enumerate() {
            show_list(f, number, list)?;
        }
        for (number, queue) in self.queues.iter().enumerate() {
            show_queue(f, number, queue)?;
        }
        let count = self.unaccounted().count();
        writeln!(f, "{count} slices are neither free nor in a pending message: held, or leaked")?;
        if self.broken.is_empty() {
            return writeln!(f, "everything that was checked holds");
        }
        writeln!(f, "broken:")?;
        for what in self.broken.iter().take(SHOWN_MAX) {
            writeln!(f, "  {what}")?;
        }
        show_rest(f, self.broken.len())
    }
}

fn show_list(f: &mut fmt::Formatter<'_>, number: usize, list: &ListReport) -> fmt::Result {
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
        show_slice(f, slice)?;
    }
    show_rest(f, list.slices.len())
}

fn show_slice(f: &mut fmt::Formatter<'_>, slice: &SliceReport) -> fmt::Result {
    write!(f, "  {:#010x} flags {} ", slice.offset, slice.flags)?;
    write!(f, "{} bytes from {}", slice.size, slice.start)?;
    if slice.flags & 1 != 0 {
        write!(f, ", next {:#x}", slice.next)?;
    }
    match slice.stream {
        Some(stream) => write!(f, ", pending on stream {stream}")?,
        None => write!(f, ", held or leaked")?,
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

/// How many things of a kind are shown.
const SHOWN_MAX: usize = 64;
