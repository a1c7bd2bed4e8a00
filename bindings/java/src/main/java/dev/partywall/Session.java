// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntConsumer;

/**
 * A connection that carries many streams, which either side opens. Any thread may call it.
 *
 * <p>One daemon thread of the process receives for all sessions, except for those of a {@link
 * Loop}. Threads that wait park, so any number of virtual threads may wait.
 */
public final class Session implements AutoCloseable {
    private final long handle;
    private final SessionLoop loop;
    private final long tag;
    private final WaitList accepting = new WaitList();
    private final WaitList opening = new WaitList();
    private final WaitList ending = new WaitList();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private volatile IntConsumer observer = kinds -> { };

    Session(long handle, SessionLoop loop, long tag) {
        this.handle = handle;
        this.loop = loop;
        this.tag = tag;
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
                return new Session(call.resultLong(), loop, tag);
            }
        });
    }

    /**
     * Has the thread of the session's loop call {@code observer} with a set of the kinds of {@link
     * Loop}. Attempt once after this call: events before it are not reported again.
     */
    public void onEvents(IntConsumer observer) {
        this.observer = Objects.requireNonNull(observer);
    }

    /** Returns a description of the peer for logs: its process and user. */
    public String peerText() throws IOException {
        return Listener.addressOf("partywall_session_peer_text", handle);
    }

    /** Opens a stream without metadata. Waits while as many are open as the peer allows. */
    public Stream open() throws IOException {
        return open(new byte[0], Deadline.NEVER);
    }

    /**
     * Opens a stream with metadata for the peer. Waits while as many are open as the peer allows.
     */
    public Stream open(byte[] metadata) throws IOException {
        return open(metadata, Deadline.NEVER);
    }

    /** Opens a stream. Throws {@link TimedOutException} if that is not possible in time. */
    public Stream open(byte[] metadata, Duration timeout) throws IOException {
        return open(metadata, Deadline.after(timeout));
    }

    private Stream open(byte[] metadata, long deadline) throws IOException {
        long streamTag = loop.nextTag();
        long stream = opening.await(Native.WOULD_BLOCK, deadline, call -> call.status(
                "partywall_session_open", handle, call.bytes(metadata), metadata.length, streamTag,
                call.result(), 0));
        return new Stream(stream, loop, streamTag);
    }

    /** Opens a stream if that is possible now; returns null if not. */
    public Stream tryOpen(byte[] metadata) throws IOException {
        long streamTag = loop.nextTag();
        try (Call call = new Call()) {
            int status = call.status("partywall_session_open", handle, call.bytes(metadata),
                    metadata.length, streamTag, call.result(), 0);
            return attempted(call, status, streamTag);
        }
    }

    /** Accepts a stream if the peer has opened one; returns null if not, or after the end. */
    public Stream tryAccept() throws IOException {
        long streamTag = loop.nextTag();
        try (Call call = new Call()) {
            int status = call.status("partywall_session_accept", handle, streamTag, call.result(), 0);
            return attempted(call, status, streamTag);
        }
    }

    private Stream attempted(Call call, int status, long streamTag) throws IOException {
        if (isClosed.get()) {
            throw new ClosedChannelException();
        }
        if (status == Native.OK) {
            return new Stream(call.resultLong(), loop, streamTag);
        }
        if (status == Native.WOULD_BLOCK || status == Native.FINISHED) {
            return null;
        }
        throw call.failure(status);
    }

    /** Waits for the next stream that the peer opens; returns null once the session was closed. */
    public Stream accept() throws IOException {
        return accept(Deadline.NEVER);
    }

    /**
     * Accepts as {@link #accept()}. Throws {@link TimedOutException} if no stream comes in time.
     */
    public Stream accept(Duration timeout) throws IOException {
        return accept(Deadline.after(timeout));
    }

    private Stream accept(long deadline) throws IOException {
        long streamTag = loop.nextTag();
        long stream = accepting.await(Native.WOULD_BLOCK, deadline, call -> call.status(
                "partywall_session_accept", handle, streamTag, call.result(), 0));
        return stream == 0 ? null : new Stream(stream, loop, streamTag);
    }

    /** Asks the peer to open no more streams, and gives it the code. */
    public void goAway(int code) throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_session_go_away", handle, code);
        }
    }

    /**
     * Ends the session with all its streams. The peer gets the code, which is below 0xffffff00, and
     * the reason.
     */
    public void shutdown(int code, String reason) throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_session_close", handle, code, call.text(reason));
        }
    }

    /**
     * Waits until the session is over and everything that it sent is written or given up, so that
     * the process may exit. Throws {@link TimedOutException} if it is not in time.
     */
    public void awaitFinished(Duration timeout) throws IOException {
        ending.await(Native.TIMED_OUT, Deadline.after(timeout),
                call -> call.status("partywall_session_wait_finished", handle, 0));
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
     * Gives the session up: it lives on while it has streams, then it ends in good order. Ends
     * calls of other threads that wait for it.
     */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            loop.unregister(tag);
            accepting.close();
            opening.close();
            ending.close();
            while (Call.invoke("partywall_session_free", handle) == Native.BUSY) {
                // Another thread is within an attempt, which never waits.
                Thread.onSpinWait();
            }
        }
    }
}
