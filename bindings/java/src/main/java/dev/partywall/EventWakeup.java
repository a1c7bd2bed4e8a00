// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.Selector;

/**
 * One thread's waits for a descriptor. Another thread ends a wait by an eventfd, which is polled
 * together with the descriptor.
 */
final class EventWakeup extends Wakeup {
    private final int fd;
    private int descriptor;
    private long places;
    private boolean isFreed;

    EventWakeup() throws IOException {
        fd = Native.eventfd();
        if (fd < 0) {
            throw new IOException("the process has too few free descriptors to wait");
        }
    }

    /**
     * Sets the descriptor of the thread's next wait. {@code places} is the address of memory for
     * two {@code struct pollfd}: the descriptor and the eventfd.
     */
    EventWakeup watching(int descriptor, long places) {
        this.descriptor = descriptor;
        this.places = places;
        return this;
    }

    /**
     * Polls the descriptor and the eventfd for at most {@code left} nanoseconds. Returns whether
     * the descriptor is readable.
     */
    @Override
    boolean block(long left) {
        Native.setPoll(places, descriptor);
        Native.setPoll(places + Native.POLL_BYTES, fd);
        Native.poll(places, 2, (int) Math.min(left / 1_000_000 + 1, Integer.MAX_VALUE));
        boolean isReadable = Native.isPolled(places);
        if (Native.isPolled(places + Native.POLL_BYTES)) {
            Native.readEvent(fd, places);
        }
        return isReadable;
    }

    /** Ends the present wait of the thread, or its next one. */
    @Override
    public synchronized Selector wakeup() {
        if (!isFreed) {
            Native.writeEvent(fd);
        }
        return this;
    }

    /** Closes the eventfd, which no thread may poll any more. */
    @Override
    protected synchronized void implCloseSelector() {
        isFreed = true;
        Native.closeDescriptor(fd);
    }
}
