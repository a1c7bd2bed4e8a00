// SPDX-License-Identifier: MIT OR Apache-2.0
//! The functions that the library exports to C: macros that define them, and the boundary that
//! turns a panic into a status.
//!
//! ```text
//!   export! { fn name(arguments) reports error { body } }    ─▶ int32_t name(arguments)
//!   export_value! { fn name(arguments) -> type { body } or default }
//! ```
//!
//! Only these macros export a name. A test, `crates/capi/tests/header`, compares all names and
//! arguments with `partywall.h`.

use crate::error::{self, Errors};
use crate::failure::Failure;
use partywall_layout::seeded_fault;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Defines exported functions that return a status. `reports` names the argument that is the place
/// for an error object.
macro_rules! export {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?)
        $(reports $error:ident)? $body:block)*) => {$(
        $(#[$meta])*
        #[allow(unsafe_code, reason = "an exported name")]
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> i32 {
            #[allow(unused_variables, reason = "replaced if the function reports errors")]
            let place = $crate::error::Errors::NULL;
            $(let place = $error;)?
            $crate::export::boundary(place, move || $body)
        }
    )*};
}

/// Defines exported functions that return a value. After a panic they return the value that the
/// definition names after `or`.
macro_rules! export_value {
    ($($(#[$meta:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty
        $body:block or $default:expr)*) => {$(
        $(#[$meta])*
        #[allow(unsafe_code, reason = "an exported name")]
        #[unsafe(no_mangle)]
        extern "C" fn $name($($argument: $type),*) -> $result {
            $crate::export::contain(move || $body).unwrap_or($default)
        }
    )*};
}

pub(crate) use {export, export_value};

/// Calls `body` and returns its status. Writes an error object, or null on success, to `place`.
#[inline]
pub(crate) fn boundary(place: Errors, body: impl FnOnce() -> Result<(), Failure>) -> i32 {
    match contain(body) {
        Ok(Ok(())) => {
            place.write(crate::table::Handle::NULL);
            0
        }
        Ok(Err(failure)) | Err(failure) => error::report(failure, place),
    }
}

/// Calls `body`, and turns a panic of `body` into a failure.
#[inline]
pub(crate) fn contain<T>(body: impl FnOnce() -> T) -> Result<T, Failure> {
    if seeded_fault("no_panic_boundary") {
        return Ok(body());
    }
    // A panic poisons the lock of the object that the call was using, so that later calls are
    // refused. So no later call sees the object in the state that the panic left behind.
    catch_unwind(AssertUnwindSafe(body)).map_err(|payload| {
        let failure = Failure::panicked(&*payload);
        // Dropping a panic's payload can panic again; the payload of that second panic is leaked.
        if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
            std::mem::forget(second);
        }
        failure
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_becomes_a_status() {
        assert_eq!(boundary(Errors::NULL, || panic!("a panic of the test")), 903);
        assert_eq!(boundary(Errors::NULL, || Err(Failure::busy())), 8);
        assert_eq!(boundary(Errors::NULL, || Ok(())), 0);
    }
}
