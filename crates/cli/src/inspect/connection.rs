// SPDX-License-Identifier: MIT OR Apache-2.0
//! One connection over shared memory, as the regions of both sides state it.

use std::fmt::{self, Write};
use std::time::{Duration, SystemTime};

use partywall_layout::hello::{ROLE_ACCEPTOR, ROLE_CONNECTOR};
use partywall_layout::hello::{SERVICE_CHANNEL, SERVICE_LINK, SERVICE_SESSION};
use partywall_layout::identity::{
    RegionIdentity, STATE_BROKEN, STATE_CLOSED, STATE_OPEN, STATE_OPENING,
};
use partywall_layout::segment::{
    ASLEEP_RECORDS, ASLEEP_ROOM, CONSUMED, GONE, QUIET, REGION_CONNECTION, receiving, sending,
};

use crate::command::report::{ago, hex};

/// The regions of a connection: the one that the inspected process owns, and its peer's if it could
/// be read.
pub struct Connection<'a> {
    pub own: RegionIdentity<'a>,
    pub peer: Option<RegionIdentity<'a>>,
}

impl Connection<'_> {
    /// Bytes of records that the owner of `sender` has published and its peer has not consumed;
    /// `None` if a region is missing, or the two regions contradict each other.
    pub fn unread(&self, sender: &RegionIdentity<'_>) -> Option<u64> {
        let reader = if sender.role() == self.own.role() { self.peer? } else { self.own };
        sender.sending(sending::TAIL).checked_sub(reader.word(CONSUMED))
    }

    /// Appends the connection to `text` as lines of text, followed by an empty line.
    pub fn write(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "connection {}", hex(self.own.session_id()))?;
        self.write_side(text, "own ", &self.own)?;
        match &self.peer {
            Some(peer) => self.write_side(text, "peer", peer)?,
            None => writeln!(text, "  peer  its region was not found")?,
        }
        writeln!(text)
    }

    fn write_side(
        &self,
        text: &mut String,
        side: &str,
        region: &RegionIdentity<'_>,
    ) -> fmt::Result {
        write!(text, "  {side}  {} of a {}", role(region.role()), service(region.service()))?;
        if !region.address().is_empty() {
            write!(text, " at {:?}", region.address())?;
        }
        write!(text, ": {}", state(region.state()))?;
        if region.last_error() != 0 {
            write!(text, ", error {}", region.last_error())?;
        }
        if region.changed_ns() != 0 {
            write!(text, ", {}", ago(moment(region.changed_ns())))?;
        }
        write!(text, "\n        process {}", region.owner_pid())?;
        if !region.program().is_empty() {
            write!(text, ", program {:?}", region.program())?;
        }
        if region.created_ns() != 0 {
            write!(text, ", region made {}", ago(moment(region.created_ns())))?;
        }
        write!(
            text,
            "\n        sent {} messages, {} bytes",
            region.sending(sending::MESSAGES),
            region.sending(sending::BYTES)
        )?;
        if let Some(unread) = self.unread(region) {
            write!(text, " ({unread} of the ring not consumed)")?;
        }
        writeln!(
            text,
            "; received {} messages, {} bytes; {}",
            region.receiving(receiving::MESSAGES),
            region.receiving(receiving::BYTES),
            sleep(region)
        )
    }
}

/// Returns the kind of a region as text; `number` is the kind in the region's header.
pub fn kind(number: u32) -> String {
    match number {
        REGION_CONNECTION => "connection".to_owned(),
        other => format!("kind {other}"),
    }
}

/// Returns the role of a region's owner, connector or acceptor, as text; `number` is the role in
/// the header.
pub fn role(number: u32) -> String {
    match number {
        ROLE_CONNECTOR => "connector".to_owned(),
        ROLE_ACCEPTOR => "acceptor".to_owned(),
        other => format!("role {other}"),
    }
}

/// Returns as text what a connection carries, such as a channel or a session. The owner of a region
/// states it in the field `service`.
pub fn service(number: u32) -> String {
    match number {
        0 => "connection".to_owned(),
        SERVICE_CHANNEL => "channel".to_owned(),
        SERVICE_SESSION => "session".to_owned(),
        SERVICE_LINK => "link".to_owned(),
        other => format!("service {other}"),
    }
}

/// Returns the state of a connection, as the owner of a region states it, as text.
pub fn state(number: u64) -> String {
    match number {
        STATE_OPENING => "opening".to_owned(),
        STATE_OPEN => "open".to_owned(),
        STATE_BROKEN => "broken".to_owned(),
        STATE_CLOSED => "closed".to_owned(),
        other => format!("state {other}"),
    }
}

/// Returns as text whether the owner of a region sleeps, and until which event, according to its
/// sleeper words.
pub fn sleep(region: &RegionIdentity<'_>) -> &'static str {
    let (records, room) = (region.word(ASLEEP_RECORDS), region.word(ASLEEP_ROOM));
    match (records, room & !QUIET) {
        (GONE, _) => "has stopped receiving",
        (0, 0) => "awake",
        (_, 0) => "asleep until records come",
        (0, _) => "asleep until there is room",
        _ => "asleep until records come or there is room",
    }
}

/// Returns the time that is `ns` nanoseconds after the start of the year 1970.
pub fn moment(ns: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)
}
