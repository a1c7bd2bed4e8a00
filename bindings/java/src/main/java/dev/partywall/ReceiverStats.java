// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * Counters of the receiving direction of a connection.
 *
 * @param messages messages that were received
 * @param bytes bytes of these messages
 * @param zeroCopy messages that were read where the sender wrote them
 * @param wakeupsSent how often the peer was woken
 * @param sleeps how often a receiver slept
 * @param spinHits messages that arrived while a receiver was spinning, before it slept
 */
public record ReceiverStats(
        long messages, long bytes, long zeroCopy, long wakeupsSent, long sleeps, long spinHits) {
    /** Reads the structure {@code partywall_receiver_stats} at an address. */
    static ReceiverStats at(long place) {
        return new ReceiverStats(Native.getLong(place), Native.getLong(place + 8),
                Native.getLong(place + 16), Native.getLong(place + 24), Native.getLong(place + 32),
                Native.getLong(place + 40));
    }

    /** Size in bytes of the C structure {@code partywall_receiver_stats}. */
    static final long BYTES = 48;
}
