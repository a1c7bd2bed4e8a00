// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The threads that wait for the same event of a listener or session: each is signalled, and
 * attempts again.
 */
final class WaitList {
    private final Set<Waiter> waiters = ConcurrentHashMap.newKeySet();
    private volatile boolean isClosed;

    /** An attempt: its status is one of {@link Native}, and its result lies in the call. */
    interface Attempt {
        int make(Call call);
    }

    /**
     * Attempts until the status is not {@code nothing}, at most until the deadline, and returns the
     * first result.
     */
    long await(int nothing, long deadline, Attempt attempt) throws IOException {
        if (isClosed) {
            throw new ClosedChannelException();
        }
        Waiter waiter = new Waiter();
        waiters.add(waiter);
        try (Call call = new Call()) {
            while (true) {
                waiter.begin();
                int status = attempt.make(call);
                if (status == Native.OK) {
                    return call.resultLong();
                }
                if (status == Native.FINISHED) {
                    return 0;
                }
                if (isClosed) {
                    throw new AsynchronousCloseException();
                }
                if (status != nothing) {
                    throw call.failure(status);
                }
                if (!waiter.await(deadline)) {
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
