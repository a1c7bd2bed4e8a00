// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;

/** Tests a loop of sessions that the thread of another event loop polls. */
final class LoopTest {
    /** What a test does with a stream that an observer of a session has accepted. */
    private interface Accepted {
        void accept(Stream stream) throws IOException;
    }

    private interface Condition {
        boolean holds() throws Exception;
    }

    private static void pollUntil(Loop loop, Condition condition) throws Exception {
        long deadline = System.nanoTime() + Pair.SOON.toNanos();
        while (!condition.holds()) {
            loop.poll();
            Check.that(System.nanoTime() < deadline, "the condition holds in time");
        }
    }

    private static void acceptAll(SessionListener listener, Accepted accepted) throws IOException {
        Session session;
        while ((session = listener.tryAccept()) != null) {
            Session one = session;
            one.onEvents(kinds -> acceptStreams(one, accepted));
            acceptStreams(one, accepted);
        }
    }

    private static void acceptStreams(Session session, Accepted accepted) {
        try {
            Stream stream;
            while ((stream = session.tryAccept()) != null) {
                accepted.accept(stream);
            }
        } catch (IOException over) {
            session.close();
        }
    }

    /**
     * Sends back every message of a stream that has arrived; returns whether the peer has finished.
     */
    private static boolean echo(Stream stream) throws IOException {
        View view;
        while ((view = stream.tryRecv()) != null) {
            ByteBuffer copy = ByteBuffer.allocateDirect((int) view.byteSize());
            view.copyTo(0, copy);
            view.close();
            copy.flip();
            ByteBuffer[] halves = {copy.slice(0, copy.limit() / 2),
                    copy.slice(copy.limit() / 2, copy.limit() - copy.limit() / 2)};
            Check.that(stream.trySend(halves, 2), "there is room for one message");
        }
        return stream.isFinished();
    }

    void oneThreadServesStreamsThatItsObserversReport() throws Exception {
        try (Loop loop = new Loop();
                SessionListener listener = loop.bind(Pair.address(), new Config())) {
            AtomicInteger finished = serveAll(listener);
            FutureTask<Void> clients = exchanges(listener, 3);
            pollUntil(loop, () -> clients.isDone() && finished.get() == 3);
            clients.get();
        }
    }

    private static void serve(Stream stream, AtomicInteger finished) {
        try {
            if (!stream.isClosed() && echo(stream)) {
                stream.finish();
                stream.close();
                finished.incrementAndGet();
            }
        } catch (IOException failure) {
            throw new AssertionError(failure);
        }
    }

    /**
     * Serves every stream of the listener's sessions, in the thread that polls its loop. Returns a
     * count of the streams that were served.
     */
    private static AtomicInteger serveAll(SessionListener listener) {
        AtomicInteger finished = new AtomicInteger();
        listener.onEvents(kinds -> {
            try {
                acceptAll(listener, stream -> {
                    stream.onEvents(events -> serve(stream, finished));
                    serve(stream, finished);
                });
            } catch (IOException failure) {
                throw new AssertionError(failure);
            }
        });
        return finished;
    }

    /**
     * Connects to the listener in a thread of its own, and uses {@code streams} streams of one
     * session, one after the other.
     */
    private static FutureTask<Void> exchanges(SessionListener listener, int streams) {
        return Pair.start(() -> {
            try (Session session = Session.connect(listener.address())) {
                for (int number = 0; number < streams; number++) {
                    exchange(session.open());
                }
            }
            return null;
        });
    }

    private static void exchange(Stream stream) throws IOException {
        byte[] target = new byte[1 << 20];
        for (int size : new int[] {0, 1, 48, 4096, 4097, 100_000}) {
            stream.send(Check.pattern(size, size), Pair.SOON);
            Check.equal(stream.recv(target, Pair.SOON), size);
            Check.equal(java.util.Arrays.copyOf(target, size), Check.pattern(size, size));
        }
        stream.finish();
        Check.equal(stream.recv(Pair.SOON), null);
        stream.close();
    }

    /**
     * Makes one turn of an event loop, which calls {@code pollAwake} while it has work, and {@code
     * poll} before it waits for the descriptor of {@code loop}.
     */
    private static void turn(Loop loop, long places) throws IOException {
        if (loop.pollAwake() > 0 || loop.poll() > 0) {
            return;
        }
        Native.setPoll(places, loop.fd());
        int ready = Native.poll(places, 1, (int) Pair.SOON.toMillis());
        Check.that(ready != 0, "the descriptor tells what comes after the polls"); // -1: a signal
    }

    void threadThatPollsAwakeSleepsThroughNothing() throws Exception {
        long places = Native.allocateForever(8);
        try (Loop loop = new Loop();
                SessionListener listener = loop.bind(Pair.address(), new Config())) {
            AtomicInteger finished = serveAll(listener);
            FutureTask<Void> client = exchanges(listener, 20);
            while (finished.get() < 20) {
                turn(loop, places);
            }
            pollUntil(loop, client::isDone);
            client.get();
        }
    }

    void observersOfStreamsLearnThatTheLoopIsClosed() throws Exception {
        Loop loop = new Loop();
        SessionListener listener = loop.bind(Pair.address(), new Config());
        FutureTask<Session> connecting = Pair.start(() -> Session.connect(listener.address()));
        Session[] accepted = new Session[1];
        pollUntil(loop, () -> (accepted[0] = listener.tryAccept()) != null);
        FutureTask<Stream> opening = Pair.start(() -> connecting.get().open());
        Stream[] stream = new Stream[1];
        pollUntil(loop, () -> {
            stream[0] = stream[0] == null ? accepted[0].tryAccept() : stream[0];
            return stream[0] != null && opening.isDone();
        });
        AtomicInteger kinds = new AtomicInteger();
        stream[0].onEvents(kinds::set);
        loop.close();
        Check.that((kinds.get() & Loop.ENDED) != 0, "the observer is called");
        Check.thrown(PartywallException.class, stream[0]::tryRecv);
        endOf(opening.get());
        Check.equal(loop.poll(), 0);
        stream[0].close();
        accepted[0].close();
        listener.close();
        connecting.get().close();
    }

    private static void endOf(Stream stream) throws IOException {
        try {
            Check.equal(stream.recv(Pair.SOON), null);
        } catch (TimedOutException late) {
            throw new AssertionError("the stream has not ended", late);
        } catch (PartywallException hasEnded) {
            // The session has ended, and the stream with it.
        }
    }

    void observerThatThrowsKeepsNoOtherFromBeingCalled() throws Exception {
        try (Loop loop = new Loop();
                SessionListener listener = loop.bind(Pair.address(), new Config())) {
            FutureTask<Session> connecting = Pair.start(() -> Session.connect(listener.address()));
            Session[] accepted = new Session[1];
            pollUntil(loop, () -> (accepted[0] = listener.tryAccept()) != null);
            FutureTask<Stream[]> opening = Pair.start(() -> new Stream[] {
                connecting.get().open(), connecting.get().open()});
            Stream[] streams = new Stream[2];
            Set<Stream> called = new HashSet<>();
            for (int index = 0; index < 2; index++) {
                int place = index;
                pollUntil(loop, () -> (streams[place] = accepted[0].tryAccept()) != null);
                streams[place].onEvents(kinds -> {
                    called.add(streams[place]);
                    throw new IllegalStateException("thrown by an observer");
                });
                Check.equal(streams[place].tryRecv(), null);
            }
            for (Stream stream : opening.get()) {
                stream.send(new byte[1]);
            }
            AtomicInteger thrown = new AtomicInteger();
            long deadline = System.nanoTime() + Pair.SOON.toNanos();
            while (called.size() < 2) {
                try {
                    loop.poll();
                } catch (IllegalStateException expected) {
                    thrown.incrementAndGet();
                }
                Check.that(System.nanoTime() < deadline, "both observers are called in time");
            }
            Check.that(thrown.get() > 0, "what observers throw is thrown");
            for (Stream stream : streams) {
                stream.close();
            }
            accepted[0].close();
            connecting.get().close();
        }
    }

    void sessionOfALoopIsDrained() throws Exception {
        Config config = new Config().transport(Config.Transport.SOCKET);
        try (SessionListener listener = SessionListener.bind(Pair.address(), config);
                Loop loop = new Loop()) {
            FutureTask<Session> accepting = Pair.start(() -> listener.accept(Pair.SOON));
            Session session = loop.connect(listener.address(), config);
            Stream stream = session.tryOpen(new byte[0]);
            byte[] sent = Check.pattern(100_000, 1);
            Check.that(stream.trySend(sent), "there is credit for the message");
            stream.finish();
            stream.close();
            session.close();
            FutureTask<byte[]> receiving = Pair.start(() -> {
                byte[] received = new byte[sent.length];
                Stream there = accepting.get().accept(Pair.SOON);
                Check.equal(there.recv(received, Pair.SOON), sent.length);
                Check.equal(there.recv(Pair.SOON), null);
                return received;
            });
            loop.drain(Duration.ofSeconds(30));
            Check.equal(receiving.get(), sent);
            accepting.get().close();
        }
    }
}
