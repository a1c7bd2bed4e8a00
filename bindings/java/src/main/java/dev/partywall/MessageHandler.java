// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/** Handles a received message without a copy. */
@FunctionalInterface
public interface MessageHandler {
    /**
     * Handles a message in the memory in which it was received. The segment is read-only, and ends
     * when this method returns; used later, it throws {@link IllegalStateException}.
     */
    void handle(MemorySegment message) throws IOException;
}
