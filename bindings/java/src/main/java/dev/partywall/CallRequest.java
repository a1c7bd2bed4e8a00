// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;

/**
 * A received call. Any thread may answer it. If it is closed without an answer, the client's call
 * fails with {@link PartywallException#CALL_ABORTED}.
 */
public final class CallRequest implements AutoCloseable {
    private final CallsServer server;
    private final CallFrame frame;
    private final long deadline;
    private volatile boolean isCancelled;
    private boolean isDone;

    CallRequest(CallsServer server, CallFrame frame) {
        this.server = server;
        this.frame = frame;
        long micros = Integer.toUnsignedLong(frame.word());
        deadline = micros == 0 ? Deadline.NEVER : Deadline.after(Duration.ofNanos(micros * 1000));
    }

    /** Returns a copy of the call's payload. */
    public byte[] bytes() {
        return frame.payload().clone();
    }

    /**
     * Returns the time left until the client's timeout for the call; null if the call has no
     * timeout.
     */
    public Duration timeLeft() {
        return deadline == Deadline.NEVER ? null : Duration.ofNanos(Deadline.left(deadline));
    }

    /** Returns whether the client expects no answer to the call. */
    public boolean isOneWay() {
        return frame.kind() == CallFrame.ONE_WAY;
    }

    /**
     * Returns whether nobody waits for the answer: the call was given up, its timeout has passed,
     * or the client is gone.
     */
    public boolean isCancelled() {
        return isCancelled || isLate();
    }

    boolean isLate() {
        return Deadline.left(deadline) == 0;
    }

    long id() {
        return frame.id();
    }

    void cancel() {
        isCancelled = true;
    }

    /**
     * Sends the answer of the call. Waits for room without a limit. Nothing is sent if the client
     * does not wait any more.
     */
    public void answer(byte[] payload) throws IOException {
        finish(CallFrame.ANSWER, 0, payload);
    }

    /** Fails the call with a code, which is below 0xffffff00, and a detail. */
    public void fail(int code, byte[] detail) throws IOException {
        if (Integer.compareUnsigned(code, CallFrame.RESERVED) >= 0) {
            throw new IllegalArgumentException("the code is reserved: " + Integer.toUnsignedString(code));
        }
        finish(CallFrame.ERROR, code, detail);
    }

    private void finish(int kind, int word, byte[] payload) throws IOException {
        if (!claim()) {
            throw new IllegalStateException("the call was answered or closed");
        }
        server.finish(this, new CallFrame(kind, word, frame.id(), payload));
    }

    /**
     * Closes the request. If it was not answered, the client's wait for the answer ends with {@link
     * PartywallException#CALL_ABORTED}.
     */
    @Override
    public void close() throws IOException {
        if (claim()) {
            server.finish(this, new CallFrame(CallFrame.ERROR, CallFrame.ABORTED, frame.id(), new byte[0]));
        }
    }

    private synchronized boolean claim() {
        boolean isFirst = !isDone;
        isDone = true;
        return isFirst;
    }
}
