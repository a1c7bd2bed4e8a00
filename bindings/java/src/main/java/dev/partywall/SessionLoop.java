// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The event loop of all sessions of the process, and the daemon thread that runs it: the thread
 * receives for every session, and signals the waiters of listeners, sessions and streams.
 *
 * <pre>
 *   peer ─▶ partywall_loop_wait ─▶ event with a tag ─▶ Source ─▶ waiters of a stream or session
 * </pre>
 *
 * The loop reports each kind once, until an attempt finds nothing. So what the application does not
 * receive yet does not keep the thread busy. Every caller attempts before it waits, so an event of
 * a tag that is not registered yet is not missed.
 */
final class SessionLoop {
    private final Map<Long, Source> sources = new ConcurrentHashMap<>();
    private final AtomicLong lastTag = new AtomicLong();
    private final long handle;

    /** An object that has a tag in the loop. */
    interface Source {
        /** Signals those that wait for one of these kinds of events. */
        void signal(int kinds);
    }

    private SessionLoop() throws PartywallException {
        try (Call call = new Call()) {
            call.check("partywall_loop_new_once", call.result());
            handle = call.resultLong();
        }
        Thread.ofPlatform().name("partywall-sessions").daemon().inheritInheritableThreadLocals(false)
                .start(this::run);
    }

    /**
     * Returns the loop of the process, and starts its thread at the first call. A later call tries
     * again if one fails.
     */
    static SessionLoop get() throws PartywallException {
        SessionLoop loop = shared;
        return loop == null ? make() : loop;
    }

    private static synchronized SessionLoop make() throws PartywallException {
        if (shared == null) {
            shared = new SessionLoop();
        }
        return shared;
    }

    long handle() {
        return handle;
    }

    /** Returns a tag for an object that is about to be made. */
    long nextTag() {
        return lastTag.incrementAndGet();
    }

    void register(long tag, Source source) {
        sources.put(tag, source);
    }

    void unregister(long tag) {
        sources.remove(tag);
    }

    private void run() {
        long memory = Native.allocateForever(16 + (long) EVENTS_MAX * Native.EVENT_BYTES);
        long events = memory + 16;
        int status;
        while ((status = Native.loopWait(handle, events, EVENTS_MAX, memory + 8, memory)) == Native.OK) {
            long count = Native.getLong(memory + 8);
            for (long event = events; event < events + count * Native.EVENT_BYTES;
                    event += Native.EVENT_BYTES) {
                Source source = sources.get(Native.getLong(event));
                if (source != null) {
                    source.signal(Native.getInt(event + 8));
                }
            }
        }
        throw new IllegalStateException(PartywallException.of(status, memory));
    }

    private static volatile SessionLoop shared;
    private static final int EVENTS_MAX = 256;
}
