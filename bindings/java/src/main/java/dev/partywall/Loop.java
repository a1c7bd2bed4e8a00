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
 * An observer learns of each kind of event once: again only after an attempt found nothing. Methods
 * that wait may not be called by the thread that polls, which would wait for itself.
 */
public final class Loop implements AutoCloseable {
    /** There may be a message to receive. */
    public static final int READABLE = Native.READABLE;
    /** There may be room to send. */
    public static final int WRITABLE = Native.WRITABLE;
    /** There may be a stream or a session to accept. */
    public static final int OPENED = Native.OPENED;
    /** The peer has ended its direction, or the session is over. */
    public static final int ENDED = Native.ENDED;

    private final SessionLoop sessions;
    private final MemorySegment memory = Arena.ofAuto().allocate(SessionLoop.TURN_BYTES, 16);
    private boolean isClosed;

    /** Makes a loop without sessions. A loop takes three descriptors. */
    public Loop() throws IOException {
        sessions = new SessionLoop();
    }

    /**
     * Returns the descriptor that is readable while {@link #poll} may find events or a timer is
     * due. Never read from it, and never close it.
     */
    public int fd() {
        try (Call call = new Call()) {
            Call.invoke("partywall_loop_fd", sessions.handle(), call.result());
            return call.resultInt();
        }
    }

    /**
     * Lets the sessions advance without waiting, and calls the observers of what has events.
     * Returns the number of events. Only one thread at a time may poll. An exception of an observer
     * is thrown once all of them were called.
     */
    public int poll() throws IOException {
        return isClosed ? 0 : sessions.turn(memory.address(), 0);
    }

    /**
     * Polls as {@link #poll} does, for a thread that polls again before it waits: peers do not notify
     * the loop meanwhile, and its descriptor may stay quiet. Before the thread waits for the
     * descriptor, which it watches level-triggered, it calls {@code poll} until that returns 0.
     */
    public int pollAwake() throws IOException {
        return isClosed ? 0 : sessions.turnAwake(memory.address());
    }

    /**
     * Polls, for at most {@code timeout}, until every session that has ended is over: until its
     * last bytes are written, or it has given them up.
     */
    public void drain(Duration timeout) throws IOException {
        long deadline = Deadline.after(timeout);
        while (!isClosed && (poll() > 0 || isEnding()) && Deadline.left(deadline) > 0) {
            sessions.turn(memory.address(), Math.min(Deadline.left(deadline), DRAIN_SLICE_NS));
        }
    }

    /** Returns whether a session has a timer: only one that ends has. */
    private boolean isEnding() {
        try (Call call = new Call()) {
            Call.invoke("partywall_loop_next_timer", sessions.handle(), call.result());
            return call.resultLong() >= 0;
        }
    }

    /** Listens for sessions, as {@link SessionListener#bind} does. This loop drives them. */
    public SessionListener bind(String address, Config config) throws IOException {
        return SessionListener.bind(address, config, sessions);
    }

    /**
     * Opens a session, as {@link Session#connect} does. This loop drives it. The call waits for the
     * handshake, so another thread makes it.
     */
    public Session connect(String address, Config config) throws IOException {
        return Session.connect(address, config, sessions);
    }

    /**
     * Ends the sessions, and frees the loop. Every observer is called once more. Only the thread
     * that polls may close.
     */
    @Override
    public void close() {
        if (!isClosed) {
            isClosed = true;
            Call.invoke("partywall_loop_free", sessions.handle());
            sessions.signalAll();
        }
    }

    /** Longest time of one wait while sessions end. */
    private static final long DRAIN_SLICE_NS = 50_000_000;
}
