// SPDX-License-Identifier: MIT OR Apache-2.0
//! Makes a report of a region of shmipc for diagnosis: both queues and all lists of slices,
//! inspected from outside the processes that use them.
//!
//! ```text
//!   file, or /proc/PID/fd/N ── read ──▶ bytes ── inspect ──▶ Report ──▶ text
//! ```
//!
//! The inspection works on a copy of the bytes, so it changes nothing, and no process waits for it.
//! While processes use the memory, the copy is not an atomic snapshot: a fault that is in one copy
//! but not in the next was an operation in progress.
//!
//! # Invariants
//!
//! - For any bytes the inspection terminates, and reads no byte outside them.

use crate::memory::queue::{ELEMENT_BYTES, Element, HEADER_BYTES, QueueLayout};
use crate::region::{Damage, Geometry, ListGeometry, words};
use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Reads the bytes of a region from a file, or from a memfd under the path `/proc/PID/fd/N`.
///
/// # Errors
///
/// The errors of the system; [`io::ErrorKind::FileTooLarge`] if the file is too large for a region.
pub fn read_memory(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(bytes)
}

/// The report of [`inspect`]: the content of a buffer region, and of the queues that refer to it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Each free list of the region, ascending by the capacity of its slices (the blocks that hold
    /// messages).
    pub lists: Vec<ListReport>,
    /// Each queue, in the order in which the caller passed the queues to [`inspect`].
    pub queues: Vec<QueueReport>,
    /// The violated invariants of the memory, each as text; empty if the memory is consistent.
    pub broken: Vec<String>,
}

/// Content of a list of slices in a buffer region: its free slices, and those in use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListReport {
    /// Position of the list in the region.
    pub geometry: ListGeometry,
    /// Number of free slices of the list, as its header states it.
    pub free: i32,
    /// Number of free slices of the list found by following the links from its head.
    pub walked: u32,
    /// Offset of the list's first free slice, relative to the list's first slice.
    pub head: u32,
    /// Offset of the list's last free slice, relative to the list's first slice.
    pub tail: u32,
    /// Number of allocated minus freed slices of the list, for the region's creator and for the
    /// process that mapped the region.
    pub counters: [i32; 2],
    /// The slices of the list that are not free.
    pub slices: Vec<SliceReport>,
}

/// A slice that is not free: part of a pending message, held by a process, or leaked.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SliceReport {
    /// Offset of the slice's header in the region, as messages refer to it.
    pub offset: u32,
    /// Flags of the slice. Bit 0: another slice of the same message or free list follows; bit 1:
    /// allocated.
    pub flags: u8,
    /// Number of data bytes in the slice, as the slice's header states it.
    pub size: u32,
    /// Offset of the data from the end of the slice's header, in bytes.
    pub start: u32,
    /// Offset of the slice that follows this one in its message, if bit 0 of the flags is set.
    pub next: u32,
    /// Stream of the pending message that contains the slice. `None` if a process holds the slice,
    /// or it leaked.
    pub stream: Option<u32>,
    /// The first data bytes of the slice, at most 32.
    pub first: Vec<u8>,
}

/// Content of a queue region, which has one ring for each direction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueReport {
    /// Capacity of each ring of the queue region, in elements.
    pub capacity: u32,
    /// The ring from client to server, then the ring from server to client.
    pub rings: [RingReport; 2],
}

/// Content of one ring of a queue region: the elements that one side sends to the other.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RingReport {
    /// Number of elements that the consumer has taken from the ring so far.
    pub head: u64,
    /// Number of elements that the producer has added to the ring so far.
    pub tail: u64,
    /// Whether the ring's flag says that its consumer is awake and takes elements, so that the
    /// producer need not wake it.
    pub is_working: bool,
    /// The elements in the ring that the consumer has not taken.
    pub pending: Vec<Element>,
}

impl Report {
    /// Slices that are neither free nor part of a pending message: a process holds them, or they
    /// leaked.
    pub fn unaccounted(&self) -> impl Iterator<Item = &SliceReport> {
        let slices = self.lists.iter().flat_map(|list| &list.slices);
        slices.filter(|slice| slice.stream.is_none())
    }
}

/// Inspects the bytes of a buffer region, and those of the `queues` whose elements refer to it.
///
/// # Errors
///
/// [`Damage`] if `region` holds no buffer region, or one of the `queues` no queue region.
pub fn inspect(region: &[u8], queues: &[&[u8]], layout: QueueLayout) -> Result<Report, Damage> {
    let mut broken = Vec::new();
    let mut reports = Vec::with_capacity(queues.len());
    for (number, bytes) in queues.iter().enumerate() {
        reports.push(look_at_queue(bytes, layout, number, &mut broken)?);
    }
    let geometry = Geometry::read_words(region.len(), |at| word(region, at))?;
    let mut pending = HashMap::new();
    for element in reports.iter().flat_map(|queue| &queue.rings).flat_map(|ring| &ring.pending) {
        if element.status & STATUS_MASK != STATUS_CLOSE {
            follow(region, &geometry, element, &mut pending, &mut broken);
        }
    }
    let lists = geometry.lists().iter().enumerate();
    let lists =
        lists.map(|(number, list)| look_at_list(region, number, list, &pending, &mut broken));
    Ok(Report { lists: lists.collect(), queues: reports, broken })
}

fn look_at_queue(
    bytes: &[u8],
    layout: QueueLayout,
    number: usize,
    broken: &mut Vec<String>,
) -> Result<QueueReport, Damage> {
    let half = bytes.len() / 2;
    let capacity = word(bytes, 0);
    let needed = u64::from(capacity) * ELEMENT_BYTES as u64 + HEADER_BYTES as u64;
    if bytes.len() % 8 != 0 || capacity == 0 || needed > half as u64 {
        return Err(Damage::new(
            "this is no queue region: a ring of this capacity is not there",
            capacity,
        ));
    }
    if word(bytes, half) != capacity {
        broken.push(format!("queue {number}: the two rings have different capacities"));
    }
    let mut ring = |base: usize, name: &str| {
        let counter =
            |at| u64::from(word(bytes, base + at)) | u64::from(word(bytes, base + at + 4)) << 32;
        let (head, tail) = (counter(layout.head), counter(layout.tail));
        let flag = word(bytes, base + layout.flag);
        let count = tail.wrapping_sub(head);
        if count > u64::from(capacity) {
            broken.push(format!(
                "queue {number}, {name}: head {head} and tail {tail} are not within {capacity} of each other"
            ));
        }
        if flag > 1 {
            broken.push(format!("queue {number}, {name}: the flag is {flag}, neither 0 nor 1"));
        }
        if flag == 0 && (1..=u64::from(capacity)).contains(&count) {
            broken.push(format!(
                "queue {number}, {name}: elements are pending, and the consumer was not notified"
            ));
        }
        let count = if count > u64::from(capacity) { 0 } else { count };
        let element = |position: u64| {
            let slot = usize::try_from(position % u64::from(capacity)).unwrap_or(0);
            let at = base + HEADER_BYTES + slot * ELEMENT_BYTES;
            Element {
                stream: word(bytes, at),
                offset: word(bytes, at + 4),
                status: word(bytes, at + 8),
            }
        };
        let pending = (0..count).map(|number| element(head.wrapping_add(number))).collect();
        RingReport { head, tail, is_working: flag != 0, pending }
    };
    let rings = [ring(0, "client to server"), ring(half, "server to client")];
    Ok(QueueReport { capacity, rings })
}

/// Follows the links between the slices of the pending message that `element` announces, and
/// records these slices as parts of the message.
fn follow(
    region: &[u8],
    geometry: &Geometry,
    element: &Element,
    pending: &mut HashMap<u32, u32>,
    broken: &mut Vec<String>,
) {
    let mut at = element.offset;
    loop {
        let Some((number, _)) = geometry.locate(at) else {
            broken.push(format!(
                "stream {}: its message leads to {at:#x}, which is no slice",
                element.stream
            ));
            return;
        };
        // Each slice is recorded at most once, so this loop over the slices of a message
        // terminates, even if they are linked in a cycle.
        if pending.insert(at, element.stream).is_some() {
            broken.push(format!(
                "stream {}: slice {at:#x} is in two places of messages",
                element.stream
            ));
            return;
        }
        let slice = at as usize;
        let capacity = geometry.lists()[number].capacity;
        let (size, start) = (word(region, slice + words::SIZE), word(region, slice + words::START));
        if start.checked_add(size).is_none_or(|end| end > capacity) {
            broken.push(format!(
                "slice {at:#x}: {size} bytes from {start} do not fit into {capacity}"
            ));
        }
        if byte(region, slice + words::FLAGS) & words::HAS_NEXT == 0 {
            return;
        }
        at = word(region, slice + words::NEXT);
    }
}

fn look_at_list(
    region: &[u8],
    number: usize,
    list: &ListGeometry,
    pending: &HashMap<u32, u32>,
    broken: &mut Vec<String>,
) -> ListReport {
    let header = |at| word(region, list.header as usize + at);
    let (head, tail) = (header(words::HEAD), header(words::TAIL));
    let free = header(words::FREE) as i32;
    let counters = [header(words::CREATOR) as i32, header(words::MAPPER) as i32];
    let mut broke =
        |what: String| broken.push(format!("list {number} ({} bytes): {what}", list.capacity));
    let is_free = walk(region, list, head, tail, &mut broke);
    let walked = u32::try_from(is_free.iter().filter(|is_free| **is_free).count()).unwrap_or(0);
    if i64::from(free) != i64::from(walked) {
        broke(format!("{walked} slices can be reached from the head, but it says {free} are free"));
    }
    let taken = i64::from(counters[0]) + i64::from(counters[1]);
    if taken + i64::from(free) != i64::from(list.slices) {
        broke(format!("{taken} taken (both counters) and {free} free do not make {}", list.slices));
    }
    let mut slices = Vec::new();
    for index in 0..list.slices {
        let offset = list.area() + list.relative(index);
        let at = offset as usize;
        let capacity = word(region, at + words::CAPACITY);
        if capacity != list.capacity {
            broke(format!("slice {offset:#x} says its capacity is {capacity}"));
        }
        let stream = pending.get(&offset).copied();
        if !is_free[index as usize] {
            slices.push(look_at_slice(region, offset, list.capacity, stream));
        } else if let Some(stream) = stream {
            broke(format!("slice {offset:#x} is free, and in a message of stream {stream}"));
        }
    }
    ListReport { geometry: *list, free, walked, head, tail, counters, slices }
}

/// Finds the free slices of a list: those that can be reached from the head of the list.
fn walk(
    region: &[u8],
    list: &ListGeometry,
    head: u32,
    tail: u32,
    broke: &mut impl FnMut(String),
) -> Vec<bool> {
    let mut is_free = vec![false; list.slices as usize];
    let mut at = head;
    loop {
        let Some(index) = list.index(at) else {
            broke(format!("the free slices lead to {at:#x}, which is none"));
            return is_free;
        };
        // Each slice is recorded at most once, so this loop over the free slices of a list
        // terminates, even if they are linked in a cycle.
        if core::mem::replace(&mut is_free[index as usize], true) {
            broke(format!("the free slices go round in a circle at {at:#x}"));
            return is_free;
        }
        let slice = (list.area() + at) as usize;
        if byte(region, slice + words::FLAGS) & words::HAS_NEXT == 0 {
            if at != tail {
                broke(format!("the free slices are cut at {at:#x}, before the tail at {tail:#x}"));
            }
            return is_free;
        }
        at = word(region, slice + words::NEXT);
    }
}

fn look_at_slice(region: &[u8], offset: u32, capacity: u32, stream: Option<u32>) -> SliceReport {
    let at = offset as usize;
    let (size, start) = (word(region, at + words::SIZE), word(region, at + words::START));
    // An allocated slice that was not sent has no size yet. Then the report shows the first bytes
    // of its capacity.
    let len = if size == 0 { capacity } else { size }.min(capacity).min(FIRST_BYTES_MAX);
    let from = at + words::DATA + start.min(capacity - len) as usize;
    let first = region.get(from..from + len as usize).unwrap_or(&[]).to_vec();
    let (flags, next) = (byte(region, at + words::FLAGS), word(region, at + words::NEXT));
    SliceReport { offset, flags, size, start, next, stream, first }
}

/// The 32-bit word that begins at byte `at` of `bytes`; 0 if `bytes` ends before the word does.
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_ne_bytes(*word))
}

fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

const STATUS_MASK: u32 = 0xff;
const STATUS_CLOSE: u32 = 1;
/// Upper bound of the bytes of a slice that the report shows.
const FIRST_BYTES_MAX: u32 = 32;
/// Size in bytes of the largest region that can be inspected: offsets in a region have 32 bits.
const BYTES_MAX: u64 = u32::MAX as u64;

impl Report {
    /// The report as text that explains the slices that are neither free nor part of a pending
    /// message. `has` says whether any process has the region mapped.
    pub fn with_owners(&self, has: bool) -> impl fmt::Display + '_ {
        ReportDisplay { report: self, unaccounted: if has { HELD } else { LEAKED } }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ReportDisplay { report: self, unaccounted: HELD_OR_LEAKED }.fmt(f)
    }
}

struct ReportDisplay<'a> {
    report: &'a Report,
    /// The phrase by which the report's text explains slices that are neither free nor part of a
    /// pending message.
    unaccounted: &'static str,
}

impl fmt::Display for ReportDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { report, unaccounted } = self;
        for (number, list) in report.lists.iter().enumerate() {
            write_list(f, number, list, unaccounted)?;
        }
        for (number, queue) in report.queues.iter().enumerate() {
            write_queue(f, number, queue)?;
        }
        let count = report.unaccounted().count();
        writeln!(f, "{count} slices are neither free nor in a pending message: {unaccounted}")?;
        if report.broken.is_empty() {
            return writeln!(f, "everything that was checked holds");
        }
        writeln!(f, "broken:")?;
        for what in report.broken.iter().take(LISTED_MAX) {
            writeln!(f, "  {what}")?;
        }
        write_rest(f, report.broken.len())
    }
}

fn write_list(
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
    for slice in list.slices.iter().take(LISTED_MAX) {
        write_slice(f, slice, unaccounted)?;
    }
    write_rest(f, list.slices.len())
}

fn write_slice(f: &mut fmt::Formatter<'_>, slice: &SliceReport, unaccounted: &str) -> fmt::Result {
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

fn write_queue(f: &mut fmt::Formatter<'_>, number: usize, queue: &QueueReport) -> fmt::Result {
    writeln!(f, "queue {number}: {} elements per direction", queue.capacity)?;
    for (ring, name) in queue.rings.iter().zip(["client to server", "server to client"]) {
        let working = if ring.is_working { "working" } else { "idle" };
        let (head, tail, count) = (ring.head, ring.tail, ring.pending.len());
        writeln!(f, "  {name}: head {head}, tail {tail}, {count} pending, consumer {working}")?;
        for element in ring.pending.iter().take(LISTED_MAX) {
            let (stream, offset, status) = (element.stream, element.offset, element.status);
            writeln!(f, "    stream {stream}, slice {offset:#x}, status {status}")?;
        }
        write_rest(f, ring.pending.len())?;
    }
    Ok(())
}

fn write_rest(f: &mut fmt::Formatter<'_>, count: usize) -> fmt::Result {
    if count > LISTED_MAX { writeln!(f, "  … and {} more", count - LISTED_MAX) } else { Ok(()) }
}

/// Phrase of the report for slices that are neither free nor in a pending message, if a process has
/// the region mapped.
const HELD: &str = "held by a process, or kept by it for reuse";
/// Phrase of the report for slices that are neither free nor in a pending message, if no process
/// has the region mapped.
const LEAKED: &str = "leaked";
/// Phrase of the report for slices that are neither free nor in a pending message, if it is unknown
/// whether a process has the region mapped.
const HELD_OR_LEAKED: &str = "held or leaked";
/// Upper bound of the items of one kind, such as slices or elements, that the text of a report
/// lists.
const LISTED_MAX: usize = 64;
