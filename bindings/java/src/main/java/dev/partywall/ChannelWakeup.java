// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.Selector;

/**
 * One thread's waits in the native library for a message of a channel over shared memory. A wait
 * takes one system call. A poll of the channel's descriptor takes two, because a poll does not
 * consume the notification that it reports.
 */
final class ChannelWakeup extends Wakeup {
    private final long channel;
    private final long error;
    private boolean isPossible = true;

    /**
     * {@code error} is the address at which the native library writes an error of the channel's
     * receiving direction.
     */
    ChannelWakeup(long channel, long error) {
        this.channel = channel;
        this.error = error;
    }

    /**
     * Returns whether the native library can wait for this channel: not if the channel began on a
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
     * Ends the present wait of the thread, or its next one. If the channel was freed already, its
     * handle names no object, and the native library does nothing.
     */
    @Override
    public Selector wakeup() {
        Native.channelWake(channel);
        return this;
    }

    @Override
    protected void implCloseSelector() {}
}
