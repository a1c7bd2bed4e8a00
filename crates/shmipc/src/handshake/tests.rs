// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the client's and the server's handshake state machines against each other, and against
//! bytes written by hand: exact messages, and refusals.

use super::*;
use crate::frame::{Header, encode};
use crate::memory::names::Names;
use proptest::collection::vec;
use proptest::prelude::*;

fn names() -> Names {
    Names { queue: "/dev/shm/q".into(), buffer: "/dev/shm/b".into() }
}

fn server() -> ServerHandshake {
    ServerHandshake::new(HandshakeLimits::default())
}

/// Creates a server's handshake and feeds it `bytes`; returns the handshake, and its error if it
/// failed. The last byte comes with two descriptors if the server awaits descriptors.
fn fed(bytes: &[u8]) -> (ServerHandshake, Option<NegotiationError>) {
    let mut server = server();
    let mut rest = bytes;
    while !rest.is_empty() && server.missing() > 0 {
        let (now, after) = rest.split_at(server.missing().min(rest.len()));
        rest = after;
        let descriptors = if server.wants_descriptors() { 2 } else { 0 };
        if let Err(error) = server.feed(now, descriptors) {
            return (server, Some(error));
        }
    }
    (server, None)
}

fn refusal(bytes: &[u8]) -> String {
    fed(bytes).1.expect("it was accepted").to_string()
}

fn header(length: u32, version: u8, kind: u8) -> Vec<u8> {
    Header { length, version, kind: Kind::from_number(kind).unwrap() }.to_bytes().to_vec()
}

/// Runs the handshakes of a client and of a server against each other. Returns the steps of both,
/// in the order in which their owners perform them.
fn run(mapping: Mapping) -> Vec<(char, Step)> {
    let (mut client, mut server) = (ClientHandshake::new(mapping, &names()), server());
    let (mut to_server, mut to_client) = (Vec::new(), Vec::new());
    let mut seen = Vec::new();
    for _ in 0..10 {
        while let Some(step) = client.next() {
            match &step {
                Step::Send(bytes) => to_server.extend_from_slice(bytes),
                Step::SendDescriptors { byte } => to_server.push(*byte),
                _ => {}
            }
            seen.push(('c', step));
        }
        while server.missing() > 0 && !to_server.is_empty() {
            let bytes: Vec<u8> = to_server.drain(..server.missing().min(to_server.len())).collect();
            let descriptors = if server.wants_descriptors() { 2 } else { 0 };
            server.feed(&bytes, descriptors).unwrap();
        }
        while let Some(step) = server.next() {
            match &step {
                Step::Send(bytes) => to_client.extend_from_slice(bytes),
                Step::MapPaths { .. } | Step::MapDescriptors { .. } => server.mapped(),
                _ => {}
            }
            seen.push(('s', step));
        }
        while client.missing() > 0 && !to_client.is_empty() {
            let bytes: Vec<u8> = to_client.drain(..client.missing().min(to_client.len())).collect();
            client.feed(&bytes).unwrap();
        }
    }
    assert_eq!((client.missing(), server.missing()), (0, 0));
    assert_eq!((client.waiting_for(), server.waiting_for()), ("nothing", "nothing"));
    assert!(to_client.is_empty() && to_server.is_empty());
    seen
}

#[test]
fn files_are_agreed_on_with_one_message() {
    let sent = b"\0\0\0\x20\x77\x58\x02\x00\0\x0a/dev/shm/q\0\x0a/dev/shm/b".to_vec();
    let Names { queue, buffer } = names();
    assert_eq!(
        run(Mapping::File),
        [
            ('c', Step::Send(sent)),
            ('c', Step::Done { version: 2 }),
            ('s', Step::MapPaths { queue, buffer }),
            ('s', Step::Done { version: 2 }),
        ]
    );
}

#[test]
fn memfds_are_agreed_on_with_six_messages() {
    let Names { queue: queue_name, buffer: buffer_name } = names();
    let sent = b"\0\0\0\x20\x77\x58\x03\x05\0\x0a/dev/shm/q\0\x0a/dev/shm/b".to_vec();
    assert_eq!(
        run(Mapping::Memfd),
        [
            ('c', Step::Send(b"\0\0\0\x08\x77\x58\x03\x04".to_vec())),
            ('s', Step::Send(b"\0\0\0\x08\x77\x58\x03\x04".to_vec())),
            ('c', Step::Send(sent)),
            ('s', Step::Send(b"\0\0\0\x08\x77\x58\x03\x07".to_vec())),
            ('c', Step::SendDescriptors { byte: 0 }),
            ('s', Step::MapDescriptors { queue_name, buffer_name }),
            ('s', Step::Send(b"\0\0\0\x08\x77\x58\x03\x06".to_vec())),
            ('s', Step::Done { version: 3 }),
            ('c', Step::Done { version: 3 }),
        ]
    );
}

#[test]
fn files_of_version_3_are_acknowledged() {
    let mut bytes = encode::exchange(3).to_vec();
    bytes.extend_from_slice(&encode::by_path(3, "/dev/shm/q", "/dev/shm/b"));
    let (mut server, error) = fed(&bytes);
    assert_eq!(error, None);
    let Names { queue, buffer } = names();
    assert_eq!(server.next(), Some(Step::Send(b"\0\0\0\x08\x77\x58\x03\x04".to_vec())));
    assert_eq!(server.next(), Some(Step::MapPaths { queue, buffer }));
    assert_eq!((server.next(), server.missing()), (None, 0));
    server.mapped();
    assert_eq!(server.next(), Some(Step::Send(b"\0\0\0\x08\x77\x58\x03\x06".to_vec())));
    assert_eq!(server.next(), Some(Step::Done { version: 3 }));
}

#[test]
fn a_client_that_knows_more_is_answered_with_3() {
    for version in [3, 4, 255] {
        let (mut server, error) = fed(&encode::exchange(version));
        assert_eq!(error, None);
        assert_eq!(server.next(), Some(Step::Send(encode::exchange(3).to_vec())));
    }
}

#[test]
fn a_server_that_knows_more_is_taken_at_3() {
    let mut client = ClientHandshake::new(Mapping::Memfd, &names());
    client.next();
    client.feed(&encode::exchange(4)).unwrap();
    assert!(matches!(client.next(), Some(Step::Send(bytes)) if bytes[6..8] == [3, 5]));
}

#[test]
fn version_4_is_turned_away() {
    let (_, error) = fed(b"\0\0\x01\x20\x77\x58\x00\x0a");
    assert_eq!(error, Some(NegotiationError::Refused));
    assert!(matches!(
        ProtocolError::from(NegotiationError::Refused),
        ProtocolError::Refused { .. }
    ));
    assert_eq!(
        refusal(b"\0\0\x01\x20\x77\x58\x03\x0a"),
        "waiting for a client's first message: Negotiation (type 10) came with version 3, not 0"
    );
}

#[test]
fn a_first_message_of_another_type_or_version_is_refused() {
    for kind in (1..=9).filter(|kind| *kind != 4) {
        let found = Kind::from_number(kind).unwrap();
        let expected = format!("waiting for a client's first message: {found} came");
        assert_eq!(refusal(&header(20, 3, kind)), expected);
    }
    for version in [0, 1, 3, 4, 255] {
        let expected = format!(
            "waiting for a client's first message: ShmByPath (type 0) came with version {version}, not 2"
        );
        assert_eq!(refusal(&header(20, version, 0)), expected);
    }
    for version in 0..=2 {
        let expected = format!(
            "waiting for a client's first message: ExchangeVersion (type 4) came with version {version}, \
             not 3 or more"
        );
        assert_eq!(refusal(&encode::exchange(version)), expected);
    }
    assert_eq!(
        refusal(b"GET / HTTP/1.1"),
        "waiting for a client's first message: a message begins with the magic 7758, this one with 2f20"
    );
}

#[test]
fn a_second_message_of_another_type_or_version_is_refused() {
    let second = |header: &[u8]| refusal(&[&encode::exchange(3), header].concat());
    for kind in (1..=10).filter(|kind| *kind != 5) {
        let found = Kind::from_number(kind).unwrap();
        let expected =
            format!("waiting for the names of the client's queue and buffers: {found} came");
        assert_eq!(second(&header(20, 3, kind)), expected);
    }
    for (version, kind) in [(0, 5), (2, 5), (4, 5), (2, 0)] {
        let found = Kind::from_number(kind).unwrap();
        let expected = format!(
            "waiting for the names of the client's queue and buffers: {found} came with version {version}, not 3"
        );
        assert_eq!(second(&header(20, version, kind)), expected);
    }
}

#[test]
fn lengths_are_refused_before_anything_is_waited_for() {
    for length in [8, 13, 8205, u32::MAX] {
        let expected = format!(
            "waiting for a client's first message: ShmByPath (type 0) has 14 to 8204 bytes, this one says {length}"
        );
        assert_eq!(refusal(&header(length, 2, 0)), expected);
        let bytes = [encode::exchange(3).to_vec(), header(length, 3, 5)].concat();
        let expected = format!(
            "waiting for the names of the client's queue and buffers: ShmByMemfd (type 5) has 14 to 8204 bytes, \
             this one says {length}"
        );
        assert_eq!(refusal(&bytes), expected);
    }
    assert_eq!(
        refusal(&header(9, 3, 4)),
        "waiting for a client's first message: ExchangeVersion (type 4) has 8 to 8 bytes, this one says 9"
    );
    assert_eq!(
        refusal(&header(7, 2, 0)),
        "waiting for a client's first message: ShmByPath (type 0) has 8 bytes at least, this one says 7"
    );
}

#[test]
fn names_that_do_not_fill_their_message_are_refused() {
    let refused = |body: &[u8]| {
        let length = u32::try_from(8 + body.len()).unwrap();
        refusal(&[header(length, 2, 0), body.to_vec()].concat())
    };
    let queue = |fault: &str| format!("the queue's name in the client's message {fault}");
    let buffer = |fault: &str| format!("the buffers' name in the client's message {fault}");
    assert_eq!(refused(b"\0\x05qqqq"), queue("is longer than the message"));
    assert_eq!(refused(b"\xff\xffqqqq"), queue("is longer than the message"));
    assert_eq!(refused(b"\0\0\0\x02bb"), queue("is empty"));
    assert_eq!(refused(b"\0\x02q\0\0\x01b"), queue("contains a zero"));
    assert_eq!(refused(b"\0\x01\xff\0\x01b"), queue("is not UTF-8"));
    assert_eq!(refused(b"\0\x03qqq\0"), buffer("has no length"));
    assert_eq!(refused(b"\0\x01q\0\x02b"), buffer("is longer than the message"));
    assert_eq!(refused(b"\0\x02qq\0\0"), buffer("is empty"));
    assert_eq!(refused(b"\0\x01q\0\x01b!"), buffer("ends before the message does"));
    assert_eq!(refused(b"\0\x01q\0\x01q"), buffer("is the queue's as well"));
}

#[test]
fn names_of_4096_bytes_are_the_longest() {
    let name = |letter: &str, count| letter.repeat(count);
    let (_, error) = fed(&encode::by_path(2, &name("q", 4096), &name("b", 4096)));
    assert_eq!(error, None);
    let long = encode::by_path(2, &name("q", 4095), &name("b", 4097));
    assert_eq!(
        refusal(&long),
        "the buffers' name in the client's message is longer than is accepted"
    );
    let mut strict = ServerHandshake::new(HandshakeLimits { path_bytes_max: 9 });
    let bytes = encode::by_path(2, "/dev/shm/q", "/dev/shm/b");
    strict.feed(&bytes[..8], 0).unwrap();
    strict.feed(&bytes[8..], 0).unwrap_err();
}

#[test]
fn exactly_two_descriptors_are_accepted_and_only_where_they_belong() {
    for found in [0, 1, 3] {
        let bytes = [encode::exchange(3).to_vec(), encode::by_memfd(3, "q", "b")].concat();
        let (mut server, error) = fed(&bytes);
        assert_eq!(error, None);
        assert!(server.wants_descriptors());
        assert_eq!(server.missing(), 1);
        let error = server.feed(&[0], found).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "waiting for the descriptors of the client's buffers and queue: {found} descriptors came with the \
                 byte, not 2"
            )
        );
    }
    let mut server = server();
    assert!(matches!(server.feed(&[0], 2), Err(NegotiationError::Descriptors { found: 2, .. })));
}

#[test]
fn a_client_refuses_answers_of_another_type_version_or_length() {
    let answers = [encode::exchange(3), encode::ack_ready_recv_fd(3), encode::ack_shm(3)];
    for (index, right) in answers.iter().enumerate() {
        let mut accepted = 0;
        for kind in 0..=10 {
            for version in [0, 1, 2, 3, 4, 255] {
                for length in [8, 9, u32::MAX] {
                    let answer = header(length, version, kind);
                    let mut client = ClientHandshake::new(Mapping::Memfd, &names());
                    for earlier in &answers[..index] {
                        client.feed(earlier).unwrap();
                    }
                    let waiting_for = client.waiting_for();
                    let is_right = answer[..6] == right[..6]
                        && answer[7] == right[7]
                        && (version == 3 || (index == 0 && version > 3));
                    match client.feed(&answer) {
                        Ok(()) => accepted += 1,
                        Err(error) => {
                            assert!(!is_right, "{error}");
                            let start = format!("waiting for {waiting_for}: ");
                            assert!(error.to_string().starts_with(&start), "{error}");
                        }
                    }
                }
            }
        }
        assert_eq!(accepted, if index == 0 { 3 } else { 1 });
    }
    let mut client = ClientHandshake::new(Mapping::Memfd, &names());
    assert_eq!(
        client.feed(&encode::exchange(2)).unwrap_err().to_string(),
        "waiting for the server's version: ExchangeVersion (type 4) came with version 2, not 3 or more (with less, \
         only files can be shared)"
    );
}

#[test]
fn following_traffic_is_not_requested() {
    let mut bytes = encode::by_path(2, "/dev/shm/q", "/dev/shm/b");
    let length = bytes.len();
    bytes.extend_from_slice(&encode::polling(2));
    let mut server = server();
    let mut taken = 0;
    while server.missing() > 0 {
        let next = taken + server.missing();
        server.feed(&bytes[taken..next], 0).unwrap();
        taken = next;
    }
    assert_eq!(taken, length);
    assert!(matches!(server.next(), Some(Step::MapPaths { .. })));
}

#[test]
fn cut_short_it_waits_for_the_rest() {
    let bytes = [encode::exchange(3).to_vec(), encode::by_memfd(3, "q", "b"), vec![0]].concat();
    for count in 0..bytes.len() {
        let (mut server, error) = fed(&bytes[..count]);
        assert_eq!(error, None);
        assert!(server.missing() > 0, "{count}");
        assert!(!server.waiting_for().is_empty());
        while let Some(step) = server.next() {
            assert!(matches!(step, Step::Send(_)), "{count}: {step:?}");
        }
    }
}

#[test]
#[should_panic(expected = "more bytes than were missing")]
fn more_than_is_missing_cannot_be_fed() {
    let _ = server().feed(&[0; 9], 0);
}

#[test]
#[should_panic(expected = "nothing was to be mapped")]
fn nothing_is_mapped_unasked() {
    server().mapped();
}

proptest! {
    #[test]
    fn no_bytes_do_harm(
        good in 0..4_usize,
        patches in vec((0..60_usize, any::<u8>()), 0..4),
        raw in vec(any::<u8>(), 0..100),
        pieces in vec((1..20_usize, 0..4_usize), 1..30),
    ) {
        let mut bytes = match good {
            0 => encode::by_path(2, "/dev/shm/q", "/dev/shm/b"),
            1 => [encode::exchange(3).to_vec(), encode::by_memfd(3, "q", "b")].concat(),
            2 => [encode::exchange(3), encode::ack_ready_recv_fd(3), encode::ack_shm(3)].concat(),
            _ => Vec::new(),
        };
        bytes.extend_from_slice(&raw);
        for (place, value) in patches {
            if let Some(byte) = bytes.get_mut(place) {
                *byte = value;
            }
        }
        let (mut server, mut client) = (server(), ClientHandshake::new(Mapping::Memfd, &names()));
        let (mut for_server, mut for_client) = (&bytes[..], &bytes[..]);
        for (count, descriptors) in pieces.into_iter().cycle().take(200) {
            let (now, after) = for_server.split_at(for_server.len().min(count).min(server.missing()));
            for_server = after;
            let descriptors = if server.wants_descriptors() { descriptors } else { 0 };
            if server.feed(now, descriptors).is_err() {
                for_server = &[];
            }
            while let Some(step) = server.next() {
                if matches!(step, Step::MapPaths { .. } | Step::MapDescriptors { .. }) {
                    server.mapped();
                }
            }
            prop_assert!(server.missing() <= 8204);
            let (now, after) = for_client.split_at(for_client.len().min(count).min(client.missing()));
            for_client = after;
            if client.feed(now).is_err() {
                for_client = &[];
            }
            while client.next().is_some() {}
        }
    }
}

#[test]
fn clients_of_all_versions_are_recognised() {
    for first in [
        encode::by_path(2, "/dev/shm/q", "/dev/shm/b"),
        encode::exchange(3).to_vec(),
        encode::exchange(9).to_vec(),
        b"\0\0\x01\x20\x77\x58\x00\x0a{".to_vec(),
    ] {
        for count in 0..8 {
            assert_eq!(recognises(&first[..count]), Recognition::Incomplete);
        }
        assert_eq!(recognises(&first[..8]), Recognition::Yes);
        assert_eq!(recognises(&first), Recognition::Yes);
    }
}

#[test]
fn nothing_else_is_recognised() {
    for first in [
        b"PARTYWAL\x10\0\0\0\xa0\0\0\0".as_slice(),
        b"GET / HTTP/1.1",
        b"\0\0\0\x08\x77\x58\x03\x01", // a message of an established connection
        b"\0\0\0\x09\x77\x58\x03\x04",
        b"\0\0\0\x0d\x77\x58\x02\x00",
        b"\0\0\x20\x0d\x77\x58\x02\x00",
        b"\0\0\0\x08\x77\x59\x03\x04",
    ] {
        assert_eq!(recognises(first), Recognition::No, "{first:x?}");
    }
    assert_eq!(recognises(b"P"), Recognition::No);
    assert_eq!(recognises(b"\0\0\0\x08\x76"), Recognition::No);
}
