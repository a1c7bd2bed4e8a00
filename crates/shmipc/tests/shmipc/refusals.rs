// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the errors after wrong use: only one side uses the protocol, a message is too long, or
//! the wrong side opens a stream. Each error names the setting to change, or the side that made the
//! mistake, and names it only once.

use partywall::blocking::{Listener, Session, connect_with, connect_with_protocol};
use partywall::{BackPressure, Config, ConnectError, OpenError, SessionError};
use partywall_shmipc::{MemMapType, Shmipc};
use std::error::Error;
use std::io::Read;
use std::os::unix::net::UnixListener;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn connect(address: &str, config: &Config) -> Result<Session, ConnectError> {
    connect_with_protocol(address, config, Arc::new(Shmipc::default()))
}

fn pair(directory: &tempfile::TempDir, config: &Config) -> (Session, Session) {
    let address = format!("unix:{}/s.sock", directory.path().display());
    let mut listener =
        Listener::bind(&*address).unwrap().with_protocol(Arc::new(Shmipc::default()));
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept_deadline(soon()).unwrap());
        (connect(&address, config).unwrap(), accepting.join().unwrap())
    })
}

/// Asserts that no text of `error` and its sources contains the text of another of them.
fn says_once(error: &dyn Error) {
    let whole = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        assert!(!whole.contains(&inner.to_string()), "{whole}, and again: {inner}");
        source = inner.source();
    }
}

#[test]
fn listener_without_protocol_names_what_to_configure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let address = format!("unix:{}", path.display());
    let (tell, refusals) = mpsc::channel();
    let config = Config::default().on_refused(move |error| {
        let _ = tell.send(error.to_string());
    });
    let mut listener = Listener::bind_with(&*address, &config).unwrap();
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| connect(&address, &Config::default()).unwrap_err());
        // The test calls `accept` repeatedly, because the listener detects and reports a refused
        // connection only during such a call.
        let mut refused = None;
        while refused.is_none() {
            assert!(listener.accept_deadline(Instant::now() + Duration::from_millis(50)).is_err());
            refused = refusals.try_recv().ok();
        }
        let refused = refused.unwrap();
        assert!(
            refused.contains("it uses shmipc: give the listener of sessions that protocol"),
            "{refused}"
        );
        let process = format!("process {} of user ", std::process::id());
        assert!(refused.starts_with(&process), "{refused}");
        assert!(refused.contains(&format!(" (client of {address}) ")), "{refused}");
        let error = connecting.join().unwrap();
        assert!(error.to_string().contains("without the protocol (connect_with)"), "{error}");
        says_once(&error);
    });
}

#[test]
fn client_without_protocol_names_what_to_configure() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let error = std::thread::scope(|scope| {
        // The test acts as a shmipc server, and closes the connection after eight bytes, as such a
        // server does for an unknown message.
        scope.spawn(|| listener.accept().unwrap().0.read_exact(&mut [0; 8]).unwrap());
        connect_with(&*format!("unix:{}", path.display()), &Config::default()).unwrap_err()
    });
    assert!(error.to_string().contains("if it is a server of shmipc"), "{error}");
    assert!(error.to_string().contains("use connect_with_protocol"), "{error}");
}

#[test]
fn only_the_connecting_side_opens_streams() {
    let directory = tempfile::tempdir().unwrap();
    let (client, server) = pair(&directory, &Config::default());
    let error = server.open(&[]).unwrap_err();
    let is_unsupported = matches!(error, OpenError::Session(SessionError::Unsupported { .. }));
    assert!(is_unsupported && error.to_string().contains("of the connecting side"), "{error}");
    // In shmipc a server cannot open streams, so a client's call of `accept` fails at once.
    let error = client.accept().unwrap_err();
    assert!(matches!(error, SessionError::Unsupported { .. }), "{error}");
    assert!(error.to_string().contains("of the connecting side"), "{error}");
    // The sessions of client and server must still work after the calls that failed.
    let mut stream = client.open(&[]).unwrap();
    stream.send(b"there").unwrap();
    let mut accepted = server.accept_deadline(soon()).unwrap().unwrap();
    assert_eq!(accepted.recv_deadline(soon()).unwrap().unwrap(), b"there");
    // Expected after the session's end: `accept` reports the end of the session, and opening a
    // stream returns an error with the reason.
    drop((stream, accepted));
    client.close(0, "");
    assert!(matches!(client.accept(), Ok(None)));
    let opened = client.open(&[]);
    let is_closed = matches!(opened, Err(OpenError::Session(SessionError::ClosedHere { .. })));
    assert!(is_closed, "{opened:?}");
}

#[test]
fn a_message_beyond_the_region_names_its_size() {
    let directory = tempfile::tempdir().unwrap();
    let (client, _server) = pair(&directory, &Config::default().back_pressure(BackPressure::Error));
    let mut stream = client.open(&[]).unwrap();
    let error = stream.send(&vec![1; 40 << 20]).unwrap_err();
    assert!(error.to_string().contains("share_memory_buffer_cap"), "{error}");
}

#[test]
fn why_a_handshake_failed_is_said_once() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    let error = connect(&address, &Config::default()).unwrap_err();
    assert!(error.to_string().contains("MemMapType::DevShmFile"), "{error}");
    says_once(&error);
    let config = partywall_shmipc::Config::default().mem_map_type(MemMapType::DevShmFile);
    let error = Shmipc::new(config.share_memory_path_prefix("/dev/shm/")).unwrap_err();
    assert!(error.to_string().contains("names no file"), "{error}");
    says_once(&error);
}
