// SPDX-License-Identifier: MIT OR Apache-2.0
//! Explorations of the model of links that leave out one safeguard, a rule of the protocol: each
//! must find the fault that the safeguard prevents.
//!
//! If no test notices that a safeguard is missing, the safeguard is useless, or the model does not
//! explore the case.

use crate::bounds::{Bounds, Fault};
use crate::explore;
use crate::invariants::Invariant;

/// Explores all states of the model within `bounds` with the seeded fault `fault`, and demands that
/// `invariant` is the first invariant that breaks.
fn breaks(fault: Fault, invariant: Invariant, bounds: Bounds) {
    let verdict = explore(Bounds { fault: Some(fault), ..bounds });
    let Some((found, steps)) = verdict.broken else {
        panic!("{fault:?}: nothing broke in {} states", verdict.states);
    };
    println!("{fault:?}: {found:?} after {} states by {steps:?}", verdict.states);
    assert_eq!(found, invariant, "{fault:?} by {steps:?}");
}

const PLAIN: Bounds = Bounds::PLAIN;
/// Bounds of an exploration of the model in which the client's file is replaced by an older copy
/// once.
const CLIENT_BACK: Bounds = Bounds { crashes: [1, 0], rollbacks: [1, 0], ..PLAIN };
const CLIENT_LOST: Bounds = Bounds { crashes: [1, 0], losses: [1, 0], ..PLAIN };
/// Bounds of an exploration of the model in which the server replies to each of two messages and
/// crashes once.
const REPLIES: Bounds = Bounds { messages: [2, 0], replies: [0, 2], crashes: [0, 1], ..PLAIN };
const EPOCHS: Bounds = Bounds { epochs: [1, 1], ..PLAIN };

#[test]
fn without_proofs_a_position_names_two_records() {
    breaks(Fault::NoDigest, Invariant::OneRecord, CLIENT_BACK);
}

#[test]
fn without_nonces_an_old_connection_comes_alive() {
    breaks(
        Fault::NoNonce,
        Invariant::OneWriter,
        Bounds { messages: [1, 0], replays: 1, cuts: 1, crashes: [0, 1], ..PLAIN },
    );
}

#[test]
fn late_confirm_takes_over_without_connection_numbers() {
    breaks(
        Fault::OlderConnection,
        Invariant::OneWriter,
        Bounds { messages: [0, 0], connections: 3, cuts: 2, ..PLAIN },
    );
}

#[test]
fn a_connection_replaced_at_attach_is_replaced_by_a_replay() {
    breaks(
        Fault::ReplacedAtAttach,
        Invariant::OneWriter,
        Bounds { messages: [1, 0], replays: 1, cuts: 1, crashes: [0, 1], ..PLAIN },
    );
}

#[test]
fn acknowledging_what_was_received_trims_what_was_not_consumed() {
    breaks(Fault::AckReceived, Invariant::TrimmedConsumed, PLAIN);
}

#[test]
fn acknowledging_a_prepared_consume_trims_what_was_not_consumed() {
    breaks(Fault::AckBeforeCommit, Invariant::TrimmedConsumed, REPLIES);
}

#[test]
fn trimming_what_was_sent_trims_what_was_not_consumed() {
    breaks(Fault::TrimSent, Invariant::TrimmedConsumed, PLAIN);
}

#[test]
fn an_epoch_that_is_forgotten_loses_in_silence() {
    breaks(Fault::PastForgotten, Invariant::NoSilentLoss, EPOCHS);
}

#[test]
fn an_epoch_that_is_adopted_in_silence_loses_in_silence() {
    breaks(Fault::AdoptedSilently, Invariant::ReportedOnce, EPOCHS);
}

#[test]
fn an_epoch_that_is_never_settled_is_reported_twice() {
    breaks(Fault::NeverSettled, Invariant::ReportedOnce, Bounds { cuts: 1, ..EPOCHS });
}

#[test]
fn without_stream_ids_a_new_stream_is_taken_for_the_lost_one() {
    breaks(Fault::NoStreamId, Invariant::NoDeadEnd, CLIENT_LOST);
}

#[test]
fn acknowledgements_of_another_stream_are_lies() {
    breaks(Fault::AckOfAnyStream, Invariant::Chain, CLIENT_LOST);
}

#[test]
fn a_reply_that_does_not_count_is_made_twice() {
    breaks(Fault::ReplyNotCounted, Invariant::ReportedOnce, REPLIES);
}

#[test]
fn a_reply_that_is_trimmed_too_early_is_made_twice() {
    breaks(Fault::TrimBeforeStored, Invariant::TrimmedConsumed, REPLIES);
}

#[test]
fn a_report_that_is_stored_later_may_never_be() {
    breaks(Fault::ReportLater, Invariant::NoSilentLoss, Bounds { crashes: [1, 0], ..EPOCHS });
}

#[test]
fn a_decision_for_a_receiver_that_moved_joins_what_does_not_belong_together() {
    breaks(Fault::MovedIgnored, Invariant::OneRecord, CLIENT_BACK);
}

#[test]
fn a_sender_that_trimmed_since_leaves_a_gap() {
    breaks(Fault::TrimmedSinceIgnored, Invariant::NoSilentLoss, CLIENT_LOST);
}

#[test]
fn a_record_known_already_is_consumed_twice() {
    breaks(Fault::KnownTaken, Invariant::NoDuplicate, Bounds { cuts: 1, ..PLAIN });
}

#[test]
fn acknowledgements_that_wait_for_data_never_come() {
    breaks(Fault::AckWithData, Invariant::Acknowledged, Bounds { messages: [2, 0], ..PLAIN });
}

#[test]
fn a_skip_that_views_do_not_name_is_reported_on_one_side() {
    breaks(
        Fault::SkipUnreported,
        Invariant::ReportedOnce,
        Bounds { connections: 3, cuts: 1, ..CLIENT_LOST },
    );
}

#[test]
fn a_sender_that_resumes_at_its_tail_loses_in_silence() {
    breaks(Fault::ResumeAtTail, Invariant::NoSilentLoss, PLAIN);
}

#[test]
fn acknowledgements_assumed_sent_never_come() {
    breaks(Fault::AckedTooMuch, Invariant::Acknowledged, Bounds { cuts: 1, ..PLAIN });
}
