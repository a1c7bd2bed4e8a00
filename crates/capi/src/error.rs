// SPDX-License-Identifier: MIT OR Apache-2.0
//! Error objects: the texts, numbers and errnos of failed calls, for C programs that ask for them.

use crate::argument::Out;
use crate::export::{export, export_value};
use crate::failure::{Detail, Failure};
use crate::table::{Handle, Object, Table};
use std::ffi::c_char;

/// The place at which a C program wants an error object; null if it wants none.
pub(crate) type Errors = Out<Handle<ErrorObject>>;

pub(crate) struct ErrorObject;

static ERRORS: Table<ErrorObject> = Table::new();

impl Object for ErrorObject {
    type First = Detail;
    type Second = ();
    type Shared = ();
    const KIND: u8 = 1;
    const NAME: &'static str = "partywall_error";

    fn table() -> &'static Table<Self> {
        &ERRORS
    }
}

/// Writes the error object of a failure to `place`, unless that is null, and returns the status.
#[cold]
#[inline(never)]
pub(crate) fn report(failure: Failure, place: Errors) -> i32 {
    let code = failure.code();
    let object = failure.into_detail().and_then(|detail| Handle::insert(detail, ()).ok());
    place.write(object.unwrap_or(Handle::NULL));
    code
}

export_value! {
    /// Returns the text of an error, which stays valid until the error is freed.
    fn partywall_error_message(error: Handle<ErrorObject>) -> *const c_char {
        error.first().map_or(c"".as_ptr(), |detail| detail.message.as_ptr())
    } or c"".as_ptr()

    /// Returns the number of an error, or 0 if the handle names no error object.
    fn partywall_error_code(error: Handle<ErrorObject>) -> i32 {
        error.first().map_or(0, |detail| detail.code)
    } or 0

    /// Returns the code that the peer's application gave to end a stream or session, or 0.
    fn partywall_error_application_code(error: Handle<ErrorObject>) -> u32 {
        error.first().map_or(0, |detail| detail.application_code)
    } or 0

    /// Returns the errno of the system call behind an error, or 0.
    fn partywall_error_errno(error: Handle<ErrorObject>) -> i32 {
        error.first().map_or(0, |detail| detail.errno)
    } or 0
}

export! {
    /// Frees an error. A null pointer is allowed.
    fn partywall_error_free(error: Handle<ErrorObject>) {
        if !error.is_null() {
            error.remove()?;
        }
        Ok(())
    }
}
