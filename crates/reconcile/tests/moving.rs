// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of a connection that begins on the socket and moves to shared memory. Its explorations
//! try all events in every order, up to a maximum number of each kind of event (SPEC 2.9, 8.5).
//!
//! ```text
//!   connector                 socket                    acceptor
//!   HELLO ─▶ … ─▶ MOVE ─▶ … ─▶ SWITCH        HELLO ─▶ … ─▶ SWITCH      socket, then
//!             pair: OFFER ─▶   ◀─ OFFER, READY   READY ─▶              the ring
//! ```
//!
//! The pair is a socket pair, over which both sides make the handshake for shared memory. The
//! model's queues stand for those of the kernel and of the rings: what a side wrote before it died
//! stays readable. Each side sends a bounded number of messages, may close its direction at any
//! time, and may die once. The acceptor may refuse the connector, may not trust it, and either side
//! may lack memory for the move. Every run ends, because each step uses up an item of a queue or a
//! permitted event. So a state without a next step is the end of a run, and no side may still wait
//! there.
//!
//! Other explorations each leave out one safeguard of the protocol, and must find a broken rule.
//! They show that the model notices faults.
#![forbid(unsafe_code)]

use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::VecDeque;

/// An item that a side of the model writes to the socket: a frame of the first handshake, or a
/// record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Item {
    Hello {
        moves: bool,
    },
    Reject,
    /// OFFER of the connector, in a first handshake that shares memory at once and agrees on no
    /// move.
    Offer,
    Ready,
    Message(u8),
    Move,
    Switch,
    CloseWrite,
}

/// A frame that a side of the model writes to the pair, in the handshake for shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Frame {
    Offer,
    Answer,
    Ready,
}

/// How far a side has come in the first handshake, which is made on the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stage {
    AwaitsHello,
    AwaitsOffer,
    AwaitsReady,
    Runs,
    Refused,
}

/// How far a side has come in moving the connection from the socket to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Moving {
    /// No move is agreed, because the first handshake shares memory at once.
    None,
    NotBegun,
    UnderWay,
    Shared,
    Stays,
}

/// Where the records of one direction travel (socket or ring), as the sender or the receiver of
/// that direction sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Socket,
    Ring,
    Ended,
}

/// One side of the connection in the model. Its queues hold what this side has written and its peer
/// has not read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Side {
    stage: Stage,
    moving: Moving,
    sends: Place,
    receives: Place,
    sent: u8,
    received: u8,
    is_dead: bool,
    has_written_switch: bool,
    socket: VecDeque<Item>,
    ring: VecDeque<Item>,
    pair: VecDeque<Frame>,
    /// Whether this side holds its end of the pair.
    has_pair: bool,
}

impl Side {
    const fn new(stage: Stage) -> Self {
        Self {
            stage,
            moving: Moving::None,
            sends: Place::Socket,
            receives: Place::Socket,
            sent: 0,
            received: 0,
            is_dead: false,
            has_written_switch: false,
            socket: VecDeque::new(),
            ring: VecDeque::new(),
            pair: VecDeque::new(),
            has_pair: false,
        }
    }

    fn runs(&self) -> bool {
        self.stage == Stage::Runs && !self.is_dead
    }

    /// Gives up the move: the connection stays on the socket, and this side closes its end of the
    /// pair.
    fn stays(&mut self) {
        self.moving = Moving::Stays;
        self.has_pair = false;
    }
}

/// A rule of SPEC 8.5 that a run of the model can break.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Broken {
    /// A message arrived twice, too early, or after a message that was lost.
    Order,
    /// A side wrote a record to the socket after its SWITCH.
    AfterSwitch,
    /// A side received its peer's SWITCH before the handshake over the pair was complete.
    EarlySwitch,
    /// A frame or record arrived that its receiver does not expect in its present state.
    Unexpected,
}

/// The safeguard of the protocol that an exploration of the model leaves out, so that a rule
/// breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    /// Seeded fault: a receiver reads records from the ring before it has read SWITCH from the
    /// socket.
    OrderOfPlaces,
    /// Seeded fault: the acceptor allocates what it needs for shared memory only after it has
    /// received the connector's READY on the pair.
    EarlyMemory,
    /// Seeded fault: the connector writes SWITCH to the socket before it has sent READY on the
    /// pair.
    ReadyBeforeSwitch,
    /// Seeded fault: a sender continues to write records to the socket after its SWITCH.
    LastRecord,
    /// Seeded fault: a receiver that has given up the move treats the closing of the pair as if the
    /// peer had closed the connection's own socket.
    OldSocket,
}

#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Maximum number of messages that the connector sends, and maximum number that the acceptor
    /// sends.
    messages: [u8; 2],
    /// Whether one of the two sides may die during a run.
    deaths: bool,
    /// Whether each side may close its sending direction during a run.
    closes: bool,
    without: Without,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The two sides of the connection: first the connector, then the acceptor.
    sides: [Side; 2],
    is_trusted: bool,
    broken: Option<Broken>,
}

const CONNECTOR: usize = 0;
const ACCEPTOR: usize = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// The side with this index reads the next frame or record from the socket.
    Read(usize),
    /// The acceptor reads the connector's HELLO, and refuses the connector.
    Refuse,
    /// The side with this index receives the next record from its peer's ring.
    Receive(usize),
    Send(usize),
    Close(usize),
    Begin,
    /// The side with this index reads the next frame on the pair. The flag says whether it has
    /// memory to share.
    Progress(usize, bool),
    Switch(usize),
    Die(usize),
    /// The side with this index notices that its peer has closed its end of the pair.
    Hangup(usize),
    /// The side with this index notices that its peer has died.
    NoticeDeath(usize),
}

impl World {
    fn new(is_trusted: bool) -> Self {
        let mut connector = Side::new(Stage::AwaitsHello);
        connector.socket.push_back(Item::Hello { moves: true });
        Self { sides: [connector, Side::new(Stage::AwaitsHello)], is_trusted, broken: None }
    }

    /// Whether `side` may now receive a record that its peer has written to the ring.
    fn can_receive(&self, side: usize, bounds: &Bounds) -> bool {
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let may = own.receives == Place::Ring
            || (bounds.without == Without::OrderOfPlaces && own.moving == Moving::Shared);
        own.runs() && may && own.receives != Place::Ended && !peer.ring.is_empty()
    }

    fn steps(&self, bounds: &Bounds, steps: &mut Vec<Step>) {
        if self.broken.is_some() {
            return;
        }
        for side in [CONNECTOR, ACCEPTOR] {
            let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
            if own.is_dead || own.stage == Stage::Refused {
                continue;
            }
            if own.receives == Place::Socket && !peer.socket.is_empty() {
                steps.push(Step::Read(side));
                if side == ACCEPTOR && own.stage == Stage::AwaitsHello {
                    steps.push(Step::Refuse);
                }
            }
            if self.can_receive(side, bounds) {
                steps.push(Step::Receive(side));
            }
            if own.runs() && own.sends != Place::Ended {
                if own.sent < bounds.messages[side] {
                    steps.push(Step::Send(side));
                }
                if bounds.closes {
                    steps.push(Step::Close(side));
                }
            }
            let can_switch = own.moving == Moving::Shared
                || (bounds.without == Without::ReadyBeforeSwitch
                    && side == CONNECTOR
                    && own.moving == Moving::UnderWay);
            if own.runs() && can_switch && own.sends == Place::Socket {
                steps.push(Step::Switch(side));
            }
            self.steps_of_pair(side, steps);
            let both_alive = !peer.is_dead;
            if bounds.deaths && both_alive {
                steps.push(Step::Die(side));
            }
            if peer.is_dead && self.is_drained(side, bounds) && !own.has_ended() {
                steps.push(Step::NoticeDeath(side));
            }
        }
    }

    fn steps_of_pair(&self, side: usize, steps: &mut Vec<Step>) {
        let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
        let connector = &self.sides[CONNECTOR];
        if side == CONNECTOR
            && own.runs()
            && own.moving == Moving::NotBegun
            && own.sends == Place::Socket
        {
            steps.push(Step::Begin);
        }
        if own.moving != Moving::UnderWay || !own.has_pair {
            return;
        }
        if !peer.pair.is_empty() {
            steps.extend([true, false].map(|has_memory| Step::Progress(side, has_memory)));
        } else if peer.is_dead || (peer.moving == Moving::Stays && !peer.has_pair) {
            // The acceptor's end of the pair travels with the connector's MOVE. Until the acceptor
            // has read the MOVE, that end is open in the socket's queue, so the connector sees no
            // hang-up.
            let is_sent = side == CONNECTOR && connector.socket.contains(&Item::Move);
            if !is_sent || peer.is_dead {
                steps.push(Step::Hangup(side));
            }
        }
    }

    /// Whether `side` has read everything that its peer has written to the place (socket or ring)
    /// from which `side` receives.
    fn is_drained(&self, side: usize, bounds: &Bounds) -> bool {
        let peer = &self.sides[1 - side];
        let own = &self.sides[side];
        match own.receives {
            _ if bounds.without == Without::OldSocket && own.moving == Moving::Stays => true,
            Place::Socket => peer.socket.is_empty(),
            Place::Ring => peer.ring.is_empty(),
            Place::Ended => true,
        }
    }

    fn take(&mut self, step: Step, bounds: &Bounds) {
        match step {
            Step::Read(side) => {
                let item = self.sides[1 - side].socket.pop_front();
                self.read(side, item.expect("the step is enabled"));
            }
            Step::Refuse => {
                self.sides[CONNECTOR].socket.clear();
                self.sides[ACCEPTOR].socket.push_back(Item::Reject);
                self.sides[ACCEPTOR].stage = Stage::Refused;
            }
            Step::Receive(side) => {
                let item = self.sides[1 - side].ring.pop_front();
                self.receive(side, item.expect("the step is enabled"));
            }
            Step::Send(side) => {
                let item = Item::Message(self.sides[side].sent);
                self.sides[side].sent += 1;
                self.write(side, item);
            }
            Step::Close(side) => {
                self.write(side, Item::CloseWrite);
                self.sides[side].sends = Place::Ended;
            }
            Step::Begin => {
                self.write(CONNECTOR, Item::Move);
                let connector = &mut self.sides[CONNECTOR];
                connector.pair.push_back(Frame::Offer);
                (connector.moving, connector.has_pair) = (Moving::UnderWay, true);
            }
            Step::Progress(side, has_memory) => self.progress(side, has_memory, bounds),
            Step::Switch(side) => {
                self.write(side, Item::Switch);
                let own = &mut self.sides[side];
                own.has_written_switch = true;
                if bounds.without != Without::LastRecord {
                    own.sends = Place::Ring;
                }
                if own.moving == Moving::UnderWay {
                    own.sends = Place::Ring;
                }
            }
            Step::Die(side) => {
                self.sides[side].is_dead = true;
                self.sides[side].has_pair = false;
            }
            Step::Hangup(side) => self.sides[side].stays(),
            Step::NoticeDeath(side) => {
                let lost = self.sides[side].received < self.sides[1 - side].sent;
                let own = &mut self.sides[side];
                (own.sends, own.receives) = (Place::Ended, Place::Ended);
                if own.stage != Stage::Runs {
                    own.stage = Stage::Refused;
                } else if lost {
                    self.broken = Some(Broken::Order);
                }
            }
        }
    }

    fn write(&mut self, side: usize, item: Item) {
        let own = &mut self.sides[side];
        match own.sends {
            Place::Ring => own.ring.push_back(item),
            _ => {
                if own.has_written_switch {
                    self.broken = Some(Broken::AfterSwitch);
                }
                own.socket.push_back(item);
            }
        }
    }

    /// Changes the state of `side` as it reads `item` from the socket.
    fn read(&mut self, side: usize, item: Item) {
        let is_trusted = self.is_trusted;
        let own = &mut self.sides[side];
        match (own.stage, item) {
            (Stage::AwaitsHello, Item::Hello { moves }) if side == ACCEPTOR => {
                let agrees = moves && is_trusted;
                own.socket.push_back(Item::Hello { moves: agrees });
                if agrees {
                    (own.stage, own.moving) = (Stage::Runs, Moving::NotBegun);
                } else {
                    own.stage = Stage::AwaitsOffer;
                }
            }
            (Stage::AwaitsHello, Item::Hello { moves: true }) => {
                (own.stage, own.moving) = (Stage::Runs, Moving::NotBegun);
            }
            (Stage::AwaitsHello, Item::Hello { moves: false }) => {
                own.socket.push_back(Item::Offer);
                own.stage = Stage::AwaitsReady;
            }
            (Stage::AwaitsHello, Item::Reject) => own.stage = Stage::Refused,
            (Stage::AwaitsOffer, Item::Offer) => {
                own.socket.push_back(Item::Ready);
                own.stage = Stage::AwaitsReady;
            }
            (Stage::AwaitsReady, Item::Ready) => {
                if side == CONNECTOR {
                    own.socket.push_back(Item::Ready);
                }
                own.stage = Stage::Runs;
                (own.sends, own.receives) = (Place::Ring, Place::Ring);
            }
            (Stage::Runs, Item::Move) if side == ACCEPTOR && own.moving == Moving::NotBegun => {
                (own.moving, own.has_pair) = (Moving::UnderWay, true);
            }
            (Stage::Runs, Item::Switch) => {
                // The peer sent READY on the pair before it wrote SWITCH to the socket. So READY
                // has arrived, and `side` completes the handshake over the pair now at the latest.
                if own.moving == Moving::UnderWay && !self.sides[1 - side].pair.is_empty() {
                    self.progress(side, true, &PLAIN);
                }
                let own = &mut self.sides[side];
                own.receives = Place::Ring;
                if own.moving != Moving::Shared {
                    self.broken = Some(Broken::EarlySwitch);
                }
            }
            (Stage::Runs, Item::Message(_) | Item::CloseWrite) => self.receive(side, item),
            _ => self.broken = Some(Broken::Unexpected),
        }
    }

    fn receive(&mut self, side: usize, item: Item) {
        let own = &mut self.sides[side];
        match item {
            Item::Message(number) if number == own.received => own.received += 1,
            Item::Message(_) => self.broken = Some(Broken::Order),
            Item::CloseWrite => {
                if own.received != self.sides[1 - side].sent {
                    self.broken = Some(Broken::Order);
                }
                self.sides[side].receives = Place::Ended;
            }
            _ => self.broken = Some(Broken::Unexpected),
        }
    }

    /// Changes the state of `side` as it reads the next frame of the pair. Without memory to share,
    /// `side` gives up the move, unless it has come too far in the handshake to do so.
    fn progress(&mut self, side: usize, has_memory: bool, bounds: &Bounds) {
        let frame = self.sides[1 - side].pair.pop_front();
        let own = &mut self.sides[side];
        let late = bounds.without == Without::EarlyMemory;
        match (side, frame) {
            (ACCEPTOR, Some(Frame::Offer)) if has_memory || late => {
                own.pair.push_back(Frame::Answer);
            }
            (CONNECTOR, Some(Frame::Answer)) if has_memory => {
                own.pair.push_back(Frame::Ready);
                own.moving = Moving::Shared;
            }
            // The acceptor allocated everything before it answered the connector's OFFER, so it
            // needs no more memory when READY arrives.
            (ACCEPTOR, Some(Frame::Ready)) if has_memory || !late => own.moving = Moving::Shared,
            (_, Some(_)) => own.stays(),
            (_, None) => self.broken = Some(Broken::Unexpected),
        }
    }

    /// Whether a side waits for ever, given that this state of the model has no next step.
    fn somebody_waits(&self) -> bool {
        [CONNECTOR, ACCEPTOR].into_iter().any(|side| {
            let (own, peer) = (&self.sides[side], &self.sides[1 - side]);
            if own.is_dead || own.stage == Stage::Refused {
                return false;
            }
            let lacks = own.receives != Place::Ended && own.received < peer.sent;
            let is_alone = peer.is_dead && !own.has_ended();
            let awaits_close =
                peer.sends == Place::Ended && own.receives != Place::Ended && !peer.is_dead;
            own.stage != Stage::Runs || lacks || is_alone || awaits_close
        })
    }
}

impl Side {
    fn has_ended(&self) -> bool {
        self.stage == Stage::Refused
            || (self.sends == Place::Ended && self.receives == Place::Ended)
    }
}

const PLAIN: Bounds =
    Bounds { messages: [2, 2], deaths: false, closes: false, without: Without::Nothing };

/// An exploration of all states of the model within the bounds. It searches for a state for which
/// the function returns true or, without a function, for a broken rule.
struct Explored(Bounds, Option<Sought>);

type Sought = fn(&World) -> bool;

const HOLDS: &str = "no rule is broken, and nobody waits for ever";
const REACHED: &str = "reached";

impl Model for Explored {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        [true, false].map(World::new).into()
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        world.steps(&self.0, steps);
    }

    fn next_state(&self, last: &World, step: Step) -> Option<World> {
        let mut world = last.clone();
        world.take(step, &self.0);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        if self.1.is_some() {
            return vec![Property::sometimes(REACHED, |model: &Self, world| {
                model.1.is_some_and(|sought| sought(world))
            })];
        }
        vec![Property::always(HOLDS, |model: &Self, world: &World| {
            let mut steps = Vec::new();
            world.steps(&model.0, &mut steps);
            world.broken.is_none() && (!steps.is_empty() || !world.somebody_waits())
        })]
    }
}

/// Explores all states of the model within `bounds` until a rule breaks. Returns the number of
/// states and, if a fault was found, the broken rule; `None` in its place means that a side waits
/// for ever.
fn explore(bounds: Bounds) -> (usize, Option<Option<Broken>>) {
    let checker =
        Explored(bounds, None).checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let broken = checker.discovery(HOLDS).map(|path| {
        let broken = path.last_state().broken;
        println!("{broken:?} after {:?}", path.into_actions());
        broken
    });
    (checker.unique_state_count(), broken)
}

fn reaches(bounds: Bounds, sought: Sought) -> bool {
    let checker = Explored(bounds, Some(sought)).checker();
    checker.finish_when(HasDiscoveries::Any).spawn_bfs().join().discovery(REACHED).is_some()
}

const DEATHS: Bounds = Bounds { deaths: true, ..PLAIN };
const CLOSES: Bounds = Bounds { closes: true, ..PLAIN };

#[test]
fn every_order_of_events_keeps_the_rules() {
    for bounds in [
        PLAIN,
        DEATHS,
        CLOSES,
        Bounds { deaths: true, closes: true, messages: [2, 1], ..PLAIN },
        Bounds { messages: [4, 3], ..PLAIN },
    ] {
        let (states, broken) = explore(bounds);
        println!("{bounds:?}: {states} states");
        assert_eq!(broken, None, "{bounds:?}");
        assert!(states > 900, "{bounds:?}: {states}");
    }
}

#[test]
fn exploration_reaches_each_kind_of_end() {
    let ends: [(Bounds, Sought); 6] = [
        (PLAIN, |world| world.sides.iter().all(|side| side.receives == Place::Ring)),
        (PLAIN, |world| world.sides.iter().all(|side| side.moving == Moving::Stays)),
        (PLAIN, |world| world.sides[CONNECTOR].stage == Stage::Refused),
        (PLAIN, |world| !world.is_trusted && world.sides.iter().all(|side| side.received == 2)),
        (DEATHS, |world| world.sides[ACCEPTOR].has_ended() && world.sides[CONNECTOR].is_dead),
        (CLOSES, |world| {
            let [connector, acceptor] = &world.sides;
            connector.has_ended() && acceptor.has_ended() && connector.has_written_switch
        }),
    ];
    for (number, (bounds, sought)) in ends.into_iter().enumerate() {
        assert!(reaches(bounds, sought), "end {number}");
    }
}

#[test]
fn each_safeguard_that_is_taken_out_breaks_its_rule() {
    for (without, bounds, expected) in [
        (Without::OrderOfPlaces, PLAIN, Some(Broken::Order)),
        (Without::EarlyMemory, PLAIN, Some(Broken::EarlySwitch)),
        (Without::ReadyBeforeSwitch, PLAIN, Some(Broken::EarlySwitch)),
        (Without::LastRecord, PLAIN, Some(Broken::AfterSwitch)),
        (Without::OldSocket, DEATHS, Some(Broken::Order)),
    ] {
        let (_, broken) = explore(Bounds { without, ..bounds });
        assert_eq!(broken, Some(expected), "{without:?}");
    }
}
