// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests that every invalid address, busy listener, impossible setting and exceeded limit has an
//! error of its own, whose text says what to do.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    AcceptError, Address, AddressError, Admission, BindError, Config, ConfigError, ConnectError,
    FallbackReason, HandshakeError, Listener, Refusal, TransportPolicy,
};
use partywall_layout::hello::{Hello, REJECT_TAG};
use partywall_layout::link::frame::{FRAME_HEADER_BYTES, FRAME_MAGIC};
use partywall_testkit::hostile::channel::{BOTH, hello};
use partywall_testkit::hostile::home::Home;
use partywall_testkit::{Directory, Watchdog, millis, within};
use std::fmt::Display;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Checks that the text of an error contains each of `words`.
fn says(error: &impl Display, words: &[&str]) {
    let text = error.to_string();
    for word in words {
        assert!(text.contains(word), "`{text}` does not say `{word}`");
    }
}

/// Connects to `address` with a long time-out, and returns the error: the connection must fail.
fn connect_error(address: &str) -> ConnectError {
    let config = Config::default().handshake_timeout(Duration::from_secs(60));
    partywall::connect_with(address, &config).unwrap_err()
}

#[test]
fn text_that_is_no_address() {
    for (text, words) in [
        ("", "must begin with unix: or tcp:"),
        ("/run/app.sock", "must begin with unix: or tcp:"),
        ("udp:1.2.3.4:5", "must begin with unix: or tcp:"),
        ("unix:", "missing"),
        ("unix:@", "missing"),
        ("unix:a\0b", "zero byte"),
        ("tcp:localhost", "port is missing"),
        ("tcp:localhost:99999", "0 to 65535"),
        ("tcp::80", "host is missing"),
        ("tcp:::1:80", "brackets"),
        ("tcp:[::1:80", "not closed"),
    ] {
        let error = connect_error(text);
        let is_syntax = matches!(error, ConnectError::Address(AddressError::Syntax { .. }));
        assert!(is_syntax, "{text}: {error:?}");
        says(&error, &[words, "write unix:/path, unix:@name or tcp:host:port"]);
        assert!(matches!(Listener::bind(text), Err(BindError::Address(_))));
    }
    let long = format!("unix:/{}", "x".repeat(200));
    let error = connect_error(&long);
    assert!(matches!(error, ConnectError::Address(AddressError::TooLong { .. })), "{error:?}");
    says(&error, &["choose a shorter one"]);
    let error = connect_error("tcp:no-such-host.invalid:1");
    assert!(matches!(error, ConnectError::Address(AddressError::Unresolved { .. })), "{error:?}");
    says(&error, &["cannot be looked up", "check the name"]);
    assert!("unix:/run/app.sock".parse::<Address>().is_ok());
}

#[test]
fn nobody_there() {
    // No other test may start a process meanwhile: until a started process executes its program, it
    // holds the dropped listener's descriptor, and connects would not be refused.
    let _alone = partywall_testkit::alone();
    let place = Directory::new();
    let error = connect_error(&place.address("nobody"));
    let is_missing =
        matches!(&error, ConnectError::System(partywall_sys::ConnectError::NotFound { .. }));
    assert!(is_missing, "{error:?}");
    says(&error, &["does not exist", "is the server running"]);

    drop(UnixListener::bind(place.path("stale")).unwrap());
    // Input: addresses without a listener; the error must say so. For TCP the test uses port 1,
    // where nothing listens. If the test freed a port and used that one, another process could bind
    // it before the connect.
    for address in [&*place.address("stale"), "tcp:127.0.0.1:1", "unix:@nobody-at-all"] {
        let error = connect_error(address);
        let is_refused =
            matches!(&error, ConnectError::System(partywall_sys::ConnectError::Refused { .. }));
        assert!(is_refused, "{error:?}");
        says(&error, &["no server listens", "start it"]);
    }
}

#[test]
fn a_path_that_is_something_else() {
    let place = Directory::new();
    File::create(place.path("file")).unwrap();
    let error = Listener::bind(place.address("file")).unwrap_err();
    assert!(matches!(error, BindError::System(partywall_sys::BindError::NotASocket { .. })));
    says(&error, &["is not a socket", "choose another path"]);
    assert!(place.path("file").exists(), "it is nobody's to remove");
    let error = connect_error(&place.address("file"));
    says(&error, &["is a regular file, not a socket"]);

    let error = Listener::bind(place.address("no/such/directory")).unwrap_err();
    assert!(matches!(error, BindError::System(partywall_sys::BindError::NoDirectory { .. })));
    says(&error, &["create it first"]);

    let _first = Listener::bind(place.address("taken")).unwrap();
    let error = Listener::bind(place.address("taken")).unwrap_err();
    assert!(matches!(error, BindError::System(partywall_sys::BindError::AddressInUse { .. })));
    says(&error, &["in use", "choose another address"]);
    let first = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", first.local_addr().unwrap());
    let error = Listener::bind(address).unwrap_err();
    assert!(matches!(error, BindError::System(partywall_sys::BindError::AddressInUse { .. })));
}

/// Code of a second process, which connects, binds or accepts, either as a user without permission
/// or without a free descriptor. The process writes the text of the error into a file.
#[test]
fn child() {
    let Some(role) = partywall_testkit::role() else { return };
    let address = partywall_testkit::argument("address");
    let text = match &*role {
        "connect" => connect_error(&address).to_string(),
        "bind" => Listener::bind(&*address).unwrap_err().to_string(),
        "crowded connect" => {
            let _rest: Vec<File> = all_descriptors();
            connect_error(&address).to_string()
        }
        "crowded bind" => {
            let _rest: Vec<File> = all_descriptors();
            Listener::bind(&*address).unwrap_err().to_string()
        }
        "crowded accept" => crowded_accept(&address),
        other => panic!("no role {other}"),
    };
    std::fs::write(partywall_testkit::argument("answer"), text).unwrap();
}

fn all_descriptors() -> Vec<File> {
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

/// The second process: `accept` must fail while no descriptor is free. Once descriptors are free,
/// `accept` works again, and times out because no peer performs a handshake.
fn crowded_accept(address: &str) -> String {
    let mut listener = Listener::bind(address).unwrap();
    // A peer connects. Then this process opens files until no descriptor is left to accept the
    // peer.
    let path = address.trim_start_matches("unix:");
    let _knocking = UnixStream::connect(path).unwrap();
    let rest = all_descriptors();
    let error = listener.accept_deadline(within(Duration::from_secs(30))).unwrap_err();
    drop(rest);
    let text = error.to_string();
    let result = listener.accept_deadline(within(millis(50)));
    assert!(matches!(result, Err(partywall::AcceptError::TimedOut)), "{result:?}");
    text
}

/// Runs the second process in a shell that sets its user or limits. Returns the error text that the
/// second process wrote.
fn answer(shell: &str, role: &str, address: &str) -> Option<String> {
    let answers = tempfile::tempdir().unwrap();
    std::fs::set_permissions(answers.path(), PermissionsExt::from_mode(0o777)).unwrap();
    let file = answers.path().join("answer");
    let direct = partywall_testkit::second_process(
        "bad_input::child",
        role,
        &[("address", address), ("answer", file.to_str()?)],
    );
    let mut command = Command::new("sh");
    command.args(["-c", shell, "sh"]).arg(direct.get_program()).args(direct.get_args());
    for (name, value) in direct.get_envs() {
        command.env(name, value?);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().ok()?;
    std::fs::read_to_string(file).ok()
}

/// Returns a shell command that runs a program as a user without permission. If this process does
/// not run as root, the command keeps the user, because this user has no permission either.
fn as_somebody_else() -> Option<&'static str> {
    if partywall_sys::peer::own_euid() != 0 {
        return Some("exec \"$@\"");
    }
    let drop_to_nobody = "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"";
    let works = Command::new("sh").args(["-c", &drop_to_nobody.replace("$@", "true")]).status();
    works.is_ok_and(|status| status.success()).then_some(drop_to_nobody)
}

#[test]
fn no_permission() {
    let _alone = partywall_testkit::alone();
    let Some(shell) = as_somebody_else() else {
        return println!("skipped: root, and no setpriv to be anybody else");
    };
    let place = Directory::new();
    let directory = place.path("");
    std::fs::set_permissions(&directory, PermissionsExt::from_mode(0o755)).unwrap();
    let _listener = Listener::bind(place.address("private")).unwrap();
    std::fs::set_permissions(place.path("private"), PermissionsExt::from_mode(0o0)).unwrap();
    let Some(text) = answer(shell, "connect", &place.address("private")) else {
        return println!("skipped: this test program cannot be run by another user");
    };
    says(&text, &["no permission to connect", "must admit this user"]);

    std::fs::create_dir(place.path("closed")).unwrap();
    let _inner = Listener::bind(place.address("closed/inner")).unwrap();
    std::fs::set_permissions(place.path("closed"), PermissionsExt::from_mode(0o0)).unwrap();
    let text = answer(shell, "connect", &place.address("closed/inner")).unwrap();
    says(&text, &["no permission to connect", "its directories must admit"]);
    let text = answer(shell, "bind", &place.address("closed/other")).unwrap();
    says(&text, &["no permission to listen", "check the directory"]);
    std::fs::set_permissions(place.path("closed"), PermissionsExt::from_mode(0o755)).unwrap();
}

#[test]
fn no_descriptor_left() {
    let _alone = partywall_testkit::alone();
    let _watchdog = Watchdog::new("descriptors", Duration::from_secs(60));
    let place = Directory::new();
    let _listener = Listener::bind(place.address("stage")).unwrap();
    let shell = "ulimit -n 40; exec \"$@\"";
    let text = answer(shell, "crowded connect", &place.address("stage")).unwrap();
    says(&text, &["no file descriptor left", "ulimit -n"]);
    let text = answer(shell, "crowded bind", &place.address("other")).unwrap();
    says(&text, &["no file descriptor left", "ulimit -n"]);
    let text = answer(shell, "crowded accept", &place.address("third")).unwrap();
    says(&text, &["no file descriptor left", "RLIMIT_NOFILE"]);
}

#[test]
fn another_version_in_either_direction() {
    let _alone = partywall_testkit::alone();
    let mut home = Home::new(Config::default());
    let mut later = hello(BOTH);
    later.version_min.set(7);
    later.version_max.set(9);
    let wire = home.wire();
    wire.send_hello(&later);
    let (code, text) = home.reason();
    assert_eq!(code, 204);
    says(&text, &["7 to 9", "2 to 2", "upgrade the older one"]);
    let (rejection, _) = wire.receive();
    assert!(rejection.starts_with(&REJECT_TAG) && rejection[16] == 1);

    // Input: a listener that supports only other versions of the protocol, and answers the client
    // with REJECT or with its own HELLO.
    let place = Directory::new();
    let listener = UnixListener::bind(place.path("later")).unwrap();
    for frame in [rejection, later.as_bytes().to_vec()] {
        let error = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = listener.accept().unwrap().0;
                stream.read_exact(&mut [0; size_of::<Hello>()]).unwrap();
                stream.write_all(&frame).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            connect_error(&place.address("later"))
        });
        match &error {
            ConnectError::Handshake(HandshakeError::Version {
                theirs_min: 7,
                theirs_max: 9,
                ..
            }) => {
                says(&error, &["upgrade the older one"]);
            }
            ConnectError::Handshake(HandshakeError::Refused {
                refusal: Refusal::Version, ..
            }) => {
                says(&error, &["no protocol version in common", "speaks versions 2 to 2"]);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn peer_of_another_protocol_is_named() {
    let place = Directory::new();
    let error_of = |greeting: &'static [u8], echoes: bool, name: &str| {
        let listener = UnixListener::bind(place.path(name)).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut stream = listener.accept().unwrap().0;
                stream.write_all(greeting).unwrap();
                let mut buffer = [0; 1024];
                while let Ok(count @ 1..) = stream.read(&mut buffer) {
                    if echoes && stream.write_all(&buffer[..count]).is_err() {
                        break;
                    }
                }
            });
            // The error of a silent peer is the time-out, which is therefore short. The other
            // errors must come before a time-out, so theirs is long.
            let timeout = millis(if name == "silent" { 500 } else { 60_000 });
            let config = Config::default().handshake_timeout(timeout);
            partywall::connect_with(place.address(name), &config).unwrap_err()
        })
    };
    let error = error_of(b"220 smtp.example ESMTP\r\n", false, "smtp");
    let is_stranger = matches!(error, ConnectError::Handshake(HandshakeError::NotPartywall { .. }));
    assert!(is_stranger, "{error:?}");
    says(&error, &["220 smtp", "is this the right address"]);
    let error = error_of(b"HTTP/1.1 400 Bad Request\r\n\r\n", false, "http");
    says(&error, &["HTTP/1.1", "is this the right address"]);
    let error = error_of(b"\0\0\0\x08wX\x03\x04", false, "shmipc");
    says(&error, &["it uses shmipc", "use connect_with_protocol"]);
    // Input: a peer that echoes every byte, so it seems to send the HELLO of this protocol. Without
    // a check for an echo, the connecting side would agree with it on the socket transport.
    let error = error_of(b"", true, "echo");
    let is_stranger = matches!(error, ConnectError::Handshake(HandshakeError::NotPartywall { .. }));
    assert!(is_stranger, "{error:?}");
    says(&error, &["our own words", "is this the right address"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("tcp:{}", listener.local_addr().unwrap());
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut input, mut output) = {
                let stream = listener.accept().unwrap().0;
                (stream.try_clone().unwrap(), stream)
            };
            let _ = std::io::copy(&mut input, &mut output);
        });
        connect_error(&address)
    });
    says(&error, &["our own words"]);
    // Input: a peer that accepts the connection and sends nothing. Expected: a time-out, whose text
    // names the setting of that time.
    let error = error_of(b"", false, "silent");
    let is_late = matches!(error, ConnectError::Handshake(HandshakeError::TimedOut { .. }));
    assert!(is_late, "{error:?}");
    says(&error, &["is it Partywall, is it alive", "handshake_timeout"]);
    // Input: a peer that accepts the connection and closes it at once. Expected: the error says
    // that the peer hung up, and refers to the peer's log.
    let listener = UnixListener::bind(place.path("shy")).unwrap();
    let error = std::thread::scope(|scope| {
        scope.spawn(|| drop(listener.accept().unwrap()));
        connect_error(&place.address("shy"))
    });
    assert!(matches!(error, ConnectError::Handshake(HandshakeError::HungUp { .. })), "{error:?}");
    says(&error, &["look at its own log"]);
    // The foreign protocol shmipc has only sessions, so the error of a channel must not recommend
    // the feature `shmipc`.
    assert!(!error.to_string().contains("shmipc"), "{error}");
}

#[test]
fn client_of_a_link_is_named_by_a_listener_of_channels() {
    let place = Directory::new();
    let (refused, texts) = std::sync::mpsc::channel();
    let config = Config::default().on_refused(move |error| {
        refused.send(error.to_string()).unwrap();
    });
    let mut listener = Listener::bind_with(place.address("app"), &config).unwrap();
    let mut stream = UnixStream::connect(place.path("app")).unwrap();
    let header = [0; FRAME_HEADER_BYTES];
    let attach = [&header[..], &FRAME_MAGIC, &[0; 64]].concat();
    stream.write_all(&attach).unwrap();
    let until = within(millis(60_000));
    let text = loop {
        let accepted = listener.accept_deadline(within(millis(20)));
        assert!(matches!(accepted, Err(AcceptError::TimedOut)), "{accepted:?}");
        if let Ok(text) = texts.try_recv() {
            break text;
        }
        assert!(Instant::now() < until, "the listener refuses nobody");
    };
    assert!(text.contains("it asks for a link; this listener serves channels"), "{text}");
}

#[test]
fn an_address_that_others_can_reach() {
    let error = Listener::bind("tcp:0.0.0.0:0").unwrap_err();
    assert!(matches!(error, BindError::NotLoopback { .. }), "{error:?}");
    says(&error, &["neither authenticated nor encrypted", "allow_remote(true)"]);
    assert!(Listener::bind("tcp:127.0.0.1:0").is_ok());
    assert!(Listener::bind_with("tcp:0.0.0.0:0", &Config::default().allow_remote(true)).is_ok());
}

/// Connects with the settings `connecting` to a listener with the settings `listening`, and the
/// handshake must fail. Returns the errors of the listener and of the connecting side.
fn both_errors(listening: Config, connecting: &Config) -> (HandshakeError, String) {
    let (place, end) = (Directory::new(), within(millis(60_000)));
    let refused = Arc::new(Mutex::new(Vec::new()));
    let list = Arc::clone(&refused);
    let listening = listening.on_refused(move |error| list.lock().unwrap().push(error.to_string()));
    let mut listener = Listener::bind_with(place.address("stage"), &listening).unwrap();
    let address = place.address("stage");
    let error = std::thread::scope(|scope| {
        let client = scope.spawn(|| partywall::connect_with(&address, connecting).unwrap_err());
        while (!client.is_finished() || refused.lock().unwrap().is_empty()) && Instant::now() < end
        {
            assert!(listener.accept_deadline(within(millis(10))).is_err());
        }
        client.join().unwrap()
    });
    let ConnectError::Handshake(error) = error else { panic!("{error:?}") };
    let refused = refused.lock().unwrap().join("; ");
    (error, refused)
}

#[test]
fn somebody_who_is_not_admitted() {
    let rules = [
        (Admission::users([54_321]), "is not on the list"),
        (Admission::callback(|_| Err("come back tomorrow".to_owned())), "come back tomorrow"),
    ];
    for (rule, reason) in rules {
        let (theirs, ours) = both_errors(Config::default().admit(rule), &Config::default());
        let is_refused =
            matches!(theirs, HandshakeError::Refused { refusal: Refusal::Admission, .. });
        assert!(is_refused, "{theirs:?}");
        says(&theirs, &[reason, "not admitted"]);
        says(&ours, &[reason, "is not admitted", "Config::admit"]);
    }
}

#[test]
fn transports_that_do_not_agree() {
    let shm = Config::default().transport(TransportPolicy::SharedMemory);
    let socket = Config::default().transport(TransportPolicy::Socket);
    let pairs = [(shm.clone(), socket.clone()), (socket, shm.clone())];
    for (listening, connecting) in pairs {
        let (theirs, ours) = both_errors(listening, &connecting);
        let is_named = matches!(
            theirs,
            HandshakeError::Refused { refusal: Refusal::Transport, .. }
                | HandshakeError::NoTransport { reason: FallbackReason::Policy }
        );
        assert!(is_named, "{theirs:?}");
        says(&theirs, &["no transport", "the configuration asks for the socket"]);
        says(
            &ours,
            &["no transport", "the configuration asks for the socket", "TransportPolicy::Auto"],
        );
    }
    let error = {
        let listener = Listener::bind("tcp:127.0.0.1:0").unwrap();
        let address = listener.local_address().to_string();
        std::thread::scope(|scope| {
            let client = scope.spawn(move || partywall::connect_with(&address, &shm).unwrap_err());
            let mut listener = listener;
            while !client.is_finished() {
                let _ = listener.accept_deadline(within(millis(10)));
            }
            client.join().unwrap()
        })
    };
    says(&error, &["no transport", "TCP"]);
}

#[test]
fn settings_that_cannot_be() {
    let place = Directory::new();
    let ring = "a power of two from 4096 to 1073741824";
    let entries = "a power of two from 8 to 1048576";
    let cases: [(Config, &str, &str); 10] = [
        (Config::default().ring_bytes(0), "ring_bytes", ring),
        (Config::default().ring_bytes(2048), "ring_bytes", ring),
        (Config::default().ring_bytes(5000), "ring_bytes", ring),
        (Config::default().ring_bytes(1 << 31), "ring_bytes", ring),
        (Config::default().peer_blocks_max(0), "peer_blocks_max", entries),
        (Config::default().peer_blocks_max(7), "peer_blocks_max", entries),
        (Config::default().peer_blocks_max(1 << 21), "peer_blocks_max", entries),
        (Config::default().inline_max(16_385), "inline_max", "a quarter of ring_bytes"),
        (Config::default().inline_max(usize::MAX), "inline_max", "a quarter of ring_bytes"),
        (Config::default().handshakes_max(0), "handshakes_max", "at least 1"),
    ];
    for (config, setting, wanted) in cases {
        let error = Listener::bind_with(place.address("stage"), &config).unwrap_err();
        let BindError::Config(ConfigError { setting: named, .. }) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(*named, setting);
        says(&error, &[setting, wanted]);
        let error = partywall::connect_with(place.address("stage"), &config).unwrap_err();
        assert!(matches!(error, ConnectError::Config(_)), "{error:?}");
    }
}
