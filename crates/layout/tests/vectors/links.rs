// SPDX-License-Identifier: MIT OR Apache-2.0
//! Link files, in which the ends of a link store its messages: those that a reader must understand,
//! and those that it must refuse, each with the number of the rule that it breaks (SPEC 13.7).
//!
//! Each invalid file breaks one rule and no other; its checksums are right, unless the broken rule
//! is the one about a checksum.

use super::link_states::{self, state};
use super::{Image, PEER_BLOCKS_MAX, RING_BYTES};
use partywall_layout::link::consumed::{SINCE, since_word, slot_offset};
use partywall_layout::link::slot::index_of;
use partywall_layout::link::{
    Closing, ConsumedRecord, FileFault, Image as File, LINK_CONTROL_OFFSET, LinkGeometry,
    LinkHeader, OWNER_OFFSET, OwnerRecord, PAGE_SLOT_STRIDE, PARTS_OFFSET, STATE_OFFSET, Slot,
    StateImage,
};
use zerocopy::IntoBytes;

pub const PREFACE: &str = "\
# Link files

SPEC.md, section 13.7, says how to use the table. `from` is the size of the file, of which an image is
the beginning; the rest are zeros. `expected` is the content in force, or the number of the broken
rule. Add rows in the generator
(`cargo run -p partywall-layout --example vectors -- --links spec/links`).
";

/// The three names that identify the link: that of the local end, that of the remote end, and that
/// of the link itself.
pub const NAMES: [&str; 3] = ["alice", "bob", "orders"];

pub fn images() -> Vec<Image> {
    let mut images = good();
    images.extend(headers());
    images.extend(parts());
    images.extend(damaged());
    images.extend(link_states::contradictions());
    images.extend(contradictions());
    images
}

/// Reads a link file that begins with `bytes` and is `file_bytes` long, and returns its content as
/// the line that INDEX.md states.
pub fn read(bytes: &[u8], file_bytes: u64) -> Result<String, FileFault> {
    let mut pages = bytes.to_vec();
    pages.resize(usize::try_from(file_bytes.min(PARTS_OFFSET)).unwrap(), 0);
    let file = File::check(&pages, file_bytes, Some(NAMES))?;
    let (owner, state) = (&file.owner, &file.state);
    let (consumed, digest) = file.consumed_to();
    let adopted = if owner.adopted.get() == 1 { " adopted=1" } else { "" };
    let closing = owner.closing;
    let closing = if closing.is_closed() {
        let Closing { tail, tail_digest, consumed, consumed_digest, state_sequence, .. } = closing;
        format!(" closed={tail}/{tail_digest} {consumed}/{consumed_digest} state={state_sequence}")
    } else {
        String::new()
    };
    Ok(format!(
        "incarnation={} left={} pid={} epoch={} base={} acked={} consumed={consumed}/{digest} peer={} previous={} reports={} dropped={} delivered={} skip={} skip_reported={} quarantine={}{closing}{adopted}",
        owner.incarnation,
        owner.left,
        owner.pid,
        state.epoch,
        state.sending_base,
        state.sending_acked,
        state.peer_incarnation,
        state.previous.flags,
        state.report_count,
        state.reports_dropped,
        state.delivered_count,
        state.skip.of,
        state.skip_reported.of,
        state.quarantine,
    ))
}

/// A builder for the bytes of one link file.
#[derive(Clone)]
pub struct Maker {
    pub header: LinkHeader,
    pub bytes: Vec<u8>,
    pub size: u64,
}

impl Maker {
    /// Returns a new link file, as it is before a process owns it for the first time.
    pub fn new() -> Self {
        let geometry = LinkGeometry::new(RING_BYTES, PEER_BLOCKS_MAX, 0).unwrap();
        let created = 1_700_000_000_000_000_000;
        let header = LinkHeader::new(&geometry, NAMES, *b"fedcba9876543210", created).unwrap();
        let size = geometry.file_bytes;
        let mut maker =
            Self { header, bytes: vec![0; usize::try_from(PARTS_OFFSET).unwrap()], size };
        maker.header(|_| ());
        maker.owner(OwnerRecord::nobody());
        maker.state(StateImage::new());
        maker.consumed(ConsumedRecord::new(1, 0, 0, 0));
        maker
    }

    /// Returns a link file that one process has owned, in epoch 3, with a value in every field of
    /// its state.
    pub fn used() -> Self {
        let mut maker = Self::new();
        maker.owner(owner(2, 1, 0));
        maker.state(state());
        maker.consumed(ConsumedRecord::new(2, 77, 4096, 9));
        maker.since(2, 640, 8);
        maker.consumed(ConsumedRecord::new(3, 77, 8000, 9));
        maker.since(3, 192, 10);
        maker
    }

    pub fn header(&mut self, change: impl FnOnce(&mut LinkHeader)) {
        change(&mut self.header);
        self.header = self.header.sealed();
        self.bytes[..4096].copy_from_slice(self.header.as_bytes());
    }

    pub fn owner(&mut self, record: OwnerRecord) {
        let slot = index_of(record.sequence.get()) as u64 * PAGE_SLOT_STRIDE;
        self.put(OWNER_OFFSET + slot, record.as_bytes());
    }

    pub fn state(&mut self, state: StateImage) {
        let slot = index_of(state.sequence.get()) as u64 * PAGE_SLOT_STRIDE;
        self.put(STATE_OFFSET + slot, state.as_bytes());
    }

    pub fn consumed(&mut self, record: ConsumedRecord) {
        let sequence = record.sequence.get();
        self.since_is(sequence, 0);
        self.put(consumed_offset(sequence), record.as_bytes());
    }

    /// Sets the `since` word of the consumed record with this `sequence` number: after that record
    /// `bytes` more bytes were consumed, up to a position with this `digest`.
    pub fn since(&mut self, sequence: u64, bytes: u64, digest: u32) {
        self.since_is(sequence, since_word(bytes, digest).unwrap());
    }

    /// Stores `word` as the `since` word of the slot that holds the consumed record with this
    /// `sequence` number.
    pub fn since_is(&mut self, sequence: u64, word: u64) {
        self.put(consumed_offset(sequence) + SINCE, &word.to_le_bytes());
    }

    pub fn put(&mut self, offset: u64, bytes: &[u8]) {
        let start = usize::try_from(offset).unwrap();
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
    }

    fn flip(&mut self, offset: u64) {
        self.bytes[usize::try_from(offset).unwrap()] ^= 0x10;
    }
}

/// Offset in the link file of the consumed record with this `sequence` number.
pub fn consumed_offset(sequence: u64) -> u64 {
    LINK_CONTROL_OFFSET + slot_offset(index_of(sequence))
}

fn owner(sequence: u64, incarnation: u64, left: u32) -> OwnerRecord {
    OwnerRecord {
        sequence: sequence.into(),
        incarnation: incarnation.into(),
        since_ns: 1_700_000_001_000_000_000.into(),
        start_ticks: 123_456.into(),
        boot_id: *b"another boot ids",
        pid_namespace: 4_026_531_836.into(),
        time_namespace: 4_026_531_834.into(),
        pid: 4242.into(),
        left: left.into(),
        ..OwnerRecord::nobody()
    }
    .sealed()
}

fn closing() -> Closing {
    Closing {
        tail: 256.into(),
        consumed: 8192.into(),
        state_sequence: 2.into(),
        tail_digest: 9.into(),
        consumed_digest: 10.into(),
        closed: 1.into(),
        ..Closing::default()
    }
}

/// Returns the owner record of an owner that has left the file and has stored `closing`, the
/// description of the file's last contents.
fn closed(closing: Closing) -> OwnerRecord {
    OwnerRecord { closing, ..owner(3, 1, 1) }.sealed()
}

fn good() -> Vec<Image> {
    let used = "incarnation=1 left=0 pid=4242 epoch=3 base=128 acked=192 consumed=8192/10 peer=6 previous=3 reports=3 dropped=4 delivered=2 skip=76 skip_reported=33 quarantine=259";
    let new = "incarnation=0 left=1 pid=0 epoch=0 base=0 acked=0 consumed=0/0 peer=0 previous=0 reports=0 dropped=0 delivered=0 skip=0 skip_reported=0 quarantine=0";
    let mut left = Maker::used();
    left.owner(owner(3, 1, 1));
    let mut closed_file = Maker::used();
    closed_file.owner(closed(closing()));
    let mut adopted = Maker::used();
    adopted.owner(OwnerRecord { adopted: 1.into(), ..owner(3, 1, 1) }.sealed());
    let mut torn = Maker::used();
    // The image of a link file has three updates that were interrupted before their seal was
    // stored: of the owner record, of the state and of the consumed record.
    torn.put(OWNER_OFFSET, &owner(3, 2, 0).as_bytes()[..120]);
    let next = StateImage { sequence: 3.into(), epoch: 4.into(), ..state() };
    torn.put(STATE_OFFSET, &next.as_bytes()[..2040]);
    let next = ConsumedRecord::new(4, 77, 12_288, 11);
    torn.since_is(4, 0);
    torn.put(consumed_offset(4), &next.as_bytes()[..32]);
    let mut other = Maker::used();
    other.consumed(ConsumedRecord::new(4, 76, 12_288, 11));
    let mut anew = Maker::used();
    anew.consumed(ConsumedRecord::new(4, 77, 12_288, 11));
    let mut far = anew.clone();
    far.since(4, 0xffff * 64, u32::MAX);
    let since = |to: &str| used.replace("8192/10", to);
    let (anew_line, far_line) = (since("12288/11"), since("4206528/4294967295"));
    let skipped = used.replace("8192/10", "64/5");
    let left_line = used.replace("left=0", "left=1");
    let closed_line = format!("{left_line} closed=256/9 8192/10 state=2");
    let adopted_line = format!("{left_line} adopted=1");
    vec![
        image("new", new, "as created", Maker::new()),
        image("used", used, "owned, with every field of the state set", Maker::used()),
        image("left", &left_line, "its owner has left", left),
        image("closed", &closed_line, "its owner has closed it: the rest was synced", closed_file),
        image(
            "adopted",
            &adopted_line,
            "gone on with in part, and no application knows it",
            adopted,
        ),
        image(
            "torn",
            used,
            "killed just before the seals of owner, state and consumed record",
            torn,
        ),
        image("consumed-anew", &anew_line, "a new record, and nothing consumed since", anew),
        image("consumed-far", &far_line, "the largest distance that the word since can hold", far),
        image("other-stream", &skipped, "consumption of another stream is ignored", other),
    ]
}

fn headers() -> Vec<Image> {
    let header = |name, code: u32, about, change: fn(&mut LinkHeader)| {
        let mut maker = Maker::used();
        maker.header(change);
        bad(name, code, about, maker)
    };
    let sized = |name, code, about, size| bad(name, code, about, Maker { size, ..Maker::used() });
    let mut foreign = Maker::used();
    foreign.put(0, b"\x7fELF\x02\x01\x01\x00");
    let mut short = Maker { size: 100, ..Maker::used() };
    short.bytes.truncate(100);
    let mut empty = Maker { size: 0, ..Maker::used() };
    empty.bytes.clear();
    let mut damaged = Maker::used();
    damaged.flip(81);
    vec![
        bad("foreign", 1, "another kind of file", foreign),
        bad("cut-in-header", 2, "cut within the header", short),
        bad("empty", 2, "an empty file", empty),
        sized("cut-in-pages", 2, "cut before the ring", 12_000),
        sized("cut", 2, "one page is missing", 61_440),
        header("version-0", 3, "an older format", |h| h.version = 0.into()),
        header("version-2", 4, "a newer format", |h| h.version = 2.into()),
        bad("header-damaged", 5, "another byte in the store id", damaged),
        header("layout-hash", 6, "another layout hash", |h| h.layout_hash = 1.into()),
        header("layout-former", 6, "the layout before the first release", |h| {
            h.layout_hash = FileFault::FORMER_LAYOUT.into();
        }),
        sized("long", 7, "longer than its length", 131_072),
        header("name-empty", 8, "no local name", |h| h.name_lengths[0] = 0),
        header("name-text", 8, "a remote name that is not UTF-8", |h| h.names[1][0] = 0xff),
        header("name-rest", 8, "bytes after the link's name", |h| h.names[2][9] = b'x'),
        header("other-link", 9, "the names of another link", |h| h.names[0][0] = b'A'),
    ]
}

fn parts() -> Vec<Image> {
    let part = |name, about, change: fn(&mut LinkHeader)| {
        let mut maker = Maker::used();
        maker.header(change);
        bad(name, 10, about, maker)
    };
    let mut odd = Maker { size: 65_537, ..Maker::used() };
    odd.header(|h| h.file_size = 65_537.into());
    vec![
        part("header-size", "a header of 8192 bytes", |h| h.header_size = 8192.into()),
        bad("file-size", 10, "a size that is not a multiple of 64 KiB", odd),
        part("ring-odd", "a ring of 5000 bytes", |h| h.ring_size = 5000.into()),
        part("ring-huge", "a ring of 2 GiB", |h| h.ring_size = (1 << 31).into()),
        part("ring-in-control", "the ring lies on the control page", |h| {
            h.ring_offset = 12_288.into();
        }),
        part("ring-unaligned", "the ring begins within a page", |h| h.ring_offset = 16_448.into()),
        part("ring-wraps", "the ring's end exceeds 64 bits", |h| {
            h.ring_offset = (u64::MAX - 4095).into();
        }),
        part("release-odd", "nine entries", |h| h.peer_blocks_max = 9.into()),
        part("release-in-ring", "the release ring lies in the ring", |h| {
            h.release_offset = 16_384.into();
        }),
        part("slab-beyond", "the slab ends behind the file", |h| h.slab_size = 65_536.into()),
    ]
}

fn damaged() -> Vec<Image> {
    let flipped = |name, code: u32, about, offset| {
        let mut maker = Maker::used();
        maker.flip(offset);
        bad(name, code, about, maker)
    };
    let cleared = |name, code: u32, about, offset| {
        let mut maker = Maker::used();
        maker.put(offset, &[0; 4096]);
        bad(name, code, about, maker)
    };
    let mut rolled_back = Maker::used();
    // The seal of the newest state slot gets the sequence number of the older state in that slot,
    // as an interrupted update would leave it. But the checksum in the seal fits the new body. No
    // interrupted update leaves such a slot, so the slot counts as damaged.
    let seal = state().seal.get() - 2;
    rolled_back.put(STATE_OFFSET + PAGE_SLOT_STRIDE + 2040, &seal.to_le_bytes());
    let mut apart = Maker::used();
    apart.state(StateImage { sequence: 5.into(), ..state() }.sealed());
    let mut misplaced = Maker::used();
    misplaced.put(STATE_OFFSET, state().as_bytes());
    vec![
        flipped("owner-damaged", 11, "another byte in the newest owner", OWNER_OFFSET + 2048 + 64),
        cleared("owner-cleared", 11, "no owner in force", OWNER_OFFSET),
        flipped("state-damaged", 12, "another byte in the newest state", STATE_OFFSET + 2048 + 24),
        flipped("state-sequence", 12, "another sequence in the newest slot", STATE_OFFSET + 2048),
        flipped("state-seal", 12, "another checksum in the newest slot", STATE_OFFSET + 4095),
        bad("state-seal-before", 12, "the newest state, as if unfinished", rolled_back),
        bad(
            "state-not-adjacent",
            12,
            "two valid states whose sequences do not follow each other",
            apart,
        ),
        bad("state-misplaced", 12, "a state of even sequence in the odd slot", misplaced),
        cleared("state-cleared", 12, "no state in force", STATE_OFFSET),
        flipped(
            "consumed-damaged",
            13,
            "another byte in the consumed record",
            consumed_offset(3) + 16,
        ),
        flipped(
            "since-damaged",
            13,
            "another byte in the word since",
            consumed_offset(3) + SINCE + 4,
        ),
        cleared("consumed-cleared", 13, "no consumed record in force", LINK_CONTROL_OFFSET),
    ]
}

fn contradictions() -> Vec<Image> {
    let owned = |name, about, record: OwnerRecord| {
        let mut maker = Maker::used();
        maker.owner(record);
        bad(name, 14, about, maker)
    };
    let mut consumed = Maker::used();
    consumed.consumed(ConsumedRecord::new(4, 77, 8200, 11));
    let mut streamless = Maker::used();
    streamless.consumed(ConsumedRecord::new(4, 0, 8256, 11));
    let mut since_streamless = Maker::new();
    since_streamless.since(1, 64, 11);
    let mut beyond = Maker::used();
    beyond.consumed(ConsumedRecord::new(4, 77, u64::MAX - 127, 11));
    beyond.since(4, 128, 12);
    let mut no_slots = Maker::used();
    no_slots.since_is(3, 0x5a96_0000_0000_0000 ^ 0x000a_0000_0000_000a);
    vec![
        owned("owner-left", "an owner with unknown flags", owner(3, 2, 2)),
        owned("owner-incarnation", "an incarnation beyond 2^62", owner(3, u64::MAX, 0)),
        owned("owner-never", "an owner of incarnation 0", owner(3, 0, 0)),
        owned(
            "owner-adopted",
            "an owner neither adopted nor not",
            OwnerRecord { adopted: 2.into(), ..owner(3, 1, 1) }.sealed(),
        ),
        owned(
            "closing-open",
            "closed by an owner that has not left",
            OwnerRecord { closing: closing(), ..owner(3, 1, 0) }.sealed(),
        ),
        owned(
            "closing-fields",
            "a tail, and not closed",
            closed(Closing { closed: 0.into(), ..closing() }),
        ),
        owned(
            "closing-unaligned",
            "a tail within a slot",
            closed(Closing { tail: 200.into(), ..closing() }),
        ),
        owned(
            "closing-digest",
            "a record digest at the start of a stream",
            closed(Closing { tail: 0.into(), ..closing() }),
        ),
        bad("consumed-unaligned", 14, "consumed up to within a slot", consumed),
        bad("consumed-streamless", 14, "consumed of no stream", streamless),
        bad("since-streamless", 14, "consumed since, of no stream", since_streamless),
        bad("since-beyond", 14, "consumed beyond the last position", beyond),
        bad("since-nothing", 13, "a word since without slots that is not 0", no_slots),
    ]
}

pub fn bad(name: &'static str, code: u32, about: &'static str, maker: Maker) -> Image {
    image(name, &code.to_string(), about, maker)
}

fn image(name: &str, expected: &str, about: &'static str, maker: Maker) -> Image {
    let mut bytes = maker.bytes;
    let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(end);
    let expected = expected.to_owned();
    Image {
        name: format!("link-{name}.bin"),
        kind: "link",
        from: maker.size,
        expected,
        about,
        bytes,
    }
}
