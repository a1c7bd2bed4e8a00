// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;

/**
 * A received message of a link. Any thread may acknowledge it, by {@link #ack} or {@link #reply}.
 * If it is closed without that, the link delivers it again.
 */
public final class LinkMessage implements AutoCloseable {
    private final long handle;
    private final byte[] bytes;
    private boolean isDone;

    LinkMessage(long handle) {
        this.handle = handle;
        try (Call call = new Call()) {
            // The native library has just made the handle of this message, so asking it for the
            // bytes cannot fail.
            Call.invoke("partywall_link_message_data", handle, call.result(), call.secondResult());
            bytes = Native.bytes(call.resultLong(), call.secondResultLong());
        }
    }

    /** Returns the bytes of the message. */
    public byte[] bytes() {
        return bytes.clone();
    }

    /**
     * Returns the delivery count: 1, and one more for each earlier owner of this end that received
     * the message and did not acknowledge it.
     */
    public synchronized int attempt() {
        return (int) number("partywall_link_message_attempt");
    }

    /** Returns the position of the message in the peer's stream. */
    public synchronized long position() {
        return number("partywall_link_message_position");
    }

    /** Acknowledges this message and all messages before it. */
    public synchronized void ack() throws IOException {
        check();
        isDone = true;
        try (Call call = new Call()) {
            call.check("partywall_link_message_ack", handle);
        }
    }

    /**
     * Sends an answer and acknowledges the message: both or neither. Waits for room without a
     * limit. An interrupt is noticed only once the call is done.
     */
    public void reply(byte[] payload) throws IOException {
        reply(payload, -1);
    }

    /**
     * Sends an answer and acknowledges the message: both or neither. Throws {@link
     * TimedOutException} if there is no room in time; the link then delivers the message again.
     */
    public void reply(byte[] payload, Duration timeout) throws IOException {
        reply(payload, Deadline.left(Deadline.after(timeout)));
    }

    private synchronized void reply(byte[] payload, long nanos) throws IOException {
        check();
        isDone = true;
        BlockingCalls.run(() -> {
            try (Call call = new Call()) {
                call.check("partywall_link_message_reply", handle, call.bytes(payload), payload.length,
                        nanos);
            }
            return null;
        });
    }

    /** Frees the message. If it was not acknowledged, the link delivers it again. */
    @Override
    public synchronized void close() {
        if (!isDone) {
            isDone = true;
            Call.invoke("partywall_link_message_free", handle);
        }
    }

    private long number(String function) {
        check();
        try (Call call = new Call()) {
            Call.invoke(function, handle, call.result());
            return call.resultLong();
        }
    }

    private void check() {
        if (isDone) {
            throw new IllegalStateException("the message was acknowledged or closed");
        }
    }
}
