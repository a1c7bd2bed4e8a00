// SPDX-License-Identifier: MIT OR Apache-2.0
//! Codes with which streams are given up: which are the application's, and the protocol's in words.
//!
//! ```text
//!   0 ……………………………………… 0xfffffeff │ 0xffffff00 …… 0xffffffff      (SPEC 11.3)
//!   the application's own          │ the protocol's: REFUSED, DROPPED, others to come
//! ```
//!
//! Codes that are received are not checked here: any number may come, and is told as it is. That of a
//! `go_away` is not among these.

use partywall_layout::stream::{DROPPED, REFUSED, RESERVED_CODES};

/// Asserts that the application may give this code.
#[track_caller]
pub fn assert_own(code: u32) {
    assert!(
        code < RESERVED_CODES,
        "code {code:#x} is the protocol's: codes of an application are less than {RESERVED_CODES:#x}"
    );
}

/// What stands behind the number of a code of the protocol; nothing behind others.
pub const fn in_words(code: u32) -> &'static str {
    match code {
        REFUSED => ", refused: it was never accepted, and may be opened elsewhere",
        DROPPED => ", dropped: whoever used it there is gone",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{StreamRecvError, StreamSendError};

    #[test]
    fn codes_of_the_protocol_are_told_in_words() {
        for (code, words) in [(DROPPED, "0xffffff02, dropped"), (REFUSED, "0xffffff01, refused")] {
            let sent = StreamSendError::Stopped { code }.to_string();
            let received = StreamRecvError::Reset { code }.to_string();
            assert!(sent.contains(words) && received.contains(words), "{sent} / {received}");
        }
        let own = StreamRecvError::Reset { code: 7 }.to_string();
        assert_eq!(own, "the other side has reset the stream (code 0x7)");
    }

    #[test]
    fn only_codes_below_those_of_the_protocol_are_the_applications() {
        assert_own(RESERVED_CODES - 1);
        for code in [RESERVED_CODES, REFUSED, DROPPED, u32::MAX] {
            assert!(std::panic::catch_unwind(|| assert_own(code)).is_err(), "{code:#x}");
        }
    }
}
