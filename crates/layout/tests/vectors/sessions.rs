// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sequences of records that one side of a session sends: those that SPEC 11 allows and those that
//! it forbids. Most sequences are written both as a ring image and as a socket stream (SPEC 10).

use super::writer::{RingWriter, SocketWriter, blob, first};
use super::{Image, RING_BYTES, pattern};
use partywall_layout::Kind;
use partywall_layout::Kind::{
    Blob, CloseWrite, Credit, Data, End, FragmentAbort, FragmentFirst, FragmentLast, FragmentMid,
    GoAway, Open, Ping, Reset,
};

pub const PREFACE: &str = "\
# Sessions

Records that the connector of a session sends. SPEC.md, section 10, says what the reader is. A file
`….ring.bin` is a ring, `….socket.bin` the same records on a socket; what only one transport can
carry has one file. `expected` is what is read, or the number of the violation (SPEC 9.3). The
command `cargo xtask gen` writes these files.
";

pub fn images() -> Vec<Image> {
    let mut images = Vec::new();
    for list in [
        in_order(),
        in_order_without_messages(),
        opening(),
        of_the_session(),
        ending(),
        credit(),
        parts(),
    ] {
        images.extend(list.into_iter().flat_map(Sequence::images));
    }
    images.extend(socket_only().into_iter().map(Sequence::socket));
    images
}

/// A sequence of records that one side of a session sends, and the result that its reader must
/// return.
struct Sequence {
    name: &'static str,
    expected: String,
    about: &'static str,
    records: Vec<(Kind, u32, Vec<u8>)>,
    /// Length in bytes of the body of the sequence's BLOB on a socket. There, the message that the
    /// BLOB announces follows the record.
    blob_bytes: usize,
}

impl Sequence {
    fn images(self) -> [Image; 2] {
        let mut ring = RingWriter::new(RING_BYTES);
        for (kind, stream, payload) in &self.records {
            ring.stream = *stream;
            ring.send(*kind, payload);
        }
        let (expected, about) = (self.expected.clone(), self.about);
        let name = format!("{}.ring.bin", self.name);
        let ring =
            Image { name, kind: "session-ring", from: 0, expected, about, bytes: ring.image };
        [ring, self.socket()]
    }

    fn socket(self) -> Image {
        let mut socket = SocketWriter::default();
        for (kind, stream, payload) in &self.records {
            socket.stream_number = *stream;
            // On a socket, the message of a BLOB follows the record, so only the first bytes of
            // `payload` belong to the record.
            let body = payload.get(..self.blob_bytes).filter(|_| *kind == Blob).unwrap_or(payload);
            socket.send(*kind, body, &payload[body.len()..]);
        }
        let name = format!("{}.socket.bin", self.name);
        let (expected, about) = (self.expected, self.about);
        Image { name, kind: "session-socket", from: 0, expected, about, bytes: socket.stream }
    }
}

fn good(
    name: &'static str,
    expected: &str,
    about: &'static str,
    records: Vec<(Kind, u32, Vec<u8>)>,
) -> Sequence {
    Sequence { name, expected: expected.to_owned(), about, records, blob_bytes: 32 }
}

fn bad(
    name: &'static str,
    code: u32,
    about: &'static str,
    records: Vec<(Kind, u32, Vec<u8>)>,
) -> Sequence {
    Sequence { name, expected: code.to_string(), about, records, blob_bytes: 32 }
}

fn in_order() -> Vec<Sequence> {
    let text = |text: &[u8]| text.to_vec();
    vec![
        good(
            "stream",
            "0 Open stream=1 content=0 \"orders\"; 64 Data stream=1 \"hello\"; \
             128 CloseWrite stream=1; 192 Data stream=2 \"reply\"",
            "a stream with metadata, a message, its end; a message on the reader's own stream",
            vec![
                open(1, b"orders"),
                (Data, 1, text(b"hello")),
                close(1),
                (Data, 2, text(b"reply")),
            ],
        ),
        good(
            "open-content",
            "0 Open stream=1 content=1 \"\"; 64 Open stream=3 content=2 \"\"; \
             128 Open stream=5 content=9 \"\"",
            "bytes, calls, and a content that no document defines",
            vec![opened(1, 1, b""), opened(3, 2, b""), opened(5, 9, b"")],
        ),
        good(
            "open-reserved",
            "0 Open stream=1 content=0 \"x\"",
            "a priority and zeros of a later version, which are ignored",
            vec![(Open, 1, [&[0, 0, 7, 0xee, 0xee, 0xee, 0xee, 0xee], &b"x"[..]].concat())],
        ),
        good(
            "open-metadata-max",
            "0 Open stream=7 content=0 len=1000 sum=124716",
            "the longest metadata, on the highest index",
            vec![open(7, &pattern(1000))],
        ),
        good(
            "parts-interleaved",
            "0 Open stream=1 content=0 \"\"; 64 FragmentFirst stream=1 3/8; \
             128 FragmentFirst stream=2 0/4; 192 FragmentMid stream=1 5/8; \
             256 FragmentLast stream=2 4/4; 320 Credit stream=2 credited=64; \
             384 FragmentLast stream=1 8/8",
            "parts of two streams, and CREDIT between them",
            vec![
                open(1, b""),
                (FragmentFirst, 1, first(8, b"abc")),
                (FragmentFirst, 2, first(4, b"")),
                (FragmentMid, 1, text(b"de")),
                (FragmentLast, 2, text(b"1234")),
                credited(2, 64),
                (FragmentLast, 1, text(b"fgh")),
            ],
        ),
        good(
            "parts-ended",
            "0 FragmentFirst stream=2 1/9; 64 CloseWrite stream=2",
            "the end of a direction ends the unfinished message",
            vec![(FragmentFirst, 2, first(9, b"x")), close(2)],
        ),
        good(
            "parts-aborted",
            "0 FragmentFirst stream=2 1/9; 64 FragmentAbort stream=2 1/9; 128 Data stream=2 \"next\"",
            "a message that was given up, and the next one",
            vec![
                (FragmentFirst, 2, first(9, b"x")),
                (FragmentAbort, 2, vec![]),
                (Data, 2, text(b"next")),
            ],
        ),
    ]
}

fn in_order_without_messages() -> Vec<Sequence> {
    let text = |text: &[u8]| text.to_vec();
    vec![
        good(
            "window-full",
            "0 Data stream=2 len=480 sum=57616; 512 Data stream=2 len=430 sum=47691",
            "messages that cost 512 and 448 fit the window of 1,000",
            vec![(Data, 2, pattern(480)), (Data, 2, pattern(430))],
        ),
        good(
            "window-one-long",
            "0 Data stream=2 len=430 sum=47691; 448 Data stream=2 len=600 sum=69108",
            "a message of any length may begin while not more than 500 bytes of the window are used",
            vec![(Data, 2, pattern(430)), (Data, 2, pattern(600))],
        ),
        good(
            "credit-twice",
            "0 Credit stream=2 credited=128; 64 Credit stream=2 credited=128",
            "the same credit again",
            vec![credited(2, 128), credited(2, 128)],
        ),
        good(
            "stop-twice",
            "0 Reset stream=2 code=7 directions=2; 64 Reset stream=2 code=7 directions=2",
            "RESET {receiving} twice has no further effect",
            vec![reset(2, 2), reset(2, 2)],
        ),
        good(
            "end",
            "0 Reset stream=2 code=7 directions=3; 64 End stream=2",
            "END of a stream of which both directions are over",
            vec![reset(2, 3), (End, 2, vec![])],
        ),
        good(
            "go-away",
            "0 GoAway stream=0 code=9 flags=0 \"\"; 64 GoAway stream=0 code=8 flags=0 \"\"; \
             128 Data stream=2 \"still-open\"",
            "GO_AWAY twice; streams go on",
            vec![go_away(9, 0, b""), go_away(8, 0, b""), (Data, 2, text(b"still-open"))],
        ),
        good(
            "closing",
            "0 GoAway stream=0 code=42 flags=1 \"maintenance\"; 64 CloseWrite stream=0",
            "a session closed with a code and a reason",
            vec![go_away(42, 1, b"maintenance"), close(0)],
        ),
        good(
            "ping",
            "0 Ping stream=0 answer=0 token=5; 64 Ping stream=0 answer=1 token=9",
            "a question, and an answer that nobody asked for",
            vec![ping(0, 5), ping(1, 9)],
        ),
    ]
}

fn opening() -> Vec<Sequence> {
    let x = || vec![b'x'];
    vec![
        bad("open-ours", 16, "a number of the reader's", vec![open(4, b"")]),
        bad("open-beyond", 16, "an index beyond streams max", vec![open(9, b"")]),
        bad("open-last", 16, "the last number there is", vec![open(u32::MAX, b"")]),
        bad("open-twice", 16, "a number that is not free", vec![open(1, b""), open(1, b"")]),
        bad("open-empty", 7, "OPEN without its first 8 bytes", vec![(Open, 1, vec![])]),
        bad("open-short", 7, "OPEN of 7 bytes", vec![(Open, 1, vec![0; 7])]),
        bad("data-unopened", 16, "a message never opened", vec![(Data, 3, x())]),
        bad("data-unopened-ours", 16, "a reader's number never opened", vec![(Data, 4, x())]),
        bad("close-unopened", 16, "CLOSE_WRITE never opened", vec![close(3)]),
        bad("end-unopened", 16, "END never opened", vec![(End, 4, vec![])]),
        bad("credit-unopened", 16, "CREDIT never opened", vec![credited(3, 0)]),
        bad(
            "parts-unopened",
            16,
            "a first part never opened",
            vec![(FragmentFirst, 3, first(9, b"x"))],
        ),
    ]
}

fn of_the_session() -> Vec<Sequence> {
    vec![
        bad("data-session", 16, "a message of stream 0", vec![(Data, 0, vec![b'x'])]),
        bad(
            "parts-session",
            16,
            "a first part of stream 0",
            vec![(FragmentFirst, 0, first(9, b"x"))],
        ),
        bad("open-session", 4, "OPEN of stream 0", vec![open(0, b"")]),
        bad("reset-session", 4, "RESET of stream 0", vec![reset(0, 3)]),
        bad("credit-session", 4, "CREDIT of stream 0", vec![credited(0, 0)]),
        bad("end-session", 4, "END of stream 0", vec![(End, 0, vec![])]),
        bad("go-away-stream", 4, "GO_AWAY of a stream", vec![(GoAway, 2, vec![0; 8])]),
        bad("ping-stream", 4, "PING of a stream", vec![(Ping, 2, vec![0; 16])]),
        bad("go-away-short", 7, "GO_AWAY of 7 bytes", vec![(GoAway, 0, vec![0; 7])]),
        bad("go-away-reason", 7, "a reason without CLOSING", vec![go_away(9, 0, b"x")]),
        bad("go-away-long", 7, "a reason of 256 bytes", vec![go_away(9, 1, &[b'x'; 256])]),
        bad("ping-long", 7, "PING of 17 bytes", vec![(Ping, 0, vec![0; 17])]),
        bad("ping-neither", 7, "neither question nor answer", vec![ping(2, 5)]),
        bad(
            "close-session-body",
            7,
            "the session's end with a payload",
            vec![(CloseWrite, 0, vec![1])],
        ),
    ]
}

fn ending() -> Vec<Sequence> {
    let (x, none) = (|| vec![b'x'], Vec::new);
    vec![
        bad("data-after-close", 16, "a message after CLOSE_WRITE", vec![close(2), (Data, 2, x())]),
        bad(
            "data-after-reset",
            16,
            "a message after RESET {sending}",
            vec![reset(2, 1), (Data, 2, x())],
        ),
        bad("close-twice", 16, "CLOSE_WRITE twice", vec![close(2), close(2)]),
        bad(
            "reset-after-close",
            16,
            "RESET {sending} after CLOSE_WRITE",
            vec![close(2), reset(2, 1)],
        ),
        bad("reset-twice", 16, "RESET {sending} twice", vec![reset(2, 1), reset(2, 1)]),
        bad("close-body", 7, "CLOSE_WRITE with a payload", vec![(CloseWrite, 2, x())]),
        bad("end-body", 7, "END with a payload", vec![(End, 2, x())]),
        bad(
            "end-own",
            16,
            "END by the opener",
            vec![open(1, b""), (Data, 1, x()), reset(1, 3), (End, 1, none())],
        ),
        bad("end-open", 16, "END of an open stream", vec![(End, 2, none())]),
        bad(
            "end-too-soon",
            16,
            "END while one direction is open",
            vec![close(2), (End, 2, none())],
        ),
        bad(
            "credit-after-end",
            16,
            "CREDIT after END",
            vec![reset(2, 3), (End, 2, none()), credited(2, 128)],
        ),
        bad("end-twice", 16, "END twice", vec![reset(2, 3), (End, 2, none()), (End, 2, none())]),
        bad("reset-none", 7, "RESET of no direction", vec![reset(2, 0)]),
        bad("reset-third", 7, "RESET of a third direction", vec![reset(2, 4)]),
        bad("reset-short", 7, "RESET of 7 bytes", vec![(Reset, 2, vec![1; 7])]),
        bad("reset-long", 7, "RESET of 9 bytes", vec![(Reset, 2, vec![1; 9])]),
    ]
}

fn credit() -> Vec<Sequence> {
    let empty: Vec<_> = (0..17).map(|_| (Data, 2, Vec::new())).collect();
    vec![
        bad("credit-short", 7, "CREDIT of 4 bytes", vec![(Credit, 2, vec![0; 4])]),
        bad("credit-beyond", 17, "more credit than was sent", vec![credited(2, 129)]),
        bad("credit-max", 17, "the highest credit", vec![credited(2, u64::MAX)]),
        bad("credit-back", 17, "credit that falls", vec![credited(2, 128), credited(2, 64)]),
        bad(
            "credit-after-stop",
            16,
            "CREDIT after RESET {receiving}",
            vec![reset(2, 2), credited(2, 128)],
        ),
        bad(
            "window-over",
            17,
            "512 and 512 exceed the window of 1,000",
            vec![(Data, 2, pattern(480)), (Data, 2, pattern(480))],
        ),
        bad("window-empty", 17, "17 empty messages cost more than the window", empty),
        bad(
            "window-announced",
            17,
            "a first part announces more than the window",
            vec![(Data, 2, pattern(500)), (FragmentFirst, 2, first(500, b"x"))],
        ),
    ]
}

fn parts() -> Vec<Sequence> {
    let begin = || (FragmentFirst, 2, first(9, b"x"));
    let x = || vec![b'x'];
    vec![
        bad(
            "first-total",
            11,
            "a total beyond message max",
            vec![(FragmentFirst, 2, first((1 << 20) + 1, b"x"))],
        ),
        bad(
            "first-short",
            7,
            "a first part without its total",
            vec![(FragmentFirst, 2, vec![0; 7])],
        ),
        bad("mid-alone", 14, "a part of no message", vec![(FragmentMid, 2, x())]),
        bad("last-alone", 14, "a last part of no message", vec![(FragmentLast, 2, x())]),
        bad("abort-alone", 14, "the abort of no message", vec![(FragmentAbort, 2, vec![])]),
        bad("abort-body", 7, "an abort with a payload", vec![begin(), (FragmentAbort, 2, x())]),
        bad("first-twice", 14, "a first part within a message", vec![begin(), begin()]),
        bad("data-within", 16, "a whole message between parts", vec![begin(), (Data, 2, x())]),
        bad(
            "parts-other",
            14,
            "the part of another stream",
            vec![open(1, b""), begin(), (FragmentMid, 1, x())],
        ),
        bad(
            "parts-over",
            14,
            "more bytes than the total",
            vec![begin(), (FragmentMid, 2, pattern(9))],
        ),
        bad("parts-under", 14, "less bytes than the total", vec![begin(), (FragmentLast, 2, x())]),
    ]
}

fn socket_only() -> Vec<Sequence> {
    let message = |len: u64| {
        let mut bytes = blob(0, 0, 0, len);
        bytes.extend(pattern(usize::try_from(len).unwrap()));
        bytes
    };
    vec![
        good(
            "blob",
            "0 Open stream=1 content=0 \"\"; 64 Blob stream=1 len=20000 sum=2546416; \
             128 Data stream=2 \"next\"",
            "a BLOB of a stream; its bytes count in no position",
            vec![open(1, b""), (Blob, 1, message(20_000)), (Data, 2, b"next".to_vec())],
        ),
        bad("blob-session", 16, "a BLOB of stream 0", vec![(Blob, 0, message(8))]),
        bad("blob-unopened", 16, "a BLOB never opened", vec![(Blob, 3, message(8))]),
        bad(
            "blob-max",
            11,
            "a BLOB beyond message max",
            vec![(Blob, 2, blob(0, 0, 0, (1 << 20) + 1))],
        ),
        bad("blob-short", 7, "a BLOB of 31 bytes", vec![(Blob, 2, vec![0; 31])]),
        Sequence {
            blob_bytes: 40,
            ..bad(
                "blob-credit",
                7,
                "a BLOB of 40 bytes, as memory has it",
                vec![(Blob, 2, message(8))],
            )
        },
        bad("open-long", 7, "metadata of 1,001 bytes", vec![open(1, &[0; 1001])]),
        bad("data-max", 5, "DATA of 65,537 bytes", vec![(Data, 2, pattern(65_537))]),
        bad("segment", 4, "SEGMENT on a socket", vec![(Kind::Segment, 0, vec![0; 16])]),
        bad(
            "data-after-end",
            4,
            "a record after the session's end",
            vec![close(0), (Data, 2, vec![b'x'])],
        ),
    ]
}

fn open(stream: u32, metadata: &[u8]) -> (Kind, u32, Vec<u8>) {
    opened(stream, 0, metadata)
}

fn opened(stream: u32, content: u8, metadata: &[u8]) -> (Kind, u32, Vec<u8>) {
    (Open, stream, [&[content, 0, 0, 0, 0, 0, 0, 0], metadata].concat())
}

fn close(stream: u32) -> (Kind, u32, Vec<u8>) {
    (CloseWrite, stream, vec![])
}

fn reset(stream: u32, directions: u32) -> (Kind, u32, Vec<u8>) {
    (Reset, stream, [7u32.to_le_bytes(), directions.to_le_bytes()].concat())
}

fn credited(stream: u32, credited: u64) -> (Kind, u32, Vec<u8>) {
    (Credit, stream, credited.to_le_bytes().to_vec())
}

fn go_away(code: u32, flags: u32, reason: &[u8]) -> (Kind, u32, Vec<u8>) {
    (GoAway, 0, [&code.to_le_bytes(), &flags.to_le_bytes(), reason].concat())
}

fn ping(answer: u64, token: u64) -> (Kind, u32, Vec<u8>) {
    (Ping, 0, [answer.to_le_bytes(), token.to_le_bytes()].concat())
}
