// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongToIntFunction;

/**
 * The threads that wait for the same event of a listener, session or link. The event signals every
 * thread of the list, and each attempts its call again.
 */
final class WaitList {
    private final Set<Waiter> waiters = ConcurrentHashMap.newKeySet();
    private final long briefWait;
    private volatile boolean isClosed;

    WaitList() {
        this(0);
    }

    /**
     * Makes a list of waiting threads. Before a platform thread parks, it waits in the native
     * library for {@code briefWait} nanoseconds.
     */
    WaitList(long briefWait) {
        this.briefWait = briefWait;
    }

    /**
     * Makes a native call again and again until its status is not {@code nothing}, at most until
     * the deadline. After each attempt with that status the thread waits until it is signalled.
     * Returns the result that the native call has written to {@code call}, or 0 for {@link
     * Native#FINISHED}. The argument of {@code attempt} is for how many nanoseconds the native call
     * may wait; its value is the status of that call.
     */
    long await(Call call, int nothing, long deadline, LongToIntFunction attempt) throws IOException {
        if (isClosed) {
            throw new ClosedChannelException();
        }
        Waiter waiter = new Waiter();
        waiters.add(waiter);
        try {
            long brief = Thread.currentThread().isVirtual() ? 0 : briefWait;
            while (true) {
                waiter.begin();
                int status = attempt.applyAsInt(0);
                if (status == nothing && brief > 0) {
                    status = attempt.applyAsInt(Math.min(brief, Deadline.left(deadline)));
                    brief = 0;
                    if (status == Native.TIMED_OUT) {
                        continue;
                    }
                }
                if (status == Native.OK) {
                    return call.resultLong();
                }
                if (status == Native.FINISHED) {
                    return 0;
                }
                if (isClosed) {
                    throw new AsynchronousCloseException();
                }
                if (status == Native.BUSY) {
                    // Another thread attempts its call at this moment. This thread attempts its own
                    // afterwards: there may be two events, of which the loop has reported only the
                    // first, and the other thread takes only one.
                    Thread.yield();
                } else if (status != nothing) {
                    throw call.failure(status);
                } else if (!waiter.await(deadline)) {
                    throw new TimedOutException();
                }
            }
        } finally {
            waiters.remove(waiter);
        }
    }

    void signal() {
        waiters.forEach(Waiter::signal);
    }

    void close() {
        isClosed = true;
        signal();
    }
}
