// SPDX-License-Identifier: MIT OR Apache-2.0
//! Received messages of links. The program acknowledges or answers each, from any thread.

use crate::argument::{Bytes, Out};
use crate::error::Errors;
use crate::export::export;
use crate::failure::Failure;
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall_link::Message;
use std::ffi::c_void;

pub(crate) struct LinkMessageObject;

static MESSAGES: Table<LinkMessageObject> = Table::new();

impl Object for LinkMessageObject {
    type First = Message;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 14;
    const NAME: &'static str = "partywall_link_message";

    fn table() -> &'static Table<Self> {
        &MESSAGES
    }
}

pub(crate) fn insert(message: Message) -> Result<Handle<LinkMessageObject>, Failure> {
    Handle::insert(message, ())
}

/// Takes a message of a link out of its handle, so that it can be acknowledged.
fn taken(message: Handle<LinkMessageObject>) -> Result<Message, Failure> {
    let (message, _) = message.remove()?;
    message.ok_or_else(|| Failure::handle(LinkMessageObject::NAME))
}

export! {
    /// Writes where the bytes of a link's message lie. They stay valid until the message is freed.
    fn partywall_link_message_data(
        message: Handle<LinkMessageObject>, data: Out<*const c_void>, len: Out<usize>,
    ) {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let message = message.first()?;
        data.write(message.as_ptr().cast());
        len.write(message.len());
        Ok(())
    }

    /// Writes the delivery count of a message: 1, and one more for each earlier owner of this end
    /// that received the message and did not acknowledge it.
    fn partywall_link_message_attempt(message: Handle<LinkMessageObject>, attempt: Out<u32>) {
        let attempt = attempt.require("attempt")?;
        attempt.write(message.first()?.attempt());
        Ok(())
    }

    /// Writes the position of a link's message in the peer's stream.
    fn partywall_link_message_position(message: Handle<LinkMessageObject>, position: Out<u64>) {
        let position = position.require("position")?;
        position.write(message.first()?.position());
        Ok(())
    }

    /// Acknowledges the message and all messages before it, and frees the message.
    fn partywall_link_message_ack(message: Handle<LinkMessageObject>, error: Errors)
    reports error {
        let message = taken(message)?;
        Ok(message.ack()?)
    }

    /// Sends an answer and acknowledges the message, in one update of the store: both or neither.
    /// Frees the message.
    fn partywall_link_message_reply(
        message: Handle<LinkMessageObject>, data: Bytes, len: usize, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let message = taken(message)?;
        let answer = data.get(len, "data")?;
        match Timeout::new(timeout_ns).deadline() {
            Some(deadline) => message.reply_deadline(answer, deadline)?,
            None => message.reply(answer)?,
        }
        Ok(())
    }

    /// Frees a message of a link without acknowledging it. A null pointer is allowed.
    fn partywall_link_message_free(message: Handle<LinkMessageObject>) {
        if !message.is_null() {
            message.remove()?;
        }
        Ok(())
    }
}
