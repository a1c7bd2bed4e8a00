// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compares channels with a model, a queue for each direction: for random calls in any order, each
//! direction of a channel behaves as its queue. Every message that was sent and not aborted arrives
//! whole and in order, and nothing else arrives.

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall::{
    BackPressure, Channel, Message, OwnedReservation, Receiver, SendError, Sender, TooLarge,
    TryRecvError, TrySendError, Wait,
};
use partywall_testkit::{Kind, is_pattern, pattern, soon};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::time::Instant;

/// One call of the random sequence. Its arguments are random numbers, which the test reduces if
/// they are too large, for example as the index of a held message.
#[derive(Clone, Debug)]
enum Call {
    TrySend(usize),
    /// Sends a message of this length with a deadline that has passed. If the message would have to
    /// wait, the call fails, perhaps after it has sent some fragments.
    Send(usize),
    Reserve(usize, usize, SendOutcome),
    Batch(Vec<usize>, bool),
    ReserveOwned(usize, usize),
    /// Ends the owned reservation with this index: commits, tries to commit, or drops it.
    EndOwned(usize, SendOutcome),
    Recv,
    RecvRef,
    /// Receives a message without a copy, valid until the next receive call. The value says whether
    /// the test then keeps the message by `keep_view`.
    RecvView(bool),
    Hold,
    DropHeld(usize),
    Trim,
    Arm,
    Wait(u8),
    Close,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SendOutcome {
    Commit,
    TryCommit,
    Abort,
}

fn any_len() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..300, 5 => 257_usize..1400, 3 => 0_usize..40_000, 1 => 0_usize..300_000]
}

fn any_call() -> impl Strategy<Value = Call> {
    let outcome = prop_oneof![
        Just(SendOutcome::Commit),
        Just(SendOutcome::TryCommit),
        Just(SendOutcome::Abort)
    ];
    let ends_owned = outcome.clone();
    prop_oneof![
        4 => (any_len(), 0_usize..50).prop_map(|(len, cut)| Call::ReserveOwned(len, cut)),
        5 => (0_usize..8, ends_owned).prop_map(|(index, outcome)| Call::EndOwned(index, outcome)),
        4 => any::<bool>().prop_map(Call::RecvView),
        6 => any_len().prop_map(Call::TrySend),
        4 => any_len().prop_map(Call::Send),
        4 => (any_len(), 0_usize..50, outcome).prop_map(|(len, cut, outcome)| Call::Reserve(len, cut, outcome)),
        6 => (prop::collection::vec(any_len(), 0..6), any::<bool>())
            .prop_map(|(lens, commits)| Call::Batch(lens, commits)),
        8 => Just(Call::Recv),
        4 => Just(Call::RecvRef),
        4 => Just(Call::Hold),
        4 => (0_usize..8).prop_map(Call::DropHeld),
        1 => Just(Call::Trim),
        1 => Just(Call::Arm),
        1 => any::<u8>().prop_map(Call::Wait),
        1 => Just(Call::Close),
    ]
}

/// One direction of the channel under test, and the queue that is its model.
struct Direction {
    sender: Option<Sender>,
    receiver: Receiver,
    queue: VecDeque<(usize, u64)>,
    held: Vec<(Message, u64)>,
    reserved: Vec<(OwnedReservation, u64)>,
    next_seed: u64,
    is_shared_memory: bool,
}

impl Direction {
    fn new(sender: Sender, receiver: Receiver, is_shared_memory: bool, first_seed: u64) -> Self {
        let (queue, held) = (VecDeque::new(), Vec::new());
        Self {
            sender: Some(sender),
            receiver,
            queue,
            held,
            reserved: Vec::new(),
            next_seed: first_seed,
            is_shared_memory,
        }
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::Recv => self.receive(false),
            Call::Hold => self.receive(true),
            Call::RecvRef => self.check_ref(),
            Call::RecvView(keeps) => self.check_view(*keeps),
            Call::EndOwned(_, SendOutcome::Abort) if !self.reserved.is_empty() => {
                // Dropping the reservation frees its memory without access to the sender, which may
                // be closed.
                drop(self.reserved.pop());
            }
            Call::DropHeld(index) => {
                if !self.held.is_empty() {
                    let (message, seed) = self.held.swap_remove(index % self.held.len());
                    assert!(is_pattern(&message, seed), "a held message changed");
                }
            }
            Call::Wait(choice) => {
                let wait = [Wait::Spin, Wait::Adaptive, Wait::Park][usize::from(choice % 3)];
                self.receiver.set_wait(wait);
                if let Some(sender) = &mut self.sender {
                    sender.set_wait(wait);
                }
            }
            Call::Close => {
                // A socket's sender is dropped only if all its messages were received: closing it
                // discards the bytes that the kernel does not accept within a second.
                if self.is_shared_memory || self.queue.is_empty() {
                    self.sender = None;
                }
            }
            sending => self.send(sending),
        }
    }

    fn send(&mut self, call: &Call) {
        let Some(mut sender) = self.sender.take() else { return };
        let seed = self.next_seed;
        self.next_seed += 16;
        match call {
            Call::TrySend(len) => {
                if tried(sender.try_send(&pattern(*len, seed))) {
                    self.queue.push_back((*len, seed));
                }
            }
            Call::Send(len) => {
                if sent(sender.send_deadline(&pattern(*len, seed), Instant::now())) {
                    self.queue.push_back((*len, seed));
                }
            }
            Call::Reserve(len, cut, outcome) => {
                let len = len.saturating_sub(*cut);
                if reserve(&mut sender, len, *cut, *outcome, seed) {
                    self.queue.push_back((len, seed));
                }
            }
            Call::Batch(lens, commits) => {
                let added = batch(&mut sender, lens, *commits, seed);
                self.queue.extend(added);
            }
            Call::ReserveOwned(len, cut) => self.reserve_owned(&mut sender, *len, *cut, seed),
            Call::EndOwned(index, outcome) if !self.reserved.is_empty() => {
                let (reservation, seed) = self.reserved.swap_remove(index % self.reserved.len());
                let len = reservation.len();
                if commit_owned(&mut sender, reservation, *outcome, seed) {
                    self.queue.push_back((len, seed));
                }
            }
            Call::Arm => drop(sender.arm().unwrap()),
            _ => drop(tried(sender.trim())),
        }
        self.sender = Some(sender);
    }

    /// Compares a result of `try_recv` or `try_recv_ref` with the model of this direction. Returns
    /// the seed of the received message, or `None` if no message came.
    fn expect(&mut self, found: Option<&[u8]>, error: Option<&TryRecvError>) -> Option<u64> {
        match (found, error) {
            (Some(bytes), _) => {
                let (len, seed) = self.queue.pop_front().expect("a message from nowhere");
                assert_eq!(bytes.len(), len);
                assert!(is_pattern(bytes, seed), "bytes that were not sent");
                Some(seed)
            }
            (None, Some(TryRecvError::Empty)) => {
                // Over a socket, a sent message may not have arrived yet, so `Empty` is right even
                // if the queue is not empty.
                assert!(
                    !self.is_shared_memory || self.queue.is_empty(),
                    "a committed message is not there"
                );
                None
            }
            (None, None) => {
                assert!(self.sender.is_none() && self.queue.is_empty(), "finished too early");
                None
            }
            (None, error) => panic!("{error:?}"),
        }
    }

    fn receive(&mut self, holds: bool) {
        match self.receiver.try_recv() {
            Ok(Some(message)) => {
                let seed = self.expect(Some(&message), None).unwrap();
                if holds && self.held.len() < 6 {
                    self.held.push((message, seed));
                }
            }
            Ok(None) => drop(self.expect(None, None)),
            Err(error) => drop(self.expect(None, Some(&error))),
        }
    }

    fn check_ref(&mut self) {
        let found = self.receiver.try_recv_ref();
        let found = found.map(|message| message.map(|message| message.to_vec()));
        match found {
            Ok(bytes) => drop(self.expect(bytes.as_deref(), None)),
            Err(error) => drop(self.expect(None, Some(&error))),
        }
    }

    fn check_view(&mut self, keeps: bool) {
        match self.receiver.try_recv_view().map(|view| view.map(<[u8]>::to_vec)) {
            Ok(Some(bytes)) => {
                let seed = self.expect(Some(&bytes), None).unwrap();
                let kept = if keeps { self.receiver.keep_view() } else { None };
                if let Some(kept) = kept {
                    assert_eq!(kept, bytes, "a kept view changed");
                    assert!(self.receiver.keep_view().is_none(), "kept twice");
                    if self.held.len() < 6 {
                        self.held.push((kept, seed));
                    }
                } else {
                    assert!(!keeps, "the view is gone");
                }
            }
            Ok(None) => drop(self.expect(None, None)),
            Err(error) => drop(self.expect(None, Some(&error))),
        }
    }

    fn reserve_owned(&mut self, sender: &mut Sender, len: usize, cut: usize, seed: u64) {
        match sender.try_reserve_owned(len + cut) {
            Ok(mut reservation) => {
                reservation.truncate(len);
                reservation.copy_from_slice(&pattern(len, seed));
                self.reserved.push((reservation, seed));
            }
            Err(error) => drop(tried(Err(error))),
        }
    }

    /// Receives all messages of the queue, drops the sender, and receives the end of the direction.
    fn finish(&mut self) {
        let until = soon();
        while !self.queue.is_empty() {
            if let Some(sender) = &mut self.sender {
                // The kernel may not have accepted all bytes of sent messages from the socket's
                // sender. They are flushed, so that the receiver gets every message.
                let flushed = sender.flush(Some(Instant::now()));
                assert!(matches!(flushed, Ok(()) | Err(SendError::TimedOut)), "{flushed:?}");
            }
            self.receive(false);
            assert!(Instant::now() < until, "{} messages do not come", self.queue.len());
        }
        for (message, seed) in self.held.drain(..) {
            assert!(is_pattern(&message, seed), "a held message changed");
        }
        self.reserved.clear();
        // Views would keep their blocks of memory, so the messages are received without views.
        self.receive(false);
        if let Some(mut sender) = self.sender.take() {
            // `trim` sends records that tell the peer to unmap unused memory. Fragments of an
            // aborted message may still occupy the room in the ring that these records need.
            while let Err(error) = sender.trim() {
                assert!(matches!(error, TrySendError::Full), "{error}");
                assert!(Instant::now() < until, "there never is room");
                self.receive(false);
            }
            let left = sender.stats();
            assert_eq!((left.blocks_in_flight, left.memory_used_bytes), (0, 0), "memory is lost");
        }
        let end = self.receiver.recv_deadline(soon());
        assert!(matches!(end, Ok(None)), "{end:?}");
    }
}

fn tried(result: Result<(), TrySendError>) -> bool {
    match result {
        Ok(()) => true,
        Err(TrySendError::Full | TrySendError::TooLarge(TooLarge { .. })) => false,
        Err(other) => panic!("{other}"),
    }
}

fn sent(result: Result<(), SendError>) -> bool {
    match result {
        Ok(()) => true,
        Err(SendError::Full | SendError::TimedOut | SendError::TooLarge(_)) => false,
        Err(other) => panic!("{other}"),
    }
}

fn reserve(sender: &mut Sender, len: usize, cut: usize, outcome: SendOutcome, seed: u64) -> bool {
    let mut reserved = match sender.reserve_deadline(len + cut, Instant::now()) {
        Ok(reserved) => reserved,
        Err(error) => return sent(Err(error)),
    };
    reserved.truncate(len);
    reserved.copy_from_slice(&pattern(len, seed));
    match outcome {
        SendOutcome::Commit => sent(reserved.commit()),
        SendOutcome::TryCommit => match reserved.try_commit() {
            Ok(()) => true,
            Err((back, error)) => {
                assert!(is_pattern(&back, seed), "it comes back changed");
                tried(Err(error))
            }
        },
        SendOutcome::Abort => {
            reserved.abort();
            false
        }
    }
}

fn commit_owned(
    sender: &mut Sender,
    reservation: OwnedReservation,
    outcome: SendOutcome,
    seed: u64,
) -> bool {
    assert!(is_pattern(&reservation, seed), "an owned reservation changed");
    if outcome == SendOutcome::Commit {
        return sent(sender.commit_owned(reservation, Some(Instant::now())));
    }
    match sender.try_commit_owned(reservation) {
        Ok(()) => true,
        Err((back, error)) => {
            assert!(is_pattern(&back, seed), "it comes back changed");
            tried(Err(error))
        }
    }
}

/// Sends messages of the lengths `lens` in a batch, which is committed or aborted. Returns lengths
/// and seeds of the sent messages: none after an abort.
fn batch(sender: &mut Sender, lens: &[usize], commits: bool, seed: u64) -> Vec<(usize, u64)> {
    let mut batch = sender.batch_deadline(Instant::now());
    let mut added = Vec::new();
    for (seed, len) in (seed..).zip(lens) {
        if sent(batch.send(&pattern(*len, seed))) {
            added.push((*len, seed));
        }
    }
    if commits && sent(batch.commit()) { added } else { Vec::new() }
}

fn run(kind: Kind, policy: BackPressure, ring: u64, memory: u64, calls: &[(bool, Call)]) {
    let (client, server): (Channel, Channel) = kind.pair(|config| {
        config
            .ring_bytes(ring)
            .memory_max(memory)
            .message_max(300_000)
            .peer_blocks_max(8)
            .inline_max(256)
            .back_pressure(policy)
    });
    let ((sender, back), (reply, receiver)) = (client.split(), server.split());
    let mut there = Direction::new(sender, receiver, kind.is_shared_memory(), 0);
    let mut and_back = Direction::new(reply, back, kind.is_shared_memory(), 1 << 40);
    for (is_back, call) in calls {
        if *is_back { and_back.call(call) } else { there.call(call) }
    }
    there.finish();
    and_back.finish();
}

fn any_policy() -> impl Strategy<Value = BackPressure> {
    prop_oneof![Just(BackPressure::Block), Just(BackPressure::Error), Just(BackPressure::Overflow)]
}

fn any_calls() -> impl Strategy<Value = Vec<(bool, Call)>> {
    prop::collection::vec((any::<bool>(), any_call()), 0..120)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(1500) })]

    #[test]
    fn the_shm_is_two_queues(
        untrusted in any::<bool>(),
        policy in any_policy(),
        ring in prop_oneof![Just(4096_u64), Just(16_384)],
        memory in prop_oneof![Just(0_u64), Just(128 << 10), Just(1 << 20)],
        calls in any_calls(),
    ) {
        let kind = if untrusted { Kind::Untrusted } else { Kind::SharedMemory };
        run(kind, policy, ring, memory, &calls);
    }

    #[test]
    fn the_socket_is_two_queues(
        tcp in any::<bool>(),
        policy in any_policy(),
        calls in any_calls(),
    ) {
        run(if tcp { Kind::Tcp } else { Kind::Unix }, policy, 4096, 1 << 20, &calls);
    }
}
