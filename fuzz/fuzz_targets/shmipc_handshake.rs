// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sends any bytes, in any pieces, to a shmipc server and to a client instead of a handshake. They
//! agree on a version, wait for more, or return an error; they never read a byte beyond the
//! handshake.
//!
//! ```text
//!  input:  a byte that chooses the role and the valid messages to begin with |
//!          changes of single bytes of these messages: place (1), value (1) |
//!          0xff | raw bytes that follow the messages
//! ```
#![no_main]

use libfuzzer_sys::fuzz_target;
use partywall::protocol::Recognition;
use partywall_shmipc::wire::{
    ClientHandshake, HandshakeLimits, Mapping, Names, NegotiationError, PATH_BYTES_MAX,
    ServerHandshake, Step, encode, recognises,
};

fuzz_target!(|input: &[u8]| {
    let Some((choice, input)) = input.split_first() else { return };
    let stream = stream(*choice, input);
    recognise(&stream);
    if choice & 1 == 0 {
        serve(&stream, *choice);
    } else {
        connect(&stream, *choice);
    }
});

fn stream(choice: u8, mut rest: &[u8]) -> Vec<u8> {
    let mut stream = match choice >> 1 & 3 {
        0 => encode::by_path(2, "/dev/shm/q", "/dev/shm/b"),
        1 => [encode::exchange(3).to_vec(), encode::by_memfd(3, "q", "b"), vec![0]].concat(),
        2 => [encode::exchange(3).to_vec(), encode::by_path(3, "q", "b")].concat(),
        _ => [encode::exchange(3), encode::ack_ready_recv_fd(3), encode::ack_shm(3)].concat(),
    };
    while let [place @ 0..=0xfe, value, after @ ..] = rest {
        if let Some(byte) = stream.get_mut(usize::from(*place)) {
            *byte = *value;
        }
        rest = after;
    }
    stream.extend_from_slice(rest.get(1..).unwrap_or_default());
    stream
}

/// Checks the function that recognises from the first bytes of a connection whether its protocol is
/// shmipc. The function has a result after eight bytes at the latest, and further bytes do not
/// change it.
fn recognise(stream: &[u8]) {
    let mut before = Recognition::Incomplete;
    for count in 0..=stream.len().min(12) {
        let now = recognises(&stream[..count]);
        assert!(before == Recognition::Incomplete || now == before);
        assert!(count < 8 || now != Recognition::Incomplete);
        before = now;
    }
}

fn serve(stream: &[u8], choice: u8) {
    let mut server = ServerHandshake::new(HandshakeLimits::default());
    let mut rest = stream;
    let mut agreed = false;
    while server.missing() > 0 && !rest.is_empty() {
        assert!(server.missing() <= 12 + 2 * usize::from(PATH_BYTES_MAX));
        let (now, after) = rest.split_at(rest.len().min(server.missing()).min(piece(choice)));
        rest = after;
        let descriptors = if server.wants_descriptors() { usize::from(choice >> 6) } else { 0 };
        if let Err(error) = server.feed(now, descriptors) {
            return explain(&error);
        }
        while let Some(step) = server.next() {
            match step {
                Step::MapPaths { queue, buffer }
                | Step::MapDescriptors { queue_name: queue, buffer_name: buffer } => {
                    assert!(!queue.is_empty() && queue.len() <= PATH_BYTES_MAX.into());
                    assert!(!buffer.is_empty() && buffer.len() <= PATH_BYTES_MAX.into());
                    server.mapped();
                }
                Step::Done { version } => {
                    assert!(matches!(version, 2 | 3));
                    agreed = true;
                }
                Step::Send(bytes) => assert_eq!(bytes.len(), 8),
                Step::SendDescriptors { .. } => panic!("a server has none"),
            }
        }
    }
    assert_eq!(agreed, server.missing() == 0);
}

fn connect(stream: &[u8], choice: u8) {
    let names = Names { queue: "q".into(), buffer: "b".into() };
    let mut client = ClientHandshake::new(Mapping::Memfd, &names);
    let mut rest = stream;
    let mut agreed = false;
    while client.missing() > 0 && !rest.is_empty() {
        assert!(client.missing() <= 8);
        let (now, after) = rest.split_at(rest.len().min(client.missing()).min(piece(choice)));
        rest = after;
        if let Err(error) = client.feed(now) {
            return explain(&error);
        }
        while let Some(step) = client.next() {
            agreed = step == Step::Done { version: 3 };
        }
    }
    assert_eq!(agreed, client.missing() == 0);
    assert!(!agreed || stream.len() - rest.len() == 24, "a client reads three headers");
}

fn piece(choice: u8) -> usize {
    1 << (choice >> 3 & 7)
}

fn explain(error: &NegotiationError) {
    assert!(!error.to_string().is_empty());
}
