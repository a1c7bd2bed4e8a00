// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.locks.ReadWriteLock;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import java.util.function.LongToIntFunction;

/**
 * A link: a connection that outlives its processes. Each end keeps a message that it sent until the
 * other end has acknowledged it. Any thread may call it.
 *
 * <p>One daemon thread of the process drives all links. A platform thread that waits for a link
 * first drives the link itself for a moment, then it parks. A virtual thread parks at once. So
 * {@link Thread#interrupt} ends a wait with an {@link java.io.InterruptedIOException}, and
 * {@link #close} by another thread with an {@link java.nio.channels.AsynchronousCloseException}.
 */
public final class Link implements AutoCloseable {
    private final LinkDriver driver;
    private final long handle;
    private final WaitList waiters = new WaitList(BRIEF_WAIT_NS);
    private final AtomicBoolean isClosed = new AtomicBoolean();
    /**
     * The lock of the native link. Native calls share it, except for the call that closes the link,
     * which runs alone.
     */
    private final ReadWriteLock calls = new ReentrantReadWriteLock();

    /** The state of a link. */
    public enum Status {
        /** No connection is attached. */
        DETACHED,
        /** A connection is being attached. */
        ATTACHING,
        /** A connection is attached, and messages flow. */
        ATTACHED,
        /** A later owner of this end has attached, so this owner attaches no more. */
        FENCED,
        /** The files of the two ends contradict each other. */
        QUARANTINED,
        /** This end of the link was closed. */
        CLOSED,
        /** A state of a later version of the library, which this version does not know. */
        UNKNOWN
    }

    Link(LinkDriver driver, long handle) {
        this.driver = driver;
        this.handle = handle;
        driver.register(waiters);
    }

    /**
     * Sends a copy of {@code payload}, which the link keeps until the peer has acknowledged it.
     * Waits for room without a limit.
     */
    public void send(byte[] payload) throws IOException {
        send(payload, Deadline.NEVER);
    }

    /**
     * Sends a copy of {@code payload}, which the link keeps until the peer has acknowledged it.
     * Throws {@link TimedOutException} if there is no room in time.
     */
    public void send(byte[] payload, Duration timeout) throws IOException {
        send(payload, Deadline.after(timeout));
    }

    private void send(byte[] payload, long deadline) throws IOException {
        try (Call call = new Call()) {
            long data = call.bytes(payload);
            await(call, Native.FULL, deadline, timeout ->
                    call.status("partywall_link_send", handle, data, payload.length, timeout));
        }
    }

    /** Receives the next message; returns null once the peer has closed its end. */
    public LinkMessage recv() throws IOException {
        return recv(Deadline.NEVER);
    }

    /**
     * Receives the next message; returns null once the peer has closed its end. Throws {@link
     * TimedOutException} if no message comes in time.
     */
    public LinkMessage recv(Duration timeout) throws IOException {
        return recv(Deadline.after(timeout));
    }

    private LinkMessage recv(long deadline) throws IOException {
        try (Call call = new Call()) {
            long message = await(call, Native.EMPTY, deadline, timeout ->
                    call.status("partywall_link_recv", handle, call.result(), timeout));
            return message == 0 ? null : new LinkMessage(message);
        }
    }

    /**
     * Takes the oldest event of the link; waits for one without a limit. Calls that send and
     * receive do not fail when a connection ends: an event says so. The link keeps the first 1024
     * events that were not taken.
     *
     * @throws PartywallException once a later owner has fenced this end, or the link is in
     *     quarantine; events from before that are returned first
     */
    public LinkEvent nextEvent() throws IOException {
        return nextEvent(Deadline.NEVER);
    }

    /**
     * Takes the oldest event of the link. Throws {@link TimedOutException} if none comes in time,
     * and the exception of {@link #nextEvent()} once this end is fenced or in quarantine.
     */
    public LinkEvent nextEvent(Duration timeout) throws IOException {
        return nextEvent(Deadline.after(timeout));
    }

    /** Takes the oldest event of the link; returns null if there is none now. */
    public LinkEvent tryEvent() throws IOException {
        try (Call call = new Call()) {
            long event = call.buffer(LinkEvent.BYTES);
            calls.readLock().lock();
            try {
                int status = isClosed.get() ? Native.HANDLE
                        : call.status(NEXT_EVENT, handle, event, LinkEvent.BYTES, 0);
                if (status == Native.OK) {
                    return LinkEvent.at(event);
                }
                if (status == Native.EMPTY) {
                    return null;
                }
                throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
            } finally {
                calls.readLock().unlock();
            }
        }
    }

    private LinkEvent nextEvent(long deadline) throws IOException {
        try (Call call = new Call()) {
            long event = call.buffer(LinkEvent.BYTES);
            await(call, Native.EMPTY, deadline, timeout ->
                    call.status(NEXT_EVENT, handle, event, LinkEvent.BYTES, timeout));
            return LinkEvent.at(event);
        }
    }

    /** Waits until a connection is attached to the link, at most for {@code timeout}. */
    public void awaitAttached(Duration timeout) throws IOException {
        await("partywall_link_wait_attached", timeout);
    }

    /** Waits until the peer has acknowledged every message that was sent. */
    public void awaitAcked(Duration timeout) throws IOException {
        await("partywall_link_wait_acked", timeout);
    }

    private void await(String function, Duration timeout) throws IOException {
        try (Call call = new Call()) {
            await(call, Native.TIMED_OUT, Deadline.after(timeout),
                    wait -> call.status(function, handle, wait));
        }
    }

    private long await(Call call, int nothing, long deadline, LongToIntFunction attempt)
            throws IOException {
        return waiters.await(call, nothing, deadline, timeout -> {
            calls.readLock().lock();
            try {
                return attempt.applyAsInt(timeout);
            } finally {
                calls.readLock().unlock();
            }
        });
    }

    /** Makes the link deliver every received message again that was not acknowledged. */
    public void rewind() throws IOException {
        try (Call call = new Call()) {
            check(call, "partywall_link_rewind", handle);
        }
    }

    /**
     * Returns how many bytes of messages the link keeps because the peer has not acknowledged them.
     */
    public long unackedBytes() throws IOException {
        try (Call call = new Call()) {
            check(call, "partywall_link_unacked_bytes", handle, call.result());
            return call.resultLong();
        }
    }

    private void check(Call call, String function, long... arguments) throws IOException {
        calls.readLock().lock();
        try {
            int status = isClosed.get() ? Native.HANDLE : call.status(function, arguments);
            if (status != Native.OK) {
                throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
            }
        } finally {
            calls.readLock().unlock();
        }
    }

    /** Returns the state of the link. */
    public Status status() {
        calls.readLock().lock();
        try (Call call = new Call()) {
            if (isClosed.get()
                    || Call.invoke("partywall_link_status", handle, call.result()) != Native.OK) {
                return Status.CLOSED;
            }
            int number = call.resultInt();
            return number < 0 || number >= Status.UNKNOWN.ordinal()
                    ? Status.UNKNOWN : Status.values()[number];
        } finally {
            calls.readLock().unlock();
        }
    }

    /**
     * Closes this end in good order: the peer receives every message, then the end. Waits until the
     * peer knows, at most for {@code timeout}. The link is closed even if this fails.
     */
    public void shutdown(Duration timeout) throws IOException {
        long nanos = Math.max(1, Deadline.left(Deadline.after(timeout)));
        if (!end()) {
            return;
        }
        BlockingCalls.run(() -> {
            calls.writeLock().lock();
            try (Call call = new Call()) {
                call.check("partywall_link_close", handle, nanos);
            } finally {
                calls.writeLock().unlock();
            }
            return null;
        });
    }

    /**
     * Gives the link up without telling the peer that it has ended: both ends go on when they are
     * opened again.
     */
    @Override
    public void close() {
        if (end()) {
            Call.free("partywall_link_free", handle);
        }
    }

    /**
     * Ends every wait for the link by other threads. Returns false if the link was closed before.
     */
    private boolean end() {
        boolean isFirst = isClosed.compareAndSet(false, true);
        if (isFirst) {
            driver.unregister(waiters);
            waiters.close();
        }
        return isFirst;
    }

    private static final String NEXT_EVENT = "partywall_link_next_event";
    /**
     * Time in nanoseconds for which a waiting platform thread drives its link itself before it
     * parks.
     */
    static final long BRIEF_WAIT_NS = 200_000;
}
