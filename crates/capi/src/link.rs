// SPDX-License-Identifier: MIT OR Apache-2.0
//! Links, and their clients and servers. Any number of threads may call each object.
//!
//! ```text
//!   partywall_link_client ─ connect ─┐
//!   partywall_link_server ─ accept ──┴▶ partywall_link ─ send, recv ─▶ partywall_link_message
//! ```

use crate::argument::{Buffer, Bytes, Out, Text, check_len};
use crate::error::{self, Errors};
use crate::export::export;
use crate::failure::{EMPTY, FINISHED, Failure};
use crate::link_config::{self, LinkConfigObject};
use crate::link_event::CLinkEvent;
use crate::link_message::{self, LinkMessageObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall_link::{Client, Event, Link, Server, Status, Storage};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) struct LinkClientObject;

static CLIENTS: Table<LinkClientObject> = Table::new();

impl Object for LinkClientObject {
    type First = ();
    type Second = Arc<Client>;
    type Shared = ();
    const KIND: u8 = 11;
    const NAME: &'static str = "partywall_link_client";

    fn table() -> &'static Table<Self> {
        &CLIENTS
    }
}

pub(crate) struct LinkServerObject;

static SERVERS: Table<LinkServerObject> = Table::new();

impl Object for LinkServerObject {
    type First = ();
    type Second = Arc<Server>;
    type Shared = ();
    const KIND: u8 = 12;
    const NAME: &'static str = "partywall_link_server";

    fn table() -> &'static Table<Self> {
        &SERVERS
    }
}

pub(crate) struct LinkObject;

static LINKS: Table<LinkObject> = Table::new();

impl Object for LinkObject {
    type First = ();
    type Second = Arc<Link>;
    type Shared = ();
    const KIND: u8 = 13;
    const NAME: &'static str = "partywall_link";

    fn table() -> &'static Table<Self> {
        &LINKS
    }
}

/// Returns the storage of links that the argument names: files of a directory, or memory if the
/// pointer is null.
fn storage(directory: Text) -> Result<Storage, Failure> {
    if directory.is_null() {
        return Ok(Storage::Memory);
    }
    Ok(Storage::directory(directory.get("directory")?))
}

/// Returns the time at which a call of a link gives up. A call without a limit gets a deadline far
/// away, because some calls of `partywall-link` require a deadline.
fn deadline(timeout: Timeout) -> Instant {
    timeout.deadline().unwrap_or_else(|| Instant::now() + UNLIMITED)
}

/// Returns the next event of a link, such as a lost connection; waits for one as long as `timeout`
/// says.
fn next_event(link: &Link, timeout: Timeout) -> Result<Event, Failure> {
    if timeout != Timeout::Zero {
        return Ok(link.next_event(deadline(timeout))?);
    }
    link.try_event().map_or_else(
        || {
            link.epoch()?; // fails in a forked child
            Err(Failure::state(EMPTY))
        },
        Ok,
    )
}

/// Returns the number of the constant in `partywall.h`, such as `PARTYWALL_LINK_ATTACHED`, for a
/// state of a link.
const fn status_number(status: &Status) -> i32 {
    match status {
        Status::Detached => 0,
        Status::Attaching => 1,
        Status::Attached { .. } => 2,
        Status::Fenced => 3,
        Status::Quarantined => 4,
        Status::Closed => 5,
        _ => -1,
    }
}

export! {
    /// Makes a client of links called `name`, which keeps its links in `directory`.
    fn partywall_link_client_new(
        directory: Text, name: Text, config: Handle<LinkConfigObject>,
        client: Out<Handle<LinkClientObject>>, error: Errors,
    ) reports error {
        let client = client.require("client")?;
        let made = Client::new(storage(directory)?, name.get("name")?, link_config::copy(config)?)?;
        client.write(Handle::insert((), Arc::new(made))?);
        Ok(())
    }

    /// Frees a client of links. Links that it has opened stay. A null pointer is allowed.
    fn partywall_link_client_free(client: Handle<LinkClientObject>) {
        if !client.is_null() {
            client.remove()?;
        }
        Ok(())
    }

    /// Opens the link called `name` to the server called `server` at `address`.
    fn partywall_link_connect(
        client: Handle<LinkClientObject>, address: Text, server: Text, name: Text,
        link: Out<Handle<LinkObject>>, error: Errors,
    ) reports error {
        let link = link.require("link")?;
        let client = client.share_second()?;
        let (address, server) = (address.get("address")?, server.get("server")?);
        let opened = client.connect(address, server, name.get("name")?)?;
        link.write(Handle::insert((), Arc::new(opened))?);
        Ok(())
    }

    /// Listens for links of the end called `name` at `address`, and keeps them in `directory`.
    fn partywall_link_server_bind(
        address: Text, directory: Text, name: Text, config: Handle<LinkConfigObject>,
        server: Out<Handle<LinkServerObject>>, error: Errors,
    ) reports error {
        let server = server.require("server")?;
        let (address, storage) = (address.get("address")?, storage(directory)?);
        let config = link_config::copy(config)?;
        let bound = Server::bind(address, storage, name.get("name")?, config)?;
        server.write(Handle::insert((), Arc::new(bound))?);
        Ok(())
    }

    /// Stops listening, and frees a server of links. Links to which the program has a handle stay.
    /// A null pointer is allowed.
    fn partywall_link_server_free(server: Handle<LinkServerObject>) {
        if !server.is_null() {
            server.remove()?;
        }
        Ok(())
    }

    /// Returns the next link that a client attaches to the server.
    fn partywall_link_server_accept(
        server: Handle<LinkServerObject>, link: Out<Handle<LinkObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let link = link.require("link")?;
        let server = server.share_second()?;
        let timeout = Timeout::new(timeout_ns);
        let accepted = match (timeout, timeout.deadline()) {
            (Timeout::Zero, _) => server.try_accept()?,
            (_, Some(deadline)) => server.accept_deadline(deadline)?,
            (_, None) => server.accept()?,
        };
        link.write(Handle::insert((), Arc::new(accepted))?);
        Ok(())
    }

    /// Copies the reason for which the server refused a connection last into `buffer`, without a
    /// zero byte at its end.
    fn partywall_link_server_last_refusal(
        server: Handle<LinkServerObject>, buffer: Buffer, capacity: usize, len: Out<usize>,
        error: Errors,
    ) reports error {
        let refusal = server.share_second()?.last_refusal().unwrap_or_default();
        buffer.write_text(&refusal, capacity, len)
    }

    /// Takes the error because of which the server could not open the link of an admitted client.
    fn partywall_link_server_take_open_error(
        server: Handle<LinkServerObject>, cause: Errors, error: Errors,
    ) reports error {
        let place = cause.require("cause")?;
        match server.share_second()?.take_open_error() {
            Some(cause) => {
                error::report(cause.into(), place);
            }
            None => place.write(Handle::NULL),
        }
        Ok(())
    }

    /// Frees the handle of a link, without waiting for its peer. A null pointer is allowed.
    fn partywall_link_free(link: Handle<LinkObject>) {
        if !link.is_null() {
            link.remove()?;
        }
        Ok(())
    }

    /// Closes this end of a link in good order, and frees its handle.
    fn partywall_link_close(link: Handle<LinkObject>, timeout_ns: i64, error: Errors)
    reports error {
        let (_, link) = link.remove()?;
        let link = link.ok_or_else(|| Failure::handle(LinkObject::NAME))?;
        let link = Arc::try_unwrap(link).map_err(|_| Failure::busy())?;
        Ok(link.close(deadline(Timeout::new(timeout_ns)))?)
    }

    /// Sends a copy of `len` bytes, which the link keeps until the peer has acknowledged them.
    fn partywall_link_send(
        link: Handle<LinkObject>, data: Bytes, len: usize, timeout_ns: i64, error: Errors,
    ) reports error {
        let payload = data.get(len, "data")?;
        let link = link.share_second()?;
        let timeout = Timeout::new(timeout_ns);
        match (timeout, timeout.deadline()) {
            (Timeout::Zero, _) => link.try_send(payload)?,
            (_, Some(deadline)) => link.send_deadline(payload, deadline)?,
            (_, None) => link.send(payload)?,
        }
        Ok(())
    }

    /// Receives the next message of a link as an object that the caller owns.
    fn partywall_link_recv(
        link: Handle<LinkObject>, message: Out<Handle<LinkMessageObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let message = message.require("message")?;
        let link = link.share_second()?;
        let timeout = Timeout::new(timeout_ns);
        let received = match (timeout, timeout.deadline()) {
            (Timeout::Zero, _) => link.try_recv()?,
            (_, Some(deadline)) => link.recv_deadline(deadline)?,
            (_, None) => link.recv()?,
        };
        let received = received.ok_or_else(|| Failure::state(FINISHED))?;
        message.write(link_message::insert(received)?);
        Ok(())
    }

    /// Copies the name of the link into `buffer`, without a zero byte at its end.
    fn partywall_link_name(
        link: Handle<LinkObject>, buffer: Buffer, capacity: usize, len: Out<usize>, error: Errors,
    ) reports error {
        buffer.write_text(link.share_second()?.key().link(), capacity, len)
    }

    /// Copies the name of the peer's end of the link into `buffer`, without a zero byte at its end.
    fn partywall_link_peer_name(
        link: Handle<LinkObject>, buffer: Buffer, capacity: usize, len: Out<usize>, error: Errors,
    ) reports error {
        buffer.write_text(link.share_second()?.key().remote(), capacity, len)
    }

    /// Waits until the link has a connection over which messages flow.
    fn partywall_link_wait_attached(link: Handle<LinkObject>, timeout_ns: i64, error: Errors)
    reports error {
        Ok(link.share_second()?.wait_attached(deadline(Timeout::new(timeout_ns)))?)
    }

    /// Waits until every message that was sent is with the kernel, or in shared memory that the
    /// peer reads.
    fn partywall_link_wait_sent(link: Handle<LinkObject>, timeout_ns: i64, error: Errors)
    reports error {
        Ok(link.share_second()?.wait_sent(deadline(Timeout::new(timeout_ns)))?)
    }

    /// Waits until the peer has acknowledged every message that was sent.
    fn partywall_link_wait_acked(link: Handle<LinkObject>, timeout_ns: i64, error: Errors)
    reports error {
        Ok(link.share_second()?.wait_acked(deadline(Timeout::new(timeout_ns)))?)
    }

    /// Makes the link deliver every received message again that was not acknowledged.
    fn partywall_link_rewind(link: Handle<LinkObject>, error: Errors) reports error {
        Ok(link.share_second()?.rewind()?)
    }

    /// Writes how many bytes of messages the link keeps because the peer has not acknowledged them.
    fn partywall_link_unacked_bytes(link: Handle<LinkObject>, bytes: Out<u64>, error: Errors)
    reports error {
        let bytes = bytes.require("bytes")?;
        bytes.write(link.share_second()?.unacked_bytes()?);
        Ok(())
    }

    /// Writes the id of the stream that this end of the link sends, and the position at which the
    /// next message will begin in it, or a lower position close to that one.
    fn partywall_link_sent_position(
        link: Handle<LinkObject>, stream: Out<u64>, position: Out<u64>, error: Errors,
    ) reports error {
        let (stream, position) = (stream.require("stream")?, position.require("position")?);
        let next = link.share_second()?.sent_position()?;
        stream.write(next.stream);
        position.write(next.position);
        Ok(())
    }

    /// Takes the oldest event of a link, and writes the first `size` bytes of its structure.
    fn partywall_link_next_event(
        link: Handle<LinkObject>, event: Out<CLinkEvent>, size: usize, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let place = event.require("event")?;
        check_len(size, "size")?; // before an event is taken
        let event = next_event(&*link.share_second()?, Timeout::new(timeout_ns))?;
        place.write_prefix(&CLinkEvent::from(&event), size)
    }

    /// Copies a description of the link's state into `buffer`, without a zero byte at its end.
    fn partywall_link_status_text(
        link: Handle<LinkObject>, buffer: Buffer, capacity: usize, len: Out<usize>, error: Errors,
    ) reports error {
        buffer.write_text(&link.share_second()?.status().to_string(), capacity, len)
    }

    /// Writes the state of a link.
    fn partywall_link_status(link: Handle<LinkObject>, status: Out<i32>) {
        let status = status.require("status")?;
        status.write(status_number(&link.share_second()?.status()));
        Ok(())
    }
}

/// How long a call without a limit waits where `partywall-link` requires a deadline: 100 years.
const UNLIMITED: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
