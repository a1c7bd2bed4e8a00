// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.Selector;

/**
 * A wait in the library for a message of a channel, in shared memory. It takes one system call,
 * where a poll of the channel's descriptor takes two: that one does not consume what it reports.
 */
final class ChannelWakeup extends Wakeup {
    private final long channel;
    private final long error;
    private boolean isPossible = true;

    /** {@code error} is the place for an error of the channel's receiving direction. */
    ChannelWakeup(long channel, long error) {
        this.channel = channel;
        this.error = error;
    }

    /** Returns false once the library has refused to wait: the channel began on a socket. */
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

    /** Ends the wait, or the next one. The library knows a handle that was freed. */
    @Override
    public Selector wakeup() {
        Native.channelWake(channel);
        return this;
    }

    @Override
    protected void implCloseSelector() {}
}
