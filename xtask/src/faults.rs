// SPDX-License-Identifier: MIT OR Apache-2.0
//! Seeded faults: takes the code that keeps a rule out of the program, one rule at a time, and
//! requires that a test fails. The stage `faults` and `cargo xtask torture --faults` run them.
//!
//! ```text
//! crates/ring/src/…:   if !seeded_fault("no_zero_next_slot") {
//!                          self.mem.clear_word0(end);
//!                      }
//! REGISTRY:            "no_zero_next_slot" · package ring · executable ring · module forged_words
//! faults:              with the fault chosen, run the tests of each place of the row, and expect
//!                      `test forged_words::… ... FAILED`
//! ```
//!
//! To add a fault: guard the line as above, and add one row to [`REGISTRY`]. `tidy` reports a guard
//! without a row, a row without a guard, and a place that does not exist. A failure of another test
//! of the executable does not count. A test that hangs instead of failing is an error, too, because
//! tests have deadlines. A loom model that finds a deadlock can end the process before the result
//! of the test is printed: then the panic of a test of the row counts. Without a fault the same
//! tests of the same executables have to pass.
//!
//! Guards exist only in some builds of `builds.rs`, in which the variable `PARTYWALL_FAULT` chooses
//! one fault: one build serves for all faults. In any other build the compiler knows that no fault
//! is chosen.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::builds::{self, FAULT};
use crate::command::Step;
use crate::executables::{self, Executable, LIBRARY};

/// A seeded fault: it takes out of a test build the code that keeps one rule, if an environment
/// variable names the fault.
pub struct Fault {
    /// Name of the fault: the argument of its guards, the `if`s in the code, `seeded_fault("…")`.
    pub name: &'static str,
    /// The tests that must notice the fault, each of them on its own.
    pub caught_by: &'static [CaughtBy],
}

/// A test, or group of tests, that must notice a fault.
pub enum CaughtBy {
    /// A test of a test executable, or a module of such tests.
    Test(Place),
    /// A unit test, or a module of unit tests.
    Unit(Place),
    /// A loom model, a test in which loom explores the orders of threads, or a module of such tests
    /// (partywall-ring only).
    Model(Place),
    /// A unit test in which shuttle chooses the order of threads, or a module of such tests
    /// (partywall only).
    Shuttle(Place),
    /// The test executable `torture`, which kills the processes at the ends of links and then
    /// judges whether the links kept their promises. `cargo xtask torture --faults` requires that
    /// it notices the fault within two minutes. The stage `faults` leaves it out, because finding a
    /// race may take most of that time.
    Torture(Place),
}

/// Tests of one executable, named by package, executable and path.
pub struct Place {
    /// The name of the package's directory, below `crates`.
    pub package: &'static str,
    /// The name of the test executable, or [`LIBRARY`] for the unit tests of a library.
    pub executable: &'static str,
    /// The path of a module or of a test, in whole segments. An empty path names all tests of the
    /// executable.
    pub path: &'static str,
}

impl Place {
    /// Whether the test with the path `test` is one of those that this place names.
    fn holds(&self, test: &str) -> bool {
        let (test, path) = (format!("::{test}::"), format!("::{}::", self.path));
        self.path.is_empty() || test.contains(&path)
    }

    fn is_of(&self, executable: &Executable) -> bool {
        executable.package() == self.package && executable.is_called(self.executable)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.package, self.executable, self.path)
    }
}

impl CaughtBy {
    /// The tests that must notice the fault.
    pub const fn place(&self) -> &Place {
        match self {
            Self::Test(place) | Self::Unit(place) | Self::Model(place) | Self::Shuttle(place) => {
                place
            }
            Self::Torture(place) => place,
        }
    }

    /// Whether the tests run under loom or shuttle, which need a build of their own and have a
    /// stage of their own.
    fn is_model(&self) -> bool {
        matches!(self, Self::Model(_) | Self::Shuttle(_))
    }

    /// Whether the tests can run on this processor. All can on x86-64. On others the test
    /// `kill_sweep` cannot, because it executes a process instruction by instruction.
    fn is_here(&self) -> bool {
        cfg!(target_arch = "x86_64") || self.place().executable != "kill_sweep"
    }
}

/// All seeded faults. The comment above each row states the fault and its effect.
pub const REGISTRY: &[Fault] = &[
    // Fault: a record is published in a ring without a 0 in the slot after it. Effect: old payload
    // in that slot may read as a record.
    fault("no_zero_next_slot", &[test("ring", "ring", "forged_words")]),
    // Fault: the first word of a batch of records is stored when the record is written, not when
    // the batch is published. Effect: the consumer reads batches that the producer has not
    // published, or has aborted.
    fault("early_first_word", &[test("ring", "ring", "forged_words"), model("ring")]),
    // Fault: a block has the same id each time it is allocated. Effect: a peer that releases a
    // block twice frees a later message in the block.
    fault("same_generation", &[test("ring", "ring", "double_release")]),
    // Faults: the store of a word lacks its memory order release, or the load its acquire. Effect:
    // the peer sees the word before the bytes that the word publishes.
    fault("relaxed_publish", &[model("ring"), model("release")]),
    fault("no_acquire_fence", &[model("ring"), model("release")]),
    // Faults: one of the two full memory fences around a thread's sleep is missing: that of the
    // thread that goes to sleep, or that of the thread that wakes it. Effect: a wake-up is lost,
    // because the two threads overlook each other's store.
    fault("no_sleeper_fence", &[model("parking")]),
    fault("no_waker_fence", &[model("parking")]),
    // Fault: the favoured thread of a biased lock checks that the lock favours it before its flag,
    // which says that it holds the lock, is visible. Effect: two threads hold the lock.
    fault("no_light_barrier", &[model("bias")]),
    // Faults: the thread that revokes the bias of a lock does not wait for the favoured thread's
    // flag, or skips the heavy barrier, a system call that acts as a memory barrier in all threads.
    // Effect: two threads hold the lock.
    fault("no_heavy_barrier", &[model("bias")]),
    fault("no_wait_for_vacancy", &[model("bias")]),
    // Fault: all threads that a biased lock favours share one flag, which says that the thread
    // holds the lock. Effect: a thread that leaves the lock late clears the flag that another
    // thread has set since, although that thread still holds the lock.
    fault("one_slot_for_all", &[model("bias")]),
    // Fault: a thread that unlocks a mutex looks for waiters before the others see that the mutex
    // is unlocked. Effect: a wake-up is lost.
    fault("no_barrier_of_unlock", &[model("mutex_word")]),
    // Fault: a waiter looks whether the mutex is unlocked before the others see that it is about to
    // sleep. Effect: a wake-up is lost.
    fault("no_fence_of_waiter", &[model("mutex_word")]),
    // Fault: a thread that unlocks a mutex and knows of a waiter looks whether it sleeps before the
    // waiter sees that the mutex is unlocked. Effect: a wake-up is lost.
    fault("no_fence_of_unlock", &[model("mutex_word")]),
    // Faults: a waiter relies on being woken although the heavy barrier failed, or was executed
    // before the number of waiters was last 0. Effect: a wake-up is lost.
    fault(
        "no_barrier_of_waiter",
        &[unit("ring", "mutex_word::tests::waiter_without_a_barrier_ends_its_sleep_by_itself")],
    ),
    fault(
        "announced_for_ever",
        &[unit("ring", "mutex_word::tests::waiter_without_a_barrier_ends_its_sleep_by_itself")],
    ),
    // Faults: the thread that a lane of a handle favours checks that the lane favours it before
    // other threads can see that it is inside. Or the thread that revokes the favour does not check
    // whether the favoured thread is inside, or checks that before the barrier. Effect: two calls
    // of C use one object at the same time.
    fault("no_light_barrier_of_lane", &[model("lane")]),
    fault("no_heavy_barrier_of_lane", &[model("lane")]),
    fault("no_look_for_presence", &[model("lane")]),
    // Fault: a sender on a socket writes its next record for the position that it knew before its
    // receiver sent MOVE. Effect: the peer refuses the next record.
    fault("stale_boundary", &[test("partywall", "channels", "begin_on_socket")]),
    // Fault: the second handshake of a connection, by which it moves to shared memory, accepts the
    // frame HELLO of any process. Effect: another process takes a connection over.
    fault("other_peer_moves", &[test("partywall", "hostile", "moves")]),
    // Fault: an acceptor takes the socket pair of a connector that it does not trust. Effect: the
    // connector, which may keep a copy of the acceptor's end, can block the acceptor's calls on
    // that end.
    fault("untrusted_peer_moves", &[test("partywall", "hostile", "moves")]),
    // Fault: the driver of a session overlooks a thread that waits for room and has not woken the
    // driver yet (`wake_driver`). Effect: the driver polls for ever, and never wakes that thread.
    fault(
        "no_look_for_uncalled",
        &[
            unit("partywall", "driver::tests::waiter_for_room_is_woken_before_it_wakes_the_driver"),
            shuttle("races::waiter_for_room_is_woken"),
        ],
    ),
    // Fault: the task of a session on tokio does not clear the readiness of the descriptor that
    // woke it. Effect: its next sleep ends at once; each message costs a further system call.
    fault("readiness_is_kept", &[test("partywall", "opening", "woken_session")]),
    // Fault: a user of a byte stream takes the records for which the task of its session armed the
    // driver, and does not wake the task. Effect: the peer takes this side for awake and does not
    // notify it, so later records are never received.
    fault(
        "taken_records_wake_nobody",
        &[
            unit("partywall", "driver::tests::user_that_takes_records_wakes_the_sleeping_task"),
            shuttle("races::waiter_for_room_is_woken"),
        ],
    ),
    // Fault: an external event loop polls a group while another thread leads, and that thread does
    // not wake the loop when it no longer leads. Effect: a link stays unarmed, its peer sends no
    // notification, and the loop sleeps for ever.
    fault("link_external_loop_forgotten", &[unit("link", "drive::reactor")]),
    // Fault: a process that gets the lock of a link file does not check whether another owner has
    // written a record into the file meanwhile. Effect: the link has two owners.
    fault("link_lock_is_enough", &[unit("link", "store::owner")]),
    // Fault: a child of a dead owner still has the lock of the link file, and other processes take
    // that for a sign that the owner lives. Effect: no other process can become owner of the link.
    fault("link_lock_is_life", &[test("link", "owner", "")]),
    // Fault: a new owner changes the link file before its owner record is on the disk. Effect:
    // after a power loss, the file still says that the previous owner closed it, although it has
    // newer records.
    fault("link_owner_not_synced", &[POWER_LOSS]),
    // Fault: a process that becomes owner of a link file from before a reboot does not examine its
    // content. Effect: the owner accepts content of which a power loss destroyed a part.
    fault("link_other_boot_believed", &[POWER_LOSS]),
    // Fault: each record of a link's batch gets its first word at once, so it is whole before the
    // batch is published. Effect: after a power loss a record of a dropped batch passes for a
    // published one.
    fault("early_batch_words", &[POWER_LOSS]),
    // Fault: an owner adopted a link file of another boot, and the next owner does not report that
    // to its application. Effect: if the first owner was killed before it reported the adoption, no
    // application learns that messages may be lost.
    fault("link_adoption_forgotten", &[POWER_LOSS]),
    // Fault: an update of a record in the link file stores the seal before the body. Effect: a kill
    // between the two stores leaves neither the old nor the new record valid.
    fault("link_seal_first", &[test("link", "files", "state_survives_kills"), SWEEP]),
    // Fault: a new consumed record is stored in a slot, and only afterwards the slot's `since` word
    // is set to 0. That word counts the bytes consumed after the slot's record. Effect: for a
    // moment, the new record has the `since` word of the old one.
    fault("link_since_later", &[unit("link", "store::slots::tests")]),
    // Fault: a reader of the link file copies a slot's record and its `since` word together, and
    // does not read the word again afterwards. The word counts the bytes consumed after that
    // record. Effect: the word may belong to the record that was in the slot before.
    fault("link_since_early", &[unit("link", "store::slots::tests")]),
    // Fault: a reader of the link file does not check the seal of a consumed record again after it
    // has read the slot's `since` word. Effect: the word may belong to the next record in the slot.
    fault("link_seal_once", &[unit("link", "store::slots::tests")]),
    // Fault: a reader of the link file takes a damaged newest record for one whose update was
    // interrupted. Effect: the owner continues with the older record instead of reporting the
    // damage.
    fault("link_rot_is_unfinished", &[test("layout", "layout", "link_files")]),
    // Fault: after a kill, a half-written record stays in the ring of a link where the next stream
    // begins. Effect: the next owner takes it for a damaged record of the new stream.
    fault("link_half_record_first", &[test("link", "files", "stream_survives_kills")]),
    // Fault: a new owner does not recognise a whole record of the former stream. Such a record may
    // lie in the ring of a link where the next stream begins. Effect: the owner takes that record
    // for damage.
    fault("link_former_is_damage", &[test("link", "files", "stream_survives_kills")]),
    // Fault: a new owner that reads a link file does not compare the bytes of a block, to which a
    // record BLOB refers, with their checksum. Effect: the owner does not notice damaged bytes.
    fault("link_blob_unchecked", &[test("link", "files", "stream_survives_kills")]),
    // Fault: the first record of a link's stream is a compact record. Effect: the peer refuses the
    // record, and so does the next owner.
    fault("link_compact_first", &[test("link", "files", "compact_records"), SIMULATION]),
    // Fault: a reply on a link is sent as a compact record, which cannot acknowledge the request.
    // Effect: an owner that is killed after sending the reply answers the request twice.
    fault("link_compact_of_reply", &[unit("link", "link_state::shm::compact"), SWEEP]),
    // Fault: an end of a link accepts an answer to its ATTACH without checking that the answer
    // belongs to this connection. Effect: late bytes of an earlier connection decide where a stream
    // resumes.
    fault("link_echo_unchecked", &[SIMULATION]),
    // Fault: a receiver on a link does not always store in its link file what it has acknowledged.
    // Effect: the next owner receives messages that were consumed already.
    fault("link_consumed_now_and_then", &[TORTURE]),
    // Fault: a receiver on a link acknowledges messages on arrival. Effect: a receiver that is
    // killed before it consumes a message loses that message.
    fault("link_ack_of_received", &[SIMULATION, TORTURE]),
    // Fault: the acknowledgements of a link are sent only with messages in the other direction.
    // Effect: the sender keeps consumed messages for ever.
    fault("link_ack_waits", &[TORTURE]),
    // Fault: a new connection of a link continues at the end of the sender's ring, after messages
    // that the receiver has not received. Effect: the connection skips these messages.
    fault("link_resume_at_tail", &[TORTURE]),
    // Fault: a part of a link's ring is reused before the new base is stored in the link file.
    // Effect: the next owner finds the middle of a record at the base.
    fault("link_base_not_committed", &[SIMULATION, SWEEP, TORTURE]),
    // Fault: an end of a link does not store the acknowledgements of requests that its replies
    // carry. Effect: the next owner answers requests twice.
    fault("link_reply_commits_nothing", &[SIMULATION, TORTURE]),
    // Fault: a request on a link is stored as consumed before its answer is sent. Effect: an owner
    // that is killed between the two steps never answers.
    fault("link_reply_in_two_steps", &[SWEEP, TORTURE]),
    // Fault: a receiver on a link does not drop a record that it has received before. Effect: the
    // application receives the message twice.
    fault("link_known_taken_again", &[TORTURE]),
    // Fault: a link publishes the records of a batch one by one. Effect: half of the batch survives
    // a kill.
    fault("link_batch_one_by_one", &[SWEEP, TORTURE]),
    // Fault: the agreement of both ends of a link (the frames ATTACH and ATTACHED) is not stored in
    // the link file before records flow. Effect: the next owner continues from the state before the
    // agreement.
    fault("link_attach_not_committed", &[TORTURE]),
    // Fault: the ends of a link decide that a stream continues at another position, but the inbox
    // keeps the messages that arrived before. Effect: the application receives these messages
    // twice.
    fault("link_inbox_outlives_jump", &[TORTURE]),
    // Fault: each connection of a link has the same number as the connection before it. Effect: the
    // server never recognises a new connection as newer than the old one.
    fault("link_connection_number_kept", &[TORTURE]),
    // Fault: when a new epoch of a link begins, the remaining messages are dropped without a
    // report. Effect: the application does not learn of the loss.
    fault("link_epoch_unreported", &[SIMULATION, TORTURE]),
    // Fault: messages of a link that are delivered again reset the delivery counts of the messages
    // after them. Effect: a later message that has crashed its readers looks as if it had never
    // been delivered.
    fault("link_attempts_fall", &[SIMULATION, TORTURE]),
    // Fault: a link counts a delivery only after the application has read the message. Effect: a
    // message that crashes its readers looks new to each owner.
    fault("link_read_before_noted", &[test("link", "links", "read_in_place")]),
    // Fault: a link takes a message as consumed although the application panicked while it read the
    // message. Effect: no application receives the message again.
    fault("link_panic_consumes", &[test("link", "links", "read_in_place")]),
    // Fault: a link that has stopped reports its end before the events that led to it. Effect: an
    // application learns that the link is fenced, but not what happened before.
    fault("link_events_after_the_end", &[test("link", "links", "reconnection")]),
    // Fault: a send on a link reports success although its message is not published. Effect: the
    // message is lost.
    fault("link_unpublished_now_and_then", &[TORTURE]),
    // Fault: an ended session waits for room in its ring for ever. Effect: its driver never ends if
    // the peer never reads.
    fault(
        "no_bound_on_leaving",
        &[unit(
            "partywall",
            "driver::tests::peer_that_never_reads_is_not_waited_for_after_the_end",
        )],
    ),
    // Fault: a sender that waits for room takes its snapshot after its failed attempt to send, not
    // before. Effect: the sender overlooks room that was freed between the two steps.
    fault("late_snapshot", &[shuttle("races::waiter_for_room_is_woken")]),
    // Faults: a user that leaves credit to its driver does not look whether the driver sleeps, or
    // the driver sleeps without looking for such credit. Effect: the peer waits for the credit for
    // ever.
    fault("no_look_after_deferring", &[shuttle("races::credit_left_to_the_driver_is_reported")]),
    fault(
        "no_look_for_deferred_credit",
        &[shuttle("races::credit_left_to_the_driver_is_reported")],
    ),
    // Faults: a task that sends begins its wait for the answer although a message is there, the
    // receiving direction has ended, or due credit was not reported. Effect: it takes no message,
    // learns of no end, or the peer waits for the credit for ever.
    fault("wait_despite_messages", &[A_WAIT, shuttle(A_WAIT_RACE)]),
    fault("wait_behind_the_end", &[A_WAIT, shuttle(A_WAIT_RACE)]),
    fault("wait_with_due_credit", &[A_WAIT]),
    // Fault: a message carries only credit that is due. Effect: at many lengths of messages nearly
    // every second one carries credit, which processors cannot predict.
    fault(
        "due_credit_only",
        &[unit("partywall", "driver::tests::message_carries_credit_from_a_quarter_of_the_window")],
    ),
    // Fault: a task takes the wait of another task for its own. Effect: nobody wakes it.
    fault(
        "wait_of_another_task",
        &[unit("partywall", "driver::tests::task_that_looks_last_is_woken")],
    ),
    // Fault: a driver whose turns all find records reports no deferred credit. Effect: the peer
    // waits for the credit as long as other streams are busy.
    fault(
        "no_report_while_busy",
        &[unit("partywall", "driver::tests::driver_that_is_always_busy_reports_deferred_credit")],
    ),
    // Fault: an owned reservation that is dropped does not notify its sender. Effect: a sender that
    // waits for memory is not woken.
    fault(
        "no_notification_of_given_back",
        &[test(
            "partywall",
            "channels",
            "owned_reservations::memory_given_back_around_arming_is_not_missed",
        )],
    ),
    // Fault: arming a sender does not report memory that was given back before. Effect: an event
    // loop waits although there is room.
    fault(
        "no_look_for_given_back",
        &[test(
            "partywall",
            "channels",
            "owned_reservations::memory_given_back_around_arming_is_not_missed",
        )],
    ),
    // Fault: the next receive call does not consume the message that a view borrowed, or whose
    // reference was dropped. Effect: the message is received again.
    fault("view_is_not_consumed", &[test("partywall", "channels", "views")]),
    // Fault: the thread of an event loop does not check the list of ready sources before it waits.
    // Effect: the thread sleeps although a source was marked ready.
    fault("no_look_before_the_loop_waits", &[shuttle("ready_list::model")]),
    // Fault: a poll of the library's event loop from an external event loop does not notify the
    // external loop of sources that were marked ready meanwhile. Effect: the external loop sleeps
    // although a source is ready.
    fault("no_notification_of_what_is_left", &[shuttle("ready_list::model")]),
    // Fault: an event loop looks for an event of a source, finds none, clears the source's mark,
    // and does not look once more. Effect: an event between the look and the clearing is never
    // reported.
    fault("no_second_look", &[shuttle("ready_list::model")]),
    // Fault: the driver of a session does not wait until the thread that sent the record OPEN has
    // registered the new stream. Effect: the peer's answer finds no stream.
    fault("no_wait_for_open", &[shuttle("races::stream_answered_at_once_is_known")]),
    // Fault: the credit that a message carries is computed before the session's outbox is locked.
    // Effect: another thread may send newer credit first.
    fault(
        "credit_before_lock",
        &[shuttle("races::credit_of_messages_is_never_older_than_reported")],
    ),
    // Fault: credit that falls due while a sender of the same stream already waits is not sent at
    // once. Effect: two sides may wait for each other's credit.
    fault(
        "no_credit_for_a_waiter",
        &[test(
            "partywall",
            "sessions",
            "credit::credit_that_falls_due_while_the_sender_waits_is_sent",
        )],
    ),
    // Fault: after taking the lock of the session's sending side, a sender does not check again
    // that its stream is open. Effect: the sender's message may follow the record END of its
    // stream, and so belong to the next stream with the same number.
    fault("no_check_behind_end", &[shuttle("races::nothing_follows_end_of_stream")]),
    // Faults of the C interface: a panic leaves an exported function, a null pointer is accepted as
    // the place for a result, or a handle is accepted although its entry in the table of handles
    // belongs to a newer object. Effect: the C program dies, gets no result, or uses an object that
    // has replaced another one.
    fault("no_panic_boundary", &[unit("capi", "export::tests::panic_becomes_a_status")]),
    fault("no_null_check", &[unit("capi", "argument::tests::null_pointers_are_refused")]),
    fault(
        "no_generation_check",
        &[unit("capi", "table::tests::freed_handle_is_known_although_its_slot_is_used_again")],
    ),
    // Faults: after opening a stream, or after beginning to wait for room, a thread does not check
    // again whether the session has ended. Effect: the stream is never notified of the end.
    fault("no_look_after_open", &[shuttle("ends::stream_opened_as_session_ends_reports_the_end")]),
    fault(
        "no_look_while_waiting",
        &[shuttle("ends::waiter_that_begins_as_session_closes_is_woken")],
    ),
];

/// Unit tests that open copies of link files in states that a power loss can leave.
const POWER_LOSS: CaughtBy = unit("link", "link_state::shm::power_loss");
/// Unit tests that simulate two ends of a link, and the network between them, in one thread.
const SIMULATION: CaughtBy = unit("link", "link_state::simulation");

/// The test in which the process at one end of a link dies at each instruction of each operation,
/// such as a send. The stage `test` runs its short form, a sample of the instructions.
const SWEEP: CaughtBy = test("link", "kill_sweep", "");

/// The test executable `torture`: it kills the processes at the ends of links, and judges whether
/// the links kept their promises, such as to lose no message.
const TORTURE: CaughtBy =
    CaughtBy::Torture(Place { package: "link", executable: "torture", path: "" });

const fn fault(name: &'static str, caught_by: &'static [CaughtBy]) -> Fault {
    Fault { name, caught_by }
}

const fn test(package: &'static str, executable: &'static str, path: &'static str) -> CaughtBy {
    CaughtBy::Test(Place { package, executable, path })
}

const fn unit(package: &'static str, path: &'static str) -> CaughtBy {
    CaughtBy::Unit(Place { package, executable: LIBRARY, path })
}

const fn model(path: &'static str) -> CaughtBy {
    CaughtBy::Model(Place { package: "ring", executable: "loom", path })
}

/// The tests of a wait for a message that begins when its task sends.
const A_WAIT: CaughtBy =
    unit("partywall", "stream::tests::wait_begins_when_the_task_that_waited_last_sends");
const A_WAIT_RACE: &str = "races::wait_that_begins_with_sending_ends_with_a_message";

const fn shuttle(path: &'static str) -> CaughtBy {
    CaughtBy::Shuttle(Place { package: "partywall", executable: LIBRARY, path })
}

/// Runs every fault that the stage `faults` checks. Before that, the same tests run without a
/// fault, unless they have passed in an earlier stage of this run: the tests of [`tests`] if
/// `tests_have_passed`, and the models if `models_have_passed`.
///
/// # Errors
/// If a test fails without a fault, or a fault is not noticed by a test that must notice it.
pub fn main(tests_have_passed: bool, models_have_passed: bool) -> Result<(), String> {
    let has_passed = |by: &CaughtBy| {
        if by.is_model() { models_have_passed } else { tests_have_passed }
    };
    run(|by| !matches!(by, CaughtBy::Torture(_)), has_passed, FAULTS_AT_ONCE)
}

/// The command that builds, with the guards of seeded faults, and runs all tests of the crate
/// `link`, and the tests of other crates that notice seeded faults. The stages `test` and `faults`
/// share this build.
///
/// # Errors
/// If the directories of the crate's tests cannot be read, or the compiler's wrapper cannot be
/// written.
pub fn tests() -> Result<Step, String> {
    Ok(builds::guarded()?.args(&targets(Path::new("crates/link"))?))
}

/// Chooses the tests of an executable of [`tests`] that run without a fault: all of the crate
/// `link`, which has no other build, and of another crate those that a row of the registry names.
/// The rest of that crate's tests run without guards, in the code that ships.
pub fn tests_of(executable: &Executable) -> Option<Vec<&'static str>> {
    if executable.package() == "link" {
        return executables::all(executable);
    }
    let rows = REGISTRY.iter().flat_map(|fault| fault.caught_by);
    let places = rows.filter(|by| by.is_here() && !by.is_model()).map(CaughtBy::place);
    let paths: BTreeSet<&str> =
        places.filter(|place| place.is_of(executable)).map(|place| place.path).collect();
    if paths.contains("") {
        return executables::all(executable);
    }
    (!paths.is_empty()).then(|| paths.into_iter().collect())
}

/// Runs every fault that the test executable `torture` must notice.
///
/// # Errors
/// If a test fails without a fault, or a fault is not noticed by a test that must notice it.
pub fn tortured() -> Result<(), String> {
    run(|by| matches!(by, CaughtBy::Torture(_)), |_| false, 1)
}

/// One run: the tests to run, the command that runs them, and the name of the fault that is active.
/// The fault is `None` if the run shows that the tests pass without a fault.
type Run = (&'static CaughtBy, Step, Option<&'static str>);

fn run(
    is_chosen: fn(&CaughtBy) -> bool,
    has_passed: impl Fn(&CaughtBy) -> bool,
    at_once: usize,
) -> Result<(), String> {
    let mut built: BTreeMap<String, Vec<Executable>> = BTreeMap::new();
    let (mut sound, mut faulty) = (BTreeMap::<String, Run>::new(), Vec::<Run>::new());
    for fault in REGISTRY {
        for by in fault.caught_by.iter().filter(|by| is_chosen(by) && by.is_here()) {
            let build = build(by)?;
            let executables = match built.entry(build.to_string()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(executables::build(&build)?),
            };
            let is_there = |executable: &&Executable| by.place().is_of(executable);
            let executable = executables.iter().find(is_there).ok_or_else(|| {
                format!("fault `{}`: there is no test executable {}", fault.name, by.place())
            })?;
            let step = chosen(executable.step(), by);
            sound.entry(step.to_string()).or_insert_with(|| (by, step.clone(), None));
            faulty.push((by, step, Some(fault.name)));
        }
    }
    let sound = sound.into_values().filter(|(by, ..)| !has_passed(by));
    executables::each(sound.chain(faulty).collect(), at_once, |(by, step, fault)| {
        let Some(fault) = fault else { return pass_without(by, step) };
        let start = Instant::now();
        let step = step.clone().variable(FAULT, fault);
        check(by, &step)
            .map_err(|error| format!("fault `{fault}`: {error}\n  repeat it with:\n    {step}"))?;
        let seconds = start.elapsed().as_secs_f64();
        println!("fault {fault:<28} noticed by {}, {seconds:.1} s", by.place());
        Ok(())
    })
}

/// Requires that the tests of `by` pass while no fault is active. Otherwise their failure would not
/// show that they notice the fault.
fn pass_without(by: &CaughtBy, step: &Step) -> Result<(), String> {
    let step = match by {
        CaughtBy::Torture(_) => step.clone().variable("PARTYWALL_TORTURE_MINUTES", "1"),
        // For this check a few orders of threads suffice, because the stages `loom` and `shuttle`
        // explore all of them.
        CaughtBy::Model(_) => step.clone().variable("LOOM_MAX_PREEMPTIONS", "1"),
        CaughtBy::Shuttle(_) => step.clone().variable("PARTYWALL_SHUTTLE_TIMES", "0.05"),
        CaughtBy::Test(_) | CaughtBy::Unit(_) => step.clone(),
    };
    let ran = step.clone().within_seconds(RUN_SECONDS_MAX).capture()?;
    let output = String::from_utf8_lossy(&ran.stdout);
    if !ran.status.success() {
        return Err(format!("fails without any fault:\n{output}\n  repeat it with:\n    {step}"));
    }
    if results(&output, "ok").any(|test| by.place().holds(test)) {
        return Ok(());
    }
    Err(format!("there is no test {}\n  it was looked for with:\n    {step}", by.place()))
}

fn check(by: &CaughtBy, step: &Step) -> Result<(), String> {
    // A test that kills at random instants may miss the instant at which the fault has an effect,
    // so it may run several times.
    let runs = if RANDOM.contains(&by.place().path) { CHANCES } else { 1 };
    let mut verdict = Ok(());
    for _ in 0..runs {
        let ran = step.clone().within_seconds(RUN_SECONDS_MAX).capture()?;
        let is_passed = ran.status.success();
        let output = [ran.stdout, ran.stderr].concat();
        verdict = judge(by, ran.status.code(), &String::from_utf8_lossy(&output));
        if !is_passed {
            break;
        }
    }
    verdict
}

/// Decides whether the outcome of a test run with an active fault shows that a test of `by` noticed
/// the fault. `status` is `None` if a signal ended the run.
fn judge(by: &CaughtBy, status: Option<i32>, output: &str) -> Result<(), String> {
    match status {
        Some(0) => return Err("the tests pass, so nothing tests the rule it takes out".to_owned()),
        Some(124 | 137) => {
            return Err(format!(
                "still running after {RUN_SECONDS_MAX} s; the test needs a deadline"
            ));
        }
        _ => {}
    }
    if results(output, "FAILED").any(|test| by.place().holds(test)) {
        return Ok(());
    }
    let is_aborted = matches!(by, CaughtBy::Model(_)) && matches!(status, None | Some(ABORTED));
    if is_aborted && panics(output).any(|test| by.place().holds(test)) {
        return Ok(());
    }
    Err(format!("the run failed, but not in {}:\n{output}", by.place()))
}

/// The paths of the tests whose line in `output` ends with `verdict`.
fn results<'a>(output: &'a str, verdict: &'a str) -> impl Iterator<Item = &'a str> {
    output.lines().filter_map(move |line| {
        let rest = line.trim().strip_prefix("test ")?;
        Some(
            rest.strip_suffix(verdict)?
                .trim_end_matches(" ... ")
                .trim_end_matches(" - should panic"),
        )
    })
}

/// The paths of the tests that panicked, from the names of the panicked threads: the test harness
/// gives each thread the path of its test.
fn panics(output: &str) -> impl Iterator<Item = &str> {
    let messages = output.lines().filter(|line| line.contains(" panicked at "));
    messages.filter_map(|line| line.trim().strip_prefix("thread '")?.split('\'').next())
}

/// The build of the kind of tests that `by` names, with the guards of seeded faults.
fn build(by: &CaughtBy) -> Result<Step, String> {
    match by {
        CaughtBy::Test(_) | CaughtBy::Unit(_) => tests(),
        CaughtBy::Model(_) => builds::models(),
        CaughtBy::Torture(_) => Ok(builds::guarded()?.args("--test torture")),
        CaughtBy::Shuttle(_) => builds::orders(),
    }
}

/// Cargo's arguments that select the unit tests, each executable that the registry names, and all
/// test executables of the crate in the directory `link`, which most rows name.
fn targets(link: &Path) -> Result<String, String> {
    let mut targets = BTreeSet::from(["--lib".to_owned()]);
    for by in REGISTRY.iter().flat_map(|fault| fault.caught_by).filter(|by| by.is_here()) {
        if let CaughtBy::Test(place) = by {
            targets.insert(format!("--test {}", place.executable));
        }
    }
    targets.extend(roots(&link.join("tests"))?.iter().map(|name| format!("--test {name}")));
    Ok(targets.into_iter().collect::<Vec<_>>().join(" "))
}

/// The names of the executables that cargo makes from the files of `directory`: one from each file,
/// and one from each directory with a file `main.rs`.
fn roots(directory: &Path) -> Result<Vec<String>, String> {
    let cannot = |error: std::io::Error| format!("cannot read {}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        if path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").exists() {
            names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
        }
    }
    Ok(names)
}

/// The command that runs only those tests of the executable that `by` names: they must notice the
/// fault.
fn chosen(executable: Step, by: &CaughtBy) -> Step {
    match by {
        CaughtBy::Torture(_) => executable
            .arg(KILLS)
            .variable("PARTYWALL_TORTURE_FORGET", "1")
            .variable("PARTYWALL_TORTURE_MINUTES", "2"),
        _ if by.place().path.is_empty() => executable,
        _ => executable.arg(by.place().path),
    }
}

/// Name of the test of the executable `torture` that kills the processes at the ends of links.
pub const KILLS: &str = "no_kill";
/// Number of test runs with a fault, or without one, at the same time. Half of their time the runs
/// wait: for a second process, or for the deadline at which a test notices a lost wake-up.
const FAULTS_AT_ONCE: usize = 4;
/// Tests that kill a process at random instants. Of the test runs, with 150 kills each, one in
/// about fifty has no kill within the few nanoseconds in which the fault matters.
const RANDOM: [&str; 2] = ["state_survives_kills", "stream_survives_kills"];
/// Maximum number of runs in which a test that kills at random instants ([`RANDOM`]) must notice
/// the fault.
const CHANCES: u32 = 3;
/// Exit status of a process that has called `abort`, if a shell or `timeout` reports it.
const ABORTED: i32 = 128 + 6;
/// Time limit in seconds for one run of the registered tests, without the build.
const RUN_SECONDS_MAX: u32 = 180;

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: CaughtBy = test("ring", "ring", "forged_words");

    #[test]
    fn failure_in_the_module_of_the_row_is_noticed() {
        let output = "running 1 test\ntest forged_words::none_is_delivered ... FAILED\n";
        assert!(judge(&WORDS, Some(101), output).is_ok());
        let whole = "test ring::forged_words::none_is_delivered - should panic ... FAILED\n";
        assert!(judge(&unit("ring", "forged_words"), Some(101), whole).is_ok());
        let one = "ring::forged_words::none_is_delivered";
        assert!(judge(&shuttle(one), Some(101), whole).is_ok());
        assert!(judge(&test("ring", "ring", ""), Some(101), output).is_ok());
    }

    #[test]
    fn passing_tests_leave_a_fault_unnoticed() {
        let error = judge(&WORDS, Some(0), "test forged_words::a ... ok");
        assert!(error.is_err_and(|error| error.contains("pass")));
    }

    #[test]
    fn failure_in_another_module_leaves_a_fault_unnoticed() {
        for output in [
            "test allocator::is_exact ... FAILED\n",
            "test slab::forged_words_of_a_slab ... FAILED\n",
            "test unforged_words::a ... FAILED\n",
            "test forged_words::a ... ok\ntest copies::b ... FAILED\n",
            "aborted",
        ] {
            assert!(judge(&WORDS, Some(101), output).is_err(), "{output}");
            assert!(judge(&shuttle("forged_words"), Some(101), output).is_err(), "{output}");
        }
    }

    #[test]
    fn model_that_ends_the_process_is_named_by_its_panic() {
        let deadlock = "thread 'parking::no_wakeup_is_lost' (9) panicked at scheduler.rs:5:9:\n\
                        deadlock; threads = [(Id(0), Blocked(Location(None)))]\n";
        for status in [None, Some(ABORTED)] {
            assert!(judge(&model("parking"), status, deadlock).is_ok());
            assert!(judge(&model("bias"), status, deadlock).is_err());
            assert!(judge(&model("parking"), status, "aborted").is_err());
            assert!(judge(&test("ring", "ring", "parking"), status, deadlock).is_err());
        }
        for status in [0, 1, 101, 124] {
            assert!(judge(&model("parking"), Some(status), deadlock).is_err());
        }
        let failed = "test parking::no_wakeup_is_lost ... FAILED\n";
        assert!(judge(&model("parking"), Some(101), failed).is_ok());
        assert!(judge(&model("bias"), Some(101), failed).is_err());
    }

    #[test]
    fn build_has_each_executable_once() {
        let link = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/link");
        let targets = targets(&link).expect("the directories exist");
        assert_eq!(targets.matches("--test files").count(), 1, "{targets}");
        assert!(targets.contains("--lib") && targets.contains("--test torture"), "{targets}");
        assert!(targets.contains("--test owner"), "{targets}");
    }

    #[test]
    fn with_guards_only_links_and_tests_of_the_registry_run() {
        let of = |package, name| tests_of(&Executable::sample(package, name));
        assert_eq!(of("link", "links"), Some(vec![]));
        assert_eq!(of("link", LIBRARY), Some(vec![]));
        assert_eq!(of("ring", "ring"), Some(vec!["double_release", "forged_words"]));
        assert_eq!(of("partywall", "hostile"), Some(vec!["moves"]));
        let of_mutex = "mutex_word::tests::waiter_without_a_barrier_ends_its_sleep_by_itself";
        assert_eq!(of("ring", LIBRARY), Some(vec![of_mutex]));
        assert_eq!(of("layout", LIBRARY), None);
        let unit_tests = of("partywall", LIBRARY).expect("rows name unit tests");
        let is_of_sessions =
            |path: &&str| path.starts_with("driver::") || path.starts_with("stream::");
        assert!(unit_tests.iter().all(is_of_sessions), "{unit_tests:?}");
    }

    #[test]
    fn a_hang_is_an_error() {
        assert!(judge(&WORDS, Some(124), "").is_err_and(|e| e.contains("deadline")));
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = REGISTRY.iter().map(|fault| fault.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), REGISTRY.len());
        assert!(REGISTRY.iter().all(|fault| !fault.caught_by.is_empty()));
    }
}
