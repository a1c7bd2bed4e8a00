// SPDX-License-Identifier: MIT OR Apache-2.0
//! The golden vectors: images that every implementation must understand. An image is the content of
//! one file: a frame, a region, a ring or a socket stream. One line states what a reader finds in
//! it.
//!
//! The lines about the contents are written by hand from SPEC.md, not produced by the reader.

use super::writer::{RingWriter, SocketWriter, blob, blob_with_credit, first, segment};
use super::{Image, PEER_BLOCKS_MAX, REGION_BYTES, RING_BYTES, SESSION, identity, pattern};
use partywall_layout::control::ControlSegment;
use partywall_layout::hello::{self, Descriptors, Hello, Offer, Ready, RejectHead};
use partywall_layout::{FallbackReason, Geometry, Kind, Refusal, RegionHeader};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U32, U64};

pub const PREFACE: &str = "\
# Golden vectors

The command `cargo run -p partywall-layout --example vectors -- spec/vectors` writes these files.
SPEC.md, section 10, says how to use the table. `from` is the position of a ring's reader; a ring
image is the whole ring. In `expected`, records are `position kind content`, separated by `; `. A
payload is its text, or its length and the sum of its bytes.
";

pub fn images() -> Vec<Image> {
    let mut images = frames();
    images.extend(offers());
    images.push(region());
    images.extend(identity::golden());
    images.extend([three_records(), wrapped(), stale(), batch_open(), batch()]);
    images.extend([blobs(), segments(), segment_gap()]);
    images.extend([fragments(), fragments_aborted(), closed()]);
    images.extend([session_blobs(), socket(), socket_cut(), control(), control_skipped()]);
    images.extend(moves());
    images
}

/// Returns the HELLO of an acceptor, with a value in every field.
pub fn hello() -> Hello {
    Hello {
        features: U64::new(hello::FEATURE_SHM | hello::FEATURE_SOCKET),
        map_max: U64::new(1 << 30),
        message_max: U64::new(64 << 20),
        peer_blocks_max: U64::new(PEER_BLOCKS_MAX),
        segments_max: U32::new(16),
        pid: U32::new(4242),
        nonce: SESSION,
        descriptors: Descriptors::of(&[hello::DESCRIPTOR_PIDFD]),
        ..Hello::new()
    }
}

fn frames() -> Vec<Image> {
    let later = Hello { version_max: 7.into(), length: 160.into(), ..hello() };
    let later = [later.as_bytes(), &[0xee; 32]].concat();
    let other =
        Hello { version_min: 3.into(), version_max: 4.into(), length: 24.into(), ..hello() };
    let reject = b"uid 1000 is not admitted";
    let head = RejectHead::new(Refusal::Admission.number(), reject.len());
    let reject = [head.as_bytes(), reject];
    let fallback = Ready::new(hello::TRANSPORT_SOCKET, FallbackReason::Map.number());
    let limits = "map_max=1073741824 message_max=67108864 peer_blocks_max=8 segments_max=16 \
                  pid=4242 nonce=0123456789abcdef descriptors=[1]";
    let hello_line = format!("HELLO versions=2..2 features=3 service=1 fallback_reason=0 {limits}");
    let later_line = format!("HELLO versions=2..7 features=3 service=1 fallback_reason=0 {limits}");
    let service_line = hello_line.replace("service=1", "service=9");
    vec![
        frame(
            "hello",
            &hello_line,
            "HELLO of a side that can do both transports",
            hello().as_bytes(),
        ),
        frame("hello-later", &later_line, "HELLO of a later version with fields appended", &later),
        frame(
            "hello-other",
            "HELLO other versions=3..4",
            "HELLO without a version in common; what follows byte 16 means nothing",
            &other.as_bytes()[..24],
        ),
        frame(
            "hello-service-unknown",
            &service_line,
            "HELLO for a service that this side does not know: it answers REJECT `service` (5)",
            Hello { service: 9.into(), ..hello() }.as_bytes(),
        ),
        frame(
            "ready",
            "READY transport=1 reason=0 flags=1",
            "READY for shared memory, with eventfds as doorbells",
            Ready::new(hello::TRANSPORT_SHM, 0).with_doorbells().as_bytes(),
        ),
        frame(
            "ready-socket",
            "READY transport=2 reason=7 flags=0",
            "READY for the socket: mapping the region failed",
            fallback.as_bytes(),
        ),
        frame(
            "reject",
            "REJECT code=2 text=\"uid 1000 is not admitted\"",
            "REJECT with a text",
            &reject.concat(),
        ),
    ]
}

fn offers() -> Vec<Image> {
    let shm = Offer::shm(REGION_BYTES, hello::REGION_AND_DOORBELLS);
    let socket = Offer::socket(FallbackReason::Memfd.number());
    let longer = Offer { length: 96.into(), ..shm };
    let longer = [longer.as_bytes(), &[0xee; 32]].concat();
    vec![
        frame(
            "offer-shm",
            "OFFER transport=1 reason=0 region_size=131072 descriptors=[2, 3, 4]",
            "OFFER of a region and two eventfds",
            shm.as_bytes(),
        ),
        frame(
            "offer-longer",
            "OFFER transport=1 reason=0 region_size=131072 descriptors=[2, 3, 4]",
            "OFFER of a later version with fields appended, which are ignored",
            &longer,
        ),
        frame(
            "offer-unknown-descriptor",
            "OFFER transport=1 reason=0 region_size=131072 descriptors=[5, 2]",
            "OFFER that lists a descriptor of a reserved kind before the region: it is closed",
            Offer::shm(REGION_BYTES, &[5, hello::DESCRIPTOR_REGION]).as_bytes(),
        ),
        frame(
            "offer-socket",
            "OFFER transport=2 reason=3 region_size=0 descriptors=[]",
            "OFFER of the socket: this side has no sealed memory",
            socket.as_bytes(),
        ),
    ]
}

fn region() -> Image {
    let geometry = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, 64 << 10).unwrap();
    let header = RegionHeader {
        service: hello::SERVICE_CHANNEL.into(),
        created_ns: U64::new(1_700_000_000_000_000_000),
        ..geometry.header(SESSION, 4242, hello::ROLE_ACCEPTOR)
    };
    Image {
        name: "region-header.bin".to_owned(),
        kind: "region",
        from: 0,
        expected: "region=131072 ring=8192+4096 release=12288+8*8 slab=16384+114688".to_owned(),
        about: "header of the acceptor's region; the descriptor has 131072 bytes",
        bytes: header.as_bytes().to_vec(),
    }
}

fn three_records() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::Data, b"one");
    ring.send(Kind::Data, &[]);
    ring.send(Kind::Data, &pattern(49));
    let expected = "0 Data \"one\"; 64 Data \"\"; 128 Data len=49 sum=1176";
    ring_image("ring-three", 0, expected, "three records; 49 bytes take two slots", ring)
}

fn wrapped() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    for _ in 0..4 {
        ring.send(Kind::Data, &pattern(900));
    }
    let from = ring.tail();
    ring.send(Kind::Data, &pattern(200));
    ring.send(Kind::Data, b"behind-the-end");
    let expected = "3840 Data len=200 sum=19900; 4096 Data \"behind-the-end\"";
    let about = "a record that ends where the ring ends, the next one at offset 0, over old bytes";
    ring_image("ring-exact-end", from, expected, about, ring)
}

/// Image of a ring with a PAD and then a DATA record in the second lap. In the first lap, the slot
/// after this DATA record held payload that looks like a record. The sender has set the first word
/// of that slot to 0, so the reader must find no record there.
fn stale() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    // The payload of the first lap contains the first word of a DATA record at position 4096 + 320,
    // where the reader looks for the next record.
    let mut forged = pattern(900);
    let word = partywall_layout::record_ring::word0(partywall_layout::Position(4416), Kind::Data);
    forged[320 - 16..][..8].copy_from_slice(&word.to_le_bytes());
    forged[320 - 8..][..8].copy_from_slice(&8u64.to_le_bytes());
    ring.send(Kind::Data, &forged);
    for _ in 0..3 {
        ring.send(Kind::Data, &pattern(900));
    }
    let from = ring.tail();
    ring.send(Kind::Data, &pattern(300));
    let expected = "3840 Pad len=240; 4096 Data len=300 sum=33586";
    let about =
        "PAD, then a record; the slot behind it was zeroed, else old payload would be read there";
    ring_image("ring-pad", from, expected, about, ring)
}

fn batch_open() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::Data, b"before");
    ring.append(Kind::Data, b"a");
    ring.append(Kind::Data, b"b");
    ring_image("ring-batch-open", 0, "0 Data \"before\"", "a batch that is not published yet", ring)
}

fn batch() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.append(Kind::Data, b"aborted");
    ring.append(Kind::Data, b"aborted-too");
    ring.append(Kind::Data, b"aborted-as-well");
    ring.abort();
    ring.append(Kind::Data, b"a");
    ring.append(Kind::Data, b"b");
    ring.publish();
    let expected = "0 Data \"a\"; 64 Data \"b\"";
    let about =
        "a published batch of two over an aborted one of three: its third word must not come alive";
    ring_image("ring-batch", 0, expected, about, ring)
}

fn blobs() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::Blob, &blob(7, 0, 64, 5000));
    ring.send(Kind::Blob, &blob(1 << 32 | 3, 0, 114_688 - 64, 64));
    let expected = "0 Blob block=7 segment=0 offset=64 length=5000; \
                    64 Blob block=4294967299 segment=0 offset=114624 length=64";
    ring_image("ring-blob", 0, expected, "two messages in the slab, one up to its last byte", ring)
}

/// Image of a session over shared memory with two BLOB records: one carries credit for its stream,
/// the other carries none.
fn session_blobs() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.stream = 2;
    ring.send(Kind::Open, &[]);
    ring.send(Kind::Blob, &blob_with_credit(&blob(7, 0, 64, 5000), U64::new(12_288)));
    ring.send(Kind::Blob, &blob(8, 0, 8192, 64));
    let expected = "0 Open stream=2 \"\"; \
                    64 Blob stream=2 block=7 segment=0 offset=64 length=5000 credited=12288; \
                    128 Blob stream=2 block=8 segment=0 offset=8192 length=64";
    let about = "BLOBs of 40 and of 32 bytes on one stream; the first carries credit";
    Image { kind: "session", ..ring_image("session-blob", 0, expected, about, ring) }
}

fn segments() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::Segment, &segment(1, 64 << 10));
    ring.send(Kind::Blob, &blob(2, 1, 0, 65_536));
    ring.send(Kind::SegmentRetire, &segment(1, 64 << 10));
    ring.send(Kind::Segment, &segment(2, 128 << 10));
    let expected = "0 Segment number=1 size=65536; 64 Blob block=2 segment=1 offset=0 length=65536; \
                    128 SegmentRetire number=1 size=65536; 192 Segment number=2 size=131072";
    ring_image(
        "ring-segments",
        0,
        expected,
        "a segment comes, serves and goes; another comes",
        ring,
    )
}

/// Image of a channel whose first segment has number 2, and whose records have a stream number,
/// which a channel ignores.
fn segment_gap() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.stream = 9;
    ring.send(Kind::Segment, &segment(2, 64 << 10));
    ring.send(Kind::Data, b"any-stream");
    let expected = "0 Segment number=2 size=65536; 64 Data \"any-stream\"";
    let about = "number 1 is left out; the field `stream`, here 9, means nothing on a channel";
    ring_image("ring-segment-gap", 0, expected, about, ring)
}

fn fragments() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::FragmentFirst, &first(1000, &pattern(400)));
    ring.send(Kind::Segment, &segment(1, 64 << 10));
    ring.send(Kind::FragmentMid, &pattern(400));
    ring.send(Kind::FragmentLast, &pattern(200));
    ring.send(Kind::Data, b"next");
    let expected = "0 FragmentFirst 400/1000; 448 Segment number=1 size=65536; \
                    512 FragmentMid 800/1000; 960 FragmentLast 1000/1000; 1216 Data \"next\"";
    ring_image("ring-fragments", 0, expected, "a message of 1000 bytes in three parts", ring)
}

fn fragments_aborted() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::FragmentFirst, &first(5000, &pattern(100)));
    ring.send(Kind::FragmentAbort, &[]);
    ring.send(Kind::Data, b"next");
    let expected = "0 FragmentFirst 100/5000; 128 FragmentAbort 100/5000; 192 Data \"next\"";
    ring_image("ring-fragments-aborted", 0, expected, "a message that was given up", ring)
}

fn closed() -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    ring.send(Kind::Data, b"last");
    ring.send(Kind::CloseWrite, &[]);
    ring_image("ring-close", 0, "0 Data \"last\"; 64 CloseWrite", "the end of one direction", ring)
}

fn socket() -> Image {
    let mut socket = SocketWriter::default();
    socket.send(Kind::Data, b"one", &[]);
    socket.send(Kind::Blob, &blob(0, 0, 0, 20_000), &pattern(20_000));
    socket.send(Kind::Data, &pattern(49), &[]);
    socket.send(Kind::CloseWrite, &[], &[]);
    let expected =
        "0 Data \"one\"; 64 Blob len=20000 sum=2546416; 128 Data len=49 sum=1176; 256 CloseWrite";
    let about = "records on a socket: no padding, the BLOB's bytes follow and are not counted";
    socket_image("socket-stream", expected, about, socket)
}

fn socket_cut() -> Image {
    let mut socket = SocketWriter::default();
    socket.send(Kind::Data, b"whole", &[]);
    socket.send(Kind::Blob, &blob(0, 0, 0, 20_000), &pattern(100));
    let about = "the sender died within a message: what was whole is delivered, the rest is not";
    socket_image("socket-cut", "0 Data \"whole\"; cut", about, socket)
}

fn moves() -> Vec<Image> {
    let mut switched = SocketWriter::default();
    switched.send(Kind::Data, b"before", &[]);
    switched.send(Kind::Move, &[], &[]);
    switched.send(Kind::Data, b"meanwhile", &[]);
    switched.send(Kind::Switch, &[], &[]);
    let mut closed = SocketWriter::default();
    closed.send(Kind::Move, &[], &[]);
    closed.send(Kind::CloseWrite, &[], &[]);
    let of = |name: &str, line: &str, about, socket| Image {
        kind: "move",
        ..socket_image(name, line, about, socket)
    };
    vec![
        of(
            "move-switch",
            "0 Data \"before\"; 64 Move; 128 Data \"meanwhile\"; 192 Switch",
            "a direction that goes on in shared memory",
            switched,
        ),
        of(
            "move-close",
            "0 Move; 64 CloseWrite",
            "a direction that ends before it switches",
            closed,
        ),
    ]
}

fn control() -> Image {
    let frame = |number| ControlSegment::new(number);
    let bytes = [&[1, 1], frame(1).as_bytes(), &[1], frame(2).as_bytes()].concat();
    let expected = "doorbell; doorbell; segment 1; doorbell; segment 2";
    control_image("control-segments", expected, "doorbells, and the frames of two segments", bytes)
}

fn control_skipped() -> Image {
    let unknown = [200, 2, 12, 0, 1, 2, 3, 4, 5, 6, 7, 8];
    // The frame on the control socket that announces a segment, as a later version of the protocol
    // might send it: longer than in this version.
    let longer = [2, 1, 12, 0, 2, 0, 0, 0, 0xee, 0xee, 0xee, 0xee];
    let bytes =
        [&unknown[..], ControlSegment::new(1).as_bytes(), &[255, 0, 4, 0], &longer].concat();
    let expected = "skipped type=200 descriptors=2; segment 1; skipped type=255 descriptors=0; \
                    segment 2";
    let about = "frames of unknown types from 128 on are skipped, and their descriptors closed";
    control_image("control-unknown-skipped", expected, about, bytes)
}

fn control_image(name: &str, expected: &str, about: &'static str, bytes: Vec<u8>) -> Image {
    let (name, expected) = (format!("{name}.bin"), expected.to_owned());
    Image { name, kind: "control", from: 0, expected, about, bytes }
}

fn frame(name: &str, expected: &str, about: &'static str, bytes: &[u8]) -> Image {
    let (name, expected) = (format!("{name}.bin"), expected.to_owned());
    Image { name, kind: "frame", from: 0, expected, about, bytes: bytes.to_vec() }
}

fn ring_image(name: &str, from: u64, line: &str, about: &'static str, ring: RingWriter) -> Image {
    let (name, expected) = (format!("{name}.bin"), line.to_owned());
    Image { name, kind: "ring", from, expected, about, bytes: ring.image }
}

fn socket_image(name: &str, line: &str, about: &'static str, socket: SocketWriter) -> Image {
    let (name, expected) = (format!("{name}.bin"), line.to_owned());
    Image { name, kind: "socket", from: 0, expected, about, bytes: socket.stream }
}
