// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.Selector;

/**
 * A thread's wait in the library for a message of a channel over shared memory. It takes one system
 * call. A poll of the channel's descriptor takes two, because a poll does not consume the
 * notification that it reports.
 */
final class ChannelWakeup extends Wakeup {
    private final long channel;
    private final long error;
    private boolean isPossible = true;

    /**
     * {@code error} is the address at which the library writes an error of the channel's receiving
     * direction.
     */
    ChannelWakeup(long channel, long error) {
        this.channel = channel;
        this.error = error;
    }

    /**
     * Returns whether the library can wait for this channel. It cannot if the channel began on a
     * socket, which the first wait finds out.
     */
    boolean isPossible() {
        return isPossible;
    }

    @Override
    boolean block(long left) throws IOException {
        int status = Native.channelWaitRecv(channel, left, error);
        if (status == Native.OK || status == Native.BUSY) {
            return true;
        }
        if (status == Native.TIMED_OUT) {
            return false;
        }
        PartywallException failure = PartywallException.of(status, error);
        isPossible = status != Native.ARGUMENT;
        if (isPossible) {
            throw failure;
        }
        return true;
    }

    /**
     * Ends the wait of the thread, or its next wait. If the channel was freed already, the library
     * finds that its handle names no object, and does nothing.
     */
    @Override
    public Selector wakeup() {
        Native.channelWake(channel);
        return this;
    }

    @Override
    protected void implCloseSelector() {}
}
