// SPDX-License-Identifier: MIT OR Apache-2.0
//! Events of links, such as a lost connection, as C programs see them.
//!
//! ```text
//!   kind │ is_resumed │ is_farewell │ reserved │ epoch │ text, which ends with a zero byte
//! ```

use partywall_link::Event;

/// An event of a link, in the layout of the header's structure of the same name, without padding.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct CLinkEvent {
    kind: i32,
    is_resumed: i32,
    is_farewell: i32,
    reserved: i32,
    epoch: u64,
    text: [u8; TEXT_BYTES],
}

impl From<&Event> for CLinkEvent {
    fn from(event: &Event) -> Self {
        let is_resumed = matches!(event, Event::Attached { resumed: true });
        Self {
            kind: number(event),
            is_resumed: i32::from(is_resumed),
            is_farewell: i32::from(event.is_farewell()),
            reserved: 0,
            epoch: if let Event::Epoch { epoch } = event { *epoch } else { 0 },
            text: terminated(&event.to_string()),
        }
    }
}

/// Returns the number of the constant in `partywall.h`, such as `PARTYWALL_LINK_EVENT_ATTACHED`,
/// for a kind of event.
const fn number(event: &Event) -> i32 {
    match event {
        Event::Attached { .. } => 1,
        Event::Detached { .. } => 2,
        Event::Refused { .. } => 3,
        Event::Epoch { .. } => 4,
        Event::Fenced => 5,
        Event::Quarantined => 6,
        Event::LossPossible => 7,
        Event::RepeatPossible => 8,
        Event::FileReplaced => 9,
        // A newer version of `partywall-link` can have kinds of events that `partywall.h` does not
        // name yet.
        _ => -1,
    }
}

/// Returns the text with a zero byte at its end. A text that is too long is cut after a whole
/// character.
fn terminated(text: &str) -> [u8; TEXT_BYTES] {
    let mut bytes = [0; TEXT_BYTES];
    let mut lens = (0..=text.len().min(TEXT_BYTES - 1)).rev();
    let len = lens.find(|len| text.is_char_boundary(*len)).unwrap_or(0);
    for (place, byte) in bytes.iter_mut().zip(&text.as_bytes()[..len]) {
        // A text of the library has no zero byte, but a text of another process may have one.
        *place = if *byte == 0 { b' ' } else { *byte };
    }
    bytes
}

/// Bytes of the text in an event, with its zero byte. With them the structure has 512 bytes.
const TEXT_BYTES: usize = 488;

const _: () = assert!(size_of::<CLinkEvent>() == 512);

#[cfg(test)]
mod tests {
    use super::*;

    fn text(event: &CLinkEvent) -> &str {
        let end = event.text.iter().position(|byte| *byte == 0).unwrap();
        std::str::from_utf8(&event.text[..end]).unwrap()
    }

    #[test]
    fn event_has_its_number_and_its_text() {
        let event = CLinkEvent::from(&Event::Attached { resumed: true });
        assert_eq!((event.kind, event.is_resumed, event.is_farewell), (1, 1, 0));
        assert_eq!(text(&event), "attached: the peer's stream goes on");
        let event = CLinkEvent::from(&Event::Epoch { epoch: 7 });
        assert_eq!((event.kind, event.epoch, text(&event)), (4, 7, "epoch 7 begins"));
    }

    #[test]
    fn long_text_is_cut_between_two_characters() {
        for padding in 0..4 {
            let reason = format!("{}\0{}", "x".repeat(padding), "ä".repeat(300));
            let event = CLinkEvent::from(&Event::Detached { reason });
            let text = text(&event);
            assert!((TEXT_BYTES - 3..TEXT_BYTES).contains(&text.len()), "{}", text.len());
            assert!(text.starts_with(&format!("detached: {} ä", "x".repeat(padding))), "{text}");
        }
    }
}
