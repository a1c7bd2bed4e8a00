// SPDX-License-Identifier: MIT OR Apache-2.0
//! Event loops: one descriptor for many objects, and one call that reports which of the objects may
//! have a message, a connection or room.

use crate::argument::Out;
use crate::channel::{self, ChannelObject};
use crate::error::Errors;
use crate::export::export;
use crate::failure::Failure;
use crate::listener::{self, ListenerObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::{self, Timeout};
use partywall::event::{Event, Kinds, Loop};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

pub(crate) struct LoopObject;

static LOOPS: Table<LoopObject> = Table::new();

impl Object for LoopObject {
    /// The part of a loop that a thread locks while it waits for the loop's events.
    type First = Turn;
    /// The loop itself. Calls that do not wait lock this part, for a moment.
    type Second = Arc<Loop>;
    type Shared = ();
    const KIND: u8 = 7;
    const NAME: &'static str = "partywall_loop";

    fn table() -> &'static Table<Self> {
        &LOOPS
    }
}

/// What a thread needs while it waits for the events of a loop.
pub(crate) struct Turn {
    events: Arc<Loop>,
    /// The memory for the events of one wait, kept so that no wait allocates. It is empty between
    /// two waits, because an object with an event may be freed before the next one.
    collected: Vec<Event>,
}

impl Turn {
    fn wait(&mut self, capacity: usize, timeout: Timeout) -> io::Result<usize> {
        match timeout {
            Timeout::Zero => self.events.poll_up_to(&mut self.collected, capacity),
            _ => self.events.wait_up_to(&mut self.collected, capacity, timeout.deadline()),
        }
    }

    fn poll_awake(&mut self, capacity: usize) -> io::Result<usize> {
        self.events.poll_awake(&mut self.collected, capacity)
    }
}

/// Calls `take` to collect at most `capacity` events of a loop, and writes the events and their
/// number to the memory of the C program.
fn collect(
    events: Handle<LoopObject>,
    array: Out<CEvent>,
    capacity: usize,
    count: Out<usize>,
    take: impl FnOnce(&mut Turn) -> io::Result<usize>,
) -> Result<(), Failure> {
    let (array, count) = (array.require("events")?, count.require("count")?);
    if capacity == 0 {
        return Err(Failure::argument("capacity is 0"));
    }
    let mut turn = events.first()?;
    take(&mut turn).map_err(|error| Failure::system("waiting for events", &error))?;
    count.write(turn.collected.len());
    for (index, event) in turn.collected.drain(..).enumerate() {
        array.write_at(index, event.into());
    }
    Ok(())
}

/// An event in the layout of `partywall_event` of the header.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CEvent {
    tag: u64,
    kinds: u32,
    reserved: u32,
}

impl From<Event> for CEvent {
    fn from(event: Event) -> Self {
        let bits = [Kinds::READABLE, Kinds::WRITABLE, Kinds::OPENED, Kinds::ENDED];
        let bits = bits.iter().enumerate();
        let set = bits.filter(|(_, kind)| event.kinds.intersects(**kind));
        Self { tag: event.tag, kinds: set.map(|(bit, _)| 1 << bit).sum(), reserved: 0 }
    }
}

pub(crate) fn shared(events: Handle<LoopObject>) -> Result<Arc<Loop>, Failure> {
    events.share_second()
}

fn insert(
    place: Out<Handle<LoopObject>>,
    make: impl FnOnce() -> io::Result<Loop>,
) -> Result<(), Failure> {
    let place = place.require("loop")?;
    let events = Arc::new(make().map_err(|error| Failure::system("making a loop", &error))?);
    let turn = Turn { events: Arc::clone(&events), collected: Vec::new() };
    place.write(Handle::insert(turn, events)?);
    Ok(())
}

export! {
    /// Makes an event loop without objects.
    fn partywall_loop_new(r#loop: Out<Handle<LoopObject>>, error: Errors) reports error {
        insert(r#loop, Loop::new)
    }

    /// Makes an event loop that reports each kind of an object's events once, and again only after
    /// a call on the object has found nothing.
    fn partywall_loop_new_once(r#loop: Out<Handle<LoopObject>>, error: Errors) reports error {
        insert(r#loop, Loop::reporting_once)
    }

    /// Frees an event loop. Its objects stay, but no loop reports their events any more. A null
    /// pointer is allowed.
    fn partywall_loop_free(r#loop: Handle<LoopObject>) {
        if !r#loop.is_null() {
            r#loop.remove()?;
        }
        Ok(())
    }

    /// Writes the descriptor of a loop, which poll and epoll report as readable while the loop may
    /// have events.
    fn partywall_loop_fd(r#loop: Handle<LoopObject>, fd: Out<i32>) {
        let fd = fd.require("fd")?;
        fd.write(r#loop.second_briefly()?.as_fd().as_raw_fd());
        Ok(())
    }

    /// Adds a channel to an event loop. Events of both its directions carry the number `tag`.
    fn partywall_loop_add_channel(
        r#loop: Handle<LoopObject>, channel: Handle<ChannelObject>, tag: u64, error: Errors,
    ) reports error {
        channel::watch(channel, &*shared(r#loop)?, tag)
    }

    /// Adds a listener to an event loop. Its events carry the number `tag`.
    fn partywall_loop_add_listener(
        r#loop: Handle<LoopObject>, listener: Handle<ListenerObject>, tag: u64, error: Errors,
    ) reports error {
        listener::watch(listener, &*shared(r#loop)?, tag)
    }

    /// Waits for events of the loop's objects, and writes at most `capacity` of them.
    fn partywall_loop_wait(
        r#loop: Handle<LoopObject>, events: Out<CEvent>, capacity: usize, count: Out<usize>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        collect(r#loop, events, capacity, count, |turn| {
            turn.wait(capacity, Timeout::new(timeout_ns))
        })
    }

    /// Writes at most `capacity` events of a loop without waiting, for a thread that calls again
    /// before it waits.
    fn partywall_loop_poll_awake(
        r#loop: Handle<LoopObject>, events: Out<CEvent>, capacity: usize, count: Out<usize>,
        error: Errors,
    ) reports error {
        collect(r#loop, events, capacity, count, |turn| turn.poll_awake(capacity))
    }

    /// Writes after how many nanoseconds the program has to call `partywall_loop_wait` although the
    /// loop's descriptor is not readable, because a timer is due.
    fn partywall_loop_next_timer(r#loop: Handle<LoopObject>, timeout_ns: Out<i64>) {
        let place = timeout_ns.require("timeout_ns")?;
        place.write(timeout::nanoseconds_until(r#loop.second_briefly()?.next_timer()));
        Ok(())
    }
}
