// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that send the record sequences of `spec/sessions` to this implementation, over both
//! transports. The test's peer is the acceptor in one session and the connector in another. The
//! result must be the one that INDEX.md names for the sequence.
#![cfg(feature = "tokio")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use partywall::SessionError;
use partywall_layout::BlobBody;
use partywall_layout::record_ring::{Kind, WireHeader};
use partywall_testkit::hostile::session_home::{SessionHome, keep_all};
use partywall_testkit::hostile::{Role, SessionFoe};
use partywall_testkit::{Watchdog, together};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;
use zerocopy::FromBytes;

/// One record sequence of `spec/sessions`, with its name and its bytes on a socket. `expected` is
/// the result that INDEX.md names, and `is_in_ring` says whether a ring image of it exists, too.
struct Sequence {
    name: String,
    expected: String,
    bytes: Vec<u8>,
    is_in_ring: bool,
}

fn sequences() -> Vec<Sequence> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../spec/sessions");
    let index = std::fs::read_to_string(directory.join("INDEX.md")).unwrap();
    let rows = index.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<(&str, &str)> = rows
        .map(|row| {
            let cells: Vec<&str> = row.split(" | ").collect();
            (cells[0].trim_matches('`'), cells[3].trim_matches('`'))
        })
        .collect();
    let names: BTreeSet<&str> = rows.iter().map(|(name, _)| *name).collect();
    let sockets = rows.iter().filter_map(|(file, expected)| {
        let name = file.strip_suffix(".socket.bin")?;
        let bytes = std::fs::read(directory.join(file)).unwrap();
        let is_in_ring = names.contains(format!("{name}.ring.bin").as_str());
        let (name, expected) = (name.to_owned(), (*expected).to_owned());
        Some(Sequence { name, expected, bytes, is_in_ring })
    });
    sockets.collect()
}

/// Sends the records of a socket image as the hostile peer, over its transport. On a socket all
/// records are sent at once, so that the side under test reads none before all have arrived.
fn send(foe: &mut SessionFoe, bytes: &[u8], is_shared_memory: bool) {
    let (mut rest, mut on_socket) = (bytes, Vec::new());
    while let Ok((header, behind)) = WireHeader::read_from_prefix(rest) {
        let kind = Kind::from_number(u8::try_from(header.word0.get() >> 1 & 31).unwrap()).unwrap();
        let (body, behind) = behind.split_at(header.len.get() as usize);
        let following = match BlobBody::read_from_bytes(body) {
            Ok(blob) if kind == Kind::Blob => usize::try_from(blob.length.get()).unwrap(),
            _ => 0,
        };
        // If a BLOB announces a message that is too long, the sequence ends with the BLOB.
        let (message, behind) = behind.split_at(following.min(behind.len()));
        rest = behind;
        if is_shared_memory {
            foe.send(kind, header.stream.get(), body);
        } else {
            on_socket.extend(foe.on_socket(kind, header.stream.get(), body, message));
        }
    }
    foe.send_bytes(&on_socket);
}

#[test]
fn every_sequence_has_the_outcome_of_its_row() {
    let _together = together();
    let _watchdog = Watchdog::new("session images", Duration::from_secs(120));
    let sequences = sequences();
    assert!(sequences.len() >= 80, "{}", sequences.len());
    let mut wrong = Vec::new();
    for role in Role::ALL {
        let home = SessionHome::new(role);
        let sequences = sequences.iter().filter(|it| it.is_in_ring || !role.is_shared_memory);
        for Sequence { name, expected, bytes, .. } in sequences {
            let (mut foe, session, _ours) = home.in_use();
            keep_all(&home, &session);
            send(&mut foe, bytes, role.is_shared_memory);
            if let Ok(code) = expected.parse::<u32>() {
                let found = home.code(&session);
                if found != code {
                    wrong.push(format!("{name}, {role:?}: not {code} but {found}"));
                }
            } else if name == "closing" {
                let end = home.wait(session.closed());
                let SessionError::ClosedByPeer { code, reason } = end else { panic!("{end}") };
                assert_eq!((code, &*reason), (42, "maintenance"), "{role:?}");
            } else {
                let is_well = foe.ping(77) && foe.receive_answer(77);
                assert!(is_well, "{name}, {role:?}: {:?}", session.close_reason());
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
