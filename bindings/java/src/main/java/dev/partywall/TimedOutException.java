// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/** The time of a call was over before the operation was done. Nothing of it was done. */
public final class TimedOutException extends PartywallException {
    private static final long serialVersionUID = 1L;

    TimedOutException() {
        super(Native.TIMED_OUT, "the time is over");
    }
}
