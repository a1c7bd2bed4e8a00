// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with clients that abort the handshake or break its rules. The listener refuses each with a
//! reason, continues to serve, and keeps no descriptor, mapping or file of the client.

use crate::support_foe;

use partywall_shmipc::wire::encode;
use partywall_sys::Socket;
use partywall_sys::shared_file::create_memfd;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::symlink;
use std::process::{ChildStdin, Command, Stdio};
use support_foe::{Foe, Home, Memory, Wire, alone, assert_footprint, footprint};

/// Connects to the listener and performs a client's handshake, up to the message after which the
/// client sends its descriptors. Returns the connection.
fn up_to_descriptors(home: &Home) -> Wire {
    let wire = Wire::connect(&home.path());
    assert!(wire.send(&encode::exchange(3)));
    assert_eq!(wire.receive(8).unwrap().0, encode::exchange(3));
    assert!(wire.send(&encode::by_memfd(3, "/q", "/b")));
    assert_eq!(wire.receive(8).unwrap().0, encode::ack_ready_recv_fd(3));
    wire
}

fn assert_serves(home: &Home) {
    let mut foe = Foe::client(&home.path());
    foe.say(2, b"still there?");
    assert_eq!(foe.hear(), (2, Some(b"still there?".to_vec())));
    drop(foe);
    assert!(!home.end().is_empty());
}

#[test]
fn a_connection_may_end_at_every_byte_of_a_handshake() {
    let _alone = alone();
    let home = Home::new();
    let paths = encode::by_path(2, "/dev/shm/q", "/dev/shm/b");
    let names = encode::by_memfd(3, "/q", "/b");
    let whole = [encode::exchange(3).to_vec(), names].concat();
    for bytes in [&paths, &whole] {
        for count in 0..bytes.len() {
            let wire = Wire::connect(&home.path());
            assert!(wire.send(&bytes[..count]));
        }
    }
    drop(up_to_descriptors(&home));
    let memory = Memory::client(1 << 20, 64, true);
    let wire = up_to_descriptors(&home);
    assert!(wire.send_with(&[0], &[memory.buffer(), memory.queue()]));
    drop(wire);
    assert_serves(&home);
}

#[test]
fn the_fourth_version_is_turned_away_at_once() {
    let _alone = alone();
    let home = Home::new();
    let wire = Wire::connect(&home.path());
    assert!(wire.send(b"\0\0\0\x0a\x77\x58\0\x0a{}"));
    assert!(wire.receive(1).is_none());
    assert!(home.refusal().contains("version 4"));
    assert_serves(&home);
}

#[test]
fn first_messages_that_cannot_be_are_refused() {
    let _alone = alone();
    let home = Home::new();
    let long = "x".repeat(5000);
    let lies: [(Vec<u8>, &str); 9] = [
        (encode::exchange(2).to_vec(), "version 2"),
        (encode::exchange(0).to_vec(), "version 0"),
        (encode::by_path(3, "/dev/shm/q", "/dev/shm/b"), "version 3"),
        (b"\0\0\0\x0e\x77\x58\x02\0\0\x05abcd".to_vec(), "longer than the message"),
        (b"\0\0\0\x0e\x77\x58\x02\0\0\0\0\0\0\0".to_vec(), "empty"),
        (encode::by_path(2, &long, "x")[..].to_vec(), "longer than is accepted"),
        (encode::by_path(2, "/dev/shm/x", "/dev/shm/x"), "the queue's as well"),
        (encode::by_path(2, "/dev/shm/\0", "/dev/shm/x"), "zero"),
        (b"\0\0\0\x0e\x77\x58\x02\0\0\x01\xff\0\x01x".to_vec(), "UTF-8"),
    ];
    for (bytes, expected) in lies {
        let wire = Wire::connect(&home.path());
        wire.send(&bytes);
        let refusal = home.refusal();
        assert!(refusal.contains(expected), "{expected}: {refusal}");
        wire.hears_the_end();
    }
    assert_serves(&home);
}

#[test]
fn every_other_message_in_place_of_the_names_is_refused() {
    let _alone = alone();
    let home = Home::new();
    for kind in (0..=255_u8).filter(|kind| ![0, 5].contains(kind)) {
        let wire = Wire::connect(&home.path());
        assert!(wire.send(&encode::exchange(3)));
        assert!(wire.receive(8).is_some());
        wire.send(&[0, 0, 0, 8, 0x77, 0x58, 3, kind]);
        assert!(!home.refusal().is_empty());
        wire.hears_the_end();
    }
    for length in [0, 7, 8, 13, 9000, 0x7fff_ffff, u32::MAX] {
        let wire = Wire::connect(&home.path());
        assert!(wire.send(&encode::exchange(3)));
        assert!(wire.receive(8).is_some());
        wire.send(&[&u32::to_be_bytes(length)[..], &[0x77, 0x58, 3, 5]].concat());
        assert!(!home.refusal().is_empty());
        wire.hears_the_end();
    }
    assert_serves(&home);
}

/// The writing end of a pipe, as a descriptor that is no memory. It is the stdin of a child
/// process, because the oldest supported Rust can make no other pipes.
fn pipe_of_a_child() -> ChildStdin {
    let mut child = Command::new("true").stdin(Stdio::piped()).spawn().unwrap();
    let pipe = child.stdin.take().unwrap();
    child.wait().unwrap();
    pipe
}

/// Pairs of descriptors, at least one of them wrong, that a client sends as its buffer region and
/// its queue, each with the reason of its refusal.
fn wrong_descriptors(home: &Home) -> Vec<(Vec<OwnedFd>, &'static str)> {
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let memory = Memory::client(1 << 20, 64, true);
    let (buffer, queue) = (|| own(memory.buffer()), || own(memory.queue()));
    let memfd = |size: u64| {
        let fd = create_memfd("odd", 4096).unwrap();
        File::from(fd.try_clone().unwrap()).set_len(size).unwrap();
        fd
    };
    let pipe = || OwnedFd::from(pipe_of_a_child());
    let socket = || Socket::pair().unwrap().0.into_fd();
    let on_disk = || {
        fs::write(home.file("on_disk"), vec![0; 1 << 20]).unwrap();
        OwnedFd::from(File::options().read(true).write(true).open(home.file("on_disk")).unwrap())
    };
    let read_only = || {
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&memory.buffer()));
        OwnedFd::from(File::open(path).unwrap())
    };
    let directory = || OwnedFd::from(File::open(home.directory.path()).unwrap());
    let device =
        || OwnedFd::from(File::options().read(true).write(true).open("/dev/zero").unwrap());
    vec![
        (vec![], "0 descriptors"),
        (vec![buffer()], "1 descriptors"),
        (vec![buffer(), queue(), buffer()], "3 descriptors"),
        ((0..8).map(|_| queue()).collect(), "8 descriptors"),
        (vec![pipe(), queue()], "no regular file"),
        (vec![buffer(), socket()], "no regular file"),
        (vec![directory(), queue()], "no regular file"),
        (vec![device(), queue()], "no regular file"),
        (vec![on_disk(), queue()], "not of a memfd"),
        (vec![read_only(), queue()], "mmap"),
        (vec![memfd(0), queue()], "0 bytes"),
        (vec![buffer(), memfd(0)], "0 bytes"),
        (vec![memfd(u64::from(u32::MAX)), queue()], "at most"),
        (vec![memfd(1 << 40), queue()], "at most"),
        (vec![memfd(4), queue()], ""),
        (vec![memfd(4096), queue()], ""),
        (vec![buffer(), memfd(4)], ""),
        (vec![buffer(), memfd(4096)], ""),
        (vec![queue(), buffer()], ""),
        (vec![buffer(), buffer()], ""),
        (vec![queue(), queue()], ""),
    ]
}

#[test]
fn descriptors_of_the_wrong_number_kind_or_size_are_refused() {
    let _alone = alone();
    let home = Home::new();
    assert_serves(&home);
    let mut before = None;
    for round in 0..10 {
        for (descriptors, expected) in wrong_descriptors(&home) {
            let wire = up_to_descriptors(&home);
            let borrowed: Vec<_> = descriptors.iter().map(|fd| fd.as_fd()).collect();
            assert!(wire.send_with(&[0], &borrowed));
            let refusal = home.refusal();
            assert!(refusal.contains(expected), "{expected}: {refusal}");
            assert!(wire.receive(1).is_none());
        }
        if round == 0 {
            before = Some(footprint());
        }
    }
    assert_footprint(before.unwrap());
    assert_serves(&home);
}

#[test]
fn descriptors_on_any_other_byte_are_refused_or_dropped() {
    let _alone = alone();
    let home = Home::new();
    assert_serves(&home);
    let before = footprint();
    let memory = Memory::client(1 << 20, 64, true);
    let both = [memory.buffer(), memory.queue()];
    for _ in 0..20 {
        let wire = Wire::connect(&home.path());
        wire.send_with(&encode::exchange(3), &both);
        wire.socket.shutdown_write().unwrap();
        wire.hears_the_end();
        let wire = Wire::connect(&home.path());
        assert!(wire.send(&encode::exchange(3)));
        assert!(wire.receive(8).is_some());
        wire.send_with(&encode::by_memfd(3, "/q", "/b"), &both);
        wire.hears_the_end();
        let wire = Wire::connect(&home.path());
        wire.send_with(&encode::by_path(2, "/q", "/b"), &both);
        wire.hears_the_end();
    }
    drop(memory);
    assert_footprint(before);
    assert_serves(&home);
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    let _alone = alone();
    let home = Home::new();
    let elsewhere = tempfile::tempdir().unwrap();
    fs::write(elsewhere.path().join("secret"), vec![0; 4096]).unwrap();
    symlink(elsewhere.path().join("secret"), home.file("link")).unwrap();
    symlink(elsewhere.path(), home.file("up")).unwrap();
    fs::write(home.file("empty"), []).unwrap();
    fs::create_dir(home.file("directory")).unwrap();
    let fifo = home.file("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    File::create(home.file("huge")).unwrap().set_len(1 << 40).unwrap();
    fs::write(home.file("noise"), vec![0xa5; 4096]).unwrap();
    fs::write(home.file("ring"), vec![0; 1584]).unwrap();
    let inside = |name: &str| home.file(name).to_str().unwrap().to_owned();
    let mut paths: Vec<String> =
        ["link", "up/secret", "empty", "directory", "fifo", "huge", "noise", "absent", ".", ".."]
            .map(inside)
            .to_vec();
    paths.push(inside(&format!(
        "../{}/noise",
        home.directory.path().file_name().unwrap().display()
    )));
    paths.extend(["/etc/passwd", "/dev/zero", "/proc/self/mem", "relative", "/"].map(String::from));
    paths.push(elsewhere.path().join("secret").to_str().unwrap().to_owned());
    paths.push(inside("s.sock"));
    for path in &paths {
        for (queue, buffer) in [(path.as_str(), &*inside("ring")), (&*inside("ring"), path)] {
            let wire = Wire::connect(&home.path());
            wire.send(&encode::by_path(2, queue, buffer));
            assert!(wire.receive(1).is_none(), "{path}");
            assert!(!home.refusal().is_empty());
        }
    }
    // Expected: none of the files that the clients named was removed or written.
    for name in ["link", "up", "empty", "directory", "fifo", "huge", "noise", "ring"] {
        assert!(fs::symlink_metadata(home.file(name)).is_ok(), "{name}");
    }
    assert_eq!(fs::read(home.file("noise")).unwrap(), vec![0xa5; 4096]);
    assert_eq!(fs::read(elsewhere.path().join("secret")).unwrap(), vec![0; 4096]);
    assert_serves(&home);
}

/// Input: servers that abort the handshake or break its rules. Expected: the client refuses each of
/// them.
#[test]
fn a_client_gives_up_a_server_that_breaks_the_rules() {
    let _alone = alone();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("s.sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let protocol =
        std::sync::Arc::new(partywall_shmipc::Shmipc::new(support_foe::small()).unwrap());
    let config =
        partywall::Config::default().handshake_timeout(std::time::Duration::from_millis(300));
    let replies: [&[u8]; 9] = [
        b"",
        b"\0\0\0\x08\x77\x58\x03",
        b"\0\0\0\x08\x77\x58\x02\x04",
        b"\0\0\0\x08\x77\x58\x00\x04",
        b"\0\0\0\x08\x77\x58\x03\x07",
        b"\0\0\0\x09\x77\x58\x03\x04",
        b"\xff\xff\xff\xff\x77\x58\x03\x04",
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\0\0\0\x08\x77\x58\x03\x04\0\0\0\x08\x77\x58\x03\x06",
    ];
    // Sends `reply` as the server, then closes the connection if `closes` is true. Returns the
    // client's error. `None` if the client gave up before the reply arrived, as it may on a busy
    // machine.
    let error = |closes: bool, reply: &[u8]| {
        std::thread::scope(|scope| {
            let connecting = scope.spawn(|| {
                partywall::blocking::connect_with_protocol(
                    &*support_foe::address(&path),
                    &config,
                    protocol.clone(),
                )
            });
            let (mut socket, _) = listener.accept().unwrap();
            let is_answered = std::io::Write::write_all(&mut socket, reply).is_ok();
            let kept = (!closes).then_some(socket);
            let error = connecting.join().unwrap().unwrap_err();
            drop(kept);
            is_answered.then_some(error)
        })
    };
    for closes in [true, false] {
        for reply in replies {
            let error = std::iter::repeat_with(|| error(closes, reply)).take(5).flatten().next();
            assert!(!error.expect("it is never answered in time").to_string().is_empty());
        }
    }
}
