// SPDX-License-Identifier: MIT OR Apache-2.0
//! The world of the simulation: the two ends of a link, the network between them, and the random
//! events that can happen next.

use std::io::IoSlice;

use bytes::BytesMut;
use partywall_reconcile::{Direction, Epoch, Report};

use super::memory::{INLINE_MAX, TestStore};
use super::oracle::Ledger;
use crate::link_state::tests::Delivery;
use crate::link_state::{Answer, Conn, End, FastPath, LinkState, Opening, ReplyFault, SendFault};
use crate::protocol::codec;
use crate::protocol::frame::{Frame, Names};

pub(super) const CLIENT: usize = 0;
pub(super) const SERVER: usize = 1;
/// Maximum number of connections that exist at the same time: bytes may still arrive on connections
/// that a newer one has replaced.
const WIRES_MAX: usize = 4;

pub(super) struct World {
    seed: u64,
    random: u64,
    epochs: bool,
    sides: [Side; 2],
    wires: Vec<Wire>,
    /// Number of messages that were taken from shared memory into the inbox.
    pub(super) pulled: u64,
    /// Number of messages that were delivered straight from shared memory, without the queue of the
    /// inbox.
    pub(super) at_once: u64,
    /// The numbers of messages that were sent and that were received on the fast path.
    pub(super) streamed: [u64; 2],
    /// For each end, the messages that it sent and that its peer consumed.
    ledgers: [Ledger; 2],
}

struct Side {
    kept: TestStore,
    core: Option<LinkState>,
    reports: Vec<Report>,
}

struct Wire {
    conns: [Option<Conn>; 2],
    /// For each end, the bytes that its peer has written to this connection, and that the end has
    /// not read.
    under_way: [Vec<u8>; 2],
    input: [BytesMut; 2],
    is_cut: bool,
    is_accepted: bool,
    shares: bool,
}

impl World {
    pub(super) fn new(seed: u64, epochs: bool) -> Self {
        let side =
            |store_id| Side { kept: TestStore::new(store_id), core: None, reports: Vec::new() };
        let mut world = Self {
            seed,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            epochs,
            sides: [side(1), side(2)],
            wires: Vec::new(),
            pulled: 0,
            at_once: 0,
            streamed: [0; 2],
            ledgers: [Ledger::default(), Ledger::default()],
        };
        world.reopen(CLIENT);
        world.reopen(SERVER);
        world
    }

    pub(super) fn step(&mut self) {
        let side = self.below(2);
        match self.below(110) {
            0..30 => self.send(side),
            30..55 => self.consume(side),
            55..60 => self.connect(),
            60..64 => self.cut(),
            64..66 => self.reopen(side),
            66..67 if self.epochs => self.raise(side),
            67..70 => self.acknowledge(side, true),
            100.. => self.stream(side),
            _ => self.deliver_some(),
        }
    }

    /// Ends the run: connects the ends, and delivers bytes and messages without further faults
    /// until all messages must have arrived.
    pub(super) fn settle(&mut self) {
        for wire in 0..self.wires.len() {
            self.close(wire, CLIENT);
            self.close(wire, SERVER);
        }
        self.wires.clear();
        for _ in 0..200 {
            if !self.wires.iter().any(|wire| !wire.is_cut && wire.conns.iter().all(Option::is_some))
            {
                self.connect();
            }
            for wire in 0..self.wires.len() {
                for side in [CLIENT, SERVER] {
                    self.deliver(wire, side, usize::MAX);
                }
            }
            for side in [CLIENT, SERVER] {
                while self.consume_one(side) {}
                self.acknowledge(side, true);
                self.hear(side);
            }
        }
    }

    /// Connects the ends, and delivers up to `count` messages to the end `side`, which does not
    /// acknowledge these messages. Returns the delivery count of each message.
    pub(super) fn hand_out(&mut self, side: usize, count: usize) -> Vec<u32> {
        self.connect();
        for wire in (0..self.wires.len()).cycle().take(20) {
            self.deliver(wire, CLIENT, usize::MAX);
            self.deliver(wire, SERVER, usize::MAX);
        }
        self.sides[side].core.as_mut().unwrap().rewind();
        let mut attempts = Vec::new();
        for _ in 0..count {
            self.pull(side);
            let next = self.sides[side].core.as_mut().unwrap().next();
            attempts.extend(next.map(|delivery| delivery.attempt));
        }
        attempts
    }

    /// Makes the client receive, on one connection, the frame ATTACHED that the server sent as its
    /// answer on another connection. Returns the reason why the client ends the connection.
    pub(super) fn receive_an_old_answer(&mut self) -> Result<(), End> {
        self.connect();
        self.deliver(0, SERVER, usize::MAX);
        self.transmit(0, SERVER, usize::MAX);
        let answer = std::mem::take(&mut self.wires[0].under_way[CLIENT]);
        assert!(!answer.is_empty());
        self.connect();
        let (Some(core), Some(conn)) =
            (&mut self.sides[CLIENT].core, &mut self.wires[1].conns[CLIENT])
        else {
            panic!("the client lives")
        };
        core.receive(conn, &mut BytesMut::from(&answer[..])).map(drop)
    }

    pub(super) fn check(&self) {
        for ledger in &self.ledgers {
            ledger.check(self.seed);
        }
    }

    pub(super) fn check_all_arrived(&mut self) {
        let epochs = [CLIENT, SERVER].map(|side| self.epoch(side));
        assert_eq!(epochs[CLIENT], epochs[SERVER], "seed {}", self.seed);
        for side in [CLIENT, SERVER] {
            self.take_reports(side);
            let core = self.sides[side].core.as_ref().unwrap();
            assert!(core.is_active(), "seed {}: not attached at the end", self.seed);
            assert_eq!(core.acked(), core.tail(), "seed {}: not all is acknowledged", self.seed);
        }
        for side in [CLIENT, SERVER] {
            let ledger = &self.ledgers[side];
            ledger.check_all(self.seed, epochs[side]);
            let (own, other) = (&self.sides[side].reports, &self.sides[1 - side].reports);
            ledger.check_reported(self.seed, epochs[side], own, Direction::Outgoing);
            ledger.check_reported(self.seed, epochs[side], other, Direction::Incoming);
        }
    }

    pub(super) fn send(&mut self, side: usize) {
        let number = self.ledgers[side].count();
        let (len, batch) = (self.length(), 1 + self.below(3));
        let epoch = self.epoch(side);
        let Some(core) = &mut self.sides[side].core else { return };
        let mut ends = Vec::new();
        for index in 0..batch as u64 {
            match core.append_to_batch(&[&number_bytes(number + index), &vec![7; len]]) {
                Ok(end) => ends.push(end),
                Err(SendFault::Full | SendFault::BatchFull) => break,
                Err(fault) => panic!("seed {}: {fault:?}", self.seed),
            }
        }
        core.publish();
        for (index, end) in ends.into_iter().enumerate() {
            self.ledgers[side].sent(epoch, number + index as u64, end.0);
        }
    }

    fn consume(&mut self, side: usize) {
        self.consume_one(side);
    }

    /// Takes the next message at the end `side`, and at random acknowledges it, replies to it, or
    /// only takes it. Returns whether there was a message.
    fn consume_one(&mut self, side: usize) -> bool {
        let first = self.next(side);
        let (how, epoch) = (self.below(11), self.epoch(side));
        let takes_two = (2..5).contains(&how);
        let second = if takes_two && first.is_some() { self.next(side) } else { None };
        let Some(core) = &mut self.sides[side].core else { return false };
        let Some(delivery) = first else {
            core.rewind();
            return false;
        };
        let number = number_of(&delivery.bytes);
        if how == 0 || how == 4 {
            core.rewind();
            return true;
        }
        if let Some(second) = second {
            // The test takes two messages one after the other. In one case of three it acknowledges
            // the first message on its own; otherwise the acknowledgement of the second message
            // includes the first.
            let first = if how == 2 { core.ack_to(&delivery.token) } else { Ok(()) };
            let committed = first.and(core.ack_to(&second.token));
            // Taking the second message may have ended the connection and the epoch. In that case
            // the acknowledgement fails, and the test counts neither of the two messages as
            // consumed.
            if committed.is_ok() {
                self.ledgers[1 - side].consumed(epoch, number);
                self.ledgers[1 - side].consumed(epoch, number_of(&second.bytes));
            }
            return true;
        }
        if how == 1 {
            let reply = self.ledgers[side].count();
            match core.reply(delivery.token, &[&number_bytes(reply)]) {
                Ok(end) => {
                    self.ledgers[side].sent(epoch, reply, end.0);
                    self.ledgers[1 - side].consumed(epoch, number);
                }
                Err(ReplyFault::Send(SendFault::Full)) => core.rewind(),
                Err(fault) => panic!("seed {}: {fault:?}", self.seed),
            }
            return true;
        }
        core.ack_to(&delivery.token).unwrap();
        self.ledgers[1 - side].consumed(epoch, number);
        true
    }

    /// Opens the fast path of the end `side` if possible. Then sends and receives a few messages by
    /// the functions of that path, some of them after it has closed.
    fn stream(&mut self, side: usize) {
        let epoch = self.epoch(side);
        let opening = Opening {
            messages: 1 + u32::try_from(self.below(7)).unwrap(),
            may_send: self.below(4) > 0,
            may_receive: self.below(4) > 0,
            is_behind: self.below(2) == 0,
        };
        // The fast path opens only when no other work is pending. So the test first consumes the
        // messages that have arrived.
        (0..20).all(|_| self.consume_one(side));
        let opens = |core: &mut LinkState| {
            core.is_doorbell_due();
            FastPath::open(core, opening)
        };
        if !self.sides[side].core.as_mut().is_some_and(opens) {
            return;
        }
        for _ in 0..self.below(20) {
            if self.below(3) == 0 {
                self.send(1 - side);
            }
            let (is_sent, reads, settles) =
                (self.below(2) == 0, self.below(8) > 0, self.below(8) == 0);
            let (number, len) = (self.ledgers[side].count(), 8 + self.below(60));
            let Some(core) = &mut self.sides[side].core else { return };
            let is_open = FastPath::is_open(core);
            if is_sent {
                let fill = |room: &mut [u8]| {
                    room.fill(7);
                    room[..8].copy_from_slice(&number_bytes(number));
                };
                if FastPath::send(core, len, fill).is_ok() {
                    assert!(is_open && opening.may_send, "seed {}", self.seed);
                    self.ledgers[side].sent(epoch, number, core.tail().0);
                    self.streamed[0] += 1;
                }
            } else if let Some(record) = FastPath::copy_next(core) {
                assert!(is_open && opening.may_receive, "seed {}", self.seed);
                // If `reads` is false, the test only copies the record out of shared memory, as if
                // the application's code had panicked while it read the message. Expected: the same
                // message is the next one again.
                if reads {
                    let (number, _) =
                        FastPath::read(core, record, |bytes, _| number_of(bytes)).unwrap();
                    self.ledgers[1 - side].consumed(epoch, number);
                    self.streamed[1] += 1;
                }
            }
            if settles {
                FastPath::settle(core);
            }
        }
        let Some(core) = &mut self.sides[side].core else { return };
        FastPath::settle(core);
        FastPath::close(core);
        assert!(!FastPath::is_in_use(core), "seed {}", self.seed);
    }

    /// Takes the next message at the end `side`: straight from shared memory, or from the inbox,
    /// into which an earlier step has moved it.
    fn next(&mut self, side: usize) -> Option<Delivery> {
        if self.below(4) > 0 {
            let delivery = self.sides[side].core.as_mut()?.next_short();
            if delivery.is_some() {
                self.at_once += 1;
                return delivery;
            }
        }
        self.pull(side);
        self.sides[side].core.as_mut()?.next()
    }

    fn connect(&mut self) {
        let names = Names { client: "a".into(), server: "b".into(), link: "l".into() };
        let shares = self.below(2) == 0;
        let Some(core) = &mut self.sides[CLIENT].core else { return };
        let conn = match shares {
            true => core.attach_shm(names, Vec::new()),
            false => core.attach(names, Vec::new()),
        };
        let Some(conn) = conn else { panic!("seed {}: fenced or in quarantine", self.seed) };
        if self.wires.len() >= WIRES_MAX {
            let index = self.below(WIRES_MAX);
            self.close(index, CLIENT);
            self.close(index, SERVER);
            self.wires.remove(index);
        }
        self.wires.push(Wire {
            conns: [Some(conn), None],
            under_way: [Vec::new(), Vec::new()],
            input: [BytesMut::new(), BytesMut::new()],
            is_cut: false,
            is_accepted: false,
            shares,
        });
    }

    fn close(&mut self, wire: usize, side: usize) {
        let Some(mut conn) = self.wires[wire].conns[side].take() else { return };
        if let Some(core) = &mut self.sides[side].core {
            core.ended(&mut conn, End::Broken("cut".into()));
        }
    }

    fn cut(&mut self) {
        if self.wires.is_empty() {
            return;
        }
        let index = self.below(self.wires.len());
        self.wires[index].is_cut = true;
        if self.below(2) == 0 {
            let side = self.below(2);
            self.close(index, side);
        }
    }

    /// Kills the owner of the end `side`, and opens its store for a new owner.
    pub(super) fn reopen(&mut self, side: usize) {
        self.sides[side].core = None;
        for wire in &mut self.wires {
            wire.conns[side] = None;
            wire.is_cut = true;
        }
        let core = LinkState::open(self.sides[side].kept.open());
        self.sides[side].core =
            Some(core.unwrap_or_else(|damage| panic!("seed {}: {damage}", self.seed)));
    }

    fn raise(&mut self, side: usize) {
        let next = self.epoch(side) + 1;
        self.take_reports(side);
        let Some(core) = &mut self.sides[side].core else { return };
        core.begin_epoch(Epoch(next)).unwrap();
    }

    fn take_reports(&mut self, side: usize) {
        let this = &mut self.sides[side];
        let Some(core) = &mut this.core else { return };
        this.reports.extend_from_slice(core.reports());
        assert_eq!(core.reports_dropped(), 0);
        core.reports_seen(|_| true, 0);
    }

    fn acknowledge(&mut self, side: usize, idle: bool) {
        let Some(core) = &mut self.sides[side].core else { return };
        for conn in self.wires.iter_mut().filter_map(|wire| wire.conns[side].as_mut()) {
            core.acknowledge(conn, idle);
        }
    }

    fn deliver_some(&mut self) {
        if self.wires.is_empty() {
            return;
        }
        let (wire, side) = (self.below(self.wires.len()), self.below(2));
        let bytes = 1 + self.below(2000);
        self.deliver(wire, side, bytes);
        self.take_reports(side);
    }

    /// Makes the peer write bytes to the connection `wire`, and the end `side` read some of the
    /// bytes under way, at most `bytes`.
    fn deliver(&mut self, wire: usize, side: usize, bytes: usize) {
        self.transmit(wire, 1 - side, bytes);
        let this = &mut self.wires[wire];
        let count = bytes.min(this.under_way[side].len());
        let arrived: Vec<u8> = this.under_way[side].drain(..count).collect();
        this.input[side].extend_from_slice(&arrived);
        self.read(wire, side);
    }

    fn transmit(&mut self, wire: usize, from: usize, bytes: usize) {
        let this = &mut self.wires[wire];
        let (Some(core), Some(conn)) = (&self.sides[from].core, &mut this.conns[from]) else {
            return;
        };
        let mut room = bytes;
        while core.has_outgoing(conn) && room > 0 {
            let mut slices = [IoSlice::new(&[]); 8];
            let used = match core.outgoing(conn, room, &mut slices) {
                Ok(used) => used,
                Err(End::Replaced | End::Moved) => return self.close(wire, from),
                Err(end) => panic!("seed {}: {end}", self.seed),
            };
            let mut sent: Vec<u8> = slices[..used].concat_bytes();
            sent.truncate(room);
            room -= sent.len();
            if !this.is_cut {
                this.under_way[1 - from].extend_from_slice(&sent);
            }
            core.sent(conn, sent.len()).unwrap();
        }
    }

    fn read(&mut self, wire: usize, side: usize) {
        if side == SERVER && !self.wires[wire].is_accepted && !self.wires[wire].is_cut {
            self.accept(wire);
        }
        let this = &mut self.wires[wire];
        let Some(core) = &mut self.sides[side].core else { return };
        let Some(conn) = &mut this.conns[side] else { return };
        match core.receive(conn, &mut this.input[side]) {
            Ok(received) if received.activated => {
                for other in (0..self.wires.len()).filter(|other| *other != wire) {
                    let is_active =
                        self.wires[other].conns[side].as_ref().is_some_and(Conn::is_active);
                    if is_active {
                        self.close(other, side);
                    }
                }
            }
            Ok(_) => {}
            Err(end) => self.over(wire, side, end),
        }
    }

    /// Ends the connection `wire` at the end `side`, because the tested code has returned `end`,
    /// the reason why the connection has to end.
    fn over(&mut self, wire: usize, side: usize, end: End) {
        match end {
            End::Violation(violation) => panic!("seed {}: {violation}", self.seed),
            End::Quarantined => panic!("seed {}: quarantined", self.seed),
            _ => {}
        }
        // The control frames that the end has queued are sent before the connection is closed.
        self.transmit(wire, side, usize::MAX);
        self.wires[wire].conns[side] = None;
    }

    fn epoch(&self, side: usize) -> u64 {
        self.sides[side].core.as_ref().map_or(0, LinkState::epoch)
    }

    fn length(&mut self) -> usize {
        match self.below(10) {
            0 => INLINE_MAX + self.below(4000),
            _ => self.below(INLINE_MAX),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        // The three shifts are one step of an xorshift64 generator of random numbers.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        usize::try_from((self.random >> 11) % bound as u64).unwrap()
    }

    /// Makes the server read ATTACH once it is complete, and answer it. Sometimes one of the ends
    /// cannot map the other's file.
    fn accept(&mut self, wire: usize) {
        let (server_maps, client_maps) = (self.below(8) > 0, self.below(8) > 0);
        let shares = self.wires[wire].shares;
        let [client, server] = &mut self.sides;
        let (this, Some(core)) = (&mut self.wires[wire], &mut server.core) else { return };
        let input = &mut this.input[SERVER];
        let len = codec::whole_bytes(input).unwrap();
        if input.len() < len {
            return;
        }
        let frame = codec::read(&input.split_to(len)).unwrap();
        let Frame::Attach { attach, .. } = frame else { panic!("{frame:?}") };
        assert_eq!(attach.shares, shares);
        let mapping = (shares && server_maps).then(|| client.kept.mapping());
        let (Answer::Attached(conn) | Answer::Refused(conn, _)) =
            core.answer_attach(attach, Vec::new(), mapping);
        if let (true, true, Some(asked)) =
            (conn.descriptor().is_some(), client_maps, &mut this.conns[CLIENT])
        {
            asked.set_peer_mapping(server.kept.mapping());
        }
        this.conns[SERVER] = Some(conn);
        this.is_accepted = true;
    }

    /// Makes the end `side` take one message from the peer's file, if its present connection is
    /// over shared memory.
    fn pull(&mut self, side: usize) {
        let is_present = |conn: &Option<Conn>| conn.as_ref().is_some_and(Conn::is_active);
        let Some(wire) = self.wires.iter().position(|wire| is_present(&wire.conns[side])) else {
            return;
        };
        let (Some(core), Some(conn)) =
            (&mut self.sides[side].core, &mut self.wires[wire].conns[side])
        else {
            return;
        };
        match core.pull(conn) {
            Ok(found) => {
                assert!(!found || conn.is_shared());
                self.pulled += u64::from(found);
            }
            Err(end) => self.over(wire, side, end),
        }
    }

    /// Makes the end `side` read from the peer's file up to which position the peer has
    /// acknowledged.
    fn hear(&mut self, side: usize) {
        let Some(core) = &mut self.sides[side].core else { return };
        core.poll_acked();
    }
}

fn number_bytes(number: u64) -> [u8; 8] {
    number.to_le_bytes()
}

fn number_of(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().unwrap())
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for [IoSlice<'_>] {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|slice| slice.iter().copied()).collect()
    }
}
