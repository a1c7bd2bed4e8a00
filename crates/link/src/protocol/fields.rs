// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pasts, skips and streams, between their bytes and the terms of `partywall_reconcile`.
//!
//! ```text
//!  file (SPEC 13.4) ─┐                   ┌─ image.rs   the state
//!                    ├─ Previous ◀─▶ Past │
//!  frame (SPEC 15) ──┘  SkipFields ◀─▶ Skip ─ codec.rs  the frames
//! ```
//!
//! The bytes were checked before (`partywall_layout`). What could not be all the same becomes nothing, not a panic.

use partywall_layout::link::past::{PREVIOUS_SETTLED, PREVIOUS_THERE};
use partywall_layout::link::{Previous, SkipFields};
use partywall_reconcile::{
    Epoch, Impossible, Past, Position, Range, ReceivedPast, SentPast, Skip, StreamId,
};
use zerocopy::FromZeros;
use zerocopy::little_endian::U64;

/// 0 stands for none.
pub(crate) fn stream_number(stream: Option<StreamId>) -> u64 {
    stream.map_or(0, |stream| stream.0.get())
}

pub(crate) fn past(fields: &Previous) -> Option<Past> {
    if !fields.is_there() {
        return None;
    }
    let sending = StreamId::new(fields.sending_stream.get()).map(|stream| SentPast {
        stream,
        acked: Position(fields.acked.get()),
        tail: Position(fields.tail.get()),
    });
    let receiving = StreamId::new(fields.receiving_stream.get())
        .map(|stream| ReceivedPast { stream, consumed: Position(fields.consumed.get()) });
    let epoch = Epoch(fields.epoch.get());
    Some(Past { epoch, sending, receiving, settled: fields.is_settled() })
}

pub(crate) fn past_fields(past: Option<&Past>) -> Previous {
    let mut fields = Previous::new_zeroed();
    let Some(past) = past else { return fields };
    fields.flags = U64::new(PREVIOUS_THERE | if past.settled { PREVIOUS_SETTLED } else { 0 });
    fields.epoch = U64::new(past.epoch.0);
    if let Some(sent) = past.sending {
        fields.sending_stream = U64::new(sent.stream.0.get());
        fields.base = U64::new(sent.acked.0);
        fields.acked = U64::new(sent.acked.0);
        fields.tail = U64::new(sent.tail.0);
    }
    if let Some(received) = past.receiving {
        fields.receiving_stream = U64::new(received.stream.0.get());
        fields.consumed = U64::new(received.consumed.0);
    }
    fields
}

pub(crate) fn skip(fields: &SkipFields) -> Option<Skip> {
    Some(Skip {
        epoch: Epoch(fields.epoch.get()),
        of: StreamId::new(fields.of.get())?,
        into: StreamId::new(fields.into.get())?,
        range: Range::new(Position(fields.from.get()), Position(fields.to.get()))?,
        resume: Position(fields.resume.get()),
    })
}

pub(crate) fn skip_fields(skip: Option<&Skip>) -> SkipFields {
    let Some(skip) = skip else { return SkipFields::new_zeroed() };
    SkipFields {
        epoch: U64::new(skip.epoch.0),
        of: U64::new(skip.of.0.get()),
        into: U64::new(skip.into.0.get()),
        from: U64::new(skip.range.from().0),
        to: U64::new(skip.range.to().0),
        resume: U64::new(skip.resume.0),
    }
}

/// As SPEC 13.4 and 15.3 number them.
pub(crate) fn impossible(number: u64) -> Option<Impossible> {
    match number {
        1 => Some(Impossible::ReceiverAhead),
        2 => Some(Impossible::NoBoundary),
        3 => Some(Impossible::OtherRecord),
        _ => None,
    }
}

pub(crate) const fn impossible_number(why: Impossible) -> u32 {
    match why {
        Impossible::ReceiverAhead => 1,
        Impossible::NoBoundary => 2,
        Impossible::OtherRecord => 3,
    }
}
