// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests with hostile peers of a connection that may move to shared memory (SPEC 8.5). The hostile
//! peer, called the foe, breaks one rule of the move or stops at one of its steps. The other side
//! is called the victim.
//!
//! ```text
//!   foe ── HELLO with MOVE ──▶ victim     the connection runs on the socket
//!       ── MOVE, descriptor ──▶           second handshake on the foe's pair
//!       ── SWITCH ────────────▶           ends by a violation, or goes on on the socket
//! ```
#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]
#![allow(clippy::cast_possible_truncation, reason = "numbers of tests are small")]

use partywall::{
    Begin, Channel, Config, FallbackReason, Fault, Listener, RecvError, SendError, Transport,
    TrustPolicy,
};
use partywall_layout::hello::{
    FEATURE_MOVE, Hello, Offer, REGION_ALONE, ROLE_ACCEPTOR, ROLE_CONNECTOR, Ready, TRANSPORT_SHM,
    TRANSPORT_SOCKET,
};
use partywall_layout::{Kind, Position, RecordHeader};
use partywall_sys::process::Process;
use partywall_sys::{Doorbell, Socket};
use partywall_testkit::hostile::channel::{BOTH, Wire, hello, region, small_geometry};
use partywall_testkit::hostile::home::pipe;
use partywall_testkit::{Directory, alone, millis, soon, together, until, within};
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;
use zerocopy::little_endian::U64;
use zerocopy::{FromBytes, IntoBytes};

/// A hostile connector, and the acceptor that it attacks. Their connection has begun on the socket.
struct MovingFoe {
    wire: Wire,
    hello: Hello,
    position: Position,
    victim: Channel,
    _listener: Listener,
    _place: Directory,
}

impl MovingFoe {
    fn meet() -> Self {
        let place = Directory::new();
        let mut listener = Listener::bind(place.address("move")).unwrap();
        let wire = Wire::connect(&place.path("move"));
        let hello = hello(BOTH | FEATURE_MOVE);
        // The kernel attaches the credentials of this process to the bytes of HELLO, because the
        // listener has requested them.
        assert!(wire.send(hello.as_bytes(), &[]));
        let victim = listener.accept_deadline(soon()).unwrap();
        let (answer, _) = wire.receive();
        let answer = Hello::read_from_prefix(&answer).unwrap().0;
        assert_eq!(answer.features.get(), BOTH | FEATURE_MOVE);
        Self { wire, hello, position: Position(0), victim, _listener: listener, _place: place }
    }

    /// Sends one record on the socket; `descriptors` arrive with its first byte.
    fn record(&mut self, kind: Kind, payload: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let (position, len) = (self.position, payload.len() as u32);
        let header = RecordHeader { position, kind, len, stream: 0 };
        let bytes = [header.to_wire().as_bytes(), payload].concat();
        assert!(self.wire.send(&bytes, descriptors));
        self.position = position.plus(header.footprint());
    }

    /// Sends MOVE with one end of a new pair. Returns the other end.
    fn begin(&mut self) -> Wire {
        let (ours, theirs) = Socket::pair().unwrap();
        self.record(Kind::Move, &[], &[theirs.as_fd()]);
        Wire::new(ours)
    }

    /// Returns the HELLO that an honest connector sends in the second handshake.
    fn second_hello(&self) -> Hello {
        Hello { features: U64::new(BOTH), ..self.hello }
    }

    /// Sends HELLO and OFFER, the connector's first frames of the second handshake, over the pair.
    fn offer(&self, pair: &Wire, hello: &Hello) {
        let geometry = small_geometry();
        let memory = region(&geometry, self.hello.nonce, ROLE_CONNECTOR);
        let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
        let frames = [hello.as_bytes(), offer.as_bytes()].concat();
        assert!(pair.send(&frames, &[memory.as_fd()]));
    }

    /// Checks that the connection still works: the attacked acceptor receives a message on the
    /// socket and answers it.
    fn goes_on(&mut self) {
        self.record(Kind::Data, b"on the socket", &[]);
        assert_eq!(self.victim.recv_deadline(soon()).unwrap().unwrap(), b"on the socket");
        self.victim.send(b"answer").unwrap();
    }

    fn stays(&mut self, reason: FallbackReason) {
        for _ in 0..3 {
            self.goes_on();
        }
        assert_eq!(self.victim.transport(), Transport::Socket(reason));
    }

    /// Checks that the attacked acceptor ends the connection by the violation `number`.
    fn ends_by(mut self, number: u32) {
        let error = self.victim.recv_deadline(soon());
        let Err(RecvError::Fault(Fault::Violation { violation, .. })) = &error else {
            panic!("{error:?}")
        };
        assert_eq!(violation.code(), number, "{violation}");
        let sent = self.victim.send(b"after the violation");
        assert!(matches!(sent, Err(SendError::Fault(_) | SendError::Closed(_))), "{sent:?}");
        // The attacked acceptor has shut the socket down, so the hostile connector reads its end.
        until("the socket is shut down", || {
            self.wire.socket.read(&mut [0; 64], true).is_ok_and(|count| count == 0)
        });
    }
}

const FRAME: u32 = 15;
const UNEXPECTED: u32 = 4;
const BODY: u32 = 7;
/// The stable error number of a handshake that failed by a violation (SPEC 17).
const HANDSHAKE_VIOLATION: u32 = 209;

#[test]
fn move_needs_one_end_of_a_pair() {
    let _together = together();
    let mut none = MovingFoe::meet();
    none.record(Kind::Move, &[], &[]);
    none.ends_by(FRAME);
    let place = Directory::new();
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = std::net::TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
    let others: [OwnedFd; 6] = [
        pipe(),
        std::fs::File::open("/dev/null").unwrap().into(),
        UnixListener::bind(place.path("listening")).unwrap().into(),
        UnixDatagram::unbound().unwrap().into(),
        tcp.into(),
        connected.into(),
    ];
    for descriptor in others {
        let mut foe = MovingFoe::meet();
        foe.record(Kind::Move, &[], &[descriptor.as_fd()]);
        foe.ends_by(FRAME);
    }
    let doorbell = Doorbell::new().unwrap();
    let mut foe = MovingFoe::meet();
    foe.record(Kind::Move, &[], &[doorbell.as_fd()]);
    foe.ends_by(FRAME);
    let mut two = MovingFoe::meet();
    let (one, other) = Socket::pair().unwrap();
    two.record(Kind::Move, &[], &[one.as_fd(), other.as_fd()]);
    two.ends_by(FRAME);
}

#[test]
fn descriptor_that_comes_with_another_record_is_refused() {
    let _together = together();
    for next in [Kind::Move, Kind::Data] {
        let mut foe = MovingFoe::meet();
        let (_ours, theirs) = Socket::pair().unwrap();
        foe.record(Kind::Data, b"early", &[theirs.as_fd()]);
        foe.record(next, &[], &[]);
        assert_eq!(foe.victim.recv_deadline(soon()).unwrap().unwrap(), b"early");
        foe.ends_by(FRAME);
    }
}

#[test]
fn records_of_the_move_out_of_order_are_refused() {
    let _together = together();
    let mut early = MovingFoe::meet();
    early.record(Kind::Switch, &[], &[]);
    early.ends_by(UNEXPECTED);

    let mut again = MovingFoe::meet();
    let _pair = again.begin();
    again.goes_on();
    let _second = again.begin();
    again.ends_by(UNEXPECTED);

    let mut before_offer = MovingFoe::meet();
    let _pair = before_offer.begin();
    before_offer.record(Kind::Switch, &[], &[]);
    before_offer.ends_by(UNEXPECTED);

    let mut before_ready = MovingFoe::meet();
    let pair = before_ready.begin();
    before_ready.offer(&pair, &before_ready.second_hello());
    before_ready.goes_on();
    before_ready.record(Kind::Switch, &[], &[]);
    before_ready.ends_by(UNEXPECTED);

    let mut payload = MovingFoe::meet();
    let (_ours, theirs) = Socket::pair().unwrap();
    payload.record(Kind::Move, b"x", &[theirs.as_fd()]);
    payload.ends_by(BODY);
}

#[test]
fn descriptors_with_other_records_are_bounded() {
    let _together = together();
    let mut foe = MovingFoe::meet();
    let doorbell = Doorbell::new().unwrap();
    foe.record(Kind::Data, b"one", &[doorbell.as_fd()]);
    assert_eq!(foe.victim.recv_deadline(soon()).unwrap().unwrap(), b"one");
    foe.record(Kind::Data, b"two", &[doorbell.as_fd()]);
    foe.ends_by(FRAME);
}

#[test]
fn foe_that_stops_within_the_move_delays_no_message() {
    let _together = together();
    // The hostile connector sends nothing over the pair. The acceptor stays on the socket, and its
    // messages arrive.
    let mut silent = MovingFoe::meet();
    let pair = silent.begin();
    silent.stays(FallbackReason::NotMoved);
    drop(pair);
    silent.stays(FallbackReason::Abandoned);

    // The hostile connector sends HELLO and a part of OFFER over the pair. The acceptor stays on
    // the socket, and its messages arrive.
    let mut half = MovingFoe::meet();
    let pair = half.begin();
    let frames = [half.second_hello().as_bytes(), &Offer::socket(1).as_bytes()[..20]].concat();
    assert!(pair.send(&frames, &[]));
    half.stays(FallbackReason::NotMoved);
    drop(pair);
    half.stays(FallbackReason::Abandoned);

    // The hostile connector receives the acceptor's region, and never sends READY. The acceptor
    // stays on the socket, and its messages arrive.
    let mut unready = MovingFoe::meet();
    let pair = unready.begin();
    unready.offer(&pair, &unready.second_hello());
    unready.goes_on();
    let _hello = pair.receive();
    let (_offer, descriptors) = pair.receive();
    assert_eq!(descriptors.len(), 1);
    unready.stays(FallbackReason::NotMoved);
    drop(pair);
    unready.stays(FallbackReason::Abandoned);
}

#[test]
fn foe_that_gives_the_move_up_leaves_the_connection_on_the_socket() {
    let _together = together();
    let mut refusing = MovingFoe::meet();
    let pair = refusing.begin();
    let frames = [refusing.second_hello().as_bytes(), Offer::socket(4).as_bytes()].concat();
    assert!(pair.send(&frames, &[]));
    refusing.goes_on();
    for _ in 0..3 {
        let _frame = pair.receive();
    }
    assert!(pair.send(Ready::new(TRANSPORT_SOCKET, 4).as_bytes(), &[]));
    refusing.stays(FallbackReason::Memory);

    let mut late = MovingFoe::meet();
    let pair = late.begin();
    late.offer(&pair, &late.second_hello());
    late.goes_on();
    for _ in 0..3 {
        let _frame = pair.receive();
    }
    assert!(pair.send(Ready::new(TRANSPORT_SOCKET, 7).as_bytes(), &[]));
    late.stays(FallbackReason::Map);
}

#[test]
fn second_handshake_repeats_the_first_hello() {
    let _together = together();
    let other_nonce = |hello: Hello| Hello { nonce: [9; 16], ..hello };
    let with_move = |hello: Hello| Hello { features: U64::new(BOTH | FEATURE_MOVE), ..hello };
    let other_service = |hello: Hello| Hello { service: 9.into(), ..hello };
    let second = MovingFoe::meet().second_hello();
    let changed =
        [(other_nonce(second), true), (with_move(second), true), (other_service(second), false)];
    for (hello, is_violation) in changed {
        let mut foe = MovingFoe::meet();
        let pair = foe.begin();
        foe.offer(&pair, &hello);
        if is_violation {
            foe.ends_by(FRAME);
        } else {
            foe.stays(FallbackReason::Abandoned);
        }
    }
}

#[test]
fn hostile_region_of_the_move_is_refused() {
    let _together = together();
    let geometry = small_geometry();
    let nonce = hello(BOTH).nonce;
    let regions = [
        (region(&geometry, [1; 16], ROLE_CONNECTOR), geometry.region_bytes),
        (region(&geometry, nonce, ROLE_ACCEPTOR), geometry.region_bytes),
        (region(&geometry, nonce, ROLE_CONNECTOR), geometry.region_bytes * 2),
    ];
    for (memory, size) in regions {
        let mut foe = MovingFoe::meet();
        let pair = foe.begin();
        let offer = Offer::shm(size, REGION_ALONE);
        let frames = [foe.second_hello().as_bytes(), offer.as_bytes()].concat();
        assert!(pair.send(&frames, &[memory.as_fd()]));
        let error = foe.victim.recv_deadline(soon());
        assert!(matches!(error, Err(RecvError::Fault(Fault::Violation { .. }))), "{error:?}");
    }
}

/// Completes the second handshake as the hostile connector. Returns its end of the pair, which is
/// now the control socket.
fn moved(foe: &mut MovingFoe) -> Wire {
    let pair = foe.begin();
    foe.offer(&pair, &foe.second_hello());
    foe.goes_on();
    for _ in 0..3 {
        let _frame = pair.receive();
    }
    assert!(pair.send(Ready::new(TRANSPORT_SHM, 0).as_bytes(), &[]));
    pair
}

#[test]
fn bytes_after_switch_are_refused() {
    let _together = together();
    let mut foe = MovingFoe::meet();
    let _pair = moved(&mut foe);
    let position = foe.position;
    let switch = RecordHeader { position, kind: Kind::Switch, len: 0, stream: 0 };
    let next = position.plus(switch.footprint());
    let after = RecordHeader { position: next, kind: Kind::Data, len: 0, stream: 0 };
    let bytes = [switch.to_wire().as_bytes(), after.to_wire().as_bytes()].concat();
    assert!(foe.wire.send(&bytes, &[]));
    foe.ends_by(UNEXPECTED);
}

#[test]
fn violation_in_the_ring_ends_the_direction_on_the_socket_too() {
    let _together = together();
    let mut foe = MovingFoe::meet();
    let pair = foe.begin();
    let geometry = small_geometry();
    let mut memory = region(&geometry, foe.hello.nonce, ROLE_CONNECTOR);
    // The hostile connector's ring begins with 7, which is no valid first word of a record.
    let place = geometry.ring_offset as usize;
    memory.as_mut_slice()[place..][..8].copy_from_slice(&7_u64.to_le_bytes());
    let offer = Offer::shm(geometry.region_bytes, REGION_ALONE);
    let frames = [foe.second_hello().as_bytes(), offer.as_bytes()].concat();
    assert!(pair.send(&frames, &[memory.as_fd()]));
    foe.goes_on();
    for _ in 0..3 {
        let _frame = pair.receive();
    }
    assert!(pair.send(Ready::new(TRANSPORT_SHM, 0).as_bytes(), &[]));
    foe.record(Kind::Switch, &[], &[]);
    let error = foe.victim.recv_deadline(soon());
    assert!(matches!(error, Err(RecvError::Fault(Fault::Violation { .. }))), "{error:?}");
    let sent = foe.victim.send(b"on the socket");
    assert!(matches!(sent, Err(SendError::Fault(_))), "{sent:?}");
    until("the socket is shut down", || {
        foe.wire.socket.read(&mut [0; 256], true).is_ok_and(|count| count == 0)
    });
}

#[test]
fn foe_that_hangs_up_after_the_move_is_noticed() {
    let _together = together();
    for switches in [false, true] {
        let mut foe = MovingFoe::meet();
        let pair = moved(&mut foe);
        if switches {
            foe.record(Kind::Switch, &[], &[]);
        }
        let MovingFoe { wire, mut victim, .. } = foe;
        drop((wire, pair));
        let end = victim.recv_deadline(soon());
        assert!(matches!(end, Err(RecvError::Disconnected)), "{end:?}");
        until("sending fails", || victim.send(b"to nobody").is_err());
    }
}

/// Rule: an acceptor does not agree to move if it does not trust the connector, and takes no
/// descriptor from it. The connector may keep a copy of the end of the pair that it sends, and may
/// block every call of the acceptor on that end.
#[test]
fn untrusted_connector_is_declined_and_its_pair_is_closed() {
    let _together = together();
    let place = Directory::new();
    let config = Config::default().trust(TrustPolicy::Untrusted);
    let (errors, refused) = mpsc::channel();
    let config = config.on_refused(move |error| errors.send(error.code()).unwrap());
    let mut listener = Listener::bind_with(place.address("move"), &config).unwrap();
    let listening = thread::spawn(move || {
        let deadline = soon();
        loop {
            assert!(Instant::now() < deadline, "the foe is not refused");
            assert!(listener.accept_deadline(within(millis(20))).is_err());
            if let Ok(code) = refused.try_recv() {
                return code;
            }
        }
    });
    let wire = Wire::connect(&place.path("move"));
    assert!(wire.send(hello(BOTH | FEATURE_MOVE).as_bytes(), &[]));
    let (answer, _) = wire.receive();
    let answer = Hello::read_from_prefix(&answer).unwrap().0;
    assert_eq!(answer.features.get(), BOTH);
    // The hostile connector sends MOVE although the acceptor has not agreed to move.
    let (pair, theirs) = Socket::pair().unwrap();
    let header = RecordHeader { position: Position(0), kind: Kind::Move, len: 0, stream: 0 };
    let record = [header.to_wire().as_bytes(), &[0; 64]].concat();
    assert!(wire.send(&record, &[theirs.as_fd()]));
    drop(theirs);
    assert_eq!(listening.join().unwrap(), HANDSHAKE_VIOLATION);
    until("the pair is closed", || {
        pair.read(&mut [0; 64], true).map_or_else(|error| is_reset(&error), |count| count == 0)
    });
}

/// Whether the error of a read means that the peer closed its end while bytes were unread.
fn is_reset(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::ConnectionReset
}

#[test]
fn acceptor_may_not_send_move() {
    let _together = together();
    let place = Directory::new();
    let listener =
        partywall_sys::Listener::listen_unix_path(place.path("acceptor"), 0o600, 8).unwrap();
    let address = place.address("acceptor");
    let connecting = std::thread::spawn(move || {
        partywall::connect_with(&address, &Config::default().begin(Begin::Socket)).unwrap()
    });
    let mut accepted = None;
    until("a connection comes", || {
        accepted = listener.accept().unwrap();
        accepted.is_some()
    });
    let wire = Wire::new(accepted.unwrap());
    let (greeting, _) = wire.receive();
    assert!(greeting.len() >= 128);
    let header =
        RecordHeader { position: Position(0), kind: Kind::Move, len: 0, stream: 0 }.to_wire();
    let (_ours, theirs) = Socket::pair().unwrap();
    let answer = Hello { nonce: [3; 16], ..hello(BOTH | FEATURE_MOVE) };
    assert!(wire.send(answer.as_bytes(), &[]));
    assert!(wire.send(header.as_bytes(), &[theirs.as_fd()]));
    let mut victim = connecting.join().unwrap();
    let error = victim.recv_deadline(soon());
    let Err(RecvError::Fault(Fault::Violation { violation, .. })) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(violation.code(), UNEXPECTED);
}

#[test]
fn nothing_of_a_hostile_move_stays_open() {
    let _alone = alone();
    let steps: [fn(&mut MovingFoe); 4] = [
        |foe| drop(foe.begin()),
        |foe| {
            let pair = foe.begin();
            foe.offer(&pair, &foe.second_hello());
            foe.goes_on();
        },
        |foe| drop(moved(foe)),
        |foe| {
            let _pair = moved(foe);
            foe.record(Kind::Switch, &[], &[]);
        },
    ];
    let mut before = None;
    for round in 0..3 {
        for step in &steps {
            let mut foe = MovingFoe::meet();
            step(&mut foe);
            let _ = foe.victim.try_recv();
            drop(foe);
        }
        let open = partywall_testkit::descriptors(Process::Own);
        assert_eq!(*before.get_or_insert(open), open, "round {round}");
    }
}
