// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the rules of the handshake: the identity of both processes, the order of frames, and
//! deadlines.

use partywall::{
    AcceptError, Admission, Config, ConnectError, HandshakeError, Listener, TransportPolicy,
};
use partywall_layout::hello::{
    FEATURE_SHM, FEATURE_SOCKET, Offer, Ready, TRANSPORT_SHM, TRANSPORT_SOCKET,
};
use partywall_testkit::{Kind, TIMEOUT, soon, variable};
use std::io::{Seek, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

use partywall_testkit::hostile::channel as foe;

fn within(time: Duration) -> Instant {
    Instant::now() + time
}

/// A listener, the path of its socket, and the reasons of the refusals that the listener reported.
struct Home {
    listener: Listener,
    path: PathBuf,
    refused: Arc<Mutex<Vec<String>>>,
    _directory: tempfile::TempDir,
}

impl Home {
    fn new(config: Config) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("home");
        let refused = Arc::new(Mutex::new(Vec::new()));
        let list = Arc::clone(&refused);
        let config = config.on_refused(move |error| list.lock().unwrap().push(error.to_string()));
        let address = format!("unix:{}", path.display());
        let listener = Listener::bind_with(address, &config).unwrap();
        Self { listener, path, refused, _directory: directory }
    }

    /// Lets the listener handle events until it has refused a peer. Returns the reason of the
    /// refusal.
    fn refusal(&mut self) -> String {
        let until = soon();
        while self.refused.lock().unwrap().is_empty() {
            assert!(Instant::now() < until, "nobody was refused");
            let accepted = self.listener.accept_deadline(within(Duration::from_millis(20)));
            assert!(matches!(accepted, Err(AcceptError::TimedOut)), "{accepted:?}");
        }
        self.refused.lock().unwrap().remove(0)
    }
}

#[test]
fn nobody_finishes_the_hello_of_another() {
    let mut home = Home::new(Config::default());
    let wire = foe::Wire::connect(&home.path);
    let hello = foe::hello(FEATURE_SOCKET);
    let (first, rest) = hello.as_bytes().split_at(40);
    assert!(wire.send(first, &[]));
    foe::drive(&mut home.listener);
    // A `cat` process, whose stdout is the socket, copies this file. The kernel attaches the
    // credentials of `cat`, not of this process, to the bytes.
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(rest).unwrap();
    file.rewind().unwrap();
    let socket = wire.socket.try_clone().unwrap().into_fd();
    let status = Command::new("cat").stdin(file).stdout(socket).status().unwrap();
    assert!(status.success());
    let why = home.refusal();
    assert!(why.contains("credentials of HELLO"), "{why}");
}

#[test]
fn a_hello_in_pieces_of_one_process_is_fine() {
    let mut home = Home::new(Config::default());
    let wire = foe::Wire::connect(&home.path);
    let frames = [foe::hello(FEATURE_SOCKET).as_bytes(), Offer::socket(1).as_bytes()].concat();
    for piece in frames.chunks(7) {
        assert!(wire.send(piece, &[]));
        foe::drive(&mut home.listener);
    }
    assert_eq!(wire.receive().0.len(), 128);
}

/// Performs a handshake as a hostile peer, up to the frames OFFER of both sides; the hostile peer's
/// OFFER names only the socket. Returns `None` if the listener's time-out for handshakes passed
/// first.
fn offering(home: &mut Home) -> Option<foe::Wire> {
    let wire = foe::Wire::connect(&home.path);
    assert!(wire.send_hello(&foe::hello(FEATURE_SOCKET | FEATURE_SHM)));
    let is_offer_sent = wire.send(Offer::socket(1).as_bytes(), &[]);
    foe::drive(&mut home.listener);
    let frames = [wire.receive().0.len(), wire.receive().0.len()];
    (frames == [128, 64] && is_offer_sent).then_some(wire)
}

#[test]
fn ready_for_a_shm_that_nobody_offered_breaks_a_rule() {
    for policy in [TransportPolicy::Auto, TransportPolicy::Socket] {
        let mut home = Home::new(Config::default().transport(policy));
        let wire = offering(&mut home).unwrap();
        assert!(wire.send(Ready::new(TRANSPORT_SHM, 0).as_bytes(), &[]));
        let why = home.refusal();
        assert!(why.contains("transport of READY"), "{why}");
        // The listener has already sent READY, so it refuses the peer by closing the connection,
        // without a REJECT.
        assert_eq!(wire.receive().0, Ready::new(TRANSPORT_SOCKET, 1).as_bytes());
        assert!(wire.receive().0.is_empty());
    }
}

#[test]
fn after_ready_a_deadline_hangs_up_without_a_word() {
    // On a busy machine a short time-out may pass before the listener sends READY, so longer ones
    // are tried.
    let ready = [200, 2000, 20_000].into_iter().find_map(|timeout_ms| {
        let timeout = Duration::from_millis(timeout_ms);
        let mut home = Home::new(Config::default().handshake_timeout(timeout));
        let wire = offering(&mut home)?;
        foe::drive(&mut home.listener);
        let is_refused = !home.refused.lock().unwrap().is_empty();
        (!is_refused).then_some((home, wire))
    });
    let (mut home, wire) = ready.expect("it becomes ready");
    let why = home.refusal();
    assert!(why.contains("in time"), "{why}");
    assert_eq!(wire.receive().0, Ready::new(TRANSPORT_SOCKET, 1).as_bytes());
    assert!(wire.receive().0.is_empty());
}

#[test]
fn a_handshake_may_take_for_ever() {
    for kind in Kind::ALL {
        let (mut client, mut server) = kind.pair(|config| config.handshake_timeout(Duration::MAX));
        client.send(b"in time").unwrap();
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), b"in time");
    }
}

/// Input: a client that connects again immediately each time the listener refuses it, so the
/// listener always has events to handle. Expected: `accept_deadline` still returns at its deadline.
#[test]
fn a_flood_of_callers_does_not_hold_up_a_deadline() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("home");
    let until = within(Duration::from_secs(8));
    let call = {
        let path = path.clone();
        move || {
            if Instant::now() < until {
                let mut socket = UnixStream::connect(&path).unwrap();
                socket.write_all(b"?").unwrap();
            }
        }
    };
    let calls_again = call.clone();
    let config = Config::default().on_refused(move |_| calls_again());
    let address = format!("unix:{}", path.display());
    let mut listener = Listener::bind_with(address, &config).unwrap();
    call();
    let began = Instant::now();
    for _ in 0..20 {
        let accepted = listener.accept_deadline(within(Duration::from_millis(10)));
        assert!(matches!(accepted, Err(AcceptError::TimedOut)), "{accepted:?}");
        let accepted = listener.try_accept();
        assert!(matches!(accepted, Err(AcceptError::TimedOut)), "{accepted:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert!(listener.refused() > 20, "{} callers are no flood", listener.refused());
}

const NAME: &str = "PARTYWALL_STRANGERS_NAME";

/// Code of a second process: a process of another user that has bound the abstract name to which
/// the test connects.
#[test]
fn stranger() {
    let Some(address) = variable(NAME) else { return };
    let anybody = Config::default().admit(Admission::callback(|_| Ok(())));
    let mut listener = Listener::bind_with(&address, &anybody).unwrap();
    let _ = listener.accept_deadline(soon());
}

struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn whoever_took_an_abstract_name_is_not_believed() {
    if variable(NAME).is_some() {
        return;
    }
    if partywall_sys::Credentials::of_self().uid != 0 {
        println!("SKIPPED: only root can start a process of another user");
        return;
    }
    // The second process runs as another user, so the test program is copied to a directory where
    // every user may execute it.
    let directory = tempfile::tempdir().unwrap();
    let anybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(directory.path(), anybody).unwrap();
    let program = directory.path().join("stranger");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let address = Kind::SharedMemory.address();
    let mut command = Command::new(program);
    command.args(["--exact", "handshake_rules::stranger"]).env(NAME, &address).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).uid(54_321).gid(54_321);
    let _stranger = Stranger(command.spawn().unwrap());
    let until = within(TIMEOUT);
    let error = loop {
        match partywall::connect(&address) {
            Err(ConnectError::System(_)) if Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => break error,
            Ok(_) => panic!("connected to a stranger"),
        }
    };
    let is_right = matches!(error, ConnectError::Handshake(HandshakeError::NotAdmitted { .. }));
    assert!(is_right, "{error}");
}
