// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups copied regions by connection: each `Group` is a buffer region with the queues that refer
//! to it. The code in this file also makes the report on a group.
//!
//! ```text
//!   …_buffer ◀── …_queue_0, …_queue_1        one family: the regions of one connection
//!   the only buffer region ◀── queues whose names are not those of a family
//! ```
//! Queues whose buffer region is missing are checked alone.

use super::memory::{Kind, LAYOUT, Memory};
use anyhow::{Context, Result};
use partywall_shmipc::regions::{Backing, BufferRegion, Class, Report, inspect, read_memory};
use std::os::fd::AsRawFd;

/// A buffer region of shmipc with the queue regions that refer to it.
#[derive(Clone, Debug, Default)]
pub struct Group {
    /// The buffer region of the group, if it was found.
    pub buffers: Option<Memory>,
    /// The queue regions whose elements refer to the buffer region.
    pub queues: Vec<Memory>,
}

/// Groups the copied regions by connection; returns the groups. The second list has the copies that
/// are no region, each with the reason.
pub fn pair(memories: Vec<Memory>) -> (Vec<Group>, Vec<(Memory, String)>) {
    let (mut groups, mut queues, mut others) = (Vec::<Group>::new(), Vec::new(), Vec::new());
    for memory in memories {
        match memory.kind() {
            Kind::Buffers => groups.push(Group { buffers: Some(memory), queues: Vec::new() }),
            Kind::Queues => queues.push(memory),
            Kind::Neither(why) => others.push((memory, why)),
        }
    }
    let regions = groups.len();
    for queue in queues {
        let is_kin = |group: &Group| {
            group.buffers.as_ref().is_some_and(|buffers| buffers.family() == queue.family())
        };
        let mut kin = (0..regions).filter(|number| is_kin(&groups[*number]));
        let place = match (kin.next(), kin.next()) {
            (Some(only), None) => Some(only),
            (None, _) if regions == 1 => Some(0),
            _ => None,
        };
        match place {
            Some(place) => groups[place].queues.push(queue),
            None => groups.push(Group { buffers: None, queues: vec![queue] }),
        }
    }
    (groups, others)
}

impl Group {
    /// Checks the regions of the group; returns a report on lists, queues and slices. Without a
    /// buffer region, the report has no lists.
    pub fn inspect(&self) -> Result<Report> {
        let queues: Vec<&[u8]> = self.queues.iter().map(|queue| &*queue.bytes).collect();
        let Some(buffers) = &self.buffers else { return inspect_without_buffers(&queues) };
        let report = inspect(&buffers.bytes, &queues, LAYOUT);
        report.with_context(|| format!("{} is damaged", buffers.name))
    }

    /// All copied regions of the group, the buffer region first.
    pub fn memories(&self) -> impl Iterator<Item = &Memory> {
        self.buffers.iter().chain(&self.queues)
    }
}

/// Checks queues whose buffer region is missing. The check needs a buffer region, so an empty one
/// takes its place; faults that come from its emptiness are left out of the report.
fn inspect_without_buffers(queues: &[&[u8]]) -> Result<Report> {
    let (backing, map) = Backing::create_memfd("/empty", EMPTY_BYTES)?;
    BufferRegion::create(map, &EMPTY_CLASSES).context("making an empty region")?;
    let path = format!("/proc/self/fd/{}", backing.fd().as_raw_fd());
    let empty = read_memory(path.as_ref()).context("reading an empty region")?;
    let mut report = inspect(&empty, queues, LAYOUT).context("the queues are damaged")?;
    report.lists.clear();
    report.broken.retain(|what| what.starts_with("queue "));
    Ok(report)
}

const EMPTY_BYTES: usize = 4096;
const EMPTY_CLASSES: [Class; 1] = [Class { size: 60, percent: 100 }];
