// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * Counters of the sending direction of a connection.
 *
 * @param messages messages that were sent
 * @param bytes bytes of these messages
 * @param zeroCopy messages that were read where the sender wrote them
 * @param overflows messages that went through the ring because the memory for long messages had
 *     no room
 * @param wakeupsSent how often the peer was woken
 * @param sleeps how often a sender slept for want of room
 * @param memoryBytes bytes that are allocated for long messages now
 * @param memoryUsedBytes of these, the bytes that are reserved, or held by the receiver; over a
 *     socket, those that the kernel has not taken yet
 * @param blocksInFlight messages that {@code memoryUsedBytes} holds
 */
public record SenderStats(long messages, long bytes, long zeroCopy, long overflows, long wakeupsSent,
        long sleeps, long memoryBytes, long memoryUsedBytes, long blocksInFlight) {
    /** Reads the structure {@code partywall_sender_stats} at an address. */
    static SenderStats at(long place) {
        return new SenderStats(Native.getLong(place), Native.getLong(place + 8),
                Native.getLong(place + 16), Native.getLong(place + 24), Native.getLong(place + 32),
                Native.getLong(place + 40), Native.getLong(place + 48), Native.getLong(place + 56),
                Native.getLong(place + 64));
    }

    /** Size in bytes of the C structure {@code partywall_sender_stats}. */
    static final long BYTES = 72;
}
