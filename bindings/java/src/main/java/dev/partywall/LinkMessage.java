// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;

/**
 * A received message of a link, to be acknowledged: by {@link #ack} or {@link #reply}, in any
 * thread. One that is closed instead comes again.
 */
public final class LinkMessage implements AutoCloseable {
    private final long handle;
    private final byte[] bytes;
    private boolean isDone;

    LinkMessage(long handle) {
        this.handle = handle;
        try (Call call = new Call()) {
            // A handle that the library has just made is valid.
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

    /** Acknowledges the message with all before it. */
    public synchronized void ack() throws IOException {
        check();
        isDone = true;
        try (Call call = new Call()) {
            call.check("partywall_link_message_ack", handle);
        }
    }

    /**
     * Sends an answer and acknowledges the message, both or neither. Waits for room without a
     * limit, and notices an interrupt only then.
     */
    public void reply(byte[] payload) throws IOException {
        reply(payload, -1);
    }

    /**
     * Replies as {@link #reply(byte[])}. Throws {@link TimedOutException} if there is no room in
     * time; the message then comes again.
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

    /** Frees the message. One that was not acknowledged comes again. */
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
