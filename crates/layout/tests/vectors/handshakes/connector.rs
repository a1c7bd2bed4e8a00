// SPDX-License-Identifier: MIT OR Apache-2.0
//! Transcripts of handshakes in which a connector is under test, and the peer is an acceptor.

use super::{BOTH, REGION_BYTES, Script, hello, hello_with, longer, ready_shm, ready_socket};
use partywall_layout::hello::{
    Descriptors, FEATURE_MOVE, FEATURE_SHM, FEATURE_SOCKET, Hello, Offer, REGION_ALONE,
};
use zerocopy::IntoBytes;

pub fn scripts() -> Vec<Script> {
    let mut scripts = shared_memory();
    scripts.extend(moves());
    scripts.extend(sockets());
    scripts.extend(refusals());
    scripts.extend(violations());
    scripts.extend(ends());
    scripts
}

/// Begins a transcript of a connector with the lines up to the connector's OFFER of a region and
/// two doorbells.
fn begin(name: &str, about: &'static str) -> Script {
    Script::connector(name, about).receive_hello(BOTH, 0).receive_region(true)
}

fn shared_memory() -> Vec<Script> {
    let later = Hello { version_max: 9.into(), descriptors: Descriptors::of(&[200]), ..hello() };
    let offer = Offer::shm(REGION_BYTES, &[99, 2]);
    vec![
        begin("shm", "both sides trust each other and use eventfds")
            .send_hello(&hello())
            .send_region(true)
            .send_ready(&ready_shm())
            .receive_ready(&ready_shm().with_doorbells())
            .shm(),
        begin("shm-bytes", "the acceptor lists no doorbells, so READY has no DOORBELLS")
            .send_hello(&hello())
            .send_region(false)
            .send_ready(&ready_shm())
            .receive_ready(&ready_shm())
            .shm(),
        Script::connector("shm-untrusting", "a connector that never trusts lists no doorbells")
            .set("trust", "no")
            .receive_hello(BOTH, 0)
            .receive_region(false)
            .send_hello(&hello())
            .send_region(false)
            .send_ready(&ready_shm())
            .receive_ready(&ready_shm())
            .shm(),
        begin("shm-later", "longer frames and descriptors of unknown kinds, from a later version")
            .send("HELLO", &longer(later.as_bytes()), "pipe")
            .send("OFFER", &longer(offer.as_bytes()), "pipe,region")
            .send("READY", &longer(ready_shm().as_bytes()), "-")
            .receive_ready(&ready_shm())
            .shm(),
        begin("features-unknown", "unknown feature bits, among them that of topics, are ignored")
            .send_hello(&hello_with(!0, 0))
            .send_region(false)
            .send_ready(&ready_shm())
            .receive_ready(&ready_shm())
            .shm(),
        begin("ready-flags", "flags in an acceptor's READY have no meaning")
            .send_hello(&hello())
            .send_region(false)
            .send_ready(&ready_shm().with_doorbells())
            .receive_ready(&ready_shm())
            .shm(),
    ]
}

fn moves() -> Vec<Script> {
    let asking = |name: &str, about| {
        let script = Script::connector(name, about).set("begin", "socket");
        script.receive_hello(BOTH | FEATURE_MOVE, 0)
    };
    let lacking = hello_with(FEATURE_SHM | FEATURE_MOVE, 0);
    vec![
        asking("move", "a connection that begins on the socket: no OFFER and no READY")
            .send_hello(&hello_with(BOTH | FEATURE_MOVE, 0))
            .socket(8),
        asking("move-declined", "the acceptor does not set MOVE: OFFER follows its HELLO")
            .send_hello(&hello())
            .receive_region(true)
            .send_region(true)
            .send_ready(&ready_shm())
            .receive_ready(&ready_shm().with_doorbells())
            .shm(),
        asking("move-policy", "the acceptor has the socket alone")
            .send_hello(&hello_with(FEATURE_SOCKET, 1))
            .receive_region(true)
            .send_socket_offer(1)
            .send_ready(&ready_socket(1))
            .receive_ready(&ready_socket(1))
            .socket(1),
        asking("move-without-socket", "MOVE of an acceptor without SOCKET")
            .send_hello(&lacking)
            .fails(209, 0),
        asking("move-refused", "the acceptor refuses").send_reject(2).fails(205, 0),
    ]
}

fn sockets() -> Vec<Script> {
    let answered = |script: Script, hello: &Hello, descriptors: &'static str, reason| {
        let script = if descriptors == "-" {
            script.send("HELLO", hello.as_bytes(), "-")
        } else {
            script.send_hello(hello)
        };
        script
            .send_socket_offer(reason)
            .send_ready(&ready_socket(reason))
            .receive_ready(&ready_socket(reason))
            .socket(reason)
    };
    let policy = Script::connector("socket-policy", "the connector's configuration asks for it")
        .set("transport", "socket")
        .receive_hello(FEATURE_SOCKET, 1)
        .receive_socket_offer(1);
    let tcp = Script::connector("tcp", "no memory is shared over TCP")
        .set("address", "tcp")
        .receive_hello(FEATURE_SOCKET, 2)
        .receive_socket_offer(2);
    vec![
        answered(
            begin("socket-peer", "the acceptor cannot share memory, which HELLO says"),
            &hello_with(FEATURE_SOCKET, 3),
            "pidfd",
            3,
        ),
        answered(
            begin("socket-late", "the acceptor offers the socket: the region is too large for it"),
            &hello(),
            "pidfd",
            6,
        ),
        answered(policy, &hello(), "pidfd", 1),
        answered(tcp, &hello_with(FEATURE_SOCKET, 2), "-", 2),
    ]
}

fn refusals() -> Vec<Script> {
    let only_memory = |name: &str, about| {
        Script::connector(name, about)
            .set("transport", "shm")
            .receive_hello(FEATURE_SHM, 0)
            .receive_region(true)
    };
    let versions = Hello { version_min: 3.into(), version_max: 9.into(), ..hello() };
    vec![
        only_memory("none", "the connector has shared memory alone, the acceptor the socket")
            .send_hello(&hello_with(FEATURE_SOCKET, 1))
            .fails(208, 3),
        only_memory("none-late", "the acceptor finds out late that it cannot share memory")
            .send_hello(&hello())
            .send_socket_offer(4)
            .send_ready(&ready_socket(4))
            .fails(208, 3),
        begin("version-3", "the acceptor has versions 3 to 9")
            .send("HELLO", versions.as_bytes(), "-")
            .fails(204, 1),
        begin("echo", "the connector's own HELLO comes back: hang-up without a frame")
            .line("send\tHELLO\t=\t-")
            .fails(203, 0),
        begin("foreign", "another protocol answers")
            .send("bytes", b"HTTP/1.1 400 Bad Request\r\n\r\n", "-")
            .fails(203, 0),
        begin("admission", "the connector does not admit the acceptor's user")
            .set("admit", "no")
            .send_hello(&hello())
            .fails(206, 2),
    ]
}

fn violations() -> Vec<Script> {
    let with_region = |name: &str, about, sent, error| {
        begin(name, about)
            .send_hello(&hello())
            .send("OFFER", Offer::shm(REGION_BYTES, REGION_ALONE).as_bytes(), sent)
            .fails(error, 4)
    };
    vec![
        begin("service-other", "the acceptor's service differs from the connector's")
            .send_hello(&Hello { service: 2.into(), ..hello() })
            .fails(209, 4),
        begin("hello-twice", "HELLO where OFFER is awaited")
            .send_hello(&hello())
            .send_hello(&hello())
            .fails(209, 4),
        begin("ready-for-offer", "READY where OFFER is awaited")
            .send_hello(&hello())
            .send_ready(&ready_shm())
            .fails(209, 4),
        begin("ready-shm-alone", "READY for shared memory after OFFER of the socket")
            .send_hello(&hello())
            .send_socket_offer(1)
            .send_ready(&ready_shm())
            .fails(209, 4),
        begin("bytes-early", "bytes after READY did not await the connector's READY")
            .line("together")
            .send_hello(&hello())
            .send_region(false)
            .send_ready(&ready_shm())
            .send("bytes", &[1], "-")
            .fails(209, 4),
        begin("pidfd-other", "the pidfd of another process")
            .send("HELLO", listed().as_bytes(), "pidfd-other")
            .fails(210, 4),
        begin("no-region", "OFFER of shared memory that lists no region")
            .send_hello(&hello())
            .send("OFFER", Offer::shm(REGION_BYTES, &[]).as_bytes(), "-")
            .fails(209, 4),
        with_region("region-session", "a region of another session", "region-session", 209),
        with_region("region-role", "a region whose owner is a connector", "region-role", 209),
        with_region("region-pipe", "a pipe as region", "pipe", 210),
        begin("region-limit", "the acceptor's region exceeds the connector's map max")
            .set("map_max", 65_536)
            .send_hello(&hello())
            .send("OFFER", Offer::shm(2 * REGION_BYTES, REGION_ALONE).as_bytes(), "region")
            .fails(210, 4),
    ]
}

/// The peer's HELLO with a list of descriptors that names a pidfd of its process.
fn listed() -> Hello {
    Hello { descriptors: Descriptors::of(&[1]), ..hello() }
}

fn ends() -> Vec<Script> {
    vec![
        begin("reject-first", "REJECT where HELLO is awaited").send_reject(5).fails(205, 0),
        begin("reject-second", "REJECT where OFFER is awaited")
            .send_hello(&hello())
            .send_reject(2)
            .fails(205, 0),
        begin("reject-third", "REJECT where READY is awaited")
            .send_hello(&hello())
            .send_region(true)
            .send_reject(6)
            .fails(205, 0),
        begin("close-first", "the acceptor hangs up where HELLO is awaited")
            .line("close")
            .fails(202, 0),
        begin("close-second", "the acceptor hangs up where OFFER is awaited")
            .send_hello(&hello())
            .line("close")
            .fails(202, 0),
        begin("close-third", "the acceptor hangs up where READY is awaited")
            .send_hello(&hello())
            .send_region(true)
            .line("close")
            .fails(202, 0),
        begin("silence-first", "the deadline passes where HELLO is awaited")
            .line("silence")
            .fails(201, 6),
        begin("silence-second", "the deadline passes where OFFER is awaited")
            .send_hello(&hello())
            .line("silence")
            .fails(201, 6),
        begin("silence-third", "the deadline passes where READY is awaited")
            .send_hello(&hello())
            .send_region(true)
            .line("silence")
            .fails(201, 6),
    ]
}
