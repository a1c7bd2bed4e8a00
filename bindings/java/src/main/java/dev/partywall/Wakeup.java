// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Set;

/**
 * An eventfd that ends the poll of a platform thread: by another thread, or by an interrupt.
 *
 * <p>The JDK tells only its own channels and selectors that their thread was interrupted. So this
 * is a selector for that purpose, to which nothing can be registered.
 */
final class Wakeup extends AbstractSelector {
    private final int fd;
    private boolean isFreed;

    Wakeup() throws IOException {
        super(null);
        fd = Native.eventfd();
        if (fd < 0) {
            throw new IOException("the process has too few free descriptors to wait");
        }
    }

    /**
     * Waits until a descriptor is readable, or {@link #wakeup} is called, at most for {@code left}
     * nanoseconds. Returns whether the descriptor is readable. {@code places} is the address of two
     * {@code struct pollfd}.
     */
    boolean poll(int descriptor, long places, long left) {
        Native.setPoll(places, descriptor);
        Native.setPoll(places + Native.POLL_BYTES, fd);
        begin();
        try {
            Native.poll(places, 2, (int) Math.min(left / 1_000_000 + 1, Integer.MAX_VALUE));
        } finally {
            end();
        }
        boolean isReadable = Native.isPolled(places);
        if (Native.isPolled(places + Native.POLL_BYTES)) {
            Native.readEvent(fd, places);
        }
        return isReadable;
    }

    /** Ends the poll, or the next one. */
    @Override
    public synchronized Selector wakeup() {
        if (!isFreed) {
            Native.writeEvent(fd);
        }
        return this;
    }

    /** Closes the eventfd. No thread polls it any more. */
    @Override
    protected synchronized void implCloseSelector() {
        isFreed = true;
        Native.closeDescriptor(fd);
    }

    @Override
    protected SelectionKey register(AbstractSelectableChannel channel, int operations, Object attachment) {
        throw new UnsupportedOperationException("nothing is registered here");
    }

    @Override
    public Set<SelectionKey> keys() {
        return Set.of();
    }

    @Override
    public Set<SelectionKey> selectedKeys() {
        return Set.of();
    }

    @Override
    public int selectNow() {
        throw new UnsupportedOperationException("nothing is registered here");
    }

    @Override
    public int select(long timeout) {
        throw new UnsupportedOperationException("nothing is registered here");
    }

    @Override
    public int select() {
        throw new UnsupportedOperationException("nothing is registered here");
    }
}
