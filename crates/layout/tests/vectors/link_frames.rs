// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of links: those that a reader must understand, and those that it must refuse, each with
//! the number of the rule that it breaks (SPEC 15.5).
//!
//! Each invalid frame breaks one rule and no other; its checksum is right, unless the broken rule
//! is the one about the checksum.

use super::Image;
use partywall_layout::link::frame::decision::{
    DECISION_GAP, DECISION_IMPOSSIBLE, DECISION_LOST, DECISION_NEW_EPOCH, DECISION_RESUME,
};
use partywall_layout::link::frame::side::SIDE_SHARES_MEMORY;
use partywall_layout::link::frame::{
    AckFields, AttachFields, AttachedFields, BeginFields, ConfirmFields, DecisionFields,
    FRAME_HEADER_BYTES, FRAME_MAGIC, FrameBody, FrameFault, FrameHeader, FrameKind, RefuseFields,
    SideFields, parse,
};
use partywall_layout::link::{Previous, SkipFields};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub const PREFACE: &str = "\
# Link frames

SPEC.md, section 15.5, says how to use the table. `expected` is the frame that is read, or the number
of the broken rule. Add rows in the generator
(`cargo run -p partywall-layout --example vectors -- --link-frames spec/link-frames`).
";

pub fn images() -> Vec<Image> {
    let mut images = good();
    images.extend(headers());
    images.extend(sides());
    images.extend(parts());
    images.extend(others());
    images.extend(decisions());
    images
}

/// Reads one link frame from `bytes`, and returns its content as the line that INDEX.md states.
pub fn read(bytes: &[u8]) -> Result<String, FrameFault> {
    let (header, body) = bytes.split_at(FRAME_HEADER_BYTES);
    let header = FrameHeader::read_from_bytes(header).unwrap();
    Ok(match parse(&header, body)? {
        FrameBody::Attach { fields, names, login } => {
            let (min, max) = (fields.version_min, fields.version_max);
            format!(
                "ATTACH {min}..{max} {} {names:?} login={}",
                side_line(&fields.side),
                login.len()
            )
        }
        FrameBody::Attached { fields, login } => format!(
            "ATTACHED {} echo={} {} {} login={}",
            fields.version,
            fields.echo,
            side_line(&fields.side),
            decision_line(&fields.decision),
            login.len()
        ),
        FrameBody::Refuse { fields, text } => {
            let RefuseFields { echo, code, number, .. } = fields;
            format!("REFUSE echo={echo} code={code} number={number} {text:?}")
        }
        FrameBody::Confirm(ConfirmFields { echo, tail, decision }) => {
            format!("CONFIRM echo={echo} tail={tail} {}", decision_line(decision))
        }
        FrameBody::Begin(BeginFields { stream, consumed, tail }) => {
            format!("BEGIN stream={stream} consumed={consumed} tail={tail}")
        }
        FrameBody::Ack(AckFields { stream, consumed }) => {
            format!("ACK stream={stream} consumed={consumed}")
        }
        FrameBody::Leave => "LEAVE".to_owned(),
        FrameBody::Share => "SHARE".to_owned(),
    })
}

fn side_line(side: &SideFields) -> String {
    let shares = if side.flags == SIDE_SHARES_MEMORY { " shares" } else { "" };
    format!(
        "nonce={} incarnation={} connection={} epoch={} sending={}:{}..{} receiving={}:{}..{}/{} past={}:{} skip={}:{}..{} window={}+{}{shares}",
        side.nonce,
        side.incarnation,
        side.connection_number,
        side.epoch,
        side.sending_stream,
        side.base,
        side.tail,
        side.receiving_stream,
        side.consumed,
        side.received,
        side.digest,
        side.past.flags,
        side.past.epoch,
        side.skip.of,
        side.skip.from,
        side.skip.to,
        side.ring_bytes,
        side.slab_bytes,
    )
}

fn decision_line(decision: &DecisionFields) -> String {
    let DecisionFields { kind, digest, of, from, to, at } = decision;
    format!("decision={kind}:{of}:{from}..{to}:{at}/{digest}")
}

/// The fields with which a frame such as ATTACH describes one end of a link, each with a different
/// value.
fn side() -> SideFields {
    SideFields {
        nonce: 0x0102_0304_0506_0708.into(),
        incarnation: 6.into(),
        store_id: *b"fedcba9876543210",
        connection_number: 2.into(),
        epoch: 3.into(),
        sending_stream: 55.into(),
        base: 128.into(),
        tail: 640.into(),
        receiving_stream: 77.into(),
        consumed: 64.into(),
        received: 192.into(),
        digest: 5.into(),
        flags: 0.into(),
        past: Previous {
            flags: 1.into(),
            epoch: 2.into(),
            sending_stream: 33.into(),
            base: 128.into(),
            acked: 128.into(),
            tail: 640.into(),
            receiving_stream: 44.into(),
            consumed: 1024.into(),
        },
        skip: SkipFields {
            epoch: 3.into(),
            of: 76.into(),
            into: 77.into(),
            from: 128.into(),
            to: 256.into(),
            resume: 64.into(),
        },
        ring_bytes: 4096.into(),
        slab_bytes: 65_536.into(),
    }
}

/// The fields with which a frame such as ATTACH describes one end of a link that has not been
/// connected before.
fn new_side() -> SideFields {
    SideFields {
        nonce: 9.into(),
        incarnation: 1.into(),
        store_id: *b"0123456789abcdef",
        connection_number: 1.into(),
        sending_stream: 77.into(),
        ring_bytes: 4096.into(),
        ..SideFields::new_zeroed()
    }
}

fn attach(side: SideFields, change: impl FnOnce(&mut AttachFields)) -> Vec<u8> {
    let mut fields = AttachFields {
        magic: FRAME_MAGIC,
        version_min: 1.into(),
        version_max: 1.into(),
        side,
        name_lengths: [5, 3, 6],
        login_bytes: 4.into(),
        ..AttachFields::new_zeroed()
    };
    change(&mut fields);
    [fields.as_bytes(), b"alicebobordersdoor"].concat()
}

fn attached(side: SideFields, change: impl FnOnce(&mut AttachedFields)) -> Vec<u8> {
    let mut fields = AttachedFields {
        version: 1.into(),
        echo: 9.into(),
        side,
        decision: decision(DECISION_RESUME, 0, 0, 0, 0, 64),
        login_bytes: 2.into(),
        ..AttachedFields::new_zeroed()
    };
    change(&mut fields);
    [fields.as_bytes(), b"ok"].concat()
}

fn refuse(code: u32, number: u64, text: &[u8]) -> Vec<u8> {
    let text_bytes = u32::try_from(text.len()).unwrap().into();
    let (code, number) = (code.into(), number.into());
    [RefuseFields { echo: 9.into(), code, text_bytes, number }.as_bytes(), text].concat()
}

fn confirm(decision: DecisionFields) -> Vec<u8> {
    let (echo, tail) = (9.into(), 640.into());
    ConfirmFields { echo, tail, decision }.as_bytes().to_vec()
}

fn begin(stream: u64, consumed: u64, tail: u64) -> Vec<u8> {
    let (stream, consumed, tail) = (stream.into(), consumed.into(), tail.into());
    BeginFields { stream, consumed, tail }.as_bytes().to_vec()
}

fn ack(stream: u64, consumed: u64) -> Vec<u8> {
    AckFields { stream: stream.into(), consumed: consumed.into() }.as_bytes().to_vec()
}

fn decision(kind: u32, digest: u32, of: u64, from: u64, to: u64, at: u64) -> DecisionFields {
    DecisionFields {
        kind: kind.into(),
        digest: digest.into(),
        of: of.into(),
        from: from.into(),
        to: to.into(),
        at: at.into(),
    }
}

fn good() -> Vec<Image> {
    use FrameKind::{Ack, Attach, Attached, Begin, Confirm, Leave, Refuse, Share};
    let ok = |name, about, kind, body: Vec<u8>| frame(name, None, about, whole(kind, &body));
    let later = attach(new_side(), |fields| fields.version_max = 7.into());
    let gap = decision(DECISION_GAP, 5, 0, 64, 128, 0);
    let lost = decision(DECISION_LOST, 5, 76, 128, 256, 64);
    let shares = SideFields { flags: SIDE_SHARES_MEMORY.into(), ..new_side() };
    let confirmed = |name, about, decision| ok(name, about, Confirm, confirm(decision));
    vec![
        ok("attach", "a client with every field set", Attach, attach(side(), |_| ())),
        ok("attach-new", "a client without a known peer", Attach, attach(new_side(), |_| ())),
        ok("attach-later", "a client that also offers later versions", Attach, later),
        ok("attached", "ATTACHED of a server", Attached, attached(side(), |_| ())),
        ok("attached-new", "a server without a known peer", Attached, attached(new_side(), |_| ())),
        ok("refuse-stale", "not newer than connection 4", Refuse, refuse(1, 4, b"")),
        ok("refuse-fenced", "fenced by incarnation 7", Refuse, refuse(2, 7, b"")),
        ok("refuse-quarantined", "quarantined", Refuse, refuse(3, 0, b"")),
        ok("refuse-unknown", "no such link", Refuse, refuse(4, 0, b"no such link")),
        ok("refuse-rejected", "rejected, in 255 bytes", Refuse, refuse(5, 0, &[b'n'; 255])),
        ok("refuse-large", "too large", Refuse, refuse(6, 0, "größer als 1 MiB".as_bytes())),
        ok("refuse-busy", "busy, without a text", Refuse, refuse(7, 0, b"")),
        ok("refuse-version", "versions 2 to 3", Refuse, refuse(8, 0x3_0002, b"")),
        confirmed("confirm-resume", "resume at 64", decision(DECISION_RESUME, 0, 0, 0, 0, 64)),
        confirmed("confirm-gap", "64 to 128 are trimmed", gap),
        confirmed("confirm-lost", "another stream", lost),
        confirmed(
            "confirm-impossible",
            "an impossible resume for reason 3",
            decision(DECISION_IMPOSSIBLE, 0, 0, 0, 0, 3),
        ),
        confirmed("confirm-epoch", "a new epoch, 4", decision(DECISION_NEW_EPOCH, 0, 0, 0, 0, 4)),
        ok("begin", "BEGIN of a server", Begin, begin(55, 64, 640)),
        ok("begin-nothing", "a server that consumes no stream yet", Begin, begin(0, 0, 0)),
        ok("ack", "ACK of 192 bytes of a stream", Ack, ack(55, 192)),
        ok("leave", "LEAVE of a side", Leave, Vec::new()),
        ok("attach-shares", "a client that shares its memory", Attach, attach(shares, |_| ())),
        ok("share", "SHARE: records do not use this socket", Share, Vec::new()),
    ]
}

fn headers() -> Vec<Image> {
    let changed = |name, code, about, change: fn(&mut Vec<u8>)| {
        let mut bytes = whole(FrameKind::Attach, &attach(side(), |_| ()));
        change(&mut bytes);
        frame(name, Some(code), about, bytes)
    };
    let acked = whole(FrameKind::Ack, &ack(55, 192));
    let long = [&acked[..], &[0; 8]].concat();
    let mut http = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec();
    http.truncate(32);
    let ten = [whole(FrameKind::Leave, &[]), vec![0; 10]].concat();
    let newer = attach(side(), |fields| {
        fields.version_min = 2.into();
        fields.version_max = 3.into();
    });
    vec![
        changed("kind-0", 1, "kind 0", |bytes| bytes[0] = 0),
        changed("kind-9", 1, "kind 9", |bytes| bytes[0] = 18),
        changed("kind-record", 1, "a record", |bytes| bytes[0] = 3),
        changed("kind-high", 1, "a kind beyond 32 bits", |bytes| bytes[7] = 1),
        frame("http", Some(1), "another protocol", http),
        changed("attach-short", 2, "an ATTACH without a nonce", |bytes| {
            bytes.truncate(16 + 23);
            bytes[8..12].copy_from_slice(&23_u32.to_le_bytes());
        }),
        changed("attach-huge", 2, "a body of 4 GiB", |bytes| bytes[8..12].fill(0xff)),
        frame("ack-long", Some(2), "an ACK with more bytes than its body", long),
        frame("ack-cut", Some(2), "an ACK with fewer bytes than its body", acked[..24].to_vec()),
        frame("leave-long", Some(2), "a LEAVE with a body", ten),
        changed("magic", 3, "an ATTACH of another protocol", |bytes| bytes[16] = b'p'),
        changed("crc", 4, "another byte in the store id", |bytes| bytes[50] ^= 0x10),
        changed("crc-itself", 4, "another checksum", |bytes| bytes[12] ^= 1),
        body("attach-newer", 5, "versions 2 to 3", FrameKind::Attach, &newer),
        body("attach-newer-short", 5, "the smallest size", FrameKind::Attach, &newer[..24]),
        body(
            "attached-newer",
            5,
            "version 2",
            FrameKind::Attached,
            &attached(side(), |fields| fields.version = 2.into()),
        ),
    ]
}

fn sides() -> Vec<Image> {
    let bad = |name, about, change: fn(&mut SideFields)| {
        let mut side = side();
        change(&mut side);
        body(name, 6, about, FrameKind::Attached, &attached(side, |_| ()))
    };
    vec![
        bad("incarnation-0", "incarnation 0", |s| s.incarnation = 0.into()),
        bad("incarnation-huge", "beyond 2^62", |s| s.incarnation = u64::MAX.into()),
        bad("store-id", "no store id", |s| s.store_id = [0; 16]),
        bad("no-stream", "sends nothing", |s| s.sending_stream = 0.into()),
        bad("base-unaligned", "a base within a slot", |s| s.base = 100.into()),
        bad("base-beyond", "a base beyond the tail", |s| s.base = 704.into()),
        bad("consumed-beyond", "consumed beyond received", |s| s.consumed = 256.into()),
        bad("received-nothing", "received of no stream", |s| s.receiving_stream = 0.into()),
        bad("received-unaligned", "received up to within a slot", |s| s.received = 200.into()),
        bad("digest-at-start", "a record digest at position 0", |s| s.consumed = 0.into()),
        bad("side-flags", "an unknown flag", |s| s.flags = 2.into()),
        bad("past-kind", "a past with unknown flags", |s| s.past.flags = 5.into()),
        bad("past-rest", "an end without a past", |s| s.past.flags = 0.into()),
        bad("past-epoch", "a past of the current epoch", |s| s.past.epoch = 3.into()),
        bad("past-tail", "a past that ends below acked", |s| {
            s.past.tail = 64.into();
        }),
        bad("past-base", "a past whose base is not acked", |s| s.past.base = 64.into()),
        bad("past-consumed", "a past with consumption of no stream", |s| {
            s.past.receiving_stream = 0.into();
        }),
        bad("skip-rest", "a range without a skip", |s| s.skip.of = 0.into()),
        bad("skip-into", "a skip into no stream", |s| s.skip.into = 0.into()),
        bad("skip-epoch", "a skip in a later epoch", |s| s.skip.epoch = 4.into()),
        bad("skip-range", "a skip that ends before it begins", |s| s.skip.from = 320.into()),
        bad("skip-resume", "a skip within a stream that resumes outside its range", |s| {
            s.skip.into = 76.into();
        }),
        bad("ring-odd", "a ring of 5000 bytes", |s| s.ring_bytes = 5000.into()),
        bad("ring-huge", "a ring of 2 GiB", |s| s.ring_bytes = (1_u64 << 31).into()),
        bad("slab-huge", "a slab beyond 1 TiB", |s| s.slab_bytes = ((1_u64 << 40) + 1).into()),
    ]
}

fn parts() -> Vec<Image> {
    let asked = |name, code, about, change: fn(&mut AttachFields)| {
        body(name, code, about, FrameKind::Attach, &attach(side(), change))
    };
    let answered = |name, code, about, change: fn(&mut AttachedFields)| {
        body(name, code, about, FrameKind::Attached, &attached(side(), change))
    };
    let mut text = attach(side(), |_| ());
    text[256] = 0xff;
    let mut login = attach(side(), |fields| fields.login_bytes = 4097.into());
    login.resize(256 + 14 + 4097, 0);
    vec![
        asked("versions-0", 6, "versions from 0", |a| a.version_min = 0.into()),
        asked("versions", 6, "a minimum version above the maximum", |a| a.version_min = 2.into()),
        asked("attach-zero", 6, "a reserved field that is not 0", |a| a.zero = 1.into()),
        asked("attach-zero-too", 6, "a reserved byte after the lengths that is not 0", |a| {
            a.zero_too = 1
        }),
        body("attach-login-huge", 6, "a login of 4097 bytes", FrameKind::Attach, &login),
        asked("attach-login", 2, "a login longer than the frame", |a| a.login_bytes = 5.into()),
        asked("attach-rest", 2, "a login shorter than the rest", |a| a.login_bytes = 3.into()),
        asked("attach-names", 2, "names longer than the frame", |a| a.name_lengths[2] = 200),
        asked("name-empty", 7, "no name of the server", |a| a.name_lengths = [5, 0, 9]),
        body("name-text", 7, "a client's name that is not UTF-8", FrameKind::Attach, &text),
        answered("attached-zero", 6, "a reserved field that is not 0", |a| a.zero[5] = 1),
        answered("attached-zero-too", 6, "bytes after the text", |a| {
            a.zero_too = 1.into();
        }),
        answered("attached-login", 2, "a login longer than the frame", |a| {
            a.login_bytes = 3.into();
        }),
        answered("attached-decision", 6, "no decision", |a| a.decision.kind = 0.into()),
    ]
}

fn others() -> Vec<Image> {
    use FrameKind::{Ack, Begin, Confirm, Refuse};
    let unaligned = decision(DECISION_RESUME, 0, 0, 0, 0, 64);
    let confirm = ConfirmFields { echo: 9.into(), tail: 100.into(), decision: unaligned };
    let mut cut = refuse(7, 0, b"later");
    cut[12] = 6;
    vec![
        body("refuse-0", 6, "a refusal of kind 0", Refuse, &refuse(0, 0, b"")),
        body("refuse-9", 6, "a refusal of kind 9", Refuse, &refuse(9, 0, b"")),
        body("refuse-fenced-0", 6, "fenced by incarnation 0", Refuse, &refuse(2, 0, b"")),
        body("refuse-number", 6, "busy, with a number", Refuse, &refuse(7, 1, b"")),
        body("refuse-versions", 6, "versions 3 to 2", Refuse, &refuse(8, 0x2_0003, b"")),
        body("refuse-text", 6, "fenced, with a text", Refuse, &refuse(2, 7, b"gone")),
        body("refuse-cut", 2, "a text shorter than its length", Refuse, &cut),
        body("refuse-long", 2, "256 bytes of text", Refuse, &refuse(7, 0, &[b'n'; 256])),
        body("refuse-utf8", 7, "a text that is not UTF-8", Refuse, &refuse(7, 0, b"\xff")),
        body("confirm-tail", 6, "a tail within a slot", Confirm, confirm.as_bytes()),
        body("begin-streamless", 6, "consumed of no stream", Begin, &begin(0, 64, 640)),
        body("begin-unaligned", 6, "consumed up to within a slot", Begin, &begin(55, 65, 640)),
        body("begin-tail", 6, "a tail within a slot", Begin, &begin(55, 64, 641)),
        body("ack-streamless", 6, "consumed of no stream", Ack, &ack(0, 64)),
        body("ack-unaligned", 6, "consumed up to within a slot", Ack, &ack(55, 65)),
    ]
}

fn decisions() -> Vec<Image> {
    let bad = |name, about, decision| body(name, 6, about, FrameKind::Confirm, &confirm(decision));
    vec![
        bad("decision-6", "kind 6", decision(6, 0, 0, 0, 0, 0)),
        bad("resume-unaligned", "within a slot", decision(DECISION_RESUME, 0, 0, 0, 0, 65)),
        bad("resume-digest", "with a record digest", decision(DECISION_RESUME, 5, 0, 0, 0, 64)),
        bad("resume-range", "with a range", decision(DECISION_RESUME, 0, 0, 0, 64, 64)),
        bad("resume-of", "of a stream", decision(DECISION_RESUME, 0, 7, 0, 0, 64)),
        bad(
            "gap-backwards",
            "a gap that ends before it begins",
            decision(DECISION_GAP, 5, 0, 128, 64, 0),
        ),
        bad("gap-unaligned", "to within a slot", decision(DECISION_GAP, 5, 0, 64, 129, 0)),
        bad(
            "gap-at",
            "a decision that resumes elsewhere",
            decision(DECISION_GAP, 5, 0, 64, 128, 192),
        ),
        bad("gap-digest", "position 0 with a record digest", decision(DECISION_GAP, 5, 0, 0, 0, 0)),
        bad("lost-nothing", "of no stream", decision(DECISION_LOST, 5, 0, 0, 64, 64)),
        bad(
            "lost-digest",
            "a record digest at the start",
            decision(DECISION_LOST, 5, 76, 0, 64, 0),
        ),
        bad("lost-unaligned", "within a slot", decision(DECISION_LOST, 5, 76, 0, 64, 65)),
        bad(
            "impossible-0",
            "an impossible resume without a reason",
            decision(DECISION_IMPOSSIBLE, 0, 0, 0, 0, 0),
        ),
        bad(
            "impossible-4",
            "an impossible resume for reason 4",
            decision(DECISION_IMPOSSIBLE, 0, 0, 0, 0, 4),
        ),
        bad("epoch-digest", "with a record digest", decision(DECISION_NEW_EPOCH, 5, 0, 0, 0, 4)),
    ]
}

fn whole(kind: FrameKind, body: &[u8]) -> Vec<u8> {
    [FrameHeader::new(kind, body).as_bytes(), body].concat()
}

/// Image of a link frame whose header is valid and whose `body` breaks the rule `code`.
fn body(name: &str, code: u32, about: &'static str, kind: FrameKind, body: &[u8]) -> Image {
    frame(name, Some(code), about, whole(kind, body))
}

fn frame(name: &str, code: Option<u32>, about: &'static str, bytes: Vec<u8>) -> Image {
    let expected = match code {
        Some(code) => code.to_string(),
        None => read(&bytes).unwrap(),
    };
    let name = format!("link-frame-{name}.bin");
    Image { name, kind: "link frame", from: 0, expected, about, bytes }
}
