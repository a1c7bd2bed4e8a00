// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of channels that begin on the socket and move to shared memory while they run (SPEC 8.5).
//!
//! ```text
//!   connect ─▶ messages on the socket ─▶ MOVE, second handshake ─▶ SWITCH in each direction
//!   every message arrives once, whole and in order, whoever sends or only receives
//! ```

#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test")]

use partywall::{
    Begin, Channel, Config, FallbackReason, Receiver, Sender, Transport, TransportPolicy, Trust,
    TrustPolicy, TryRecvError, TrySendError,
};
use partywall_testkit::{Kind, Random, Watchdog, number_of, pair, payload, soon, until};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

const NOT_MOVED: Transport = Transport::Socket(FallbackReason::NotMoved);

fn ping(client: &mut Channel, server: &mut Channel, number: u64) {
    client.send(&payload(number, 40)).unwrap();
    assert_eq!(number_of(&server.recv_deadline(soon()).unwrap().unwrap()), number);
    server.send(&payload(number, 50)).unwrap();
    assert_eq!(number_of(&client.recv_deadline(soon()).unwrap().unwrap()), number);
}

#[test]
fn channel_moves_after_some_messages_and_counts_on() {
    let (mut client, mut server) = Kind::Moving.pair(|config| config);
    assert_eq!((client.transport(), server.transport()), (NOT_MOVED, NOT_MOVED));
    let mut number = 0;
    until("both sides have moved", || {
        ping(&mut client, &mut server, number);
        number += 1;
        (client.transport(), server.transport())
            == (Transport::SharedMemory, Transport::SharedMemory)
    });
    assert!(number <= 64, "moved after {number} round trips");
    for number in number..number + 10 {
        ping(&mut client, &mut server, number);
    }
    for channel in [&mut client, &mut server] {
        assert_eq!(channel.sender().stats().messages, number + 10);
        assert_eq!(channel.receiver().stats().messages, number + 10);
    }
    drop(client);
    assert!(matches!(server.recv_deadline(soon()), Ok(None)));
}

#[test]
fn large_message_makes_a_channel_move() {
    let (mut client, mut server) = Kind::Moving.pair(|config| config);
    let receiving = thread::spawn(move || {
        for number in 0..4 {
            let message = server.recv_deadline(soon()).unwrap().unwrap();
            assert_eq!((number_of(&message), message.len()), (number, 300_000));
            server.send(b"got it").unwrap();
        }
        server.transport()
    });
    for number in 0..4 {
        client.send(&payload(number, 300_000)).unwrap();
        assert_eq!(client.recv_deadline(soon()).unwrap().unwrap(), b"got it");
    }
    assert_eq!(client.transport(), Transport::SharedMemory);
    assert_eq!(receiving.join().unwrap(), Transport::SharedMemory);
}

#[test]
fn trust_is_judged_as_without_a_move() {
    for asks_before in [false, true] {
        let (mut client, mut server) = Kind::Moving.pair(|config| config.trust(TrustPolicy::Auto));
        if asks_before {
            assert_eq!(client.peer().trust, Trust::Trusted);
        }
        for number in 0..64 {
            ping(&mut client, &mut server, number);
        }
        assert_eq!([client.transport(), server.transport()], [Transport::SharedMemory; 2]);
        assert_eq!((client.peer().trust, server.peer().trust), (Trust::Trusted, Trust::Trusted));
    }
}

/// An acceptor takes no socket pair from a connector that it does not trust. So it declines to
/// begin on the socket, and memory is shared before the first message.
#[test]
fn acceptor_that_does_not_trust_shares_memory_at_once() {
    let begins = Config::default().begin(Begin::Socket);
    let distrusting = begins.clone().trust(TrustPolicy::Untrusted);
    for policy in [TrustPolicy::Auto, TrustPolicy::Trusted, TrustPolicy::Untrusted] {
        let client = begins.clone().trust(policy);
        let (mut client, mut server) = pair(&Kind::Moving.address(), &client, &distrusting);
        for number in 0..64 {
            assert_eq!([client.transport(), server.transport()], [Transport::SharedMemory; 2]);
            ping(&mut client, &mut server, number);
        }
        assert_eq!(server.peer().trust, Trust::Untrusted);
    }
}

/// A connector that does not trust the acceptor moves to shared memory all the same: only the
/// acceptor has to trust its peer.
#[test]
fn connector_that_does_not_trust_moves() {
    let begins = Config::default().begin(Begin::Socket);
    let distrusting = begins.clone().trust(TrustPolicy::Untrusted);
    let (mut client, mut server) = pair(&Kind::Moving.address(), &distrusting, &begins);
    assert_eq!([client.transport(), server.transport()], [NOT_MOVED; 2]);
    for number in 0..64 {
        ping(&mut client, &mut server, number);
    }
    assert_eq!([client.transport(), server.transport()], [Transport::SharedMemory; 2]);
    assert_eq!((client.peer().trust, server.peer().trust), (Trust::Untrusted, Trust::Trusted));
}

#[test]
fn sides_with_other_policies_agree_as_without_the_wish() {
    let begins = Config::default().begin(Begin::Socket);
    let cases = [
        (TransportPolicy::SharedMemory, Transport::SharedMemory),
        (TransportPolicy::Socket, Transport::Socket(FallbackReason::Policy)),
    ];
    for (policy, expected) in cases {
        for is_server in [true, false] {
            let other = begins.clone().transport(policy);
            let (client, server) = if is_server { (&begins, &other) } else { (&other, &begins) };
            let (mut client, mut server) = pair(&Kind::Moving.address(), client, server);
            for number in 0..32 {
                ping(&mut client, &mut server, number);
                assert_eq!((client.transport(), server.transport()), (expected, expected));
            }
        }
    }
    let (client, server) = pair(&Kind::Tcp.address(), &begins, &begins);
    let remote = Transport::Socket(FallbackReason::Remote);
    assert_eq!((client.transport(), server.transport()), (remote, remote));
}

#[test]
fn channel_whose_peer_maps_too_little_stays_on_the_socket() {
    let begins = Config::default().begin(Begin::Socket);
    let small = begins.clone().map_max(4096);
    let limits = Transport::Socket(FallbackReason::Limits);
    // In the first case the connector maps too little memory to move to shared memory, in the
    // second case the acceptor. The acceptor reports only that the connection has not moved,
    // because it does not know how large the connector's region is.
    for (client, server, known) in [(&small, &begins, limits), (&begins, &small, NOT_MOVED)] {
        let (mut client, mut server) = pair(&Kind::Moving.address(), client, server);
        for number in 0..64 {
            ping(&mut client, &mut server, number);
        }
        assert_eq!((client.transport(), server.transport()), (limits, known));
    }
}

/// Receives `count` messages, checks their order, and returns the receiver.
fn receive(mut receiver: Receiver, count: u64) -> Receiver {
    for number in 0..count {
        assert_eq!(number_of(&receiver.recv_deadline(soon()).unwrap().unwrap()), number);
    }
    receiver
}

fn send(mut sender: Sender, count: u64, seed: u64) -> Sender {
    let mut random = Random::new(seed);
    for number in 0..count {
        let len = match random.below(64) {
            0 => 8 + random.size(200_000),
            1..8 => 8 + random.size(20_000),
            _ => 8 + random.size(300),
        };
        sender.send(&payload(number, len)).unwrap();
    }
    sender
}

#[test]
fn every_message_arrives_in_order_whatever_moment_the_directions_switch_at() {
    let _watchdog = Watchdog::new("moves", Duration::from_secs(300));
    const COUNT: u64 = 500;
    for seed in 0..40 {
        let (client, server) = Kind::Moving.pair(|config| config.memory_max(1 << 20));
        let ((there, back), (reply, receiver)) = (client.split(), server.split());
        thread::scope(|scope| {
            let sending = scope.spawn(move || send(there, COUNT, seed));
            let answering = scope.spawn(move || send(reply, COUNT, seed + 1000));
            let returned = scope.spawn(move || receive(back, COUNT));
            let receiver = receive(receiver, COUNT);
            let (sent, answered) = (sending.join().unwrap(), answering.join().unwrap());
            assert_eq!(sent.stats().messages, COUNT);
            drop((sent, answered));
            for mut receiver in [receiver, returned.join().unwrap()] {
                assert_eq!(receiver.stats().messages, COUNT);
                assert!(matches!(receiver.recv_deadline(soon()), Ok(None)));
            }
        });
    }
}

/// Input: every order of sends and receives of both sides during the move to shared memory.
/// Expected: each receive finds the next message, or nothing if all were received.
#[test]
fn every_order_of_the_two_sides_keeps_the_messages_in_order() {
    let _watchdog = Watchdog::new("orders", Duration::from_secs(300));
    let config = Kind::Moving.config();
    let mut moved = [0; 2];
    for order in 0..4_u32.pow(STEPS) {
        // Each listener has an address of its own: a child process that another test starts at this
        // moment keeps the former listener until it executes its program.
        let (mut client, mut server) = pair(&Kind::Moving.address(), &config, &config);
        // After these round trips, the next message begins the move to shared memory.
        for number in 0..8 {
            ping(&mut client, &mut server, number);
        }
        // The numbers of messages sent and received, for each direction.
        let (mut there, mut back) = ((8, 8), (8, 8));
        for step in 0..STEPS {
            match order / 4_u32.pow(step) % 4 {
                0 => push(&mut client, &mut there),
                1 => take(&mut server, &mut there),
                2 => push(&mut server, &mut back),
                _ => take(&mut client, &mut back),
            }
        }
        while there.0 > there.1 {
            take(&mut server, &mut there);
        }
        while back.0 > back.1 {
            take(&mut client, &mut back);
        }
        moved[0] += u32::from(client.transport() == Transport::SharedMemory);
        moved[1] += u32::from(server.transport() == Transport::SharedMemory);
        drop(client);
        assert!(matches!(server.recv_deadline(soon()), Ok(None)), "order {order}");
    }
    assert!(moved.iter().all(|count| *count > 100), "some orders complete the move: {moved:?}");
}

/// Sends the next message of one direction, of which `numbers` counts the sent and the received
/// messages.
fn push(channel: &mut Channel, numbers: &mut (u64, u64)) {
    channel.send(&payload(numbers.0, 20)).unwrap();
    numbers.0 += 1;
}

/// Receives the next message of one direction if one was sent. `numbers` counts the sent and the
/// received messages of that direction.
fn take(channel: &mut Channel, numbers: &mut (u64, u64)) {
    match channel.try_recv() {
        Ok(Some(message)) => {
            assert_eq!(number_of(&message), numbers.1);
            numbers.1 += 1;
        }
        other => {
            assert!(matches!(other, Err(TryRecvError::Empty)), "{other:?}");
            assert_eq!(numbers.0, numbers.1, "a sent message is not found");
        }
    }
}

/// Number of sends and receives in each order that the test tries; it tries all orders.
const STEPS: u32 = 6;

#[test]
fn ten_thousand_messages_of_all_lengths_arrive_in_both_directions() {
    let _watchdog = Watchdog::new("ten thousand", Duration::from_secs(300));
    const COUNT: u64 = 10_000;
    let (client, server) = Kind::Moving.pair(|config| config.memory_max(1 << 20));
    let ((there, back), (reply, receiver)) = (client.split(), server.split());
    thread::scope(|scope| {
        let sending = scope.spawn(move || send(there, COUNT, 1));
        let answering = scope.spawn(move || send(reply, COUNT, 2));
        let returned = scope.spawn(move || receive(back, COUNT));
        receive(receiver, COUNT);
        drop((sending.join().unwrap(), answering.join().unwrap(), returned.join().unwrap()));
    });
}

#[test]
fn connector_that_only_sends_or_only_receives_moves() {
    for is_client_sending in [true, false] {
        let (mut client, mut server) = Kind::Moving.pair(|config| config);
        let (sending, receiving) =
            if is_client_sending { (&mut client, &mut server) } else { (&mut server, &mut client) };
        let mut number = 0;
        until("a side that is silent moves, too", || {
            sending.send(&payload(number, 64)).unwrap();
            assert_eq!(number_of(&receiving.recv_deadline(soon()).unwrap().unwrap()), number);
            number += 1;
            // The sending side tries to receive as well, because an acceptor learns of the move
            // only when it receives the record MOVE.
            assert!(matches!(sending.try_recv(), Err(TryRecvError::Empty)));
            sending.transport() == Transport::SharedMemory
                && receiving.transport() == Transport::SharedMemory
        });
        // The move begins after 128 messages without an answer. The test allows 84 more until both
        // sides use shared memory.
        assert!(number < 128 + 84, "moved after {number} messages");
        // The direction without messages still uses the socket, and switches to shared memory with
        // its first message.
        receiving.send(b"the first").unwrap();
        assert_eq!(sending.recv_deadline(soon()).unwrap().unwrap(), b"the first");
    }
}

#[test]
fn direction_that_ended_on_the_socket_leaves_the_other_one_to_move() {
    for is_client_ending in [true, false] {
        let (client, server) = Kind::Moving.pair(|config| config);
        let (ending, other) = if is_client_ending { (client, server) } else { (server, client) };
        let ((sender, mut receiver), (mut far, mut end)) = (ending.split(), other.split());
        drop(sender);
        assert!(matches!(end.recv_deadline(soon()), Ok(None)));
        for number in 0..200 {
            far.send(&payload(number, 2000)).unwrap();
            assert_eq!(number_of(&receiver.recv_deadline(soon()).unwrap().unwrap()), number);
        }
        drop(far);
        assert!(matches!(receiver.recv_deadline(soon()), Ok(None)));
    }
}

#[test]
fn receiver_that_left_is_noticed_before_and_after_the_move() {
    for messages in [0, 1, 17, 18, 40, 129, 130, 152] {
        let (client, mut server) = Kind::Moving.pair(|config| config);
        let (mut sender, mut receiver) = client.split();
        for number in 0..messages {
            sender.send(&payload(number, 10)).unwrap();
            server.recv_deadline(soon()).unwrap().unwrap();
            server.send(&payload(number, 10)).unwrap();
            receiver.recv_deadline(soon()).unwrap().unwrap();
        }
        drop(receiver);
        until("the server's sends fail", || server.send(b"in vain").is_err());
        sender.send(b"still there").unwrap();
        assert_eq!(server.recv_deadline(soon()).unwrap().unwrap(), b"still there");
    }
}

#[test]
fn descriptors_for_event_loops_stay_the_same() {
    let (client, server) = Kind::Moving.pair(|config| config);
    let ((mut there, mut back), (mut reply, mut receiver)) = (client.split(), server.split());
    let numbers = |there: &Sender, receiver: &Receiver, reply: &Sender, back: &Receiver| {
        let descriptors = [there.as_fd(), receiver.as_fd(), reply.as_fd(), back.as_fd()];
        descriptors.map(|descriptor| descriptor.as_raw_fd())
    };
    let before = numbers(&there, &receiver, &reply, &back);
    for number in 0..64 {
        there.send(&payload(number, 10)).unwrap();
        receiver.recv_deadline(soon()).unwrap().unwrap();
        reply.send(&payload(number, 10)).unwrap();
        back.recv_deadline(soon()).unwrap().unwrap();
    }
    assert_eq!(numbers(&there, &receiver, &reply, &back), before);
}

/// Input: the server has reserved memory on the socket and filled the socket when the move
/// completes, so SWITCH waits until the kernel accepts it. Expected: a reservation committed then
/// is sent over shared memory, not after SWITCH on the socket.
#[test]
fn reservation_committed_after_switch_was_written_goes_through_the_ring() {
    for whole in [false, true] {
        let (mut client, mut server) = Kind::Moving.pair(|config| config);
        let mut reserved = server.sender().try_reserve_owned(64).unwrap();
        reserved.fill(7);
        let mut filled = 0_u64;
        while server.try_send(&payload(filled, 40)).is_ok() {
            filled += 1;
        }
        for number in 0..130 {
            client.send(&payload(number, 40)).unwrap();
        }
        for _ in 0..130 {
            server.recv_deadline(soon()).unwrap().unwrap();
        }
        client.send(&payload(130, 40)).unwrap();
        assert_eq!(client.transport(), Transport::SharedMemory);
        assert!(matches!(server.try_send(b"no room"), Err(TrySendError::Full)));
        for _ in 0..filled {
            client.recv_deadline(soon()).unwrap().unwrap();
        }
        if whole {
            server.sender().try_commit_owned(reserved).map_err(|(_, error)| error).unwrap();
        } else {
            server.sender().commit_owned(reserved, None).unwrap();
        }
        server.try_send(b"last").unwrap();
        assert_eq!(client.recv_deadline(soon()).unwrap().unwrap(), [7; 64]);
        assert_eq!(client.recv_deadline(soon()).unwrap().unwrap(), b"last");
    }
}

/// Input: one thread of a shared sender sleeps until the socket has room, and another thread
/// switches the sender to shared memory. Expected: the sleeping thread wakes up and sends its
/// message, and does not take its wake-up for the death of the peer.
#[test]
fn thread_that_waits_for_space_goes_on_when_another_one_switches() {
    // The client does not trust the server, so doorbells are bytes on the control socket.
    let untrusting = Config::default().begin(Begin::Socket).trust(TrustPolicy::Untrusted);
    let (mut client, server) = pair(&Kind::Moving.address(), &untrusting, &Config::default());
    let (sender, mut receiver) = server.split();
    // The sender's descriptor is an epoll set, on which the waiting thread then sleeps.
    let _ = sender.as_fd().as_raw_fd();
    let sender = sender.shared();
    while sender.try_send(&[7; 8000]).is_ok() {}
    let waiting = sender.clone();
    let waiter = thread::spawn(move || waiting.send(&[9; 8000]));
    until("the thread sleeps", || sender.stats().sleeps > 0);
    for number in 0..130 {
        client.send(&payload(number, 40)).unwrap();
    }
    for _ in 0..130 {
        receiver.recv_deadline(soon()).unwrap().unwrap();
    }
    client.send(&payload(130, 40)).unwrap();
    assert_eq!(client.transport(), Transport::SharedMemory);
    // A message of 20 MiB needs a memory segment. The segment's descriptor is sent over the socket
    // pair.
    for _ in 0..3 {
        let _ = client.sender().try_send(&vec![1; 20 << 20]);
    }
    for _ in 0..2 {
        client.recv_deadline(soon()).unwrap().unwrap();
    }
    let _ = sender.try_send(b"x");
    waiter.join().unwrap().unwrap();
}
