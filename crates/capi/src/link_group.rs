// SPDX-License-Identifier: MIT OR Apache-2.0
//! Groups of links: a thread that waits for one link of a group drives the sockets and timers of
//! all of them.

use crate::argument::Out;
use crate::error::Errors;
use crate::event_loop::{self, LoopObject};
use crate::export::export;
use crate::failure::Failure;
use crate::link_config::{self, LinkConfigObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::{self, Timeout};
use partywall::event::Attached;
use partywall_link::Group;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

pub(crate) struct LinkGroupObject;

static GROUPS: Table<LinkGroupObject> = Table::new();

impl Object for LinkGroupObject {
    /// The group's registration in an event loop; `None` until the group is added to a loop.
    type First = Option<Attached>;
    type Second = Arc<Group>;
    type Shared = ();
    const KIND: u8 = 16;
    const NAME: &'static str = "partywall_link_group";

    fn table() -> &'static Table<Self> {
        &GROUPS
    }
}

export! {
    /// Makes a group of links, without a link.
    fn partywall_link_group_new(group: Out<Handle<LinkGroupObject>>, error: Errors)
    reports error {
        let place = group.require("group")?;
        let group = Group::new().map_err(|error| Failure::system("making a group", &error))?;
        place.write(Handle::insert(None, Arc::new(group))?);
        Ok(())
    }

    /// Frees the handle of a group of links, and removes the group from its event loop. A null
    /// pointer is allowed.
    fn partywall_link_group_free(group: Handle<LinkGroupObject>) {
        if !group.is_null() {
            group.remove()?;
        }
        Ok(())
    }

    /// Puts the links of all clients and servers that are made with this configuration into a
    /// group.
    fn partywall_link_config_set_group(
        config: Handle<LinkConfigObject>, group: Handle<LinkGroupObject>, error: Errors,
    ) reports error {
        link_config::set_group(config, &*group.share_second()?)
    }

    /// Drives the sockets and timers of a group until one of its links has events, and writes the
    /// number of such links. A later call counts the same link only if it has a message: C has no
    /// call that clears the other events.
    fn partywall_link_group_poll(
        group: Handle<LinkGroupObject>, count: Out<usize>, timeout_ns: i64, error: Errors,
    ) reports error {
        let count = count.require("count")?;
        let group = group.share_second()?;
        let timeout = Timeout::new(timeout_ns);
        let polled = match timeout {
            Timeout::Zero => group.try_poll(),
            _ => group.poll(timeout.deadline()),
        };
        let polled = polled.map_err(|error| Failure::system("polling a group", &error))?;
        count.write(if polled > 0 { group.ready().len() } else { 0 });
        Ok(())
    }

    /// Writes the group's descriptor, which is readable while links of the group may have work for
    /// `partywall_link_group_poll`.
    fn partywall_link_group_fd(group: Handle<LinkGroupObject>, fd: Out<i32>) {
        let fd = fd.require("fd")?;
        fd.write(group.second_briefly()?.as_fd().as_raw_fd());
        Ok(())
    }

    /// Writes after how many nanoseconds to call `partywall_link_group_poll` although the group's
    /// descriptor is not readable, because a timer is due.
    fn partywall_link_group_next_timer(group: Handle<LinkGroupObject>, timeout_ns: Out<i64>) {
        let place = timeout_ns.require("timeout_ns")?;
        place.write(timeout::nanoseconds_until(group.second_briefly()?.next_timer()));
        Ok(())
    }

    /// Adds a group of links to an event loop. Events of the group carry the number `tag`.
    fn partywall_loop_add_links(
        r#loop: Handle<LoopObject>, group: Handle<LinkGroupObject>, tag: u64, error: Errors,
    ) reports error {
        let events = event_loop::shared(r#loop)?;
        let mut place = group.first()?;
        if place.is_some() {
            return Err(Failure::argument("the group is in a loop already"));
        }
        let source = Group::clone(&*group.share_second()?);
        let attached = events.add_source(source, tag);
        *place = Some(attached.map_err(|error| Failure::system("the loop cannot watch", &error))?);
        Ok(())
    }
}
