// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * The timeout of a call passed before its operation was done. No part of the operation was done.
 */
public final class TimedOutException extends PartywallException {
    private static final long serialVersionUID = 1L;

    TimedOutException() {
        super(Native.TIMED_OUT, "the time is over");
    }
}
