// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transcripts of handshakes in which an acceptor is under test, and the peer is a connector.

use super::{BOTH, REGION_BYTES, Script, hello, hello_with, longer, ready_shm, ready_socket};
use partywall_layout::hello::{
    Descriptors, FEATURE_MOVE, FEATURE_SHM, FEATURE_SOCKET, Hello, Offer, REGION_ALONE, Ready,
};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

pub fn scripts() -> Vec<Script> {
    let mut scripts = shared_memory();
    scripts.extend(moves());
    scripts.extend(sockets());
    scripts.extend(no_transport());
    scripts.extend(hellos());
    scripts.extend(orders());
    scripts.extend(descriptors());
    scripts.push(nine_descriptors());
    scripts.extend(regions());
    scripts.extend(ends());
    scripts
}

fn begin(name: &str, about: &'static str) -> Script {
    Script::acceptor(name, about)
}

/// Begins a transcript of an acceptor with the lines up to the connector's OFFER of a region and
/// two doorbells.
fn offered(name: &str, about: &'static str) -> Script {
    begin(name, about).send_hello(&hello()).send_region(true)
}

/// Begins a transcript of an acceptor with the lines up to the acceptor's READY for shared memory.
fn answered(name: &str, about: &'static str) -> Script {
    let offered = offered(name, about).receive_hello(BOTH, 0).receive_region(true);
    offered.receive_ready(&ready_shm())
}

fn shared_memory() -> Vec<Script> {
    let later = Hello { version_max: 9.into(), ..hello() };
    let later = Hello { descriptors: Descriptors::of(&[200]), ..later };
    let offer = Offer::shm(REGION_BYTES, &[99, 2]);
    let offer_with_reason = Offer { reason: 4.into(), ..Offer::shm(REGION_BYTES, REGION_ALONE) };
    vec![
        answered("shm", "both sides trust each other and use eventfds")
            .send_ready(&ready_shm().with_doorbells())
            .shm(),
        begin("shm-bytes", "the connector lists no doorbells, so the acceptor lists none")
            .send_hello(&hello())
            .send_region(false)
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send_ready(&ready_shm())
            .shm(),
        begin("shm-untrusting", "an acceptor that does not trust lists no doorbells")
            .set("trust", "no")
            .send_hello(&hello())
            .send_region(true)
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send_ready(&ready_shm())
            .shm(),
        answered("shm-untrusted", "a connector that does not trust leaves DOORBELLS unset")
            .send_ready(&ready_shm())
            .shm(),
        begin("shm-later", "longer frames and descriptors of unknown kinds, from a later version")
            .send("HELLO", &longer(later.as_bytes()), "pipe")
            .send("OFFER", &longer(offer.as_bytes()), "pipe,region")
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send("READY", &longer(ready_shm().as_bytes()), "-")
            .shm(),
        begin("shm-reason", "a reason that comes with shared memory means nothing")
            .send_hello(&hello())
            .send("OFFER", offer_with_reason.as_bytes(), "region")
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send_ready(&Ready { reason: 7.into(), ..ready_shm() })
            .shm(),
        begin("features-unknown", "unknown feature bits, among them that of topics, are ignored")
            .send_hello(&hello_with(!FEATURE_MOVE, 0))
            .send_region(false)
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send_ready(&ready_shm())
            .shm(),
    ]
}

fn moves() -> Vec<Script> {
    let asking = hello_with(BOTH | FEATURE_MOVE, 0);
    let asked = |name: &str, about| begin(name, about).send_hello(&asking);
    let small = Hello { map_max: U64::new(4096), ..asking };
    let lacking = |name: &str, about, features| {
        begin(name, about).send_hello(&hello_with(features | FEATURE_MOVE, 0)).fails(209, 4)
    };
    vec![
        asked("move", "a connection that begins on the socket: no OFFER and no READY")
            .receive_hello(BOTH | FEATURE_MOVE, 0)
            .socket(8),
        asked("move-untrusting", "an acceptor that does not trust declines: memory is shared now")
            .set("trust", "no")
            .receive_hello(BOTH, 0)
            .send_region(true)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send_ready(&ready_shm())
            .shm(),
        asked("move-declined", "the acceptor has shared memory alone: OFFER follows its HELLO")
            .set("transport", "shm")
            .receive_hello(FEATURE_SHM, 0)
            .send_region(true)
            .receive_region(true)
            .receive_ready(&ready_shm())
            .send_ready(&ready_shm().with_doorbells())
            .shm(),
        asked("move-policy", "the acceptor has the socket alone")
            .set("transport", "socket")
            .receive_hello(FEATURE_SOCKET, 1)
            .send_socket_offer(1)
            .receive_socket_offer(1)
            .receive_ready(&ready_socket(1))
            .send_ready(&ready_socket(1))
            .socket(1),
        begin("move-limit", "the acceptor's region exceeds the connector's map max: no MOVE")
            .send_hello(&small)
            .receive_hello(BOTH, 0)
            .send_region(false)
            .receive_socket_offer(6)
            .receive_ready(&ready_socket(6))
            .send_ready(&ready_socket(6))
            .socket(6),
        asked("move-admission", "admission comes first").set("admit", "no").fails(206, 2),
        lacking("move-without-socket", "MOVE needs SOCKET", FEATURE_SHM),
        lacking("move-without-shm", "MOVE needs SHM", FEATURE_SOCKET),
        asked("move-offer", "OFFER follows a HELLO with MOVE before it was answered")
            .line("together")
            .send_region(false)
            .fails(209, 4),
    ]
}

fn sockets() -> Vec<Script> {
    let both_socket = |script: Script, features, own, reason| {
        script
            .receive_hello(features, own)
            .receive_socket_offer(reason)
            .receive_ready(&ready_socket(reason))
            .send_ready(&ready_socket(reason))
            .socket(reason)
    };
    let tcp = begin("tcp", "no memory is shared over TCP, and no descriptors or credentials come")
        .set("address", "tcp")
        .send("HELLO", hello_with(FEATURE_SOCKET, 2).as_bytes(), "-")
        .send_socket_offer(2);
    let policy = offered("socket-policy", "the acceptor's configuration asks for the socket")
        .set("transport", "socket");
    let peer = begin("socket-peer", "the connector cannot share memory, which HELLO says")
        .send_hello(&hello_with(FEATURE_SOCKET, 3))
        .send_socket_offer(3);
    let late = begin("socket-late", "the connector finds out late that it has no memory")
        .send_hello(&hello())
        .send_socket_offer(4);
    let unknown = begin("socket-unknown-reason", "a reason of a later version is kept")
        .send_hello(&hello())
        .send_socket_offer(99);
    let sized = Offer { region_size: U64::new(REGION_BYTES), ..Offer::socket(4) };
    let sized = begin("socket-region-size", "a region size with the socket means nothing")
        .send_hello(&hello())
        .send("OFFER", sized.as_bytes(), "-");
    let large = begin("socket-limit", "the connector's region exceeds the acceptor's map max")
        .set("map_max", 65_536)
        .send_hello(&hello())
        .send("OFFER", Offer::shm(2 * REGION_BYTES, REGION_ALONE).as_bytes(), "region");
    let small = Hello { map_max: U64::new(4096), ..hello() };
    let small = begin("socket-limit-peer", "the acceptor's region exceeds the connector's map max")
        .send_hello(&small)
        .send_region(false);
    let no_blocks = Hello { peer_blocks_max: U64::new(0), ..hello_with(FEATURE_SOCKET, 1) };
    let no_blocks = begin("socket-no-blocks", "peer blocks max is free without SHM")
        .send_hello(&no_blocks)
        .send_socket_offer(1);
    vec![
        both_socket(tcp, FEATURE_SOCKET, 2, 2),
        both_socket(policy, FEATURE_SOCKET, 1, 1),
        both_socket(peer, BOTH, 0, 3),
        both_socket(late, BOTH, 0, 4),
        both_socket(unknown, BOTH, 0, 99),
        both_socket(sized, BOTH, 0, 4),
        both_socket(large, BOTH, 0, 6),
        both_socket(small, BOTH, 0, 6),
        both_socket(no_blocks, BOTH, 0, 1),
        answered("socket-map", "the connector could not map the acceptor's region")
            .send_ready(&ready_socket(7))
            .socket(7),
    ]
}

fn no_transport() -> Vec<Script> {
    vec![
        begin("none", "the acceptor has shared memory alone, the connector the socket alone")
            .set("transport", "shm")
            .send_hello(&hello_with(FEATURE_SOCKET, 1))
            .fails(208, 3),
        begin("none-late", "a connector without SOCKET offers no memory")
            .send_hello(&hello_with(FEATURE_SHM, 0))
            .send_socket_offer(4)
            .fails(208, 3),
        begin(
            "none-ready",
            "a connector without SOCKET cannot map: the acceptor has no frame left",
        )
        .send_hello(&hello_with(FEATURE_SHM, 0))
        .send_region(false)
        .receive_hello(BOTH, 0)
        .receive_region(false)
        .receive_ready(&ready_shm())
        .send_ready(&ready_socket(7))
        .fails(208, 0),
    ]
}

fn hellos() -> Vec<Script> {
    let h = hello();
    let versions =
        |min: u16, max: u16| Hello { version_min: min.into(), version_max: max.into(), ..hello() };
    let service = |number: u32| Hello { service: number.into(), ..hello() };
    let newer = Hello { length: 16.into(), ..versions(3, 9) };
    let refused = |name: &str, about, hello: &Hello, error, code| {
        begin(name, about).send("HELLO", hello.as_bytes(), "-").fails(error, code)
    };
    vec![
        refused("version-1", "HELLO of version 1", &versions(1, 1), 204, 1),
        begin("version-3", "HELLO of versions 3 to 9, which may be 16 bytes long")
            .send("HELLO", &newer.as_bytes()[..16], "-")
            .fails(204, 1),
        refused("version-0", "a range that begins with 0", &versions(0, 2), 209, 4),
        refused("version-range", "a range upside down", &versions(3, 2), 209, 4),
        refused("service-0", "service 0 is a violation", &service(0), 209, 4),
        refused(
            "service-other",
            "a session is asked for, channels are offered",
            &service(2),
            207,
            5,
        ),
        refused("service-topics", "service 4 is reserved for topics", &service(4), 207, 5),
        refused("service-unknown", "a service that no document defines", &service(9), 207, 5),
        refused(
            "length-0",
            "a length below that of the frame's beginning",
            &Hello { length: 0.into(), ..h },
            209,
            4,
        ),
        refused("length-long", "a length above 1,024", &Hello { length: 1025.into(), ..h }, 209, 4),
        refused(
            "blocks-9",
            "peer blocks max is no power of two",
            &Hello { peer_blocks_max: U64::new(9), ..h },
            209,
            4,
        ),
        begin("foreign", "the first byte is that of another protocol: hang-up without a frame")
            .send("bytes", b"GET / HTTP/1.1\r\n\r\n", "-")
            .fails(203, 0),
        begin("admission", "the acceptor does not admit the connector's user")
            .set("admit", "no")
            .send_hello(&h)
            .send_region(true)
            .fails(206, 2),
    ]
}

fn orders() -> Vec<Script> {
    vec![
        begin("offer-first", "OFFER before HELLO is no protocol of ours")
            .send_socket_offer(1)
            .fails(203, 0),
        begin("hello-twice", "HELLO where OFFER is awaited")
            .send_hello(&hello())
            .send_hello(&hello())
            .fails(209, 4),
        begin("ready-for-offer", "READY where OFFER is awaited")
            .send_hello(&hello())
            .send_ready(&ready_socket(1))
            .fails(209, 4),
        begin("ready-early", "READY together with OFFER did not await the answer")
            .line("together")
            .send_hello(&hello())
            .send_socket_offer(1)
            .send_ready(&ready_socket(1))
            .fails(209, 4),
        answered("hello-for-ready", "HELLO where READY is awaited: the acceptor has no frame left")
            .send("HELLO", hello().as_bytes(), "-")
            .fails(209, 0),
        answered("tag-for-ready", "bytes of no frame where READY is awaited")
            .send("bytes", &[0; 40], "-")
            .fails(209, 0),
        begin("ready-shm-alone", "READY for shared memory after OFFER of the socket")
            .send_hello(&hello())
            .send_socket_offer(1)
            .receive_hello(BOTH, 0)
            .receive_socket_offer(1)
            .receive_ready(&ready_socket(1))
            .send_ready(&ready_shm())
            .fails(209, 0),
        begin("doorbells-alone", "DOORBELLS although no OFFER lists any")
            .send_hello(&hello())
            .send_region(false)
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .receive_ready(&ready_shm())
            .send_ready(&ready_shm().with_doorbells())
            .fails(209, 0),
    ]
}

fn descriptors() -> Vec<Script> {
    let listed = |list: Descriptors| Hello { descriptors: list, ..hello() };
    let one = listed(Descriptors::of(&[1]));
    let refused = |name: &str, about, hello: &Hello, sent, error| {
        begin(name, about)
            .send("HELLO", hello.as_bytes(), sent)
            .send_socket_offer(1)
            .fails(error, 4)
    };
    let eight = listed(Descriptors { count: 8, kinds: [1; 7] });
    vec![
        refused("pidfd-missing", "HELLO lists a pidfd, and none comes", &one, "-", 209),
        refused("pidfd-twice", "one pidfd is listed, and two come", &one, "pidfd,pidfd", 209),
        refused("pidfd-unlisted", "a descriptor that no list has", &hello(), "pidfd", 209),
        refused("pidfd-other", "the pidfd of another process", &one, "pidfd-other", 210),
        refused("pidfd-pipe", "a pipe as pidfd", &one, "pipe", 210),
        refused("list-8", "a list of eight descriptors", &eight, "-", 209),
        refused(
            "list-same",
            "a known kind twice in a list",
            &listed(Descriptors::of(&[1, 1])),
            "pidfd,pidfd",
            209,
        ),
        refused(
            "list-same-elsewhere",
            "a known kind twice in the list of a frame that it does not go with",
            &listed(Descriptors::of(&[2, 2])),
            "pipe,pipe",
            209,
        ),
        begin("no-region", "OFFER of shared memory that lists no region")
            .send_hello(&hello())
            .send("OFFER", Offer::shm(REGION_BYTES, &[]).as_bytes(), "-")
            .fails(209, 4),
        begin("region-missing", "OFFER lists a region, and none comes")
            .send_hello(&hello())
            .send("OFFER", Offer::shm(REGION_BYTES, REGION_ALONE).as_bytes(), "-")
            .fails(209, 4),
        begin("doorbell-pipe", "a pipe as doorbell")
            .send_hello(&hello())
            .send("OFFER", Offer::shm(REGION_BYTES, &[2, 3, 4]).as_bytes(), "region,pipe,eventfd")
            .fails(210, 4),
        answered("ready-descriptor", "READY with a descriptor that its list does not have")
            .send("READY", ready_shm().as_bytes(), "pipe")
            .fails(209, 0),
    ]
}

/// A transcript with nine descriptors of unknown kinds, one more than one side may send in a
/// handshake.
fn nine_descriptors() -> Script {
    let seven = Descriptors::of(&[200, 201, 202, 203, 204, 205, 206]);
    let ready = Ready { descriptors: Descriptors::of(&[200, 201]), ..ready_socket(1) };
    begin("descriptors-9", "nine descriptors, more than a handshake may bring")
        .send("HELLO", Hello { descriptors: seven, ..hello() }.as_bytes(), &["pipe"; 7].join(","))
        .send_socket_offer(1)
        .receive_hello(BOTH, 0)
        .receive_socket_offer(1)
        .receive_ready(&ready_socket(1))
        .send("READY", ready.as_bytes(), "pipe,pipe")
        .fails(209, 0)
}

fn regions() -> Vec<Script> {
    let refused = |name: &str, about, sent, error| {
        let offer = Offer::shm(REGION_BYTES, REGION_ALONE);
        begin(name, about)
            .send_hello(&hello())
            .send("OFFER", offer.as_bytes(), sent)
            .fails(error, 4)
    };
    vec![
        refused("region-session", "a region of another session", "region-session", 209),
        refused("region-role", "a region whose owner is an acceptor", "region-role", 209),
        refused("region-size", "a region of another size than OFFER says", "region-size", 210),
        refused("region-pipe", "a pipe as region", "pipe", 210),
        refused("region-eventfd", "an eventfd as region", "eventfd", 210),
        begin("region-entries", "fewer release entries than HELLO says")
            .send_hello(&Hello { peer_blocks_max: U64::new(16), ..hello() })
            .send("OFFER", Offer::shm(REGION_BYTES, REGION_ALONE).as_bytes(), "region-entries")
            .fails(209, 4),
        begin("offer-transport", "OFFER of an unknown transport")
            .send_hello(&hello())
            .send("OFFER", Offer { transport: 3.into(), ..Offer::socket(1) }.as_bytes(), "-")
            .fails(209, 4),
    ]
}

fn ends() -> Vec<Script> {
    vec![
        begin("reject-first", "REJECT where HELLO is awaited").send_reject(6).fails(205, 0),
        begin("reject-second", "REJECT where OFFER is awaited")
            .send_hello(&hello())
            .send_reject(3)
            .fails(205, 0),
        answered("reject-third", "REJECT where READY is awaited, of a code that is not known")
            .send_reject(77)
            .fails(205, 0),
        begin("close-first", "the connector hangs up within HELLO")
            .send("bytes", &hello().as_bytes()[..40], "-")
            .line("close")
            .fails(202, 0),
        begin("close-second", "the connector hangs up where OFFER is awaited")
            .send_hello(&hello())
            .line("close")
            .fails(202, 0),
        answered("close-third", "the connector hangs up where READY is awaited")
            .line("close")
            .fails(202, 0),
        begin("silence-first", "the deadline passes where HELLO is awaited")
            .line("silence")
            .fails(201, 6),
        begin("silence-second", "the deadline passes where OFFER is awaited")
            .send_hello(&hello())
            .line("silence")
            .fails(201, 6),
        answered("silence-third", "the deadline passes where READY is awaited: no frame is left")
            .line("silence")
            .fails(201, 0),
    ]
}
