// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that a stale socket file is replaced, but never the socket file of a live listener or any
//! other file, and that a socket file is removed only by the listener that created it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

use crate::support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::sync::Barrier;
use std::thread;

use partywall_sys::{BindError, Listener, connect_unix_abstract, connect_unix_path};
use support::{Directory, deadline};

fn listen(path: &Path) -> Result<Listener, BindError> {
    Listener::listen_unix_path(path, 0o600, 4)
}

/// Leaves a socket file at `path`, as a killed process would leave it.
fn leave_stale(path: &Path) {
    drop(UnixListener::bind(path).unwrap());
    assert!(path.exists());
}

#[test]
fn stale_socket_is_replaced_and_removed_with_listener() {
    let directory = Directory::new();
    let path = directory.join("socket");
    leave_stale(&path);
    let listener = listen(&path).unwrap();
    assert_eq!(listener.label(), format!("unix:{}", path.display()));
    connect_unix_path(&path, deadline()).unwrap();
    drop(listener);
    assert!(!path.exists());
}

#[test]
fn live_socket_with_full_backlog_is_not_replaced() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let listener = Listener::listen_unix_path(&path, 0o600, 0).unwrap();
    for _ in 0..3 {
        // Each attempt to listen first connects to the path, to check whether the socket there is
        // stale. The first such connection fills the backlog of the live listener.
        let error = listen(&path).unwrap_err();
        assert!(matches!(error, BindError::AddressInUse { .. }), "{error}");
    }
    assert!(listener.accept().unwrap().is_some());

    let datagram = directory.join("datagram");
    let _live = UnixDatagram::bind(&datagram).unwrap();
    assert!(matches!(listen(&datagram), Err(BindError::AddressInUse { .. })));
}

#[test]
fn file_other_than_socket_is_never_deleted() {
    let directory = Directory::new();
    let file = directory.join("file");
    fs::write(&file, "precious").unwrap();
    let stale = directory.join("stale");
    leave_stale(&stale);
    let link = directory.join("link");
    symlink(&stale, &link).unwrap();
    let inner = directory.join("directory");
    fs::create_dir(&inner).unwrap();
    for path in [&file, &link, &inner] {
        let error = listen(path).unwrap_err();
        assert!(matches!(&error, BindError::NotASocket { path: p } if p == path), "{error}");
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn path_is_removed_only_by_its_listener() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let first = listen(&path).unwrap();
    fs::remove_file(&path).unwrap();
    let second = listen(&path).unwrap();
    drop(first);
    connect_unix_path(&path, deadline()).unwrap();
    drop(second);
    assert!(!path.exists());
}

#[test]
fn waiting_connections_are_accepted_after_path_removal() {
    let directory = Directory::new();
    let path = directory.join("socket");
    let mut listener = listen(&path).unwrap();
    let _client = connect_unix_path(&path, deadline()).unwrap();
    listener.remove_path();
    assert!(!path.exists());
    assert!(listener.accept().unwrap().is_some());
}

#[test]
fn socket_mode_ignores_umask() {
    let directory = Directory::new();
    for mode in [0o600, 0o660, 0o666] {
        let path = directory.join(&format!("socket-{mode:o}"));
        let _listener = Listener::listen_unix_path(&path, mode, 4).unwrap();
        let permissions = fs::metadata(&path).unwrap().permissions();
        assert_eq!(permissions.mode() & 0o7777, mode);
    }
}

#[test]
fn one_of_many_listeners_replaces_stale_socket() {
    const STARTERS: usize = 8;
    const BACKLOG: i32 = 16;
    for _ in 0..20 {
        let directory = Directory::new();
        let path = directory.join("socket");
        leave_stale(&path);
        let start = Barrier::new(STARTERS);
        let listeners: Vec<Listener> = thread::scope(|scope| {
            let start_one = || {
                start.wait();
                // Each later listener connects to the path, to check whether the socket is stale.
                // The backlog of the listener that has claimed the path has room for all such
                // connections.
                Listener::listen_unix_path(&path, 0o600, BACKLOG).ok()
            };
            let starters: Vec<_> = (0..STARTERS).map(|_| scope.spawn(start_one)).collect();
            starters.into_iter().filter_map(|starter| starter.join().unwrap()).collect()
        });
        assert_eq!(listeners.len(), 1);
        connect_unix_path(&path, deadline()).unwrap();
        assert!(listeners[0].accept().is_ok());
    }
}

#[test]
fn bind_errors_name_the_cause() {
    let directory = Directory::new();
    let missing = directory.join("missing/socket");
    assert!(matches!(listen(&missing), Err(BindError::NoDirectory { .. })));
    let long = directory.join(&"x".repeat(120));
    assert!(matches!(listen(&long), Err(BindError::NameTooLong { .. })));

    let name = format!("partywall-sys-{}", std::process::id());
    let _listener = Listener::listen_unix_abstract(&name, 4).unwrap();
    let again = Listener::listen_unix_abstract(&name, 4);
    assert!(matches!(again, Err(BindError::AddressInUse { .. })));
    let client = connect_unix_abstract(&name, deadline()).unwrap();
    assert_eq!(client.peer_label(), format!("unix:@{name}"));
}
