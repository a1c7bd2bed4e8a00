// SPDX-License-Identifier: MIT OR Apache-2.0
//! Records of links: those that a reader must understand, and those that it must refuse, each with
//! the number of the rule that it breaks (SPEC 14.5).
//!
//! Each invalid record breaks one rule and no other; its checksum is right, unless the broken rule
//! is the one about the checksum.

use super::{Image, RING_BYTES, pattern};
use partywall_layout::link::record::{Ack, Body, blob_crc, tag};
use partywall_layout::link::{LinkBlob, LinkPrefix, LinkRecord, RecordFault, compact};
use partywall_layout::record_ring::{Kind, WireHeader, word0};
use partywall_layout::{Position, RingSize};
use zerocopy::IntoBytes;

pub const PREFACE: &str = "\
# Link records

SPEC.md, section 14.5, says how to use the table. Each file is one record as it is sent over a socket,
a BLOB's bytes included, of stream 0x0123456789abcdef in a ring of 4,096 bytes, at position `from`.
`expected` is its content, or the number of the broken rule. Add rows in the generator
(`cargo run -p partywall-layout --example vectors -- --link-records spec/link-records`).
";

/// Id of the stream that all link records of this file belong to.
pub const STREAM: u64 = 0x0123_4567_89ab_cdef;

pub fn images() -> Vec<Image> {
    let mut images = good();
    images.extend(headers());
    images.extend(payloads());
    images.extend(compact());
    images.extend(bad_compact());
    images
}

/// Reads the link record at the position `from`, and returns its content as the line that INDEX.md
/// states.
pub fn read(bytes: &[u8], from: u64) -> Result<String, RecordFault> {
    let size = RingSize::new(RING_BYTES).unwrap();
    let checked = LinkRecord::check(Position(from), tag(STREAM), size, bytes)?;
    let Some(record) = checked else { return Ok("nothing".to_owned()) };
    let (own, Ack { position, digest, tag }) = (record.wire_bytes(), record.ack);
    let behind = &bytes[usize::try_from(own).unwrap()..];
    let content = match record.body {
        Body::Pad => return Ok(format!("pad until={}", from + record.header.footprint())),
        Body::Message(message) => format!("data length={} sum={}", message.len(), sum(message)),
        Body::Blob { offset, length, crc } => {
            assert_eq!((behind.len() as u64, blob_crc(behind)), (length, crc));
            format!("blob offset={offset} length={length} sum={}", sum(behind))
        }
    };
    Ok(format!("{content} digest={:#x} ack={position}/{digest:#x}/{tag:#x}", record.digest))
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().map(|byte| u64::from(*byte)).sum()
}

/// A builder for the bytes of one link record.
struct Maker {
    from: u64,
    kind: Kind,
    tag: u32,
    ack: Ack,
    blob_crc: u32,
    body: Vec<u8>,
    behind: Vec<u8>,
}

impl Maker {
    fn data(from: u64, message: &[u8]) -> Self {
        let (body, behind) = (message.to_vec(), Vec::new());
        let (tag, ack) = (tag(STREAM), Ack::default());
        Self { from, kind: Kind::Data, tag, ack, blob_crc: 0, body, behind }
    }

    fn blob(from: u64, offset: u64, bytes: &[u8]) -> Self {
        let blob = LinkBlob { offset: offset.into(), length: (bytes.len() as u64).into() };
        let (behind, blob_crc) = (bytes.to_vec(), blob_crc(bytes));
        Self { kind: Kind::Blob, behind, blob_crc, ..Self::data(from, blob.as_bytes()) }
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { from, kind, tag, ack, blob_crc, body, behind } = self;
        let at = Position(*from);
        let prefix = LinkPrefix::sealed(at, *kind, *tag, *ack, *blob_crc, &[body]);
        let len = u32::try_from(24 + body.len()).unwrap();
        let mut bytes = header(word0(at, *kind), len, *tag);
        bytes.extend(prefix.as_bytes());
        bytes.extend(body);
        bytes.extend(behind);
        bytes
    }
}

fn header(word0: u64, len: u32, stream: u32) -> Vec<u8> {
    let header = WireHeader { word0: word0.into(), len: len.into(), stream: stream.into() };
    header.as_bytes().to_vec()
}

fn pad(from: u64, len: u32, stream: u32) -> Vec<u8> {
    header(word0(Position(from), Kind::Pad), len, stream)
}

fn good() -> Vec<Image> {
    let ack = Ack { position: 8192, digest: 0x0102_0304, tag: tag(77) };
    let first = Maker::data(0, b"hello");
    let reply = Maker { ack, ..Maker::data(64, &pattern(300)) };
    let start = Maker { ack: Ack { position: 0, digest: 0, tag: 9 }, ..Maker::data(448, b"") };
    let blob = Maker { ack, ..Maker::blob(8128, 640, &pattern(2000)) };
    let image = |name, from, about, bytes: Vec<u8>| {
        let expected = read(&bytes, from).unwrap();
        image(name, from, expected, about, bytes)
    };
    vec![
        image("data", 0, "the first record, which acknowledges nothing", first.bytes()),
        image("reply", 64, "a message that acknowledges the one it answers", reply.bytes()),
        image(
            "empty",
            448,
            "an empty message, with an ack at the start of a stream",
            start.bytes(),
        ),
        image("blob", 8128, "in the last slot of the ring", blob.bytes()),
        image("pad", 3904, "on a socket, the header alone", pad(3904, 176, 0)),
        image("nothing", 512, "not published", vec![0; 64]),
    ]
}

fn headers() -> Vec<Image> {
    let data = || Maker::data(64, b"hello");
    let mut short = data().bytes();
    short.splice(8..12, 23_u32.to_le_bytes());
    let mut cut = data().bytes();
    cut.pop();
    let mut long = Maker::blob(64, 0, b"x");
    long.body.push(0);
    let other = Maker { tag: tag(77), ..data() };
    let kind = Maker { kind: Kind::CloseWrite, ..data() };
    vec![
        bad("position", 1, 64, "a record of another position", Maker::data(128, b"x").bytes()),
        bad(
            "quarter",
            1,
            64,
            "longer than a quarter of the ring",
            Maker::data(64, &[0; 985]).bytes(),
        ),
        bad("pad-at-start", 1, 4096, "a PAD where the ring begins", pad(4096, 4080, 0)),
        bad("kind", 2, 64, "a CLOSE_WRITE", kind.bytes()),
        bad("tag", 3, 64, "of another stream", other.bytes()),
        bad("pad-tag", 3, 3904, "a PAD with a tag", pad(3904, 176, tag(STREAM))),
        bad("short", 4, 64, "too short for a prefix", short),
        bad("blob-long", 4, 64, "a BLOB with a byte more", long.bytes()),
        bad("pad-length", 4, 3904, "a PAD that ends within the last slot", pad(3904, 175, 0)),
        bad("cut", 5, 64, "its last byte is missing", cut),
        bad("cut-header", 5, 64, "fewer bytes than a header", data().bytes()[..15].to_vec()),
    ]
}

fn payloads() -> Vec<Image> {
    let data = || Maker::data(64, b"hello");
    let flipped = |name, about, index: usize| {
        let mut bytes = data().bytes();
        bytes[index] ^= 0x10;
        bad(name, 6, 64, about, bytes)
    };
    let acks = |name, about, position, digest, tag| {
        let ack = Ack { position, digest, tag };
        bad(name, 7, 64, about, Maker { ack, ..data() }.bytes())
    };
    let blobs = |name, about, offset: u64, length: u64| {
        let blob = LinkBlob { offset: offset.into(), length: length.into() };
        let maker = Maker { kind: Kind::Blob, ..Maker::data(64, blob.as_bytes()) };
        bad(name, 8, 64, about, maker.bytes())
    };
    vec![
        flipped("crc", "another checksum", 16),
        flipped("message", "another byte in the message", 42),
        flipped("ack-damaged", "another byte in what it acknowledges", 25),
        acks("ack-tagless", "an acked offset without a stream", 64, 1, 0),
        acks("ack-unaligned", "an acked position within a slot", 65, 1, 9),
        acks("ack-digest", "a record digest at the start", 0, 1, 9),
        blobs("blob-empty", "a BLOB of no bytes", 0, 0),
        blobs("blob-unaligned", "a BLOB within 64 bytes", 65, 1),
        blobs("blob-wraps", "its end exceeds 64 bits", u64::MAX - 63, 64),
        bad(
            "data-blob",
            8,
            64,
            "DATA with the checksum of a BLOB",
            Maker { blob_crc: 1, ..data() }.bytes(),
        ),
    ]
}

/// Builds a compact record that carries `message` at the position `from`. Its checksum also covers
/// the `tag` of the stream.
fn compact_of(from: u64, tag: u32, message: &[u8]) -> Vec<u8> {
    let at = Position(from);
    let crc = compact::crc(at, tag, &[message]);
    let len = u32::try_from(message.len()).unwrap();
    let mut bytes = header(word0(at, Kind::CompactRecord), len, crc);
    bytes.extend(message);
    bytes
}

fn compact() -> Vec<Image> {
    let image = |name, from, about, message: &[u8]| {
        let bytes = compact_of(from, tag(STREAM), message);
        let expected = read(&bytes, from).unwrap();
        image(name, from, expected, about, bytes)
    };
    vec![
        image("compact", 64, "a compact record, with as much as fits its slot", &pattern(48)),
        image("compact-empty", 128, "a compact record, a message of no bytes", b""),
        image("compact-less", 192, "a compact record, a byte less than fits a slot", &pattern(47)),
        image("compact-more", 320, "a compact record, a byte more than fits a slot", &pattern(49)),
        image("compact-end", 8128, "a compact record, in the last slot of the ring", &pattern(48)),
        image(
            "compact-long",
            3072,
            "a compact record, a quarter of the ring and its end",
            &pattern(1008),
        ),
    ]
}

fn bad_compact() -> Vec<Image> {
    let own = |from, message: &[u8]| compact_of(from, tag(STREAM), message);
    let flipped = |name, about, index: usize| {
        let mut bytes = own(64, &pattern(48));
        bytes[index] ^= 0x10;
        bad(name, 6, 64, about, bytes)
    };
    let mut shorter = own(64, &pattern(48));
    shorter.splice(8..12, 47_u32.to_le_bytes());
    let mut cut = own(64, &pattern(48));
    cut.pop();
    let mut tagged = own(64, &pattern(48));
    tagged.splice(12..16, tag(STREAM).to_le_bytes());
    vec![
        bad(
            "compact-quarter",
            1,
            64,
            "a compact record longer than a quarter of the ring",
            own(64, &[0; 1009]),
        ),
        bad(
            "compact-first",
            2,
            0,
            "a compact record where the stream begins",
            own(0, &pattern(48)),
        ),
        bad(
            "compact-ring",
            2,
            4096,
            "a compact record where the ring begins",
            own(4096, &pattern(48)),
        ),
        bad("compact-cut", 5, 64, "a compact record whose last byte is missing", cut),
        bad(
            "compact-tag",
            6,
            64,
            "a compact record of another stream",
            compact_of(64, tag(77), &pattern(48)),
        ),
        bad("compact-tagged", 6, 64, "a compact record with the tag for its crc", tagged),
        flipped("compact-crc", "a compact record with another checksum", 12),
        flipped("compact-message", "a compact record with another byte in its message", 40),
        bad("compact-shorter", 6, 64, "a compact record with a length one byte too short", shorter),
    ]
}

fn bad(name: &str, code: u32, from: u64, about: &'static str, bytes: Vec<u8>) -> Image {
    image(name, from, code.to_string(), about, bytes)
}

fn image(name: &str, from: u64, expected: String, about: &'static str, bytes: Vec<u8>) -> Image {
    Image { name: format!("record-{name}.bin"), kind: "record", from, expected, about, bytes }
}
