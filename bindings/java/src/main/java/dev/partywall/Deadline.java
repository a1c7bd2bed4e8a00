// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.time.Duration;

/**
 * The time at which a call gives up, as a {@code long}: nanoseconds of {@link System#nanoTime}, or
 * one of the constants NEVER and NOW. A {@code long} needs no allocation.
 */
final class Deadline {
    static final long NEVER = Long.MIN_VALUE;
    static final long NOW = Long.MIN_VALUE + 1;

    private Deadline() {}

    /** Returns the deadline of a call that waits at most for {@code timeout}. */
    static long after(Duration timeout) {
        if (timeout.isNegative()) {
            throw new IllegalArgumentException("the timeout is negative: " + timeout);
        }
        if (timeout.compareTo(LONGEST) > 0) {
            return NEVER;
        }
        return Math.max(System.nanoTime() + timeout.toNanos(), NOW + 1);
    }

    static long left(long deadline) {
        if (deadline == NEVER) {
            return Long.MAX_VALUE;
        }
        return deadline == NOW ? 0 : Math.max(0, deadline - System.nanoTime());
    }

    private static final Duration LONGEST = Duration.ofDays(100 * 365);
}
