// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * Decides whether a platform thread that is about to park yields its processor first. A peer that
 * waits for the same processor then runs, and its message is found without a sleep and a wake-up.
 *
 * <p>Where the peer runs on another processor, a yield is in vain. So each yield in vain suspends
 * yields for more waits, as in Rust (see {@code crates/wait/src/yields.rs}) and in Go. A yield that
 * takes long suspends them for many waits: another thread has used its time slice meanwhile.
 */
final class Yields {
    /** Number of the next waits that begin without a yield of the processor. */
    private int skip;
    /** Number of waits for which the last yield has suspended further yields. */
    private int skipped;

    boolean isDue() {
        if (skip > 0) {
            skip--;
            return false;
        }
        return true;
    }

    /**
     * Notes how long a yield of the processor took, and whether the attempt to receive after it has
     * found a message.
     */
    void count(boolean isFound, long elapsedNanos) {
        if (elapsedNanos > YIELD_NS_MAX) {
            skipped = Math.clamp(2L * skipped, LONG_SKIP_MIN, LONG_SKIP_MAX);
        } else if (isFound) {
            skipped = 0;
        } else {
            // A yield in vain does not shorten the suspension that a long yield has begun.
            skipped = Math.max(skipped, Math.clamp(2L * skipped, SKIP_MIN, SKIP_MAX));
        }
        skip = skipped;
    }

    /** Maximum time in nanoseconds of a yield of the processor that pays off. */
    private static final long YIELD_NS_MAX = 200_000;
    private static final int SKIP_MIN = 4;
    private static final int SKIP_MAX = 256;
    private static final int LONG_SKIP_MIN = 1 << 10;
    private static final int LONG_SKIP_MAX = 1 << 16;
}
