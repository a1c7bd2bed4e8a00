// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * A received message that the program owns. Any thread may use and close it, also after its channel
 * was closed. Until it is closed, a long message holds memory of its sender.
 *
 * <p>Closing a message takes some microseconds, because other threads may be reading it. Closing a
 * {@link View} has no such cost.
 */
public final class Message implements AutoCloseable {
    private final Arena arena = Arena.ofShared();
    private final MemorySegment segment;
    private final boolean isZeroCopy;

    Message(long handle) {
        try (Call call = new Call()) {
            // The native library has just made the handle of this message, so asking it for the
            // bytes cannot fail.
            Call.invoke("partywall_message_data", handle, call.result(), call.secondResult());
            segment = MemorySegment.ofAddress(call.resultLong())
                    .reinterpret(call.secondResultLong(), arena,
                            ignored -> Call.invoke("partywall_message_free", handle))
                    .asReadOnly();
            Call.invoke("partywall_message_is_zero_copy", handle, call.result());
            isZeroCopy = call.resultInt() != 0;
        }
    }

    /**
     * Returns the bytes of the message, read-only. After {@link #close} the segment throws
     * {@link IllegalStateException}.
     */
    public MemorySegment segment() {
        return segment;
    }

    /** Returns the length of the message in bytes. */
    public long byteSize() {
        return segment.byteSize();
    }

    /** Returns whether the bytes lie in shared memory of their sender. */
    public boolean isZeroCopy() {
        return isZeroCopy;
    }

    /** Frees the message. A second call does nothing. */
    @Override
    public synchronized void close() {
        if (arena.scope().isAlive()) {
            arena.close();
        }
    }
}
