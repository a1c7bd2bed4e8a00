// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.InterruptedIOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Tests sessions and their streams, also with thousands of virtual threads that wait for streams.
 */
final class SessionTest {
    void streamsCarryMessagesBothWaysOverEveryTransport() throws Exception {
        Config sockets = new Config().transport(Config.Transport.SOCKET);
        carryMessages(Sessions.open(Pair.address(), new Config()));
        carryMessages(Sessions.open(Pair.address(), new Config().begin(Config.Begin.SHARED_MEMORY)));
        carryMessages(Sessions.open(Pair.address(), sockets));
        carryMessages(Sessions.open("tcp:127.0.0.1:0", sockets));
    }

    private static void carryMessages(Sessions opened) throws Exception {
        try (Sessions sessions = opened) {
            byte[] target = new byte[1 << 20];
            for (int number = 0; number < 3; number++) {
                Stream client = sessions.client().open(new byte[] {(byte) number});
                Stream server = sessions.server().accept(Pair.SOON);
                Check.equal(server.metadata(), new byte[] {(byte) number});
                FutureTask<Integer> echoing = Pair.start(() -> {
                    int count = 0;
                    while (server.recv(message -> server.send(message), Pair.SOON)) {
                        count++;
                    }
                    server.close();
                    return count;
                });
                for (int size : new int[] {0, 48, 1025, 4097, 100_000}) {
                    client.send(Check.pattern(size, size), Pair.SOON);
                    Check.equal(client.recv(target, Pair.SOON), size);
                    Check.equal(java.util.Arrays.copyOf(target, size), Check.pattern(size, size));
                }
                try (Reservation reservation = client.reserve(50_000)) {
                    reservation.segment().fill((byte) 6);
                    reservation.commit();
                }
                try (Message message = client.recv(Pair.SOON).keep()) {
                    Check.equal(message.byteSize(), 50_000L);
                }
                client.finish();
                Check.equal(client.recv(Pair.SOON), null);
                Check.equal(echoing.get(), 6);
                client.close();
            }
            sessions.client().close();
            Check.equal(sessions.server().accept(Pair.SOON), null);
        }
    }

    void streamsEndWithTheCodesOfTheirPeer() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            Stream client = sessions.client().open();
            Stream server = sessions.server().accept(Pair.SOON);
            client.reset(71);
            PartywallException reset =
                    Check.thrown(PartywallException.class, () -> server.recv(Pair.SOON));
            Check.equal(reset.code(), PartywallException.STREAM_RESET);
            Check.equal(reset.applicationCode(), 71);
            client.stop(72);
            PartywallException stopped = Check.thrown(PartywallException.class, () -> {
                while (true) {
                    server.send(new byte[1000], Pair.SOON);
                }
            });
            Check.equal(stopped.code(), PartywallException.STREAM_STOPPED);
            Check.equal(stopped.applicationCode(), 72);
            sessions.client().shutdown(73, "that is all");
            sessions.client().awaitFinished(Pair.SOON);
            // The server may not have read the close yet. A call before that could fail without the
            // code of the peer.
            sessions.server().awaitFinished(Pair.SOON);
            PartywallException closed =
                    Check.thrown(PartywallException.class, () -> sessions.server().open());
            Check.equal(closed.code(), 411);
            Check.equal(closed.applicationCode(), 73);
            Check.that(closed.getMessage().contains("that is all"), closed.getMessage());
        }
    }

    void unreadStreamHoldsUpItsSenderAndNoOther() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config().streamWindow(16 << 10))) {
            Stream full = sessions.client().open();
            Stream unread = sessions.server().accept(Pair.SOON);
            int count = 0;
            while (full.trySend(new byte[1000])) {
                count++;
            }
            Check.that(count > 5 && count < 40, count + " messages within the window");
            Check.thrown(TimedOutException.class, () -> full.send(new byte[1000], Duration.ofMillis(5)));
            Stream other = sessions.client().open();
            Stream otherServer = sessions.server().accept(Pair.SOON);
            for (int index = 0; index < 100; index++) {
                other.send(new byte[1000], Pair.SOON);
                Check.equal(otherServer.recv(new byte[1000], Pair.SOON), 1000);
            }
            FutureTask<Void> sending = Pair.start(() -> {
                full.send(new byte[1000]);
                return null;
            });
            for (int index = 0; index < count + 1; index++) {
                Check.equal(unread.recv(new byte[1000], Pair.SOON), 1000);
            }
            sending.get();
        }
    }

    void stoppedStreamEndsTheReceiverThatWaits() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            Stream client = sessions.client().open();
            Stream server = sessions.server().accept(Pair.SOON);
            FutureTask<PartywallException> receiving = Pair.start(() -> Check.thrown(
                    PartywallException.class, () -> {
                        while (true) {
                            server.recv(new byte[100], Pair.SOON);
                        }
                    }));
            // The test repeats this many times, so that the receiving thread is sometimes within an
            // attempt to receive when this thread stops the stream.
            for (int count = 0; count < 1000; count++) {
                client.send(new byte[100], Pair.SOON);
            }
            server.stop(5);
            Check.equal(receiving.get().code(), STOPPED_HERE);
            server.close();
            Check.thrown(ClosedChannelException.class, () -> server.stop(6));
        }
    }

    void closedSessionRefusesEveryCall() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            Session client = sessions.client();
            client.close();
            Check.thrown(ClosedChannelException.class, () -> client.goAway(1));
            Check.thrown(ClosedChannelException.class, () -> client.shutdown(1, ""));
            Check.thrown(ClosedChannelException.class, client::open);
            Check.thrown(ClosedChannelException.class, client::accept);
        }
    }

    void eachOfManyThreadsThatAcceptGetsASession() throws Exception {
        try (SessionListener listener = SessionListener.bind(Pair.address())) {
            List<FutureTask<Session>> accepting = new ArrayList<>();
            List<FutureTask<Session>> connecting = new ArrayList<>();
            for (int count = 0; count < 20; count++) {
                accepting.add(Pair.start(() -> listener.accept(Pair.SOON)));
            }
            for (int count = 0; count < 20; count++) {
                connecting.add(Pair.start(() -> Session.connect(listener.address())));
            }
            for (int count = 0; count < 20; count++) {
                accepting.get(count).get().close();
                connecting.get(count).get().close();
            }
        }
    }

    void eachOfManyThreadsThatAcceptGetsAStream() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config().streamsMax(2000))) {
            List<FutureTask<Stream>> accepting = new ArrayList<>();
            for (int count = 0; count < 1000; count++) {
                accepting.add(new FutureTask<>(() -> sessions.server().accept(Pair.SOON)));
                Thread.ofVirtual().start(accepting.getLast());
            }
            for (int count = 0; count < 1000; count++) {
                sessions.client().open();
            }
            for (FutureTask<Stream> accepted : accepting) {
                Check.that(accepted.get() != null, "a stream for each");
            }
        }
    }

    void interruptAndCloseEndTheWaitsOfVirtualThreads() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            Stream client = sessions.client().open();
            Stream server = sessions.server().accept(Pair.SOON);
            CountDownLatch isInterrupted = new CountDownLatch(1);
            FutureTask<Void> task = new FutureTask<>(() -> {
                Check.thrown(InterruptedIOException.class, () -> server.recv());
                Check.that(Thread.interrupted(), "the interrupt status stays");
                isInterrupted.countDown();
                Check.thrown(AsynchronousCloseException.class, () -> server.recv());
                return null;
            });
            Thread thread = Thread.ofVirtual().start(task);
            untilParked(thread);
            thread.interrupt();
            isInterrupted.await();
            untilParked(thread);
            server.close();
            task.get();
            Check.equal(client.recv(Pair.SOON), null);
        }
    }

    private static void untilParked(Thread thread) {
        while (thread.isAlive() && thread.getState() != Thread.State.WAITING) {
            Thread.onSpinWait();
        }
    }

    void tenThousandVirtualThreadsThatWaitAreAllServed() throws Exception {
        Config config = new Config().streamsMax(STREAMS + 10).memoryMax(256 << 20);
        try (Sessions sessions = Sessions.open(Pair.address(), config)) {
            CountDownLatch opened = new CountDownLatch(STREAMS);
            CountDownLatch served = new CountDownLatch(STREAMS);
            AtomicInteger failures = new AtomicInteger();
            List<Stream> servers = new ArrayList<>();
            for (int index = 0; index < STREAMS; index++) {
                int number = index;
                Thread.ofVirtual().start(() -> {
                    try (Stream stream = sessions.client().open()) {
                        opened.countDown();
                        byte[] target = new byte[4];
                        for (int round = 0; round < ROUNDS; round++) {
                            if (stream.recv(target) != 4) {
                                throw new AssertionError("a message of four bytes");
                            }
                            stream.send(target);
                        }
                    } catch (Throwable failure) {
                        failures.incrementAndGet();
                        failure.printStackTrace();
                    } finally {
                        served.countDown();
                    }
                });
            }
            opened.await();
            for (int index = 0; index < STREAMS; index++) {
                servers.add(sessions.server().accept(Pair.SOON));
            }
            byte[] target = new byte[4];
            for (int round = 0; round < ROUNDS; round++) {
                for (Stream server : servers) {
                    server.send(new byte[] {1, 2, 3, (byte) round}, Pair.SOON);
                }
                for (Stream server : servers) {
                    Check.equal(server.recv(target, Pair.SOON), 4);
                    Check.equal(target[3], (byte) round);
                }
            }
            served.await();
            Check.equal(failures.get(), 0);
            servers.forEach(Stream::close);
        }
    }

    /** Status of a receiving call on a stream whose receiving direction this side has ended. */
    private static final int STOPPED_HERE = 409;
    private static final int STREAMS = 10_000;
    private static final int ROUNDS = 3;
}
