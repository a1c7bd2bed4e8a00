// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.InterruptedIOException;
import java.util.concurrent.locks.LockSupport;

/**
 * One thread that waits, virtual or not, and that another thread signals.
 *
 * <pre>
 *   begin ─▶ attempt finds nothing ─▶ await ─▶ parked ◀── signal: a poller thread, or close
 * </pre>
 *
 * A signal between {@code begin} and {@code await} ends {@code await} at once, so none is lost.
 */
final class Waiter {
    private volatile Thread thread;
    private volatile boolean isSignalled;

    /** Prepares for waiting: signals from now on count. */
    void begin() {
        isSignalled = false;
        thread = Thread.currentThread();
    }

    /** Returns at once, for a caller that polls. Returns false if the deadline has come. */
    boolean spin(long deadline) throws InterruptedIOException {
        checkInterrupt();
        Thread.onSpinWait();
        return Deadline.left(deadline) > 0;
    }

    /** Parks until a signal. Returns false if the deadline came first. */
    boolean await(long deadline) throws InterruptedIOException {
        while (!isSignalled) {
            checkInterrupt();
            long left = Deadline.left(deadline);
            if (left == 0) {
                return false;
            }
            if (deadline == Deadline.NEVER) {
                LockSupport.park(this);
            } else {
                LockSupport.parkNanos(this, left);
            }
        }
        return true;
    }

    private static void checkInterrupt() throws InterruptedIOException {
        if (Thread.currentThread().isInterrupted()) {
            throw new InterruptedIOException("the thread was interrupted");
        }
    }

    /** Ends the wait of the thread, or the one that it prepares for. */
    void signal() {
        isSignalled = true;
        LockSupport.unpark(thread);
    }
}
