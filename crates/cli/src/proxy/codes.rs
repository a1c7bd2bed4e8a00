// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes of the RESET with which a proxy gives up a stream (SPEC 11.3).

/// The plain socket was reset, or failed.
pub const RESET: u32 = 1;
/// The target of the plain socket could not be reached.
pub const UNREACHABLE: u32 = 2;
/// Connecting took longer than `--connect-timeout`, perhaps because `--connections` were open.
pub const LATE: u32 = 3;
/// The proxy ends, and `--drain` has passed.
pub const ENDING: u32 = 4;
/// The program at the plain socket reads no more, but may still write.
pub const READS_NO_MORE: u32 = 5;

/// The text for the code of a connection that was never made.
pub const fn reason(code: u32) -> &'static str {
    match code {
        UNREACHABLE => {
            "the other proxy could not connect to its --to: read its output, and check that the server runs"
        }
        LATE => {
            "the other proxy had no connection within its --connect-timeout: raise its --connections, or \
             check whether the server is busy"
        }
        _ => "the other proxy is ending and accepts no more connections",
    }
}
