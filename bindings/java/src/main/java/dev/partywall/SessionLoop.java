// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;

/**
 * An event loop of sessions: its thread receives for every session, and signals the threads that
 * wait for a listener, session or stream. One such loop of the process has a daemon thread of its
 * own; the others belong to a {@link Loop}, which the application polls.
 *
 * <pre>
 *   peer ─▶ partywall_loop_wait ─▶ event with a tag ─▶ Source ─▶ waiters of a stream or session
 * </pre>
 *
 * The loop reports each kind of event once, and again only after an attempt to accept, receive or
 * send has found nothing. So unreceived messages do not keep the thread busy. Every caller attempts
 * before it waits, so it misses no event that came before its tag was registered.
 */
final class SessionLoop {
    private final Map<Long, Source> sources = new ConcurrentHashMap<>();
    private final AtomicLong lastTag = new AtomicLong();
    private final long handle;

    /** A listener, session or stream, whose events carry its tag in the loop. */
    interface Source {
        /** Signals the threads that wait for one of these kinds of events. */
        void signal(int kinds);
    }

    /** Makes a loop without a thread; the application polls it. */
    SessionLoop() throws PartywallException {
        try (Call call = new Call()) {
            call.check("partywall_loop_new_once", call.result());
            handle = call.resultLong();
        }
    }

    /**
     * Returns the loop of the process, and starts its thread at the first call. If a call fails, a
     * later call tries again.
     */
    static SessionLoop get() throws PartywallException {
        SessionLoop loop = shared;
        return loop == null ? make() : loop;
    }

    private static synchronized SessionLoop make() throws PartywallException {
        if (shared == null) {
            SessionLoop made = new SessionLoop();
            Thread.ofPlatform().name("partywall-sessions").daemon().inheritInheritableThreadLocals(false)
                    .start(made::run);
            shared = made;
        }
        return shared;
    }

    long handle() {
        return handle;
    }

    long nextTag() {
        return lastTag.incrementAndGet();
    }

    void register(long tag, Source source) {
        sources.put(tag, source);
    }

    void unregister(long tag) {
        sources.remove(tag);
    }

    /** Signals every listener, session and stream, because the loop is about to be freed. */
    void signalAll() {
        sources.values().forEach(source -> source.signal(
                Native.READABLE | Native.WRITABLE | Native.OPENED | Native.ENDED));
    }

    /**
     * Lets the sessions advance, waits for events at most for {@code timeout} nanoseconds, and
     * signals the objects that have events. Returns the number of events. {@code memory} has
     * {@link #TURN_BYTES}.
     */
    int turn(long memory, long timeout) throws PartywallException {
        return signal(memory,
                Native.loopWait(handle, memory + 16, EVENTS_MAX, memory + 8, timeout, memory));
    }

    /**
     * Lets the sessions advance without waiting, and signals the objects that have events. It is
     * for a thread that calls again before it waits.
     */
    int turnAwake(long memory) throws PartywallException {
        return signal(memory,
                Native.loopPollAwake(handle, memory + 16, EVENTS_MAX, memory + 8, memory));
    }

    /**
     * Signals the objects whose events are in {@code memory}. Throws if {@code status} says that
     * the call which collected the events has failed. Returns the number of events.
     *
     * <p>No event is reported a second time. So if an observer throws, all other objects are still
     * signalled, and its exception is thrown at the end.
     */
    private int signal(long memory, int status) throws PartywallException {
        if (status != Native.OK) {
            throw PartywallException.of(status, memory);
        }
        long events = memory + 16;
        long count = Native.getLong(memory + 8);
        RuntimeException failure = null;
        for (long event = events; event < events + count * Native.EVENT_BYTES;
                event += Native.EVENT_BYTES) {
            Source source = sources.get(Native.getLong(event));
            try {
                if (source != null) {
                    source.signal(Native.getInt(event + 8));
                }
            } catch (RuntimeException thrown) {
                failure = thrown;
            }
        }
        if (failure != null) {
            throw failure;
        }
        return (int) count;
    }

    private void run() {
        long memory = Native.allocateForever(TURN_BYTES);
        try {
            while (true) {
                turnOrReport(memory);
            }
        } catch (PartywallException failure) {
            throw new IllegalStateException(failure);
        }
    }

    /**
     * One turn of the daemon thread: waits for events of the loop, and signals the objects that
     * have them. An exception of an observer goes to the thread's handler of uncaught exceptions,
     * and the thread goes on.
     */
    private void turnOrReport(long memory) throws PartywallException {
        try {
            turn(memory, -1);
        } catch (RuntimeException thrown) {
            Thread thread = Thread.currentThread();
            thread.getUncaughtExceptionHandler().uncaughtException(thread, thrown);
        }
    }

    private static volatile SessionLoop shared;
    private static final int EVENTS_MAX = 256;
    /** Size of the memory for an error, a count and the events of one call of {@link #turn}. */
    static final long TURN_BYTES = 16 + (long) EVENTS_MAX * Native.EVENT_BYTES;
}
