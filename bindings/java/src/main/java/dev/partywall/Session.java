// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntConsumer;

/**
 * A session: a connection that carries many streams, which either side opens. Any thread may call
 * it.
 *
 * <p>One daemon thread of the process receives for all sessions, except for those of a
 * {@link Loop}. Threads that wait park, so any number of virtual threads may wait.
 */
public final class Session implements AutoCloseable {
    private final SessionLoop loop;
    private final long handle;
    private final long tag;
    private final Connection connection;
    private final WaitList accepting = new WaitList();
    private final WaitList opening = new WaitList();
    private final WaitList ending = new WaitList();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private volatile IntConsumer observer = kinds -> { };

    Session(SessionLoop loop, long handle, long tag) {
        this.loop = loop;
        this.handle = handle;
        this.tag = tag;
        connection = new Connection("session", handle);
        loop.register(tag, this::signal);
    }

    /** Opens a session with the listener at {@code address}, such as {@code unix:/run/app.sock}. */
    public static Session connect(String address) throws IOException {
        return connect(address, new Config());
    }

    /** Opens a session with the settings of {@code config}. Waits for the handshake. */
    public static Session connect(String address, Config config) throws IOException {
        return connect(address, config, SessionLoop.get());
    }

    static Session connect(String address, Config config, SessionLoop loop) throws IOException {
        long tag = loop.nextTag();
        return BlockingCalls.run(() -> {
            try (Call call = new Call(); NativeConfig settings = config.toNative()) {
                call.check("partywall_session_connect", call.text(address), settings.handle(),
                        loop.handle(), tag, call.result());
                return new Session(loop, call.resultLong(), tag);
            }
        });
    }

    /**
     * Sets the observer of the session: the thread of its loop calls {@code observer} with a set of
     * kinds, such as {@link Loop#OPENED}. After this call, attempt once to accept a stream, because
     * events from before are not reported again.
     */
    public void onEvents(IntConsumer observer) {
        this.observer = Objects.requireNonNull(observer);
    }

    /** Opens a stream without metadata. Waits while as many streams are open as the peer allows. */
    public Stream open() throws IOException {
        return open(new byte[0], Deadline.NEVER);
    }

    /**
     * Opens a stream with metadata for the peer. Waits while as many streams are open as the peer
     * allows.
     */
    public Stream open(byte[] metadata) throws IOException {
        return open(metadata, Deadline.NEVER);
    }

    /**
     * Opens a stream with metadata for the peer. Throws {@link TimedOutException} if that is not
     * possible in time.
     */
    public Stream open(byte[] metadata, Duration timeout) throws IOException {
        return open(metadata, Deadline.after(timeout));
    }

    private Stream open(byte[] metadata, long deadline) throws IOException {
        long streamTag = loop.nextTag();
        try (Call call = new Call()) {
            long bytes = call.bytes(metadata);
            long stream = opening.await(call, Native.WOULD_BLOCK, deadline, timeout -> call.status(
                    "partywall_session_open", handle, bytes, metadata.length, streamTag, call.result(),
                    timeout));
            if (stream == 0) {
                throw PartywallException.of(Native.FINISHED);
            }
            return new Stream(loop, stream, streamTag);
        }
    }

    /** Opens a stream if that is possible now; returns null if it is not. */
    public Stream tryOpen(byte[] metadata) throws IOException {
        long streamTag = loop.nextTag();
        try (Call call = new Call()) {
            int status = call.status("partywall_session_open", handle, call.bytes(metadata),
                    metadata.length, streamTag, call.result(), 0);
            return attempted(call, status, streamTag);
        }
    }

    /**
     * Accepts a stream if the peer has opened one; returns null if it has not, or once the session
     * was closed.
     */
    public Stream tryAccept() throws IOException {
        long streamTag = loop.nextTag();
        try (Call call = new Call()) {
            int status = call.status("partywall_session_accept", handle, streamTag, call.result(), 0);
            return attempted(call, status, streamTag);
        }
    }

    private Stream attempted(Call call, int status, long streamTag) throws IOException {
        if (status == Native.OK) {
            return new Stream(loop, call.resultLong(), streamTag);
        }
        if (status == Native.WOULD_BLOCK || status == Native.FINISHED) {
            return null;
        }
        throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
    }

    /** Waits for the next stream that the peer opens; returns null once the session was closed. */
    public Stream accept() throws IOException {
        return accept(Deadline.NEVER);
    }

    /**
     * Waits for the next stream that the peer opens; returns null once the session was closed.
     * Throws {@link TimedOutException} if no stream comes in time.
     */
    public Stream accept(Duration timeout) throws IOException {
        return accept(Deadline.after(timeout));
    }

    private Stream accept(long deadline) throws IOException {
        long streamTag = loop.nextTag();
        try (Call call = new Call()) {
            long stream = accepting.await(call, Native.WOULD_BLOCK, deadline, timeout -> call.status(
                    "partywall_session_accept", handle, streamTag, call.result(), timeout));
            return stream == 0 ? null : new Stream(loop, stream, streamTag);
        }
    }

    /** Asks the peer to open no more streams, and sends it the application's code. */
    public void goAway(int code) throws IOException {
        check("partywall_session_go_away", new Call(), handle, code);
    }

    /**
     * Ends the session with all its streams. The peer receives the code, which is below 0xffffff00,
     * and the text of the reason.
     */
    public void shutdown(int code, String reason) throws IOException {
        Call call = new Call();
        check("partywall_session_close", call, handle, code, call.text(reason));
    }

    /** Makes a native call that never waits, and throws unless it succeeds. */
    private void check(String function, Call made, long... arguments) throws IOException {
        try (Call call = made) {
            int status = isClosed.get() ? Native.HANDLE : call.status(function, arguments);
            if (status != Native.OK) {
                throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
            }
        }
    }

    /**
     * Waits until the session is over and everything that it sent is written or given up, so that
     * the process may exit. Throws {@link TimedOutException} if the session is not over in time.
     */
    public void awaitFinished(Duration timeout) throws IOException {
        try (Call call = new Call()) {
            ending.await(call, Native.TIMED_OUT, Deadline.after(timeout),
                    wait -> call.status("partywall_session_wait_finished", handle, wait));
        }
    }

    /** Returns what is known of the peer process. */
    public Peer peer() throws IOException {
        return connection.peer();
    }

    /** Returns the transport that the session has now. */
    public Transport transport() throws IOException {
        return connection.transport();
    }

    /** Returns the counters of all that the session sends. */
    public SenderStats senderStats() throws IOException {
        return connection.senderStats();
    }

    /** Returns the number of streams of the session that have not ended. */
    public long streams() throws IOException {
        try (Call call = new Call()) {
            int status = Call.invokeAlone("partywall_session_streams", handle, call.result());
            if (status != Native.OK) {
                throw isClosed.get() ? new ClosedChannelException() : PartywallException.of(status);
            }
            return call.resultLong();
        }
    }

    private void signal(int kinds) {
        if ((kinds & (Native.OPENED | Native.ENDED)) != 0) {
            accepting.signal();
        }
        if ((kinds & (Native.WRITABLE | Native.ENDED)) != 0) {
            opening.signal();
        }
        if ((kinds & Native.ENDED) != 0) {
            ending.signal();
        }
        observer.accept(kinds);
    }

    /**
     * Closes this object: the session lives on while it has streams, then it ends in good order.
     * Ends calls of other threads that wait for the session.
     */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            loop.unregister(tag);
            accepting.close();
            opening.close();
            ending.close();
            Call.free("partywall_session_free", handle);
        }
    }
}
