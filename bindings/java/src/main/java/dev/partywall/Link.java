// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.AsynchronousCloseException;
import java.time.Duration;
import java.util.function.BooleanSupplier;

/**
 * A connection that outlives its processes: each end keeps a message that it sent until the other
 * has acknowledged it. Any thread may call it.
 *
 * <p>A thread that waits drives the sockets and timers of its link, in slices of 100 ms. So an
 * interrupt, and {@link #close} by another thread, are noticed that late. A virtual thread leaves
 * its carrier: a platform thread drives in its place.
 */
public final class Link implements AutoCloseable {
    private final long handle;
    private volatile boolean isClosed;

    /** The state of a link. */
    public enum Status {
        /** No connection is attached. */
        DETACHED,
        /** A connection is being attached. */
        ATTACHING,
        /** A connection is attached. */
        ATTACHED,
        /** A later owner of this end has attached. */
        FENCED,
        /** The two ends contradict each other. */
        QUARANTINED,
        /** The link was closed. */
        CLOSED,
        /** A state of a later version. */
        UNKNOWN
    }

    /** One attempt, which waits for at most {@code timeout} nanoseconds. */
    interface Attempt {
        int make(Call call, long timeout);
    }

    Link(long handle) {
        this.handle = handle;
    }

    /**
     * Sends a copy of {@code payload}, which is kept from here on. Waits for room without a limit.
     */
    public void send(byte[] payload) throws IOException {
        send(payload, Deadline.NEVER);
    }

    /**
     * Sends as {@link #send(byte[])}. Throws {@link TimedOutException} if there is no room in time.
     */
    public void send(byte[] payload, Duration timeout) throws IOException {
        send(payload, Deadline.after(timeout));
    }

    private void send(byte[] payload, long deadline) throws IOException {
        await(() -> isClosed, deadline, (call, timeout) -> call.status(
                "partywall_link_send", handle, call.bytes(payload), payload.length, timeout));
    }

    /** Receives the next message; returns null once the peer has closed its end. */
    public LinkMessage recv() throws IOException {
        return recv(Deadline.NEVER);
    }

    /**
     * Receives as {@link #recv()}. Throws {@link TimedOutException} if no message comes in time.
     */
    public LinkMessage recv(Duration timeout) throws IOException {
        return recv(Deadline.after(timeout));
    }

    private LinkMessage recv(long deadline) throws IOException {
        long message = await(() -> isClosed, deadline, (call, timeout) ->
                call.status("partywall_link_recv", handle, call.result(), timeout));
        return message == 0 ? null : new LinkMessage(message);
    }

    /** Waits until a connection is attached. */
    public void awaitAttached(Duration timeout) throws IOException {
        await(() -> isClosed, Deadline.after(timeout),
                (call, slice) -> call.status("partywall_link_wait_attached", handle, slice));
    }

    /** Waits until the peer has acknowledged every message that was sent. */
    public void awaitAcked(Duration timeout) throws IOException {
        await(() -> isClosed, Deadline.after(timeout),
                (call, slice) -> call.status("partywall_link_wait_acked", handle, slice));
    }

    /** Delivers every message again that was not acknowledged. */
    public void rewind() throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_link_rewind", handle);
        }
    }

    /** Returns how many bytes of messages the peer has not acknowledged. */
    public long unackedBytes() throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_link_unacked_bytes", handle, call.result());
            return call.resultLong();
        }
    }

    /** Returns the state of the link. */
    public Status status() {
        try (Call call = new Call()) {
            if (Call.invoke("partywall_link_status", handle, call.result()) != Native.OK) {
                return Status.CLOSED;
            }
            int number = call.resultInt();
            return number < 0 || number >= Status.UNKNOWN.ordinal()
                    ? Status.UNKNOWN : Status.values()[number];
        }
    }

    /**
     * Ends the link in good order: the peer receives its end. Waits at most for {@code timeout}
     * until the peer knows. The link is closed, whatever happens.
     */
    public void shutdown(Duration timeout) throws IOException {
        if (isClosed) {
            return;
        }
        isClosed = true;
        long nanos = Math.max(1, Deadline.left(Deadline.after(timeout)));
        BlockingCalls.run(() -> {
            try (Call call = new Call()) {
                call.check("partywall_link_close", handle, nanos);
            }
            return null;
        });
    }

    /** Gives the link up without ending it: both ends go on when they are opened again. */
    @Override
    public void close() {
        if (!isClosed) {
            isClosed = true;
            free("partywall_link_free", handle);
        }
    }

    static void free(String function, long handle) {
        while (Call.invoke(function, handle) == Native.BUSY) {
            // Another thread looks the object up at this moment.
            Thread.onSpinWait();
        }
    }

    /**
     * Attempts in slices, at most until the deadline, and returns the first result of the call; 0
     * if the peer has finished.
     */
    static long await(BooleanSupplier isClosed, long deadline, Attempt attempt) throws IOException {
        while (true) {
            if (isClosed.getAsBoolean()) {
                throw new AsynchronousCloseException();
            }
            long slice = Math.min(Deadline.left(deadline), SLICE_NS);
            Long result;
            try {
                result = BlockingCalls.run(() -> attempt(attempt, slice));
            } catch (PartywallException failure) {
                throw isClosed.getAsBoolean() ? new AsynchronousCloseException() : failure;
            }
            if (result != null) {
                return result;
            }
            if (Deadline.left(deadline) == 0) {
                throw new TimedOutException();
            }
            if (Thread.currentThread().isInterrupted()) {
                throw new InterruptedIOException("the thread was interrupted");
            }
        }
    }

    /** Returns the result of one attempt, or null if it found nothing in its time. */
    private static Long attempt(Attempt attempt, long slice) throws PartywallException {
        try (Call call = new Call()) {
            int status = attempt.make(call, slice);
            return switch (status) {
                case Native.OK -> call.resultLong();
                case Native.FINISHED -> 0L;
                case Native.TIMED_OUT, Native.EMPTY, Native.FULL -> null;
                default -> throw call.failure(status);
            };
        }
    }

    private static final long SLICE_NS = 100_000_000;
}
