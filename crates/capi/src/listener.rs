// SPDX-License-Identifier: MIT OR Apache-2.0
//! Listeners for channels: objects that accept the channels which peers open at an address.

use crate::argument::{Buffer, Out, Text};
use crate::channel::{self, ChannelObject};
use crate::config::{self, ConfigObject};
use crate::error::Errors;
use crate::export::export;
use crate::failure::Failure;
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall::event::{ChannelListener, Loop};
use partywall::{Channel, Listener};
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

pub(crate) struct ListenerObject;

static LISTENERS: Table<ListenerObject> = Table::new();

impl Object for ListenerObject {
    type First = Accepting;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 6;
    const NAME: &'static str = "partywall_listener";

    fn table() -> &'static Table<Self> {
        &LISTENERS
    }
}

/// A listener for channels, which is either in no event loop or in one.
pub(crate) enum Accepting {
    Plain(Box<Listener>),
    InLoop(Box<ChannelListener>),
    /// The listener is gone, because the event loop could not take it and dropped it.
    Closed,
}

impl Accepting {
    fn accept(&mut self, timeout: Timeout) -> Result<Channel, Failure> {
        match self {
            Self::Plain(listener) => Ok(match (timeout, timeout.deadline()) {
                (Timeout::Zero, _) => listener.try_accept()?,
                (_, Some(deadline)) => listener.accept_deadline(deadline)?,
                (_, None) => listener.accept()?,
            }),
            Self::InLoop(listener) => {
                timeout.require_zero()?;
                Ok(listener.try_accept()?)
            }
            Self::Closed => Err(closed()),
        }
    }

    fn descriptor(&self) -> Result<i32, Failure> {
        match self {
            Self::Plain(listener) => Ok(listener.as_fd().as_raw_fd()),
            Self::InLoop(_) => Err(Failure::argument("the listener is in a loop, which waits")),
            Self::Closed => Err(closed()),
        }
    }

    fn address(&self) -> Result<String, Failure> {
        match self {
            Self::Plain(listener) => Ok(listener.local_address().to_string()),
            Self::InLoop(listener) => Ok(listener.local_address().to_string()),
            Self::Closed => Err(closed()),
        }
    }
}

fn closed() -> Failure {
    Failure::argument("the listener is closed, because a loop could not watch it")
}

/// Adds a listener to an event loop. Its events carry the number `tag`.
pub(crate) fn watch(
    listener: Handle<ListenerObject>,
    events: &Loop,
    tag: u64,
) -> Result<(), Failure> {
    let mut accepting = listener.first()?;
    if !matches!(*accepting, Accepting::Plain(_)) {
        return Err(Failure::argument("the listener is in a loop already, or was closed"));
    }
    if let Accepting::Plain(listener) = mem::replace(&mut *accepting, Accepting::Closed) {
        let added = events.add_listener(*listener, tag);
        let added = added.map_err(|error| Failure::system("the loop cannot watch", &error))?;
        *accepting = Accepting::InLoop(Box::new(added));
    }
    Ok(())
}

export! {
    /// Listens for channels at `address`.
    fn partywall_listener_bind(
        address: Text, config: Handle<ConfigObject>, listener: Out<Handle<ListenerObject>>,
        error: Errors,
    ) reports error {
        let listener = listener.require("listener")?;
        let (address, config) = (address.get("address")?, config::copy(config)?);
        let bound = Listener::bind_with(address, &config)?;
        listener.write(Handle::insert(Accepting::Plain(Box::new(bound)), ())?);
        Ok(())
    }

    /// Stops listening for channels, and frees the listener. A null pointer is allowed.
    fn partywall_listener_free(listener: Handle<ListenerObject>) {
        if !listener.is_null() {
            listener.remove()?;
        }
        Ok(())
    }

    /// Returns the next channel whose handshake is complete.
    fn partywall_listener_accept(
        listener: Handle<ListenerObject>, channel: Out<Handle<ChannelObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let channel = channel.require("channel")?;
        let accepted = listener.first()?.accept(Timeout::new(timeout_ns))?;
        channel.write(channel::insert(accepted)?);
        Ok(())
    }

    /// Writes the listener's descriptor, which is readable while `partywall_listener_accept` may
    /// have a channel to return or a handshake to continue.
    fn partywall_listener_fd(listener: Handle<ListenerObject>, fd: Out<i32>, error: Errors)
    reports error {
        let fd = fd.require("fd")?;
        fd.write(listener.first()?.descriptor()?);
        Ok(())
    }

    /// Copies the address that the listener is bound to into `buffer`, without a zero byte at its
    /// end.
    fn partywall_listener_address(
        listener: Handle<ListenerObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        let address = listener.first()?.address()?;
        buffer.write_text(&address, capacity, len)
    }
}
