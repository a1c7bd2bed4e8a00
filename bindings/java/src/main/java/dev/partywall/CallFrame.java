// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * One message of a stream of calls (CALLS 2).
 *
 * <pre>
 *   byte 0  kind │ 1  three zeros │ 4  word │ 8  id │ 16  payload
 * </pre>
 *
 * @param kind one of the constants of this class, such as {@code CALL} or {@code ANSWER}
 * @param word the time left to the call's deadline in µs, or the code of an error
 * @param id the number of the call, without a sign
 * @param payload the rest of the message
 */
record CallFrame(int kind, int word, long id, byte[] payload) {
    byte[] encode() {
        return ByteBuffer.allocate(HEADER_BYTES + payload.length).order(ByteOrder.LITTLE_ENDIAN)
                .putInt(kind).putInt(word).putLong(id).put(payload).array();
    }

    /**
     * Decodes a message. If the message breaks a rule of CALLS 1 or 2, throws an exception with the
     * number of the violation.
     */
    static CallFrame decode(byte[] message) throws PartywallException {
        if (message.length < HEADER_BYTES) {
            throw new PartywallException(TOO_SHORT, "a message of a stream of calls has "
                    + message.length + " bytes: does the peer make calls?");
        }
        ByteBuffer bytes = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN);
        int kind = bytes.getInt();
        int word = bytes.getInt();
        long id = bytes.getLong();
        byte[] payload = new byte[bytes.remaining()];
        bytes.get(payload);
        boolean isKnown = kind >= CALL && kind <= ERROR && id != 0;
        boolean hasWord = kind == CALL || kind == ONE_WAY || kind == ERROR;
        if (!isKnown || (word != 0 && !hasWord) || (kind == CANCEL && payload.length > 0)) {
            throw new PartywallException(IMPOSSIBLE, "the header of a call is impossible");
        }
        return new CallFrame(kind, word, id, payload);
    }

    /**
     * Returns the exception for a frame of a kind that only this side's own role may send, such
     * as an answer that a server receives.
     */
    static PartywallException ofOtherRole() {
        return new PartywallException(ROLE, "the frame is one of this side: are both clients, or servers?");
    }

    static final int CALL = 1;
    static final int ONE_WAY = 2;
    static final int CANCEL = 3;
    static final int ANSWER = 4;
    static final int ERROR = 5;

    static final int BUSY = 0xffffff01;
    static final int DEADLINE = 0xffffff02;
    static final int ABORTED = 0xffffff03;
    /**
     * Lowest of the codes that are reserved for the protocol, as an unsigned number. An application
     * fails a call with a lower one.
     */
    static final int RESERVED = 0xffffff00;
    /** The code with which a side that receives a violation resets the stream (CALLS 5). */
    static final int VIOLATION = 0xca110001;

    static final int TOO_SHORT = 721;
    static final int IMPOSSIBLE = 722;
    static final int ROLE = 723;
    static final int ID_NOT_RISING = 724;
    static final int ANSWER_TO_NOTHING = 725;

    private static final int HEADER_BYTES = 16;
}
