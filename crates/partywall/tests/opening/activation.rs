// SPDX-License-Identifier: MIT OR Apache-2.0
//! Test of `Listener::activated`, which adopts a listening socket that another process has made,
//! such as a service manager. A peer connects before the listener adopts the socket.

use partywall::{Begin, Config, Listener, Transport, Trust};
use partywall_sys::poll::{self, PollFd, PollFlags};
use partywall_testkit::{Directory, Second, role, second_process, soon};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::thread;

/// Script of a shell that passes its standard input to a program as a listening socket, as a
/// service manager does: as descriptor 3, with the variables `LISTEN_…`.
const PASSES_ON: &str = "export LISTEN_PID=$$ LISTEN_FDS=1 LISTEN_FDNAMES=app; exec \"$@\" 3<&0";

#[test]
fn peers_of_a_passed_socket_are_identified_by_their_own_messages() {
    let directory = Directory::new();
    let socket = UnixListener::bind(directory.path("app")).unwrap();
    let address = directory.address("app");
    // The first peer connects before the second process adopts the socket and sets its options.
    // Each peer is identified all the same.
    let first = {
        let address = address.clone();
        thread::spawn(move || talk(&address))
    };
    let mut events = [PollFd::new(&socket, PollFlags::IN)];
    assert_eq!(poll::wait(&mut events, Some(soon())).unwrap(), 1, "nobody connects");
    let inner = second_process("activation::service", "service", &[]);
    let mut shell = Command::new("sh");
    shell.args(["-c", PASSES_ON, "sh"]).arg(inner.get_program()).args(inner.get_args());
    shell.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(OwnedFd::from(socket)).stdout(Stdio::null());
    let mut second = Second::spawn(&mut shell);
    first.join().unwrap();
    talk(&address);
    assert!(second.wait().success());
    assert!(directory.path("app").exists(), "the file belongs to the process that made it");
}

/// Connects to the service and sends it the id of this process. The service answers "known" if the
/// kernel reports the same id as that of its peer.
fn talk(address: &str) {
    let config = Config::default().begin(Begin::SharedMemory);
    let mut channel = partywall::connect_with(address, &config).unwrap();
    assert_eq!(channel.transport(), Transport::SharedMemory);
    channel.send(&std::process::id().to_le_bytes()).unwrap();
    assert_eq!(channel.recv_deadline(soon()).unwrap().unwrap(), b"known");
    // The kernel names the second process as the peer, not this process, which called `listen`.
    let service = channel.peer().credentials.unwrap();
    assert_ne!(service.pid.unsigned_abs(), std::process::id());
}

/// Code of the second process, the service: accepts two channels from the socket that was passed to
/// it. The process id that each peer sends must be the one that the channel reports for it.
#[test]
fn service() {
    let Some("service") = role().as_deref() else { return };
    let config = Config::default();
    assert!(Listener::activated("other", &config).is_err());
    let mut listener = Listener::activated("app", &config).unwrap();
    for _ in 0..2 {
        let mut channel = listener.accept_deadline(soon()).unwrap();
        let pid = channel.recv_deadline(soon()).unwrap().unwrap().to_vec();
        let peer = channel.peer();
        assert_eq!(peer.trust, Trust::Trusted, "{peer:?}");
        assert_eq!(peer.credentials.unwrap().pid.unsigned_abs().to_le_bytes()[..], pid);
        channel.send(b"known").unwrap();
        // The peer closes the channel once it has received the answer.
        let _ = channel.recv_deadline(soon());
    }
}

#[test]
fn descriptor_that_does_not_listen_is_refused() {
    let (socket, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let error = Listener::from_descriptor(socket.into(), &Config::default()).unwrap_err();
    assert!(error.to_string().contains("descriptor"), "{error}");
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Listener::from_descriptor(file.into(), &Config::default()).is_err());
}
