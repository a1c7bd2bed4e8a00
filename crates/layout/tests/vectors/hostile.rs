// SPDX-License-Identifier: MIT OR Apache-2.0
//! The hostile images: bytes that a peer sent, or that are in its region. Every implementation must
//! refuse each image with the code of the rule that it breaks.
//!
//! Each image breaks one rule and no other.

use super::golden::hello;
use super::writer::{RingWriter, SocketWriter, blob, blob_with_credit, first, segment};
use super::{Image, PEER_BLOCKS_MAX, RING_BYTES, SESSION, identity, pattern};
use partywall_layout::hello::{Descriptors, Hello, Offer, Ready, RejectHead};
use partywall_layout::hello::{REGION_AND_DOORBELLS, ROLE_ACCEPTOR, TRANSPORT_SHM};
use partywall_layout::record_ring::{word0, word1};
use partywall_layout::{Geometry, Kind, Position, RegionHeader};
use std::slice::from_ref;
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

pub const PREFACE: &str = "\
# Hostile images

Each image must be refused with the violation whose number (SPEC 9.3) is in `expected`. SPEC.md,
section 10, says how to use the table. Add a file and its row by hand, or in the generator
(`cargo run -p partywall-layout --example vectors -- --hostile spec/hostile`).
";

pub fn images() -> Vec<Image> {
    let mut images = hellos();
    images.extend(other_frames());
    images.extend(regions());
    images.extend(identity::hostile());
    images.extend(words());
    images.extend(lengths());
    images.extend(order());
    images.extend(bodies());
    images.extend(segments());
    images.extend(fragments());
    images.extend(sockets());
    images.extend(moves());
    images.extend(control());
    images
}

fn hellos() -> Vec<Image> {
    let h = hello();
    let named = |name, about, hello: Hello| frame(name, about, hello.as_bytes());
    let short = Hello { length: 64.into(), ..h };
    let newer = Hello { length: 1040.into(), ..h };
    let newer = [newer.as_bytes(), &[0; 912]].concat();
    vec![
        named("hello-tag", "another protocol's first bytes", Hello { tag: *b"GET / HT", ..h }),
        named("hello-length-0", "shorter than its beginning", Hello { length: 0.into(), ..h }),
        named("hello-length-huge", "4 GiB long", Hello { length: u32::MAX.into(), ..h }),
        frame("hello-length-1040", "longer than the largest frame", &newer),
        frame("hello-short", "version 2 without its fields", &short.as_bytes()[..64]),
        named(
            "hello-range",
            "the oldest version is newer than the newest",
            Hello { version_min: 3.into(), ..h },
        ),
        named("hello-version-0", "version 0", Hello { version_min: 0.into(), ..h }),
        named(
            "hello-service",
            "service 0, which can never be one",
            Hello { service: 0.into(), ..h },
        ),
        named("hello-descriptors", "a list of 8 descriptors", hello_of(h, 8, [1; 7])),
        named("hello-two-processes", "two pidfds", hello_of(h, 2, [1, 1, 0, 0, 0, 0, 0])),
        frame("hello-cut", "shorter than its length", &h.as_bytes()[..100]),
    ]
}

fn hello_of(h: Hello, count: u8, kinds: [u8; 7]) -> Hello {
    Hello { descriptors: Descriptors { count, kinds }, ..h }
}

fn other_frames() -> Vec<Image> {
    let offer = Offer::shm(131_072, REGION_AND_DOORBELLS);
    let long = Offer { length: 65.into(), ..offer };
    let ready = Ready::new(TRANSPORT_SHM, 0);
    let mut text = RejectHead::new(1, 4).as_bytes().to_vec();
    text.extend_from_slice(b"no");
    text[12] = 26;
    let mut huge =
        RejectHead { length: (24 + 513).into(), text_length: 513.into(), ..RejectHead::new(1, 0) }
            .as_bytes()
            .to_vec();
    huge.extend_from_slice(&[b'x'; 513]);
    vec![
        frame(
            "offer-transport",
            "neither shared memory nor socket",
            Offer { transport: 0.into(), ..offer }.as_bytes(),
        ),
        frame("offer-long", "shorter than its length", &long.as_bytes()[..64]),
        frame(
            "offer-two-regions",
            "two regions",
            Offer { descriptors: Descriptors::of(&[2, 2]), ..offer }.as_bytes(),
        ),
        frame(
            "offer-length-63",
            "OFFER without its last byte",
            &Offer { length: 63.into(), ..offer }.as_bytes()[..63],
        ),
        frame(
            "ready-transport",
            "neither shared memory nor socket",
            Ready { transport: 3.into(), ..ready }.as_bytes(),
        ),
        frame(
            "ready-length-32",
            "READY of version 1",
            &Ready { length: 32.into(), ..ready }.as_bytes()[..32],
        ),
        frame("ready-cut", "ends before its beginning does", &ready.as_bytes()[..15]),
        frame("reject-text-length", "a text shorter than its length", &text),
        frame("reject-text-huge", "a text of 513 bytes", &huge),
    ]
}

fn regions() -> Vec<Image> {
    let region = |name: &str, about, tamper: fn(&mut RegionHeader)| {
        let geometry = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, 64 << 10).unwrap();
        let mut header = geometry.header(SESSION, 4242, ROLE_ACCEPTOR);
        tamper(&mut header);
        image(&format!("region-{name}"), "region", 0, 1, about, header.as_bytes().to_vec())
    };
    vec![
        region("magic", "not the magic", |h| h.magic[7] = 2),
        region("version", "another format version", |h| h.version = 2.into()),
        region("header-size", "a header page of 8192 bytes", |h| h.header_size = 8192.into()),
        region("layout-hash", "another layout hash", |h| h.layout_hash = 1.into()),
        region("size", "not the descriptor's size", |h| h.region_size = 65_536.into()),
        region("session", "a region of another session", |h| h.session_id[15] ^= 1),
        region("role", "the receiver's own region", |h| h.role = 0.into()),
        region("kind-0", "no kind of region", |h| h.kind = 0.into()),
        region("kind-link", "a region of kind 2, which is of no connection", |h| h.kind = 2.into()),
        region("kind-reserved", "a region of kind 4, which is reserved", |h| h.kind = 4.into()),
        region("kind-topic", "a region of kind 3, reserved for topics", |h| h.kind = 3.into()),
        region("kind-unknown", "a region of a kind that no document defines", |h| {
            h.kind = 77.into()
        }),
        region("ring-odd", "a ring of 5000 bytes", |h| h.ring_size = 5000.into()),
        region("ring-small", "a ring of 2048 bytes", |h| h.ring_size = 2048.into()),
        region("ring-huge", "a ring of 2 GiB", |h| h.ring_size = (1 << 31).into()),
        region("ring-in-control", "the ring lies on the control page", |h| {
            h.ring_offset = 4096.into()
        }),
        region("ring-unaligned", "the ring begins within a page", |h| h.ring_offset = 8256.into()),
        region("ring-wraps", "the ring's end exceeds 64 bits", |h| {
            h.ring_offset = (u64::MAX - 4095).into()
        }),
        region("release-odd", "9 release entries", |h| h.peer_blocks_max = 9.into()),
        region("release-few", "4 release entries, 8 were announced", |h| {
            h.peer_blocks_max = 4.into()
        }),
        region("release-none", "no release entries", |h| h.peer_blocks_max = 0.into()),
        region("release-huge", "2^40 release entries", |h| h.peer_blocks_max = (1 << 40).into()),
        region("release-in-ring", "the release ring lies in the ring", |h| {
            h.release_offset = 8192.into()
        }),
        region("slab-in-release", "the slab lies on the release ring", |h| {
            h.slab_offset = 12_288.into()
        }),
        region("slab-beyond", "the slab ends behind the region", |h| h.slab_size = 114_689.into()),
        region("slab-wraps", "the slab's end exceeds 64 bits", |h| h.slab_size = u64::MAX.into()),
    ]
}

fn words() -> Vec<Image> {
    let word = |name: &str, code, about, first: u64| raw(name, 64, code, about, first, word1(0, 0));
    let old = word0(Position(64), Kind::Data);
    vec![
        raw("word-old-lap", 4096 + 64, 2, "the record of the lap before", old, 0),
        word("word-other", 2, "a word of position 128", word0(Position(128), Kind::Data)),
        word("word-uncommitted", 2, "the committed bit is 0", old & !1),
        word("word-text", 2, "payload where a record must begin", u64::from_le_bytes(*b"payload!")),
        word("word-high-bit", 2, "bit 63 set", old | 1 << 63),
        word("kind-0", 3, "kind 0", 64 | 1),
        word("kind-16", 3, "kind 16", 64 | 16 << 1 | 1),
        word("kind-17", 3, "kind 17, reserved for SUBSCRIBE", 64 | 17 << 1 | 1),
        word("kind-18", 3, "kind 18, reserved for TOPIC", 64 | 18 << 1 | 1),
        word("kind-19", 3, "kind 19, reserved for LOST", 64 | 19 << 1 | 1),
        word("kind-20", 3, "kind 20, MOVE, which only sockets have", 64 | 20 << 1 | 1),
        word("kind-21", 3, "kind 21, SWITCH, which only sockets have", 64 | 21 << 1 | 1),
        word("kind-30", 3, "kind 30", 64 | 30 << 1 | 1),
    ]
}

fn lengths() -> Vec<Image> {
    let sized = |name: &str, from, code, about, kind, len| {
        raw(name, from, code, about, word0(Position(from), kind), word1(len, 0))
    };
    vec![
        sized("len-quarter", 0, 5, "one byte more than a quarter of the ring", Kind::Data, 1009),
        sized("len-huge", 0, 5, "4 GiB", Kind::Data, u32::MAX),
        sized("len-end", 4096 - 64, 5, "leaves the ring", Kind::Data, 49),
        sized("len-control", 0, 5, "a SEGMENT larger than a record", Kind::Segment, 4080),
        sized("pad-start", 4096, 6, "PAD at the ring's start", Kind::Pad, 4080),
        sized("pad-short", 3968, 6, "PAD that ends before the ring does", Kind::Pad, 48),
        sized("pad-long", 3968, 6, "PAD that leaves the ring", Kind::Pad, 113),
        sized("pad-huge", 3968, 6, "PAD of 4 GiB", Kind::Pad, u32::MAX),
    ]
}

fn order() -> Vec<Image> {
    let session = |name, kind| records(name, 4, "a session kind on a channel", &[(kind, vec![])]);
    let close = (Kind::CloseWrite, vec![]);
    let data = (Kind::Data, b"late".to_vec());
    vec![
        session("kind-open", Kind::Open),
        session("kind-reset", Kind::Reset),
        session("kind-credit", Kind::Credit),
        session("kind-go-away", Kind::GoAway),
        session("kind-ping", Kind::Ping),
        records("close-data", 4, "DATA after CLOSE_WRITE", &[close.clone(), data]),
        records("close-twice", 4, "CLOSE_WRITE after CLOSE_WRITE", &[close.clone(), close]),
        records("close-payload", 7, "CLOSE_WRITE with a payload", &[(Kind::CloseWrite, vec![1])]),
    ]
}

fn bodies() -> Vec<Image> {
    let blob_of = |name, code, about, body| records(name, code, about, &[(Kind::Blob, body)]);
    vec![
        blob_of("blob-short", 7, "a BLOB of 31 bytes", blob(1, 0, 0, 8)[..31].to_vec()),
        blob_of("blob-long", 7, "a BLOB of 33 bytes", [blob(1, 0, 0, 8), vec![0]].concat()),
        blob_of(
            "blob-credit",
            7,
            "a BLOB of 40 bytes: only those of sessions carry credit",
            blob_with_credit(&blob(1, 0, 0, 8), U64::new(0)),
        ),
        blob_of("blob-beyond", 7, "ends one byte behind the slab", blob(1, 0, 114_681, 8)),
        blob_of("blob-outside", 7, "begins behind the slab", blob(1, 0, 1 << 40, 8)),
        blob_of("blob-wraps", 7, "offset + length exceeds 64 bits", blob(1, 0, u64::MAX, 8)),
        blob_of("blob-segment", 7, "in an unknown segment", blob(1, 1, 0, 8)),
        blob_of("blob-message-max", 11, "longer than message_max", blob(1, 0, 0, 65_537)),
        blob_of("blob-message-huge", 11, "the whole slab, one message", blob(1, 0, 0, 114_688)),
    ]
}

fn segments() -> Vec<Image> {
    let one = (Kind::Segment, segment(1, 64 << 10));
    let two = (Kind::Segment, segment(2, 64 << 10));
    let of = |name, code, about, body| records(name, code, about, &[(Kind::Segment, body)]);
    let retired = (Kind::SegmentRetire, segment(1, 64 << 10));
    let blob_in_one = (Kind::Blob, blob(1, 1, 0, 8));
    let other_size = (Kind::SegmentRetire, segment(1, 128 << 10));
    vec![
        of("segment-short", 7, "a SEGMENT of 15 bytes", segment(1, 64 << 10)[..15].to_vec()),
        of("segment-0", 7, "segment 0 is the slab", segment(0, 64 << 10)),
        of("segment-odd", 7, "not a multiple of 64 KiB", segment(1, 65_000)),
        of("segment-empty", 7, "no bytes", segment(1, 0)),
        of("segment-map-max", 12, "more memory than map_max", segment(1, 192 << 10)),
        of("segment-huge", 12, "nearly 2^64 bytes", segment(1, u64::MAX - 65_535)),
        of("segment-missing", 13, "its descriptor did not arrive", segment(3, 64 << 10)),
        records("segment-twice", 7, "number 1 twice", &[one.clone(), one.clone()]),
        records("segment-back", 7, "number 1 after 2", &[two.clone(), one.clone()]),
        records(
            "segment-again",
            7,
            "a number used again after SEGMENT_RETIRE",
            &[one.clone(), retired.clone(), one.clone()],
        ),
        records(
            "segment-third",
            12,
            "a third segment at a time, two were agreed",
            &[one.clone(), two, (Kind::Segment, segment(3, 64 << 10))],
        ),
        records("retire-unknown", 7, "retires an unknown segment", from_ref(&retired)),
        records(
            "retire-slab",
            7,
            "retires the slab",
            &[(Kind::SegmentRetire, segment(0, 114_688))],
        ),
        records("retire-size", 7, "retires it with another size", &[one.clone(), other_size]),
        records("retire-blob", 7, "a BLOB in a retired segment", &[one, retired, blob_in_one]),
    ]
}

fn fragments() -> Vec<Image> {
    let begin = (Kind::FragmentFirst, first(100, &pattern(40)));
    let mid = (Kind::FragmentMid, pattern(20));
    let after = |name, about, next| records(name, 14, about, &[begin.clone(), next]);
    let alone = |name, code, about, kind, body| records(name, code, about, &[(kind, body)]);
    let abort = (Kind::FragmentAbort, vec![0]);
    vec![
        alone("fragment-mid", 14, "a middle without a beginning", Kind::FragmentMid, pattern(8)),
        alone("fragment-last", 14, "an end without a beginning", Kind::FragmentLast, pattern(8)),
        alone("fragment-abort", 14, "an abort without a beginning", Kind::FragmentAbort, vec![]),
        alone("fragment-prefix", 7, "7 bytes of total length", Kind::FragmentFirst, pattern(7)),
        alone(
            "fragment-max",
            11,
            "longer than message_max",
            Kind::FragmentFirst,
            first(65_537, &[]),
        ),
        alone(
            "fragment-over",
            14,
            "the first part is too long",
            Kind::FragmentFirst,
            first(3, b"four"),
        ),
        after("fragment-first-twice", "a beginning within a message", begin.clone()),
        after("fragment-mid-over", "more bytes than announced", (Kind::FragmentMid, pattern(61))),
        after(
            "fragment-last-under",
            "fewer bytes than announced",
            (Kind::FragmentLast, pattern(59)),
        ),
        after("fragment-data", "DATA within a message", (Kind::Data, b"x".to_vec())),
        after("fragment-blob", "BLOB within a message", (Kind::Blob, blob(1, 0, 0, 8))),
        records("fragment-abort-body", 7, "an abort with a payload", &[begin.clone(), abort]),
        records(
            "fragment-after-end",
            14,
            "a middle after the end",
            &[begin.clone(), (Kind::FragmentLast, pattern(60)), mid],
        ),
    ]
}

fn sockets() -> Vec<Image> {
    let of = |name: &str, code, about, list: &[(Kind, Vec<u8>)]| {
        let mut socket = SocketWriter::default();
        for (kind, payload) in list {
            socket.send(*kind, payload, &[]);
        }
        image(&format!("socket-{name}"), "socket", 0, code, about, socket.stream)
    };
    let data = (Kind::Data, b"one".to_vec());
    let mut repeated = of("position", 2, "a record's position again", from_ref(&data));
    repeated.bytes.extend_from_within(..);
    let mut zero = of("zero", 2, "zeros where a record must begin", from_ref(&data));
    zero.bytes.extend_from_slice(&[0; 16]);
    vec![
        repeated,
        zero,
        of("kind", 3, "kind 20, MOVE, which was not agreed on", &[])
            .with_bytes(&[word1(41, 0), word1(0, 0)]),
        of("kind-21", 3, "kind 21, SWITCH, which was not agreed on", &[])
            .with_bytes(&[word1(43, 0), word1(0, 0)]),
        of("segment", 4, "a SEGMENT on a socket", &[(Kind::Segment, segment(1, 65_536))]),
        of("fragment", 4, "a fragment on a socket", &[(Kind::FragmentFirst, first(1, b"x"))]),
        of("pad", 4, "PAD on a channel's socket", &[(Kind::Pad, vec![])]),
        of("data-max", 5, "DATA of 65537 bytes", &[(Kind::Data, pattern(65_537))]),
        of("len-huge", 5, "DATA of 4 GiB", &[])
            .with_bytes(&[word0(Position(0), Kind::Data), word1(u32::MAX, 0)]),
        of("blob-short", 7, "a BLOB of 31 bytes", &[(Kind::Blob, blob(0, 0, 0, 8)[..31].to_vec())]),
        of("blob-max", 11, "longer than message_max", &[(Kind::Blob, blob(0, 0, 0, 65_537))]),
        of("blob-huge", 11, "2^64 - 1 bytes", &[(Kind::Blob, blob(0, 0, 0, u64::MAX))]),
        of("close-data", 4, "DATA after CLOSE_WRITE", &[(Kind::CloseWrite, vec![]), data]),
    ]
}

fn moves() -> Vec<Image> {
    let of = |name: &str, code, about, list: &[(Kind, &[u8])]| {
        let mut socket = SocketWriter::default();
        for (kind, payload) in list {
            socket.send(*kind, payload, &[]);
        }
        image(&format!("move-{name}"), "move", 0, code, about, socket.stream)
    };
    let (begun, switched, end) = ((Kind::Move, &[][..]), (Kind::Switch, &[][..]), Kind::CloseWrite);
    vec![
        of("twice", 4, "a second MOVE", &[begun, begun]),
        of("body", 7, "MOVE with a payload", &[(Kind::Move, b"x")]),
        of("switch-early", 4, "SWITCH without MOVE", &[switched]),
        of("switch-body", 7, "SWITCH with a payload", &[begun, (Kind::Switch, b"x")]),
        of("switch-data", 4, "DATA after SWITCH", &[begun, switched, (Kind::Data, b"late")]),
        of("switch-twice", 4, "SWITCH after SWITCH", &[begun, switched, switched]),
        of("close-move", 4, "MOVE after CLOSE_WRITE", &[(end, &[]), begun]),
        of("close-switch", 4, "SWITCH after CLOSE_WRITE", &[begun, (end, &[]), switched]),
    ]
}

fn control() -> Vec<Image> {
    let of = |name: &str, about, bytes: &[u8]| {
        image(&format!("control-{name}"), "control", 0, 15, about, bytes.to_vec())
    };
    vec![
        of("byte-0", "neither a doorbell nor a frame", &[1, 0]),
        of("type-3", "a frame of type 3, reserved", &[3, 1, 8, 0, 1, 0, 0, 0]),
        of("type-4", "a frame of type 4, reserved", &[4, 1, 12, 0, 1, 0, 0, 0, 1, 0, 0, 0]),
        of("type-5", "a frame of type 5, reserved", &[5, 1, 8, 0, 1, 0, 0, 0]),
        of("type-127", "the last type that may not be skipped", &[127, 0, 4, 0]),
        of("segment-old", "a segment's frame of 5 bytes, without a head", &[2, 1, 0, 0, 0]),
        of("segment-short", "a segment's frame without its number", &[2, 1, 4, 0]),
        of("segment-long", "a frame of 65 bytes", &[&[2, 1, 65, 0][..], &[0; 61]].concat()),
        of("segment-two", "a segment's frame with two descriptors", &[2, 2, 8, 0, 1, 0, 0, 0]),
        of("segment-none", "a segment's frame without descriptor", &[2, 0, 8, 0, 1, 0, 0, 0]),
        of("skipped-short", "a frame shorter than its head", &[200, 0, 3, 0]),
        of("skipped-many", "a frame with five descriptors", &[200, 5, 4, 0]),
    ]
}

impl Image {
    fn with_bytes(mut self, words: &[u64]) -> Self {
        self.bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self
    }
}

fn frame(name: &str, about: &'static str, bytes: &[u8]) -> Image {
    image(&format!("frame-{name}"), "frame", 0, 15, about, bytes.to_vec())
}

/// Image of a ring with the records of `list`. Their headers are valid, but one of the records
/// breaks the rule `code`.
fn records(name: &str, code: u32, about: &'static str, list: &[(Kind, Vec<u8>)]) -> Image {
    let mut ring = RingWriter::new(RING_BYTES);
    for (kind, payload) in list {
        ring.send(*kind, payload);
    }
    image(&format!("ring-{name}"), "ring", 0, code, about, ring.image)
}

/// Image of a ring that is all zeros, except for the two words `first` and `second` at the position
/// `from`, where the reader begins.
fn raw(name: &str, from: u64, code: u32, about: &'static str, first: u64, second: u64) -> Image {
    let mut ring = RingWriter::new(RING_BYTES).image;
    let offset = usize::try_from(from % RING_BYTES).unwrap();
    ring[offset..offset + 8].copy_from_slice(&first.to_le_bytes());
    ring[offset + 8..offset + 16].copy_from_slice(&second.to_le_bytes());
    image(&format!("ring-{name}"), "ring", from, code, about, ring)
}

fn image(
    name: &str,
    kind: &'static str,
    from: u64,
    code: u32,
    about: &'static str,
    bytes: Vec<u8>,
) -> Image {
    Image { name: format!("{name}.bin"), kind, from, expected: code.to_string(), about, bytes }
}
