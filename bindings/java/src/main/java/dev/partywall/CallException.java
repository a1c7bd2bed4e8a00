// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/**
 * The failure of a call: its handler at the server has failed
 * ({@link PartywallException#CALL_FAILED}), or the server has refused the call or given it up.
 */
public final class CallException extends PartywallException {
    private static final long serialVersionUID = 1L;

    private final byte[] detail;

    CallException(int code, String message, int applicationCode, byte[] detail) {
        super(code, message, 0, applicationCode);
        this.detail = detail;
    }

    /**
     * Returns the bytes that the handler at the server has sent with its error code; for any other
     * failure, the server's text.
     */
    public byte[] detail() {
        return detail.clone();
    }
}
