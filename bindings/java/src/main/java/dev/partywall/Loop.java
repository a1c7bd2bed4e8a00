// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

/**
 * An event loop of sessions for a thread that has an event loop of its own, such as one of Netty.
 * It starts no thread: its sessions advance while {@link #poll} runs.
 *
 * <pre>
 *   fd is readable ─▶ poll ─▶ sessions receive and send ─▶ observers of listeners, sessions, streams
 *         ▲                                                            │
 *         └──────────── the next event, or a timer ◀── attempts until one finds nothing
 * </pre>
 *
 * The loop calls an observer once for each kind of event, and again only after an attempt to
 * receive or send found nothing. The thread that polls must not call methods that wait, because it
 * would wait for itself.
 */
public final class Loop implements AutoCloseable {
    /** Kind of event: there may be a message to receive. */
    public static final int READABLE = Native.READABLE;
    /** Kind of event: there may be room to send. */
    public static final int WRITABLE = Native.WRITABLE;
    /** Kind of event: there may be a stream or a session to accept. */
    public static final int OPENED = Native.OPENED;
    /** Kind of event: the peer has ended its sending direction, or the session is over. */
    public static final int ENDED = Native.ENDED;

    private final SessionLoop sessions;
    private final MemorySegment memory = Arena.ofAuto().allocate(SessionLoop.TURN_BYTES, 16);
    private boolean isClosed;

    /** Makes a loop without sessions. A loop takes three file descriptors. */
    public Loop() throws IOException {
        sessions = new SessionLoop();
    }

    /**
     * Returns the loop's descriptor, which is readable while {@link #poll} may find events or a
     * timer is due. Never read from it, and never close it.
     */
    public int fd() {
        try (Call call = new Call()) {
            Call.invoke("partywall_loop_fd", sessions.handle(), call.result());
            return call.resultInt();
        }
    }

    /**
     * Lets the sessions advance without waiting, and calls the observers of the objects that have
     * events. Returns the number of events. Only one thread at a time may poll. If observers throw,
     * an exception is thrown once all observers were called.
     */
    public int poll() throws IOException {
        return isClosed ? 0 : sessions.turn(memory.address(), 0);
    }

    /**
     * Lets the sessions advance and calls observers without waiting, for a thread that polls again
     * before it waits. Meanwhile peers do not notify the loop, and the loop's descriptor may stay
     * quiet. Before the thread waits for the descriptor, level-triggered, it calls {@link #poll}
     * until that returns 0.
     */
    public int pollAwake() throws IOException {
        return isClosed ? 0 : sessions.turnAwake(memory.address());
    }

    /**
     * Polls, at most for {@code timeout}, until every session that is ending is over: its last
     * bytes are written, or were given up.
     */
    public void drain(Duration timeout) throws IOException {
        long deadline = Deadline.after(timeout);
        while (!isClosed && (poll() > 0 || isEnding()) && Deadline.left(deadline) > 0) {
            sessions.turn(memory.address(), Math.min(Deadline.left(deadline), DRAIN_SLICE_NS));
        }
    }

    /** Returns whether a session of the loop is still ending. Only such a session has a timer. */
    private boolean isEnding() {
        try (Call call = new Call()) {
            Call.invoke("partywall_loop_next_timer", sessions.handle(), call.result());
            return call.resultLong() >= 0;
        }
    }

    /**
     * Listens for sessions at an address. This loop drives the listener and its sessions.
     */
    public SessionListener bind(String address, Config config) throws IOException {
        return SessionListener.bind(address, config, sessions);
    }

    /**
     * Opens a session with the listener at an address. This loop drives the session. The call waits
     * for the handshake, so another thread than the one that polls makes it.
     */
    public Session connect(String address, Config config) throws IOException {
        return Session.connect(address, config, sessions);
    }

    /**
     * Ends the sessions, and frees the loop. Every observer is called once more. Only the thread
     * that polls may close the loop.
     */
    @Override
    public void close() {
        if (!isClosed) {
            isClosed = true;
            Call.invoke("partywall_loop_free", sessions.handle());
            sessions.signalAll();
        }
    }

    /** Maximum time in nanoseconds of one wait while sessions are ending. */
    private static final long DRAIN_SLICE_NS = 50_000_000;
}
