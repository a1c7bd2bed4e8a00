// SPDX-License-Identifier: MIT OR Apache-2.0
//! State images of link files: one with every field set, and others with contradictory fields (SPEC
//! 13.4).
//!
//! Each contradictory state breaks one rule; the checksum of the state is right.

use super::Image;
use super::links::{Maker, bad};
use partywall_layout::link::{Previous, Report, SkipFields, Slot, StateImage};
use zerocopy::FromZeros;

/// Returns images of link files, each with a state whose fields contradict each other.
pub fn contradictions() -> Vec<Image> {
    let mut images = of_streams();
    images.extend(of_reports());
    images.extend(of_skips_and_deliveries());
    images
}

/// Returns a link state with a value in every field. The valid image of a used link file contains
/// this state, and each contradictory image changes one of its fields.
pub fn state() -> StateImage {
    let mut state = StateImage {
        sequence: 2.into(),
        epoch: 3.into(),
        sending_stream: 55.into(),
        sending_base: 128.into(),
        sending_acked: 192.into(),
        sending_digest: 0x0102_0304.into(),
        report_count: 3.into(),
        receiving_stream: 77.into(),
        receiving_consumed: 64.into(),
        receiving_digest: 5.into(),
        peer_incarnation: 6.into(),
        peer_store_id: *b"0123456789abcdef",
        previous: Previous {
            flags: 3.into(),
            epoch: 2.into(),
            sending_stream: 33.into(),
            base: 128.into(),
            acked: 128.into(),
            tail: 640.into(),
            receiving_stream: 44.into(),
            consumed: 1024.into(),
        },
        quarantine: 0x103.into(),
        skip: skip(3, 76, 77, 128, 256, 64),
        skip_reported: skip(2, 33, 33, 0, 128, 128),
        reports_dropped: 4.into(),
        delivered_count: 2.into(),
        ..StateImage::new_zeroed()
    };
    let (epoch, stream) = (2.into(), 33.into());
    let (from, to) = (128.into(), 640.into());
    state.reports[0] = Report { kind: 3.into(), flags: 2.into(), epoch, stream, from, to };
    let (epoch, stream) = (3.into(), 76.into());
    let (from, to) = (128.into(), 256.into());
    state.reports[1] = Report { kind: 2.into(), flags: 7.into(), epoch, stream, from, to };
    let (from, to) = (64.into(), 64.into());
    state.reports[2] =
        Report { kind: 6.into(), flags: 7.into(), epoch, stream: 0.into(), from, to };
    state.delivered[0] = 8192.into();
    state.delivered[1] = 4096.into();
    state.sealed()
}

fn skip(epoch: u64, of: u64, into: u64, from: u64, to: u64, resume: u64) -> SkipFields {
    SkipFields {
        epoch: epoch.into(),
        of: of.into(),
        into: into.into(),
        from: from.into(),
        to: to.into(),
        resume: resume.into(),
    }
}

fn of_streams() -> Vec<Image> {
    vec![
        contradiction("base-unaligned", "a base within a slot", |s| s.sending_base = 100.into()),
        contradiction("base-beyond", "the base exceeds acked", |s| {
            s.sending_base = 256.into();
        }),
        contradiction("no-stream", "acked without a stream", |s| s.sending_stream = 0.into()),
        contradiction("receiving-nothing", "consumed without a stream", |s| {
            s.receiving_stream = 0.into();
        }),
        contradiction("peer-incomplete", "a peer without a store id", |s| {
            s.peer_store_id = [0; 16]
        }),
        contradiction("previous-kind", "settled without a previous epoch", |s| {
            s.previous.flags = 2.into()
        }),
        contradiction("previous-base", "a previous base below acked", |s| {
            s.previous.base = 64.into();
        }),
        contradiction("previous-rest", "an end without a previous epoch", |s| {
            s.previous.flags = 0.into();
        }),
        contradiction("previous-later", "a previous epoch equal to the current one", |s| {
            s.previous.epoch = 3.into();
        }),
        contradiction("previous-tail", "a previous end below acked", |s| {
            s.previous.tail = 64.into();
        }),
    ]
}

fn of_reports() -> Vec<Image> {
    vec![
        contradiction("reports-many", "17 reports", |s| s.report_count = 17.into()),
        contradiction("report-kind", "a report of kind 0", |s| s.reports[0].kind = 0.into()),
        contradiction("report-later-kind", "a report of kind 7", |s| s.reports[2].kind = 7.into()),
        contradiction("report-flags", "a report with a flag that is none", |s| {
            s.reports[0].flags = 8.into();
        }),
        contradiction("report-open", "an exact report without an end", |s| {
            s.reports[1].flags = 5.into();
        }),
        contradiction("report-unaligned", "a report from within a slot", |s| {
            s.reports[0].from = 65.into();
        }),
        contradiction("report-range", "a report that ends before it begins", |s| {
            s.reports[0].to = 64.into();
        }),
    ]
}

fn of_skips_and_deliveries() -> Vec<Image> {
    vec![
        contradiction("digest-at-start", "a record digest at position 0", |s| {
            s.receiving_consumed = 0.into();
        }),
        contradiction("quarantine-reason", "a quarantine for reason 4", |s| {
            s.quarantine = 4.into();
        }),
        contradiction("quarantine-flag", "a quarantine of a third direction", |s| {
            s.quarantine = 0x201.into();
        }),
        contradiction("skip-rest", "a range without a skip", |s| s.skip.of = 0.into()),
        contradiction("skip-into", "a skip into no stream", |s| s.skip.into = 0.into()),
        contradiction("skip-epoch", "a skip in a later epoch", |s| s.skip.epoch = 4.into()),
        contradiction("skip-range", "a skip that ends before it begins", |s| {
            s.skip.from = 320.into();
        }),
        contradiction("skip-unaligned", "a skip to within a slot", |s| s.skip.resume = 65.into()),
        contradiction(
            "skip-reported-resume",
            "a skip within a stream that resumes outside its range",
            |s| {
                s.skip_reported.resume = 192.into();
            },
        ),
        contradiction("delivered-many", "17 deliveries", |s| s.delivered_count = 17.into()),
        contradiction("delivered-unaligned", "delivered up to within a slot", |s| {
            s.delivered[1] = 100.into();
        }),
        contradiction("delivered-streamless", "deliveries of no stream", |s| {
            s.receiving_stream = 0.into();
            s.receiving_consumed = 0.into();
            s.receiving_digest = 0.into();
        }),
    ]
}

/// Bytes of a link file in which `change` has made the newest state image contradictory, with a
/// right checksum.
fn contradiction(
    name: &'static str,
    about: &'static str,
    change: impl FnOnce(&mut StateImage),
) -> Image {
    let mut maker = Maker::used();
    let mut state = StateImage { sequence: 3.into(), ..state() };
    change(&mut state);
    maker.state(state.sealed());
    bad(name, 14, about, maker)
}
