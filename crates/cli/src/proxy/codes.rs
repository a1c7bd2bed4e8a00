// SPDX-License-Identifier: MIT OR Apache-2.0
//! Why a proxy gives up a stream: the code of the RESET that its neighbour gets (SPEC 11.3).

/// The plain socket was reset, or failed.
pub const RESET: u32 = 1;
/// Nobody is where the plain socket would lead, or it could not be reached.
pub const UNREACHABLE: u32 = 2;
/// It took longer than `--connect-timeout`, be it that as many as `--connections` allows were open.
pub const LATE: u32 = 3;
/// The proxy ends, and `--drain` is over.
pub const ENDING: u32 = 4;
/// The program at the plain socket reads no more, but may still write.
pub const READS_NO_MORE: u32 = 5;

/// Why none came about, in words.
pub const fn reason(code: u32) -> &'static str {
    match code {
        UNREACHABLE => {
            "the other proxy reached nobody at its --to: see what it says, and whether the server runs"
        }
        LATE => {
            "the other proxy had no connection within its --connect-timeout: raise its --connections, or \
             see whether the server is busy"
        }
        _ => "the other proxy takes no more connections: it is ending",
    }
}
