// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of the first two pages of a region, as inspecting tools such as `partywall inspect` read
//! them (SPEC 3.4), and a reader for these images.
//!
//! Texts and numbers that the region's hostile owner wrote are no violation, so their images are
//! golden vectors: the expected line is what a tool may print. Only pages that are no region are
//! refused.

use super::{Image, PEER_BLOCKS_MAX, RING_BYTES, SESSION};
use partywall_layout::hello::{ROLE_ACCEPTOR, SERVICE_SESSION};
use partywall_layout::identity::{
    ADDRESS, CHANGED, IDENTITY_BYTES, IdentityText, LAST_ERROR, PROGRAM, RegionIdentity, STATE,
    STATE_BROKEN,
};
use partywall_layout::segment::{
    CONSUMED, CONTROL_OFFSET, RECEIVING_COUNTERS, SENDING_COUNTERS, receiving, sending,
};
use partywall_layout::{Geometry, RegionHeader, Violation};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U64;

/// Returns the images that a tool such as `partywall inspect` must understand.
pub fn golden() -> Vec<Image> {
    let texts = "address=\"unix:/run/app.sock\" program=\"/usr/bin/app\"";
    let numbers = "pid=4242 role=1 kind=1 service=2 created=1700000000000000000";
    let counters = "sent=3 received=5 tail=256 consumed=128";
    let mut escape = Pages::of_app();
    escape.text(ADDRESS, b"unix:/run/app\x1b[2Jowned");
    escape.text(CONTROL_OFFSET + PROGRAM, b"/usr/bin/\xff\xfe");
    let mut long = Pages::of_app();
    long.text(ADDRESS, &[b'a'; 510]);
    long.put(ADDRESS, &u16::MAX.to_le_bytes());
    long.word(LAST_ERROR, u64::MAX);
    let mut unknown = Pages::new(|header| {
        (header.kind, header.role, header.service) = (9.into(), 7.into(), 4.into());
    });
    unknown.word(STATE, 8);
    unknown.text(CONTROL_OFFSET + PROGRAM, "/opt/größer".as_bytes());
    let mut untrusted = Pages::of_app();
    untrusted.text(CONTROL_OFFSET + PROGRAM, b"");
    let long_address = "a".repeat(510);
    vec![
        Pages::of_app().golden(
            "trusted",
            &format!("{numbers} {texts} state=2 error=102 changed=1700000001000000000 {counters}"),
            "the region of an acceptor whose trusted peer broke rule 2",
        ),
        untrusted.golden(
            "untrusted",
            &format!(
                "{numbers} address=\"unix:/run/app.sock\" program=\"\" state=2 error=102 \
                 changed=1700000001000000000 {counters}"
            ),
            "the same for an untrusted peer, which must not see the program",
        ),
        Pages::new(|_| {}).golden(
            "none",
            "pid=4242 role=1 kind=1 service=0 created=0 address=\"\" program=\"\" state=0 error=0 \
             changed=0 sent=0 received=0 tail=0 consumed=0",
            "an owner that says nothing",
        ),
        escape.golden(
            "escape",
            &format!(
                "{numbers} address=\"unix:/run/app\" program=\"/usr/bin/\" state=2 error=102 \
                 changed=1700000001000000000 {counters}"
            ),
            "an escape sequence, and bytes that are not UTF-8: the texts are cut before them",
        ),
        long.golden(
            "long",
            &format!(
                "{numbers} address=\"{long_address}\" program=\"/usr/bin/app\" state=2 \
                 error=18446744073709551615 changed=1700000001000000000 {counters}"
            ),
            "a text whose length is 65,535, of which 510 bytes are taken; an error of 64 bits",
        ),
        unknown.golden(
            "unknown",
            "pid=4242 role=7 kind=9 service=4 created=0 address=\"\" program=\"/opt/größer\" \
             state=8 error=0 changed=0 sent=0 received=0 tail=0 consumed=0",
            "kind, role, service and state of a later version, printed as numbers",
        ),
    ]
}

/// Returns images that are not the pages of a region, so that a tool such as `partywall inspect`
/// must refuse them.
pub fn hostile() -> Vec<Image> {
    let refused = |name: &str, about, bytes: Vec<u8>| Image {
        name: format!("identity-{name}.bin"),
        kind: "identity",
        from: 0,
        expected: "1".to_owned(),
        about,
        bytes,
    };
    let pages = |tamper: fn(&mut RegionHeader)| Pages::new(tamper).0;
    let short = Pages::of_app().0;
    vec![
        refused("magic", "not the magic", pages(|h| h.magic[0] = 0)),
        refused("version", "another format version", pages(|h| h.version = 2.into())),
        refused("header-size", "a control page elsewhere", pages(|h| h.header_size = 64.into())),
        refused("layout-hash", "another layout hash", pages(|h| h.layout_hash = 1.into())),
        refused("short", "ends within the control page", short[..IDENTITY_BYTES - 8].to_vec()),
        refused("header-only", "ends with the header", short[..128].to_vec()),
    ]
}

/// Reads an image as a tool does. The returned line contains no control characters, which could
/// harm a terminal.
pub fn read(bytes: &[u8]) -> Result<String, Violation> {
    let identity = RegionIdentity::read(bytes)?;
    Ok(format!(
        "pid={} role={} kind={} service={} created={} address=\"{}\" program=\"{}\" state={} \
         error={} changed={} sent={} received={} tail={} consumed={}",
        identity.owner_pid(),
        identity.role(),
        identity.kind(),
        identity.service(),
        identity.created_ns(),
        identity.address(),
        identity.program(),
        identity.state(),
        identity.last_error(),
        identity.changed_ns(),
        identity.sending(sending::MESSAGES),
        identity.receiving(receiving::MESSAGES),
        identity.sending(sending::TAIL),
        identity.word(CONSUMED),
    ))
}

/// The bytes of the first two pages of a region, from which a test image is built.
struct Pages(Vec<u8>);

impl Pages {
    /// The pages of an acceptor's region whose identity fields are empty. The function `tamper` has
    /// changed the header.
    fn new(tamper: impl Fn(&mut RegionHeader)) -> Self {
        let geometry = Geometry::new(RING_BYTES, PEER_BLOCKS_MAX, 64 << 10).unwrap();
        let mut header = geometry.header(SESSION, 4242, ROLE_ACCEPTOR);
        tamper(&mut header);
        let mut pages = Self(vec![0; IDENTITY_BYTES]);
        pages.put(0, header.as_bytes());
        pages
    }

    /// The first two pages of a region with a value in each field that describes its owner, and
    /// with some counters.
    fn of_app() -> Self {
        let mut pages = Self::new(|header| {
            header.service = SERVICE_SESSION.into();
            header.created_ns = U64::new(1_700_000_000_000_000_000);
        });
        pages.text(ADDRESS, b"unix:/run/app.sock");
        pages.text(CONTROL_OFFSET + PROGRAM, b"/usr/bin/app");
        pages.word(LAST_ERROR, 102);
        pages.word(CHANGED, 1_700_000_001_000_000_000);
        pages.word(STATE, STATE_BROKEN);
        pages.word(CONSUMED, 128);
        pages.word(SENDING_COUNTERS + 8 * sending::MESSAGES, 3);
        pages.word(SENDING_COUNTERS + 8 * sending::TAIL, 256);
        pages.word(RECEIVING_COUNTERS + 8 * receiving::MESSAGES, 5);
        pages
    }

    /// Stores a text at byte `offset` of the region, without a check of its length or content. A
    /// hostile owner may store any text.
    fn text(&mut self, offset: u64, text: &[u8]) {
        let mut stored = IdentityText::new("");
        stored.text[..text.len()].copy_from_slice(text);
        stored.length = u16::try_from(text.len()).unwrap().into();
        self.put(offset, stored.as_bytes());
    }

    fn word(&mut self, offset: u64, value: u64) {
        self.put(CONTROL_OFFSET + offset, &value.to_le_bytes());
    }

    fn put(&mut self, offset: u64, bytes: &[u8]) {
        let offset = usize::try_from(offset).unwrap();
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn golden(self, name: &str, expected: &str, about: &'static str) -> Image {
        let (name, expected) = (format!("identity-{name}.bin"), expected.to_owned());
        Image { name, kind: "identity", from: 0, expected, about, bytes: self.0 }
    }
}
