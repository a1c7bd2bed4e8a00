// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * The lock of one direction of a channel or stream. A thread that cannot take the lock is refused
 * and does not wait. The lock favours a thread that takes it again and again: that thread then
 * takes and releases it without an atomic exchange and without a fence.
 *
 * <pre>
 *   FREE ◀─ take, release ─▶ TAKEN ── release, often enough in a row ──▶ favours F
 *                              ▲                                          │    ▲
 *                              │                            R takes (V1)  │    │ F is inside:
 *                              │                                          ▼    │ R is refused
 *                              └────────── F is outside (V3) ─────────── REVOKED
 *
 *   F, the favoured thread, takes the lock    R, another thread, takes it
 *   ──────────────────────────────────────    ───────────────────────────
 *   E1  F is inside                           V1  favours F ─▶ REVOKED
 *   E2  light barrier                         V2  barrier in all threads
 *   E3  favoured still? F has the lock        V3  F is inside? state of before, refused
 *       else: F is outside                        else: REVOKED ─▶ TAKEN
 * </pre>
 *
 * <p>F and R never have the lock at the same time. A load of F (E3) that comes before the barrier
 * (V2) makes the store before it (E1) visible to R in V3; a load that comes after it finds REVOKED.
 * The lanes of the C interface (locks of one direction of a handle) have the same protocol, which
 * {@code crates/ring/src/lane.rs} explains.
 *
 * <p>The order of {@link #release} and of a later load of F is the same as that of E1 and E3. So a
 * thread that sets a flag before {@link #takeForever} is refused only if the thread that has the
 * lock finds the flag after its release.
 */
final class DirectionLock {
    private volatile State state = FREE;
    /** The thread that released the lock last, while the lock favoured none. */
    private long lastThread;
    /** Number of releases in a row by {@code lastThread}. */
    private int releases;
    /** Number of releases in a row after which the lock favours their thread. */
    private int needed = NEEDED_MIN;

    /**
     * A state of the lock. Each time that a thread becomes the favoured one, a new object of this
     * class is made. So a thread that is held up between E1 and E3, two steps of its entry, cannot
     * change what a later favoured thread has stored.
     */
    private static final class State {
        /** The thread that the lock favours in this state; null if it favours none. */
        final Thread thread;
        /** Whether the favoured thread has the lock. Only that thread stores it. */
        boolean isInside;

        State(Thread thread) {
            this.thread = thread;
        }

        /**
         * Lets the favoured thread enter the lock by plain stores and loads (steps E1 to E3 in the
         * comment of the class). Returns false if {@code lock} has another state by now.
         */
        boolean enter(DirectionLock lock) {
            INSIDE.setRelease(this, true);
            lightBarrier();
            if (lock.state == this) {
                return true;
            }
            leave();
            return false;
        }

        void leave() {
            INSIDE.setRelease(this, false);
            lightBarrier();
        }
    }

    /** Takes the lock, and returns true; returns false if another thread has it. */
    boolean take() {
        State found = state;
        if (found.thread != Thread.currentThread()) {
            return takeSlowly(false);
        }
        return !found.isInside && (found.enter(this) || takeSlowly(false));
    }

    /**
     * Takes the lock for a thread that will never release it. If this method returns false, the
     * thread that has the lock will see, after its release, what this thread stored before the
     * call.
     */
    boolean takeForever() {
        return takeSlowly(true);
    }

    /** Releases the lock. Only the thread that has taken it may call this method. */
    void release() {
        State found = state;
        if (found.thread == Thread.currentThread()) {
            found.leave();
        } else {
            releaseSlowly();
        }
    }

    private boolean takeSlowly(boolean isForever) {
        while (true) {
            State found = state;
            if (found == TAKEN) {
                return false;
            }
            if (found == FREE) {
                if (STATE.compareAndSet(this, FREE, TAKEN)) {
                    return true;
                }
            } else if (found == REVOKED) {
                // Another thread is taking the lock away from the favoured thread (steps V1 to V3
                // in the comment of the class). That takes as long as a system call.
                Thread.yield();
            } else if (found.thread == Thread.currentThread()) {
                if (found.isInside) {
                    return false;
                }
                if (found.enter(this)) {
                    return true;
                }
            } else if (!isForever && (boolean) INSIDE.getAcquire(found)) {
                // The favoured thread has the lock, so the barrier would only disturb it. A thread
                // that takes the lock for ever needs the barrier all the same: the lock may have
                // been released since.
                return false;
            } else {
                boolean isRevoked = false;
                boolean isTaken = false;
                try {
                    // The exchange is inside the try block: the call after it may overflow the
                    // stack, and the lock's state has to be restored then too.
                    isRevoked = STATE.compareAndSet(this, found, REVOKED);
                    isTaken = isRevoked && isOutside(found);
                } finally {
                    if (isRevoked) {
                        state = isTaken ? TAKEN : found;
                    }
                }
                if (isRevoked) {
                    return isTaken;
                }
            }
        }
    }

    /**
     * Returns whether the favoured thread, whose favour this thread has just revoked (step V1 in
     * the comment of the class), does not have the lock.
     */
    private boolean isOutside(State favoured) {
        // Without the barrier, which the kernel may refuse, only a thread that has ended can lose
        // its favour.
        boolean isOrdered = ThreadBarrier.inAllThreads() || !favoured.thread.isAlive();
        if (!isOrdered || (boolean) INSIDE.getAcquire(favoured)) {
            return false;
        }
        needed = Math.min(2 * needed, NEEDED_MAX);
        return true;
    }

    private void releaseSlowly() {
        State found = state;
        while (found == REVOKED) {
            // Another thread has revoked the favour of this thread. It will find this thread inside
            // the lock, and restore the favour.
            Thread.yield();
            found = state;
        }
        Thread self = Thread.currentThread();
        if (found.thread == self) {
            found.leave();
            return;
        }
        releases = lastThread == self.threadId() ? releases + 1 : 1;
        lastThread = self.threadId();
        state = releases > needed && ThreadBarrier.isAvailable() ? new State(self) : FREE;
    }

    /**
     * Keeps the compiler from moving a memory access across the call. The processor may still
     * exchange a store with a later load, which the barrier in all threads prevents. The compilers
     * of HotSpot exchange no accesses across a fence of any kind, and these two make no instruction
     * on x86-64.
     */
    private static void lightBarrier() {
        VarHandle.releaseFence();
        VarHandle.acquireFence();
    }

    private static final State FREE = new State(null);
    private static final State TAKEN = new State(null);
    private static final State REVOKED = new State(null);
    private static final int NEEDED_MIN = 16;
    /** Maximum of {@code needed}, which doubles each time that another thread revokes a favour. */
    private static final int NEEDED_MAX = 1 << 16;
    private static final VarHandle STATE;
    private static final VarHandle INSIDE;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            STATE = lookup.findVarHandle(DirectionLock.class, "state", State.class);
            INSIDE = lookup.findVarHandle(State.class, "isInside", boolean.class);
        } catch (ReflectiveOperationException failure) {
            throw new ExceptionInInitializerError(failure);
        }
    }
}
