// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that end the sessions of client and server in every order, with unread data, held messages
//! and active senders. Earlier messages arrive, every call ends, and held messages stay unchanged.
//! The shared memory is passed as descriptors or as files, over Unix sockets and over TCP.

use crate::support_foe;

use partywall::Config;
use partywall::blocking::{Listener, Session, connect_with_protocol};
use partywall_shmipc::{MemMapType, Shmipc};
use std::sync::Arc;
use std::time::Duration;
use support_foe::{TIMEOUT, address, alone, assert_footprint, footprint, small, soon};

/// How two sessions share their memory, and the kind of address at which they connect.
#[derive(Clone, Copy, Debug)]
enum Transport {
    UnixMemfd,
    UnixFile,
    TcpFile,
}

impl Transport {
    const ALL: [Self; 3] = [Self::UnixMemfd, Self::UnixFile, Self::TcpFile];
}

/// Connects two sessions with a linger time of 200 ms: an ended session waits only so long for a
/// peer that does not read.
fn pair(transport: Transport) -> (Session, Session) {
    pair_with(transport, Duration::from_millis(200))
}

fn pair_with(transport: Transport, linger: Duration) -> (Session, Session) {
    let directory = tempfile::tempdir().unwrap();
    let mem_map_type = match transport {
        Transport::UnixMemfd => MemMapType::MemFd,
        Transport::UnixFile | Transport::TcpFile => MemMapType::DevShmFile,
    };
    let settings = small()
        .mem_map_type(mem_map_type)
        .share_memory_path_prefix(directory.path().join("shm").to_str().unwrap())
        .directory(directory.path())
        .files_without_credentials(matches!(transport, Transport::TcpFile));
    let protocol = Arc::new(Shmipc::new(settings).unwrap());
    let config = Config::default().linger(linger);
    let place = match transport {
        Transport::TcpFile => "tcp:127.0.0.1:0".to_owned(),
        Transport::UnixMemfd | Transport::UnixFile => address(&directory.path().join("s.sock")),
    };
    let mut listener =
        Listener::bind_with(&*place, &config).unwrap().with_protocol(Arc::clone(&protocol) as _);
    let place = listener.local_address().to_string();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect_with_protocol(&*place, &config, protocol).unwrap());
        let server = listener.accept_deadline(soon()).unwrap();
        (connecting.join().unwrap(), server)
    })
}

/// Orders in which the sessions of client and server end. Each pair of values stands for the end of
/// one session. The first value is `true` for the client's session; the second is `true` if the
/// session is dropped instead of closed.
const ORDERS: [&[(bool, bool)]; 6] = [
    &[(true, false), (false, false)],
    &[(false, false), (true, false)],
    &[(true, true), (false, true)],
    &[(false, true), (true, true)],
    &[(true, false), (false, true)],
    &[(false, false), (true, true)],
];

#[test]
fn every_order_with_data_unread_and_messages_held() {
    let _alone = alone();
    let one = |transport: Transport, order: &[(bool, bool)]| {
        let (client, server) = pair(transport);
        let mut out = client.open(&[]).unwrap();
        for len in [5, 5000, 100_000] {
            out.send_deadline(&vec![len as u8; len], soon()).unwrap();
        }
        let mut there = server.accept_deadline(soon()).unwrap().unwrap();
        let held = there.recv_deadline(soon()).unwrap().unwrap();
        let long = there.recv_deadline(soon()).unwrap().unwrap();
        there.send_deadline(&[9; 5000], soon()).unwrap();
        let mut reserved = there.reserve(100).unwrap();
        reserved.fill(1);
        drop(reserved);
        let mut sessions = [Some(server), Some(client)];
        for (is_client, only_drops) in order {
            let session = sessions[usize::from(*is_client)].take().unwrap();
            if !only_drops {
                session.close(0, "");
                session.finished(Some(soon())).unwrap();
            }
            drop(session);
        }
        drop((out, there));
        assert_eq!(held, [5; 5]);
        assert!(*long == [5000_usize as u8; 5000][..]);
    };
    let all = || {
        for transport in Transport::ALL {
            ORDERS.iter().for_each(|order| one(transport, order));
        }
    };
    all();
    let before = footprint();
    for _ in 0..10 {
        all();
    }
    assert_footprint(before);
}

#[test]
fn messages_before_close_of_stream_and_session_arrive() {
    let _alone = alone();
    Transport::ALL.into_iter().for_each(closed_at_once);
}

fn closed_at_once(transport: Transport) {
    for round in 0..50_usize {
        // Both sides read everything, so no session waits for the whole linger time, after which it
        // would drop unsent data. The time is long only for the case of a busy machine.
        let (client, server) = pair_with(transport, TIMEOUT);
        let mut out = client.open(&[]).unwrap();
        for number in 0..20_usize {
            out.send_deadline(&vec![number as u8; 1 + number * round], soon()).unwrap();
        }
        drop(out);
        client.drained(Some(soon())).unwrap();
        client.close(0, "");
        let mut there = server.accept_deadline(soon()).unwrap().unwrap();
        for number in 0..20_usize {
            let message = there.recv_deadline(soon()).unwrap().unwrap();
            assert!(*message == vec![number as u8; 1 + number * round][..]);
        }
        let end = there.recv_deadline(soon());
        assert!(matches!(end, Ok(None)), "{end:?}");
    }
}

#[test]
fn senders_and_receivers_at_work_end_when_either_side_closes() {
    let _alone = alone();
    for round in 0..20 {
        let (client, server) = pair(Transport::ALL[round / 3 % 3]);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                let mut out = client.open(&[]).unwrap();
                scope.spawn(move || while out.send_deadline(&[1; 3000], soon()).is_ok() {});
            }
            for _ in 0..3 {
                let mut there = server.accept_deadline(soon()).unwrap().unwrap();
                scope.spawn(move || while let Ok(Some(_)) = there.recv_deadline(soon()) {});
            }
            match round % 3 {
                0 => client.close(0, ""),
                1 => server.close(0, ""),
                _ => {
                    scope.spawn(|| client.close(0, ""));
                    server.close(0, "");
                }
            }
        });
        client.finished(Some(soon())).unwrap();
        server.finished(Some(soon())).unwrap();
    }
}
