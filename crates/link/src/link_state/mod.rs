// SPDX-License-Identifier: MIT OR Apache-2.0
//! One end of a link without its sockets: memory, books, both streams, and what is agreed on connections (SPEC 12).
//!
//! ```text
//!   application ─ send ──▶ retained ─▶ record ring, slab     ┐
//!               ◀─ next ── inbox                             ├ LinkState ◀─ frames, records ─▶ Conn (one a connection)
//!               ─ commit ▶ mark ─────▶ consumed slots        │
//!               ◀─ events  books ────▶ state page            ┘
//!
//!   memory.rs      the parts of its own memory, and the two commits
//!   life.rs        what this owner knows and no later one will
//!   conn.rs        what is agreed and under way on one connection
//!   attach.rs      ATTACH, ATTACHED, CONFIRM, BEGIN (SPEC 12.2)
//!   epochs.rs      beginning, adopting and settling epochs; what is reported
//!   arriving.rs    bytes of a connection: frames and records
//!   leaving.rs     bytes for a connection
//!   sending.rs     messages of the application
//!   consuming.rs   messages for the application
//!   wall.rs        the neighbour's memory, as the present connection reads it (SPEC 16)
//!   pulling.rs     records from there, and how far the neighbour consumed; shortly.rs, handed out in one step
//!   waking.rs      who sleeps, and who is rung
//!   standing.rs    how it stands, for whoever drives it; positions.rs, in positions
//! ```
//!
//! It has no socket, no clock and no thread: whoever drives it hands it bytes, and takes bytes from it; over shared memory it
//! also reads what the neighbour shows. All that is decided is decided by `partywall_reconcile`; the order of calls here is
//! that of the model in its tests.
//!
//! # Over shared memory
//!
//! The same calls, and these. Whoever drives it owns the socket and the bells.
//!
//! ```text
//!   client                                                server
//!   attach_showing, if the socket is Unix and the         ATTACH with `shows`, and two descriptors came with its first byte:
//!   peer of our user; with the first byte, while            Shown::map(memory) ─▶ asked_showing; keep the bell to ring it
//!   there is conn.descriptor(): it, and own bell          while there is conn.descriptor(): as the client
//!   descriptors came with ATTACHED's first byte:
//!     Shown::map(memory) ─▶ conn.show, before receive
//!
//!   activated, and is_shared():                           else: as ever; what came is closed
//!     read    next: none? ─▶ pull_present ─ true ─▶ next           one message at a time; each Err goes to over(conn, Err), as it does
//!             (offer_shortly: both at once)                        by itself in receive
//!     write   send, publish; ack_to, reply                      nothing to put on the socket; acknowledge does nothing
//!             then is_bell_due ─ true ─▶ ring the peer's bell      before this side waits for anything
//!     full    send looks by itself whether there is room
//!     flush   hear_consumed, then acked() ≥ tail()
//!     spin    pull_present; hear_consumed: each a look at one word as long as there is nothing
//!     sleep   prepare_sleep ─ true ─▶ wait for own bell and socket ─▶ rung: drain it, cancel_sleep ─▶ pull_present, send again
//!                           └ false ─▶ pull_present, send again
//!     socket readable ─▶ receive, as ever: BEGIN, LEAVE. News of it: look whether pull_present finds something
//!     socket closed   ─▶ ended(conn, Broken): what the peer left in its memory is in the inbox when this returns
//! ```
//!
//! The link may be asleep for several threads at a time: it counts as one sleeper for records and one for room or
//! acknowledgements, and whoever is woken looks for all. It stays declared until it is rung: that is once for each declaration,
//! however much comes. Descriptors that do not come,
//! or that `Shown::map` refuses, are no failure: `asked_showing(…, None)`, no `show`, and the link goes on over the socket.
//! All that a bell says is: look.
//!
//! # Invariants
//!
//! - Whatever a later owner must know is committed before anybody is told of it.
//! - Only the present connection moves `acked` and `received`.

mod arriving;
mod attach;
mod conn;
mod consuming;
mod copying;
mod epochs;
mod inbox;
mod leaving;
mod life;
mod log;
mod memory;
mod positions;
mod pulling;
mod queue;
mod sending;
mod shm;
mod shortly;
#[cfg(all(test, not(shuttle)))] // with files
mod simulation;
mod snapshot;
mod waking;
#[cfg(all(test, not(shuttle)))] // as above
mod walled;

use partywall_layout::link::FileFault;
use partywall_layout::seeded_fault;
use partywall_reconcile::recovery::recover;
use partywall_reconcile::{Outgoing, Position, ReceiverView, RecordDigest, SenderView, StreamId};

use self::epochs::new_stream;
use self::inbox::Inbox;
use self::life::Life;
use self::memory::Memory;
use self::shm::SharedMemory;
use super::retained::{Boundary, Damage as RingDamage, Retained};
use super::store::DurableState;

pub(crate) use self::arriving::{Received, Violation};
pub(crate) use self::attach::Answer;
pub(crate) use self::conn::{Conn, End};
pub(crate) use self::consuming::{CommitError, DeliveryId, ReplyFault};
pub use self::epochs::StaleEpoch;
pub(crate) use self::inbox::Payload;
pub(crate) use self::memory::{Parts, Provenance};
pub(crate) use self::sending::SendFault;
pub(crate) use self::shortly::Handed;
pub(crate) use self::waking::LookDue;

/// One end of a link.
#[derive(Debug)]
pub(crate) struct LinkState {
    memory: Memory,
    durable: DurableState,
    retained: Retained,
    inbox: Inbox,
    life: Life,
    /// The neighbour's memory, if the present connection is over shared memory.
    shm: Option<SharedMemory>,
}

impl LinkState {
    /// Takes over a memory: finds what its ring holds, and what was consumed by whom had it before.
    ///
    /// # Errors
    /// What is in it cannot be.
    pub(crate) fn open(parts: Parts) -> Result<Self, Damage> {
        let Parts { provenance, state, consumed, ring_size, ring, slab, inline_max, showing } =
            parts;
        let found = *state.state();
        let stream = StreamId::new(found.sending_stream.get());
        let retained = match stream {
            None => Retained::empty(ring, ring_size, slab, new_stream()),
            Some(stream) => {
                let base = Position(found.sending_base.get());
                let digest = RecordDigest(found.sending_digest.get());
                Retained::found(ring, ring_size, slab, stream, base, digest)?
            }
        };
        let mut retained = retained.with_inline_max(inline_max);
        let mut durable = DurableState::read(&found, retained.tail())?;
        durable.catch_up(consumed.found());
        let prepared =
            durable.acked_offset.and_then(|acked_offset| retained.prepared(acked_offset.stream));
        let prepared = prepared.filter(|_| !seeded_fault("link_reply_commits_nothing"));
        durable.acked_offset = recover(durable.acked_offset, prepared, |_| {
            prepared.map(|prepared| prepared.acked_offset.position)
        });
        if let Some(outgoing) = &durable.outgoing {
            // `DurableState::read` has found it not to be beyond the tail.
            let _ = retained.acknowledged(outgoing.acked());
        }
        let memory = Memory::new(provenance, state, consumed, showing);
        let inbox = Inbox::new(durable.acked_offset);
        let (life, shm) = (Life::default(), None);
        let mut core = Self { memory, durable, retained, inbox, life, shm };
        core.count_attempts();
        core.commit();
        // Only now: who is killed between the two is counted once too often rather than not at all.
        core.memory.forget_delivered();
        core.memory.show_stream(core.retained.stream());
        Ok(core)
    }

    /// The messages that the owner before handed out and did not commit were attempted once more.
    fn count_attempts(&mut self) {
        let Some(acked_offset) = self.durable.acked_offset else {
            return self.durable.forget_delivered();
        };
        let before = self.memory.delivered(acked_offset.stream);
        self.durable.forget_delivered_to(acked_offset.position);
        if let Some(handed) = before.filter(|handed| *handed > acked_offset.position) {
            self.durable.note_delivered(handed);
        }
    }

    /// Puts all that a later owner must know in force.
    fn commit(&mut self) {
        self.commit_base(self.retained.base_boundary());
    }

    /// The same, with a base that is to rise.
    fn commit_base(&mut self, base: Boundary) {
        self.durable.outgoing = Some(self.outgoing_from(base.position));
        self.durable.base_digest = base.digest;
        self.memory.commit(&self.durable);
    }

    /// What it sends, if its base is this one.
    fn outgoing_from(&self, base: Position) -> Outgoing {
        let (stream, acked, tail) =
            (self.retained.stream(), self.retained.acked(), self.retained.tail());
        // base ≤ acked ≤ tail is what `Retained` keeps.
        Outgoing::found(stream, base, acked, tail).unwrap_or_else(|| Outgoing::new(stream))
    }

    /// What it tells of what it sends.
    fn sender_view(&self) -> SenderView {
        SenderView::of(self.durable.epoch, &self.outgoing_from(self.retained.base()))
    }

    /// What it tells of what it receives.
    fn receiver_view(&self) -> ReceiverView {
        let (epoch, acked_offset) = (self.durable.epoch, self.durable.acked_offset);
        ReceiverView::of(epoch, acked_offset, self.inbox.incoming(), self.durable.skip)
    }
}

/// A memory says what cannot be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damage {
    /// Its state contradicts itself, or its ring.
    #[error(transparent)]
    State(#[from] FileFault),
    /// A record that was committed is broken.
    #[error(transparent)]
    Ring(#[from] RingDamage),
}
