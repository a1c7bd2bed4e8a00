// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls and answers over one stream: the client with its calls, the server with its requests.
//!
//! ```text
//!   stream ─▶ partywall_calls_client ─ begin ─▶ partywall_call ─ wait ─▶ message
//!   stream ─▶ partywall_calls_server ─ recv ──▶ partywall_request ─ answer, fail ─▶ freed
//! ```

use crate::argument::{Bytes, Out};
use crate::config::{self, ConfigObject};
use crate::error::Errors;
use crate::export::export;
use crate::failure::{EMPTY, FINISHED, Failure, TIMED_OUT};
use crate::message::MessageObject;
use crate::stream::{self, StreamObject};
use crate::table::{Handle, Object, Table};
use crate::timeout::Timeout;
use partywall::Message;
use partywall_extras::calls::blocking::{Call, Client, Request, Server};
use partywall_extras::calls::{CODES_RESERVED, CallError};
use std::ffi::c_void;
use std::time::Instant;

pub(crate) struct CallsClientObject;

static CLIENTS: Table<CallsClientObject> = Table::new();

impl Object for CallsClientObject {
    type First = ();
    type Second = ();
    /// The client of calls. All threads use it at the same time: each function of the C interface
    /// copies the reference to it.
    type Shared = Client;
    const KIND: u8 = 21;
    const NAME: &'static str = "partywall_calls_client";

    fn table() -> &'static Table<Self> {
        &CLIENTS
    }
}

pub(crate) struct CallObject;

static CALLS: Table<CallObject> = Table::new();

impl Object for CallObject {
    type First = Call;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 22;
    const NAME: &'static str = "partywall_call";

    fn table() -> &'static Table<Self> {
        &CALLS
    }
}

pub(crate) struct CallsServerObject;

static SERVERS: Table<CallsServerObject> = Table::new();

impl Object for CallsServerObject {
    type First = ();
    type Second = ();
    /// The server of calls. All threads use it at the same time: each function of the C interface
    /// copies the reference to it.
    type Shared = Server;
    const KIND: u8 = 23;
    const NAME: &'static str = "partywall_calls_server";

    fn table() -> &'static Table<Self> {
        &SERVERS
    }
}

pub(crate) struct RequestObject;

static REQUESTS: Table<RequestObject> = Table::new();

impl Object for RequestObject {
    type First = Request;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 24;
    const NAME: &'static str = "partywall_request";

    fn table() -> &'static Table<Self> {
        &REQUESTS
    }
}

/// Writes the answer of a call to `place`; if the call's handler failed, the detail of the failure.
fn give(
    answered: Result<Message, CallError>,
    place: Out<Handle<MessageObject>>,
) -> Result<(), Failure> {
    let message = match answered {
        Ok(message) => message,
        Err(error) => {
            if let CallError::Failed { detail, .. } = &error {
                place.write(Handle::insert(Message::from_protocol(detail), ())?);
            }
            return Err(error.into());
        }
    };
    place.write(Handle::insert(message, ())?);
    Ok(())
}

/// Takes a request out of its handle, so that it can be answered or failed.
fn taken(request: Handle<RequestObject>) -> Result<Request, Failure> {
    let (request, _) = request.remove()?;
    request.ok_or_else(|| Failure::handle(RequestObject::NAME))
}

export! {
    /// Makes a client of calls from a stream, and frees the handle of the stream.
    fn partywall_calls_client_new(
        stream: Handle<StreamObject>, config: Handle<ConfigObject>,
        client: Out<Handle<CallsClientObject>>, error: Errors,
    ) reports error {
        let (place, config) = (client.require("client")?, config::copy_calls(config)?);
        let (send, recv) = stream::take_threaded(stream)?;
        place.write(Handle::insert_with((), (), Client::over(send, recv, config))?);
        Ok(())
    }

    /// Frees the handle of a client of calls. Calls that it has sent go on. A null pointer is
    /// allowed.
    fn partywall_calls_client_free(client: Handle<CallsClientObject>) {
        if !client.is_null() {
            client.remove()?;
        }
        Ok(())
    }

    /// Makes a call, and waits for its answer.
    fn partywall_calls_client_call(
        client: Handle<CallsClientObject>, data: Bytes, len: usize,
        answer: Out<Handle<MessageObject>>, timeout_ns: i64, error: Errors,
    ) reports error {
        let (place, payload) = (answer.require("answer")?, data.get(len, "data")?);
        let deadline = Timeout::new(timeout_ns).deadline();
        give(client.shared()?.call(payload, deadline), place)
    }

    /// Sends a call to which the server sends no answer.
    fn partywall_calls_client_call_one_way(
        client: Handle<CallsClientObject>, data: Bytes, len: usize, timeout_ns: i64, error: Errors,
    ) reports error {
        let payload = data.get(len, "data")?;
        Ok(client.shared()?.call_one_way(payload, Timeout::new(timeout_ns).deadline())?)
    }

    /// Sends a call, and returns an object with which the program waits for the answer later.
    fn partywall_calls_client_begin(
        client: Handle<CallsClientObject>, data: Bytes, len: usize, call: Out<Handle<CallObject>>,
        timeout_ns: i64, error: Errors,
    ) reports error {
        let (place, payload) = (call.require("call")?, data.get(len, "data")?);
        let begun = client.shared()?.begin(payload, Timeout::new(timeout_ns).deadline())?;
        place.write(Handle::insert(begun, ())?);
        Ok(())
    }

    /// Waits for the answer of a call.
    fn partywall_call_wait(
        call: Handle<CallObject>, answer: Out<Handle<MessageObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let place = answer.require("answer")?;
        let mut call = call.first()?;
        if call.is_answered() {
            return Err(Failure::argument("the call was answered before: free it"));
        }
        give(call.wait(Timeout::new(timeout_ns).deadline()), place)
    }

    /// Frees the handle of a call, and cancels the call if it has no answer yet. A null pointer is
    /// allowed.
    fn partywall_call_free(call: Handle<CallObject>) {
        if !call.is_null() {
            call.remove()?;
        }
        Ok(())
    }

    /// Makes a server of calls from a stream, and frees the handle of the stream.
    fn partywall_calls_server_new(
        stream: Handle<StreamObject>, config: Handle<ConfigObject>,
        server: Out<Handle<CallsServerObject>>, error: Errors,
    ) reports error {
        let (place, config) = (server.require("server")?, config::copy_calls(config)?);
        let (send, recv) = stream::take_threaded(stream)?;
        place.write(Handle::insert_with((), (), Server::over(send, recv, config))?);
        Ok(())
    }

    /// Frees the handle of a server of calls. Requests that it has received can still be answered.
    /// A null pointer is allowed.
    fn partywall_calls_server_free(server: Handle<CallsServerObject>) {
        if !server.is_null() {
            server.remove()?;
        }
        Ok(())
    }

    /// Waits for the next call of the client, and returns its request.
    fn partywall_calls_server_recv(
        server: Handle<CallsServerObject>, request: Out<Handle<RequestObject>>, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let (place, timeout) = (request.require("request")?, Timeout::new(timeout_ns));
        let received = match server.shared()?.recv(timeout.deadline()) {
            Ok(received) => received.ok_or_else(|| Failure::state(FINISHED))?,
            Err(error) => {
                let failure = Failure::from(error);
                let is_empty = timeout == Timeout::Zero && failure.code() == TIMED_OUT;
                return Err(if is_empty { Failure::state(EMPTY) } else { failure });
            }
        };
        place.write(Handle::insert(received, ())?);
        Ok(())
    }

    /// Writes the address and the length of the payload of a request. The payload stays valid until
    /// the request is freed.
    fn partywall_request_data(
        request: Handle<RequestObject>, data: Out<*const c_void>, len: Out<usize>,
    ) {
        let (data, len) = (data.require("data")?, len.require("len")?);
        let request = request.first()?;
        data.write(request.as_ptr().cast());
        len.write(request.len());
        Ok(())
    }

    /// Writes how many nanoseconds are left until the client's deadline for a call.
    fn partywall_request_time_left(request: Handle<RequestObject>, timeout_ns: Out<i64>) {
        let place = timeout_ns.require("timeout_ns")?;
        place.write(request.first()?.deadline().map_or(-1, |deadline| {
            let left = deadline.saturating_duration_since(Instant::now()).as_nanos();
            i64::try_from(left).unwrap_or(i64::MAX)
        }));
        Ok(())
    }

    /// Writes 1 if the client expects no answer to the call, else 0.
    fn partywall_request_is_one_way(request: Handle<RequestObject>, is_one_way: Out<i32>) {
        let place = is_one_way.require("is_one_way")?;
        place.write(i32::from(request.first()?.is_one_way()));
        Ok(())
    }

    /// Writes 1 if the client no longer waits for the answer, else 0.
    fn partywall_request_is_cancelled(request: Handle<RequestObject>, is_cancelled: Out<i32>) {
        let place = is_cancelled.require("is_cancelled")?;
        place.write(i32::from(request.first()?.is_cancelled()));
        Ok(())
    }

    /// Sends the answer to a request, and frees the request.
    fn partywall_request_answer(
        request: Handle<RequestObject>, data: Bytes, len: usize, timeout_ns: i64, error: Errors,
    ) reports error {
        let request = taken(request)?;
        let answer = data.get(len, "data")?;
        Ok(request.answer(answer, Timeout::new(timeout_ns).deadline())?)
    }

    /// Fails the call of a request with a code and a detail, and frees the request.
    fn partywall_request_fail(
        request: Handle<RequestObject>, code: u32, data: Bytes, len: usize, timeout_ns: i64,
        error: Errors,
    ) reports error {
        let request = taken(request)?;
        let detail = data.get(len, "data")?;
        if code >= CODES_RESERVED {
            return Err(Failure::argument(&format!("the code {code:#x} is reserved")));
        }
        Ok(request.fail(code, detail, Timeout::new(timeout_ns).deadline())?)
    }

    /// Frees a request. Its call then fails at the client, unless it is one-way. A null pointer is
    /// allowed.
    fn partywall_request_free(request: Handle<RequestObject>) {
        if !request.is_null() {
            request.remove()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_of_a_handler_has_its_code_and_its_detail() {
        let mut place = Handle::NULL;
        let error = CallError::Failed { code: 7, detail: b"why".as_slice().into() };
        let failure = give(Err(error), Out::of(&mut place)).unwrap_err();
        assert_eq!(failure.code(), 711);
        assert_eq!(failure.into_detail().unwrap().application_code, 7);
        assert_eq!(&**place.first().unwrap(), b"why");
        assert!(place.discard().is_ok());
    }
}
