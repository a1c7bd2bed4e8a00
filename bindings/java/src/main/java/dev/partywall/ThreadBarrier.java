// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/** The memory barrier that one thread makes all threads of the process execute: membarrier(2). */
final class ThreadBarrier {
    private ThreadBarrier() {}

    /**
     * Returns whether the process can make all its threads execute a barrier. The first call
     * registers the process with the kernel, as membarrier(2) demands.
     */
    static boolean isAvailable() {
        return Registration.IS_DONE;
    }

    /**
     * Makes every thread of the process execute a full memory barrier before the call returns.
     * Returns false if the kernel refuses.
     */
    static boolean inAllThreads() {
        return Native.membarrier(PRIVATE_EXPEDITED) == 0;
    }

    private static final class Registration {
        static final boolean IS_DONE = Native.membarrier(REGISTER_PRIVATE_EXPEDITED) == 0;
    }

    private static final int PRIVATE_EXPEDITED = 1 << 3;
    private static final int REGISTER_PRIVATE_EXPEDITED = 1 << 4;
}
