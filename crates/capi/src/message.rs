// SPDX-License-Identifier: MIT OR Apache-2.0
//! Received messages that a C program owns. Any thread may read and free such a message.

use crate::argument::Out;
use crate::export::export;
use crate::table::{Handle, Object, Table};
use partywall::Message;
use std::ffi::c_void;

pub(crate) struct MessageObject;

static MESSAGES: Table<MessageObject> = Table::new();

impl Object for MessageObject {
    type First = Message;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 3;
    const NAME: &'static str = "partywall_message";

    fn table() -> &'static Table<Self> {
        &MESSAGES
    }
}

export! {
    /// Writes where the bytes of a message lie. They stay valid until the message is freed.
    fn partywall_message_data(
        message: Handle<MessageObject>, data: Out<*const c_void>, len: Out<usize>,
    ) {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let message = message.first()?;
        data.write(message.as_slice().as_ptr().cast());
        len.write(message.as_slice().len());
        Ok(())
    }

    /// Writes 1 if the message lies in shared memory of its sender, and 0 if it was copied from
    /// there or came over a socket.
    fn partywall_message_is_zero_copy(message: Handle<MessageObject>, is_zero_copy: Out<i32>) {
        let place = is_zero_copy.require("is_zero_copy")?;
        place.write(i32::from(message.first()?.is_zero_copy()));
        Ok(())
    }

    /// Frees a message. A null pointer is allowed.
    fn partywall_message_free(message: Handle<MessageObject>) {
        if !message.is_null() {
            message.discard()?;
        }
        Ok(())
    }
}
