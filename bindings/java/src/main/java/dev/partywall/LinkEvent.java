// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * What has happened to a link, from {@link Link#nextEvent()}. Messages are no events.
 *
 * @param kind what has happened
 * @param isResumed whether the peer's stream goes on where it was on the last connection; false for
 *     a new stream, one of a peer that has lost its state, and any kind but {@link Kind#ATTACHED}
 * @param isFarewell whether the connection ended because the peer closed its end; every message that
 *     it had sent has arrived before
 * @param epoch the number of the new epoch if the kind is {@link Kind#EPOCH}, else 0
 * @param text a description for people, with the reason
 */
public record LinkEvent(Kind kind, boolean isResumed, boolean isFarewell, long epoch, String text) {
    /** What has happened to a link. */
    public enum Kind {
        /** An event of a later version. */
        UNKNOWN,
        /** Messages flow over a new connection. */
        ATTACHED,
        /** The connection has ended; a client attaches again by itself. */
        DETACHED,
        /** An attempt to attach has failed; a client tries again by itself. */
        REFUSED,
        /** This end is in another epoch. */
        EPOCH,
        /** A later process has opened this end, so this one attaches no more. */
        FENCED,
        /** The files of both ends contradict each other; both keep all bytes until you decide. */
        QUARANTINED,
        /** After a reboot without a good end: messages that were sent may be lost. */
        LOSS_POSSIBLE,
        /** After a reboot without a good end: messages that were acknowledged may come again. */
        REPEAT_POSSIBLE,
        /** The file that the link had in this boot is gone; a new one begins empty. */
        FILE_REPLACED
    }

    /** Reads a {@code partywall_link_event}. */
    static LinkEvent at(long address) {
        return new LinkEvent(kind(Native.getInt(address)), Native.getInt(address + 4) != 0,
                Native.getInt(address + 8) != 0, Native.getLong(address + 16),
                Native.string(address + 24));
    }

    private static Kind kind(int number) {
        Kind[] kinds = Kind.values();
        return number > 0 && number < kinds.length ? kinds[number] : Kind.UNKNOWN;
    }

    /** Size of {@code partywall_link_event}. */
    static final int BYTES = 512;
}
