// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of exported functions: a status, and for most of them an error object with the advice.
//!
//! ```text
//!   library error ─▶ Failure ─┬─ code ────▶ status, the number of SPEC 17
//!                             └─ detail ──▶ partywall_error, if the caller passed a place for it
//! ```
//!
//! States that a program meets all the time, such as `Empty` and `Full`, have no error object and
//! cost no allocation.

use partywall::ErrorCode;
use partywall::event::Forked;
use std::any::Any;
use std::error::Error;
use std::ffi::CString;
use std::io;

/// The failure of an exported function: its number and, for most failures, an explanation.
#[derive(Debug)]
pub(crate) struct Failure {
    code: i32,
    detail: Option<Box<Detail>>,
}

/// The content of an error object.
#[derive(Debug)]
pub(crate) struct Detail {
    pub(crate) code: i32,
    pub(crate) message: CString,
    /// The errno of the failed system call; 0 if no system call failed.
    pub(crate) errno: i32,
    /// The code that the peer's application gave to end a stream or session; 0 if it gave none.
    pub(crate) application_code: u32,
}

impl Failure {
    /// A failure with a number but no error object, such as `Empty` or `Full`.
    pub(crate) const fn state(code: i32) -> Self {
        Self { code, detail: None }
    }

    /// The failure that a C program has passed an argument that the header forbids.
    #[cold]
    pub(crate) fn argument(message: &str) -> Self {
        Self::explained(ARGUMENT, message, 0)
    }

    #[cold]
    pub(crate) fn null(name: &'static str) -> Self {
        Self::argument(&format!("{name} is NULL"))
    }

    /// The failure that the handle of an object of the type `name` is null.
    #[cold]
    pub(crate) fn no_object(name: &'static str) -> Self {
        Self::argument(&format!(
            "{name} is NULL: it was never made, or the C++ object that had it is empty or moved from"
        ))
    }

    /// The failure that a handle names no object of the type `name`.
    #[cold]
    pub(crate) fn handle(name: &'static str) -> Self {
        let message = format!(
            "this is no {name}: it was freed before, is a handle of another type, or was never made"
        );
        Self::explained(HANDLE, &message, 0)
    }

    /// The failure that another call uses the object at the same time.
    pub(crate) const fn busy() -> Self {
        Self::state(BUSY)
    }

    pub(crate) const fn is_busy(&self) -> bool {
        self.code == BUSY
    }

    /// The failure that an earlier panic has left an object in an unknown state.
    #[cold]
    pub(crate) fn poisoned(name: &'static str) -> Self {
        let message = format!("an earlier call of this {name} panicked: only free it");
        Self::explained(PANIC, &message, 0)
    }

    /// The failure that the process has too many objects of the type `name`.
    #[cold]
    pub(crate) fn exhausted(name: &'static str) -> Self {
        let message = format!("the process has too many objects of the type {name}: free some");
        Self::explained(EXHAUSTED, &message, 0)
    }

    #[cold]
    pub(crate) fn panicked(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let message =
            format!("the library panicked, which is a bug: {}", text.unwrap_or("no text"));
        Self::explained(PANIC, &message, 0)
    }

    /// The failure that a setting of a configuration is impossible, with the text that explains it.
    #[cold]
    pub(crate) fn setting(message: &str) -> Self {
        Self::explained(SETTING, message, 0)
    }

    /// The failure of a system call that `what` names and that does not fail in normal operation.
    /// An error which says that the object belongs to the parent process becomes the failure of a
    /// forked child instead.
    #[cold]
    pub(crate) fn system(what: &str, error: &io::Error) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<Forked>());
        if let Some(forked) = inner {
            return (*forked).into();
        }
        let errno = error.raw_os_error().unwrap_or(0);
        Self::explained(SYSTEM, &format!("{what}: {error}"), errno)
    }

    fn explained(code: i32, message: &str, errno: i32) -> Self {
        // A text of the library has no zero byte, but a text of another process, such as its name,
        // may.
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        Self { code, detail: Some(Box::new(Detail { code, message, errno, application_code: 0 })) }
    }

    /// Returns the number of the failure, which is the status of the call.
    pub(crate) const fn code(&self) -> i32 {
        self.code
    }

    /// Returns the content of the error object; `None` for a failure without one, such as `Empty`.
    pub(crate) fn into_detail(self) -> Option<Detail> {
        self.detail.map(|detail| *detail)
    }
}

impl<E: ErrorCode + Error + 'static> From<E> for Failure {
    #[cold]
    fn from(error: E) -> Self {
        let code = i32::try_from(error.code()).unwrap_or(i32::MAX);
        if STATES.contains(&code) {
            return Self::state(code);
        }
        let (mut message, mut errno) = (error.to_string(), 0);
        let mut next: Option<&(dyn Error + 'static)> = Some(&error);
        while let Some(cause) = next {
            let text = cause.to_string();
            if !message.contains(&text) {
                message = format!("{message}: {text}");
            }
            let number = cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
            errno = number.unwrap_or(errno);
            next = cause.source();
        }
        let mut failure = Self::explained(code, &message, errno);
        if let Some(detail) = &mut failure.detail {
            detail.application_code = error.application_code();
        }
        failure
    }
}

/// Numbers of failures that have no error object, because a program meets them all the time.
const STATES: std::ops::RangeInclusive<i32> = 4..=9;

/// Error code: a system call failed that does not fail in normal operation.
const SYSTEM: i32 = 2;
/// Error code: another thread uses the object.
const BUSY: i32 = 8;
pub(crate) const TIMED_OUT: i32 = 4;
pub(crate) const EMPTY: i32 = 6;
pub(crate) const FULL: i32 = 5;
pub(crate) const FINISHED: i32 = 9;
/// Error code: a value of the configuration is impossible.
const SETTING: i32 = 13;
/// Error code: this side has ended its sending.
pub(crate) const FINISHED_HERE: i32 = 408;
/// Error code: this side has ended its receiving.
pub(crate) const STOPPED_HERE: i32 = 409;
/// Error code: a reservation was committed on a connection that has not reserved it.
pub(crate) const FOREIGN_RESERVATION: i32 = 14;
pub(crate) const ARGUMENT: i32 = 901;
/// Error code: a handle names no object of its type.
const HANDLE: i32 = 902;
const PANIC: i32 = 903;
pub(crate) const BUFFER_TOO_SHORT: i32 = 904;
/// Error code: the process has as many objects of the type as it may have.
const EXHAUSTED: i32 = 905;

#[cfg(test)]
mod tests {
    use super::*;
    use partywall::{RecvError, SendError};
    use partywall_testkit::error_numbers::NumberTable;

    #[test]
    fn failures_have_the_numbers_of_the_specification() {
        let mut table = NumberTable::of_section("17 Error numbers");
        for (failure, name) in [
            (Failure::argument("x"), "argument"),
            (Failure::handle("x"), "handle"),
            (Failure::panicked(&"x"), "panic"),
            (Failure::state(BUFFER_TOO_SHORT), "buffer too short"),
            (Failure::exhausted("x"), "handles exhausted"),
            (Failure::busy(), "busy"),
            (Failure::setting("x"), "setting"),
            (Failure::state(FINISHED), "finished"),
            (Failure::state(FINISHED_HERE), "stream finished here"),
            (Failure::state(STOPPED_HERE), "stream stopped here"),
            (Failure::system("x", &io::Error::from_raw_os_error(5)), "system"),
        ] {
            table.check(name, u32::try_from(failure.code()).unwrap(), name);
        }
        table.assert_all_met(900..=999);
    }

    #[test]
    fn states_have_no_error_object() {
        assert!(Failure::from(SendError::Full).detail.is_none());
        assert!(Failure::from(RecvError::TimedOut).detail.is_none());
        assert!(Failure::from(RecvError::Disconnected).detail.is_some());
    }

    #[test]
    fn error_object_has_the_number_of_the_system() {
        let missing = partywall::connect("unix:/nonexistent/app.sock").unwrap_err();
        let failure = Failure::from(missing);
        let detail = failure.detail.unwrap();
        assert_eq!((detail.code, failure.code), (332, 332));
        assert!(detail.message.to_str().unwrap().contains("/nonexistent/app.sock"));
    }
}
