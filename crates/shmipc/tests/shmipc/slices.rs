// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of regions and queues in which two sides, each with its own mapping, exchange messages.
//! Each message arrives unchanged, and at the end every slice is free.

use partywall_shmipc::regions::{
    Backing, BufferRegion, Chain, Class, Element, Queue, QueueLayout, Side, Slice,
};
use partywall_sys::SharedMap;
use partywall_testkit::within;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CLASSES: [Class; 3] = [
    Class { size: 20, percent: 20 },
    Class { size: 60, percent: 40 },
    Class { size: 252, percent: 40 },
];

/// Size in bytes of a region with so many slices that the ABA problem does not occur: a slice that
/// leaves the head of its list and returns there while a thread is delayed between two
/// instructions. The protocol does not survive that case.
const LARGE: usize = 1 << 17;

/// Maps one region twice: as its creator sees it, and as the peer sees it.
fn sides(size: usize) -> [Arc<BufferRegion>; 2] {
    let (backing, map) = Backing::create_memfd("/pair", size).unwrap();
    let creator = BufferRegion::create(map, &CLASSES).unwrap();
    let mapper = BufferRegion::map(SharedMap::map(backing.fd(), size).unwrap()).unwrap();
    [creator, mapper]
}

fn assert_all_free(sides: &[Arc<BufferRegion>; 2]) {
    let slices: Vec<_> = sides[0].geometry().lists().iter().map(|list| Some(list.slices)).collect();
    for side in sides {
        assert!(side.is_all_free(), "{:?}", side.counts());
        assert_eq!(side.walk_free(), slices);
        for list in side.counts() {
            assert_eq!((list.held, list.violations, list.is_stopped), (0, 0, false));
            assert_eq!(list.counters[0] + list.counters[1], 0);
        }
    }
}

#[derive(Clone, Debug)]
enum Act {
    Reserve(usize, usize),
    ReserveChain(usize, usize),
    Send(usize),
    Receive(usize),
    DropSlices(usize),
    DropChain(usize),
}

fn act() -> impl Strategy<Value = Act> {
    let side = 0..2_usize;
    prop_oneof![
        (side.clone(), 1..300_usize).prop_map(|(side, len)| Act::Reserve(side, len)),
        (side.clone(), 1..1500_usize).prop_map(|(side, len)| Act::ReserveChain(side, len)),
        side.clone().prop_map(Act::Send),
        side.clone().prop_map(Act::Receive),
        side.clone().prop_map(Act::DropSlices),
        side.prop_map(Act::DropChain),
    ]
}

/// The model of one side in a random test: slices that the side has reserved, messages that it has
/// received, and messages that it has sent and its peer has not received.
#[derive(Default)]
struct Holding {
    slices: VecDeque<Vec<Slice>>,
    sent: VecDeque<(u32, Vec<u8>)>,
    chains: VecDeque<(Chain, Vec<u8>)>,
}

fn fill(slices: &mut [Slice], seed: usize) -> Vec<u8> {
    let mut all = Vec::new();
    for slice in slices {
        for byte in slice.as_mut_slice() {
            *byte = (seed + all.len()) as u8;
            all.push(*byte);
        }
    }
    all
}

fn check(chain: &Chain, expected: &[u8]) {
    let mut gathered = Vec::new();
    while gathered.len() < chain.len() {
        gathered.extend_from_slice(chain.chunk(gathered.len()));
    }
    assert_eq!(gathered, expected);
    assert_eq!(chain.as_slice(), expected);
    assert_eq!(chain.to_vec(), expected);
    assert!(chain.chunk(chain.len()).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn messages_arrive_as_they_were_sent(acts in proptest::collection::vec(act(), 0..200)) {
        let regions = sides(4096);
        let mut holding = [Holding::default(), Holding::default()];
        for (turn, act) in acts.into_iter().enumerate() {
            match act {
                Act::Reserve(side, len) => {
                    let slice = regions[side].reserve(len);
                    if let Some(slice) = &slice {
                        prop_assert!(slice.len() == len && slice.capacity() >= len);
                    }
                    holding[side].slices.extend(slice.map(|slice| vec![slice]));
                }
                Act::ReserveChain(side, len) => {
                    let before = regions[side].free_counts();
                    let chain = regions[side].reserve_chain(len);
                    if let Some(chain) = &chain {
                        prop_assert_eq!(chain.iter().map(Slice::len).sum::<usize>(), len);
                        prop_assert!(chain.iter().all(|slice| !slice.is_empty()));
                    } else {
                        prop_assert_eq!(before, regions[side].free_counts());
                    }
                    holding[side].slices.extend(chain);
                }
                Act::Send(side) => {
                    let Some(mut slices) = holding[side].slices.pop_front() else { continue };
                    let bytes = fill(&mut slices, turn);
                    let offset = regions[side].send(slices).unwrap();
                    holding[side].sent.push_back((offset, bytes));
                }
                Act::Receive(side) => {
                    let Some((offset, bytes)) = holding[1 - side].sent.pop_front() else { continue };
                    let chain = regions[side].receive(offset).unwrap();
                    holding[side].chains.push_back((chain, bytes));
                }
                Act::DropSlices(side) => drop(holding[side].slices.pop_front()),
                Act::DropChain(side) => {
                    if let Some((chain, bytes)) = holding[side].chains.pop_front() {
                        check(&chain, &bytes);
                    }
                }
            }
        }
        for side in [0, 1] {
            for (chain, bytes) in holding[side].chains.drain(..) {
                check(&chain, &bytes);
            }
            for (offset, bytes) in holding[side].sent.drain(..) {
                check(&regions[1 - side].receive(offset).unwrap(), &bytes);
            }
        }
        drop(holding);
        assert_all_free(&regions);
    }

    /// Tests that a ring behaves as a `VecDeque` does, at whatever 64-bit number its counters
    /// start.
    #[test]
    fn elements_come_in_order(
        is_legacy: bool,
        before_wrap in 0_u32..40,
        high in 0_u32..3,
        acts in proptest::collection::vec(any::<bool>(), 0..300),
    ) {
        let layout = if is_legacy { QueueLayout::LEGACY } else { QueueLayout::ALIGNED };
        let (head, tail) = if is_legacy { (4, 12) } else { (8, 16) };
        let size = Queue::size_bytes(16).unwrap();
        let (backing, map) = Backing::create_memfd("/ring", size).unwrap();
        let seen = SharedMap::map(backing.fd(), size).unwrap();
        let client = Queue::create(map, 16, layout).unwrap();
        for counter in [head, tail] {
            seen.store(counter, 0_u32.wrapping_sub(before_wrap));
            seen.store(counter + 4, high);
        }
        let server = Queue::map(SharedMap::map(backing.fd(), size).unwrap(), layout).unwrap();
        let (mut sender, _) = client.split(Side::Client).unwrap();
        let (_, mut receiver) = server.split(Side::Server).unwrap();
        let mut model = VecDeque::new();
        // Model of the consumer: it stores its head after each eighth of the ring, and when the
        // ring is empty. `unreported` counts the elements taken since then.
        let mut unreported = 0;
        for (number, is_put) in acts.into_iter().enumerate() {
            let element = Element { stream: number as u32, offset: 1, status: 2 };
            if is_put {
                let has_room = model.len() + unreported < 16;
                prop_assert_eq!(sender.put(element).is_ok(), has_room);
                if has_room {
                    model.push_back(element);
                }
            } else {
                unreported = if model.is_empty() || unreported + 1 == 2 { 0 } else { unreported + 1 };
                prop_assert_eq!(receiver.pop(), Ok(model.pop_front()));
            }
            prop_assert_eq!(sender.room(), Ok(16 - (model.len() + unreported) as u32));
            prop_assert_eq!(receiver.pending(), Ok(model.len() as u32));
            // shmipc-go and shmipc-rs read all 64 bits of a counter, and calculate from them where
            // in the ring an element lies. So all bits must be right.
            let count = |at| u64::from(seen.load(at)) | u64::from(seen.load(at + 4)) << 32;
            prop_assert_eq!(count(tail).wrapping_sub(count(head)), (model.len() + unreported) as u64);
        }
    }
}

/// Runs in each of two threads that exchange messages: sends `messages` messages, and receives
/// those of the other thread.
fn pump(region: &Arc<BufferRegion>, queue: Queue, side: Side, messages: u32, seed: u32) {
    let mut deadline = within(STALL_MAX);
    let (mut sender, mut receiver) = queue.split(side).unwrap();
    let (mut sent, mut received) = (0, 0);
    let mut kept = VecDeque::new();
    let mut random = seed;
    while sent < messages || received < messages {
        let before = (sent, received);
        if sent < messages && sender.room().unwrap() > 0 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let len = 1 + (random >> 16) as usize % 700;
            let slices = match region.reserve(len) {
                Some(slice) => Some(vec![slice]),
                None => region.reserve_chain(len),
            };
            if let Some(mut slices) = slices {
                fill(&mut slices, sent as usize);
                let offset = region.send(slices).unwrap();
                sender.put(Element { stream: len as u32, offset, status: sent }).unwrap();
                sent += 1;
            }
        }
        if let Some(element) = receiver.pop().unwrap() {
            assert_eq!(element.status, received);
            let chain = region.receive(element.offset).unwrap();
            assert_eq!(chain.len(), element.stream as usize);
            let expected = (0..chain.len()).map(|at| (received as usize + at) as u8);
            assert!(chain.as_slice().iter().copied().eq(expected));
            received += 1;
            kept.push_back(chain);
        }
        // Up to three received messages are kept, so that their slices stay in use. The oldest is
        // freed when more are kept, or when this side has messages to send and needs slices.
        if kept.len() > 3 || (sent < messages && sender.room().unwrap() > 0) {
            kept.pop_front();
        }
        // This thread yields only if it neither sent nor received in this iteration, because on a
        // busy machine a thread that yields may run again much later.
        if (sent, received) == before {
            assert!(Instant::now() < deadline, "stuck at {sent} sent, {received} received");
            std::thread::yield_now();
        } else {
            deadline = within(STALL_MAX);
        }
    }
}

/// The longest time in which a thread may neither send nor receive a message; after that the test
/// fails.
const STALL_MAX: Duration = Duration::from_secs(60);

#[test]
fn two_sides_at_once_end_with_every_slice_free() {
    let regions = sides(LARGE);
    let size = Queue::size_bytes(16).unwrap();
    let (backing, map) = Backing::create_memfd("/queue", size).unwrap();
    let client = Queue::create(map, 16, QueueLayout::NATIVE).unwrap();
    let server = SharedMap::map(backing.fd(), size).unwrap();
    let server = Queue::map(server, QueueLayout::NATIVE).unwrap();
    std::thread::scope(|scope| {
        let [creator, mapper] = &regions;
        scope.spawn(|| pump(creator, client, Side::Client, 30_000, 1));
        scope.spawn(|| pump(mapper, server, Side::Server, 30_000, 2));
    });
    assert_all_free(&regions);
}

#[test]
fn many_threads_of_both_sides_take_and_give() {
    let regions = sides(LARGE);
    std::thread::scope(|scope| {
        for thread in 0..6_usize {
            let region = &regions[thread % 2];
            scope.spawn(move || {
                for turn in 0..20_000_usize {
                    let mine = turn as u8 ^ thread as u8;
                    let Some(mut slice) = region.reserve(1 + (turn * 7 + thread) % 250) else {
                        std::thread::yield_now();
                        continue;
                    };
                    slice.as_mut_slice().fill(mine);
                    std::hint::black_box(&mut slice);
                    assert!(slice.as_slice().iter().all(|byte| *byte == mine));
                }
            });
        }
    });
    assert_all_free(&regions);
}

#[test]
fn empty_slices_are_left_out_and_the_last_one_stays() {
    let regions = sides(4096);
    let [creator, mapper] = &regions;
    let mut slices = vec![creator.reserve(10).unwrap(), creator.reserve(20).unwrap()];
    slices[0].truncate(0);
    slices[1].as_mut_slice().fill(3);
    slices.push(creator.reserve(5).unwrap());
    slices[2].set_len(0);
    let offset = creator.send(slices).unwrap();
    let chain = mapper.receive(offset).unwrap();
    assert_eq!((chain.pieces(), chain.as_slice()), (1, &[3; 20][..]));
    drop(chain);
    assert!(creator.reserve(0).is_none() && creator.reserve(10_000).is_none());
    assert!(creator.send(Vec::new()).is_none());

    // The longest possible message takes all slices of the region except the last one of each list.
    let all = creator.chain_bytes_max() as usize;
    assert!(creator.reserve_chain(all + 1).is_none());
    let chain = creator.reserve_chain(all).unwrap();
    assert_eq!(mapper.free_counts(), [1, 1, 1]);
    assert!(mapper.reserve(1).is_none());
    drop(chain);
    assert_all_free(&regions);
}

#[test]
fn slice_in_use_cannot_be_received() {
    let regions = sides(4096);
    let [creator, mapper] = &regions;
    let offset = creator.send_one(creator.reserve(8).unwrap()).unwrap();
    let chain = mapper.receive(offset).unwrap();
    assert!(mapper.receive(offset).is_err());
    drop(chain);
    // The creator of the region makes a message that it never sends to the peer. Instead it
    // receives and drops the message itself, which frees the message's slices.
    let offset = creator.send(creator.reserve_chain(600).unwrap()).unwrap();
    drop(creator.receive(offset).unwrap());
    assert_all_free(&regions);
}
