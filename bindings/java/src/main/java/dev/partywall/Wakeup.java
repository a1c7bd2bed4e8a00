// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.SelectionKey;
import java.nio.channels.spi.AbstractSelectableChannel;
import java.nio.channels.spi.AbstractSelector;
import java.util.Set;

/**
 * A wait of a platform thread in native code. {@link #wakeup} by another thread ends the wait, and
 * so does an interrupt.
 *
 * <pre>
 *   EventWakeup    waits for a descriptor, and has an eventfd that is polled with it
 *   ChannelWakeup  waits in the native library for a message of a channel
 * </pre>
 *
 * <p>The JDK notifies only its own channels and selectors of an interrupt of their thread. So this
 * class is a selector, to which nothing can be registered.
 */
abstract sealed class Wakeup extends AbstractSelector permits ChannelWakeup, EventWakeup {
    Wakeup() {
        super(null);
    }

    /**
     * Waits in native code for at most {@code left} nanoseconds. Returns whether the caller should
     * attempt its operation again.
     */
    final boolean await(long left) throws IOException {
        begin();
        try {
            return block(left);
        } finally {
            end();
        }
    }

    /**
     * Waits in native code for at most {@code left} nanoseconds, or until another thread calls
     * {@link #wakeup}.
     */
    abstract boolean block(long left) throws IOException;

    @Override
    protected final SelectionKey register(
            AbstractSelectableChannel channel, int operations, Object attachment) {
        throw new UnsupportedOperationException("nothing is registered here");
    }

    @Override
    public final Set<SelectionKey> keys() {
        return Set.of();
    }

    @Override
    public final Set<SelectionKey> selectedKeys() {
        return Set.of();
    }

    @Override
    public final int selectNow() {
        throw new UnsupportedOperationException("nothing is registered here");
    }

    @Override
    public final int select(long timeout) {
        throw new UnsupportedOperationException("nothing is registered here");
    }

    @Override
    public final int select() {
        throw new UnsupportedOperationException("nothing is registered here");
    }
}
