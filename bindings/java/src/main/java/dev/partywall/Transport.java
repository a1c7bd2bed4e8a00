// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * How the messages of a connection travel now.
 *
 * @param kind what carries them
 * @param reason the number of the reason why memory is not shared, of {@code partywall.h}; 0 unless
 *     the kind is {@link Kind#SOCKET}
 * @param description a text about the transport for logs, with the reason
 */
public record Transport(Kind kind, int reason, String description) {
    /** What carries the messages of a connection. */
    public enum Kind {
        /** Shared memory. */
        SHARED_MEMORY,
        /** A socket. */
        SOCKET,
        /** The protocol of another program, such as shmipc. */
        PROTOCOL
    }
}
