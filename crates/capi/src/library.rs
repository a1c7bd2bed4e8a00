// SPDX-License-Identifier: MIT OR Apache-2.0
//! Functions that tell a C program which version of the library it runs with, and explain statuses.

use crate::export::export_value;
use crate::status_text::status_text;
use std::ffi::c_char;

export_value! {
    /// Returns the version of the library, such as "0.1.0".
    fn partywall_version() -> *const c_char {
        VERSION.as_ptr().cast()
    } or c"".as_ptr()

    /// Returns the number of the binary interface. If the number changes, programs have to be
    /// compiled again.
    fn partywall_abi() -> u32 {
        ABI
    } or 0

    /// Returns the text of a status. Each number has one text.
    fn partywall_status_text(status: i32) -> *const c_char {
        status_text(status).as_ptr()
    } or c"".as_ptr()
}

const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
/// The number of the binary interface, which is also part of the shared library's file name.
const ABI: u32 = 0;

#[cfg(debug_assertions)]
crate::export::export! {
    /// Panics while the sending direction of `channel` is locked, to test that no panic crosses
    /// into C. Only builds with debug assertions have this function, and `partywall.h` does not
    /// declare it.
    fn partywall_test_panic(channel: crate::table::Handle<crate::channel::ChannelObject>) {
        let _direction = channel.first()?;
        panic!("a panic that the test asked for")
    }
}
