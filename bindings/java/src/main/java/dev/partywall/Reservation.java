// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

/**
 * Memory for one message, which is written where the peer will read it.
 *
 * <pre>
 *   reserve ─▶ segment ─▶ written ─┬─ commit ─▶ sent
 *                                  └─ close ──▶ freed, nothing is sent
 * </pre>
 *
 * Only the thread that reserved the memory may use it.
 */
public final class Reservation implements AutoCloseable {
    private final Arena arena = Arena.ofConfined();
    private final MessageChannel channel;
    private final long handle;
    private final MemorySegment segment;
    private boolean isDone;

    Reservation(MessageChannel channel, long handle, long address, long length) {
        this.channel = channel;
        this.handle = handle;
        segment = MemorySegment.ofAddress(address).reinterpret(length, arena, null);
    }

    /**
     * Returns the reserved memory as a segment, to be written. After {@link #commit} or
     * {@link #close} the segment throws {@link IllegalStateException}, so nothing can change a
     * message that was sent.
     */
    public MemorySegment segment() {
        return segment;
    }

    /** Shortens the message to {@code length} bytes, if it is longer. */
    public void truncate(long length) {
        check();
        if (length < 0) {
            throw new IllegalArgumentException("the length is negative: " + length);
        }
        Call.invoke("partywall_reservation_truncate", handle, length);
    }

    /** Sends the message in the reserved memory. Waits for room in the ring without a limit. */
    public void commit() throws IOException {
        commit(Deadline.NEVER);
    }

    /**
     * Sends the message. Waits for room at most for {@code timeout}. After a
     * {@link TimedOutException} the message cannot be committed any more.
     */
    public void commit(Duration timeout) throws IOException {
        commit(Deadline.after(timeout));
    }

    private void commit(long deadline) throws IOException {
        check();
        // Closing the arena of the reserved memory throws in any thread but the one that reserved
        // it. So the arena is closed first, before this method changes anything.
        arena.close();
        isDone = true;
        boolean isSent = false;
        try {
            channel.commit(handle, deadline);
            isSent = true;
        } finally {
            if (!isSent) {
                // After most failures the native library has freed the reservation already; this
                // call then does nothing.
                Call.invoke("partywall_reservation_abort", handle);
            }
        }
    }

    /** Frees the reserved memory without sending the message, unless the message was committed. */
    @Override
    public void close() {
        if (!isDone) {
            arena.close();
            isDone = true;
            Call.invoke("partywall_reservation_abort", handle);
        }
    }

    private void check() {
        if (isDone) {
            throw new IllegalStateException("the reservation was committed or closed");
        }
    }
}
