// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongToIntFunction;

/**
 * The threads that wait for the same event of a listener, session or link: each is signalled, and
 * attempts again.
 */
final class WaitList {
    private final Set<Waiter> waiters = ConcurrentHashMap.newKeySet();
    private final long briefWait;
    private volatile boolean isClosed;

    /** Makes a list whose threads park at once. */
    WaitList() {
        this(0);
    }

    /** Makes a list whose platform threads first wait in the library, for so many nanoseconds. */
    WaitList(long briefWait) {
        this.briefWait = briefWait;
    }

    /**
     * Attempts until the status is not {@code nothing}, at most until the deadline, and returns the
     * first result of the call. An attempt waits at most for the nanoseconds that it gets; its
     * status is one of {@link Native}.
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
                    // Another thread is within its attempt. This one makes its own, because that
                    // other may take one of two events, of which the loop has reported the first.
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

    /** Ends every wait. */
    void close() {
        isClosed = true;
        signal();
    }
}
