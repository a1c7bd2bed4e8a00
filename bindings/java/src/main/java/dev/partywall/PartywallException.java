// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;

/** A failure of the library, with the stable number of its cause. */
public class PartywallException extends IOException {
    /** Status: there is no room for a message now. */
    public static final int FULL = 5;
    /** Status: another thread uses the same direction. */
    public static final int BUSY = 8;
    /** Status: the peer has finished, and receives no more. */
    public static final int FINISHED = 9;
    /** Status: the peer died or hung up. */
    public static final int DISCONNECTED = 10;
    /** Status: a message can never be sent, because it is too long. */
    public static final int MESSAGE_TOO_LONG = 11;
    /** Status: a setting is impossible. */
    public static final int SETTING = 13;
    /** Status: the peer receives no more on a stream. */
    public static final int STREAM_STOPPED = 406;
    /** Status: the peer has reset a stream. */
    public static final int STREAM_RESET = 407;

    /** Status: a message is no record, where records were expected. */
    public static final int NOT_A_RECORD = 701;
    /** Status: the handler of a call has failed. */
    public static final int CALL_FAILED = 711;
    /** Status: the server has too many calls, and has refused one. */
    public static final int CALL_REFUSED = 712;
    /** Status: the server has given up a call. */
    public static final int CALL_ABORTED = 713;

    private static final long serialVersionUID = 1L;

    private final int code;
    private final int errno;
    private final int applicationCode;

    PartywallException(int code, String message, int errno, int applicationCode) {
        super(message);
        this.code = code;
        this.errno = errno;
        this.applicationCode = applicationCode;
    }

    PartywallException(int code, String message) {
        this(code, message, 0, 0);
    }

    /** Returns the number of the cause, as the specification lists it in section 17. */
    public int code() {
        return code;
    }

    /** Returns the errno of the system call that failed, or 0. */
    public int errno() {
        return errno;
    }

    /** Returns the code that the peer's application gave to end a stream or session, or 0. */
    public int applicationCode() {
        return applicationCode;
    }

    /**
     * Returns the exception for a status that is not {@link Native#OK}. Frees the error object
     * whose handle lies at {@code place}.
     */
    static PartywallException of(int status, long place) {
        long error = Native.getLong(place);
        if (error == 0) {
            return of(status);
        }
        String message = Native.string(Native.errorMessage(error));
        int errno = Native.errorErrno(error);
        int applicationCode = Native.errorApplicationCode(error);
        Native.errorFree(error);
        return new PartywallException(status, message, errno, applicationCode);
    }

    static PartywallException of(int status) {
        return switch (status) {
            case Native.TIMED_OUT -> new TimedOutException();
            case FULL -> new PartywallException(FULL, "there is no room for the message now");
            case BUSY -> busy();
            case FINISHED -> new PartywallException(FINISHED, "the peer has finished, and receives no more");
            case DISCONNECTED -> new PartywallException(DISCONNECTED, "the peer died or hung up");
            default -> new PartywallException(status, "failed with the number " + status);
        };
    }

    static PartywallException busy() {
        return new PartywallException(BUSY, "another thread uses this direction: one at a time may");
    }
}
