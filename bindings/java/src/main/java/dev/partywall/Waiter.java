// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.locks.LockSupport;

/**
 * One thread that waits, virtual or not, and that another thread signals.
 *
 * <pre>
 *   begin ─▶ attempt finds nothing ─┬─▶ await ─▶ parked ◀── signal: a poller thread, or close
 *                                   └─▶ poll ──▶ in the kernel ◀── what it waits for, or signal
 * </pre>
 *
 * A signal between {@code begin} and the wait ends the wait at once, so no signal is lost. Only a
 * platform thread uses {@code poll}, because a virtual thread would hold its carrier thread.
 */
final class Waiter {
    private volatile Thread thread;
    private volatile boolean isSignalled;
    /** The thread's present wait in native code; null while it is in none. */
    private volatile Wakeup polling;
    private EventWakeup wakeup;

    /** Prepares the thread for waiting: a signal from now on ends its next wait at once. */
    void begin() {
        isSignalled = false;
        thread = Thread.currentThread();
    }

    /**
     * Pauses the processor for a moment, for a thread that polls instead of waiting. Returns false
     * if the deadline has passed.
     */
    boolean spin(long deadline) throws InterruptedIOException {
        checkInterrupt();
        Thread.onSpinWait();
        return Deadline.left(deadline) > 0;
    }

    /** Parks the thread until a signal. Returns false if the deadline passed first. */
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

    /**
     * Waits until a descriptor is readable, or until a signal. Returns false if the deadline passed
     * first. {@code places} is the address of memory for two {@code struct pollfd}.
     */
    boolean poll(int fd, long places, long deadline) throws IOException {
        if (wakeup == null) {
            wakeup = new EventWakeup();
        }
        return poll(wakeup.watching(fd, places), deadline);
    }

    /**
     * Waits in native code until the event of {@code wait} has come, or until a signal. Returns
     * false if the deadline passed first.
     */
    boolean poll(Wakeup wait, long deadline) throws IOException {
        polling = wait;
        try {
            while (!isSignalled) {
                checkInterrupt();
                long left = Deadline.left(deadline);
                if (left == 0) {
                    return false;
                }
                if (wait.await(left)) {
                    return true;
                }
            }
            return true;
        } finally {
            polling = null;
        }
    }

    /** Ends the present wait of the thread, or the next one for which it prepares. */
    void signal() {
        isSignalled = true;
        Wakeup ends = polling;
        if (ends != null) {
            ends.wakeup();
        }
        LockSupport.unpark(thread);
    }

    /** Closes the eventfd of the thread's waits. The thread must not wait any more. */
    void free() {
        try {
            if (wakeup != null) {
                wakeup.close();
            }
        } catch (IOException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
