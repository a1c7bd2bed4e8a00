// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * An event of a link, such as a lost connection, from {@link Link#nextEvent()}. A received message
 * is no event.
 *
 * @param kind what has happened
 * @param isResumed whether the peer's stream goes on where it was on the last connection; false for
 *     a new stream, if the peer has lost its state, and for any kind but {@link Kind#ATTACHED}
 * @param isFarewell whether the connection ended because the peer closed its end; every message that
 *     the peer had sent has arrived before the event
 * @param epoch the number of the new epoch if the kind is {@link Kind#EPOCH}, else 0
 * @param text a description for people, with the reason
 */
public record LinkEvent(Kind kind, boolean isResumed, boolean isFarewell, long epoch, String text) {
    /** Kinds of events of a link. */
    public enum Kind {
        /** An event of a later version of the library, which this version does not know. */
        UNKNOWN,
        /** Messages of the link flow over a new connection. */
        ATTACHED,
        /** The connection of the link has ended; a client attaches again by itself. */
        DETACHED,
        /** An attempt to attach the link has failed; a client tries again by itself. */
        REFUSED,
        /** This end has gone on to another epoch. */
        EPOCH,
        /** A later process has opened the store of this end, so this process attaches no more. */
        FENCED,
        /**
         * The files of both ends contradict each other; both ends keep all bytes until you decide.
         */
        QUARANTINED,
        /**
         * After a reboot before which the link was not closed: messages that were sent may be lost.
         */
        LOSS_POSSIBLE,
        /**
         * After a reboot before which the link was not closed: acknowledged messages may come
         * again.
         */
        REPEAT_POSSIBLE,
        /** The file that the link had since the last boot is gone; a new file begins empty. */
        FILE_REPLACED
    }

    /** Reads the structure {@code partywall_link_event} at an address. */
    static LinkEvent at(long address) {
        return new LinkEvent(kind(Native.getInt(address)), Native.getInt(address + 4) != 0,
                Native.getInt(address + 8) != 0, Native.getLong(address + 16),
                Native.string(address + 24));
    }

    private static Kind kind(int number) {
        Kind[] kinds = Kind.values();
        return number > 0 && number < kinds.length ? kinds[number] : Kind.UNKNOWN;
    }

    /** Size in bytes of the C structure {@code partywall_link_event}. */
    static final int BYTES = 512;
}
