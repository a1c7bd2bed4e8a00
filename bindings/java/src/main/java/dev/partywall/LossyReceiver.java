// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;

/**
 * A receiver of records that may be lost, over the receiving direction of a channel. One thread at
 * a time may receive.
 *
 * <pre>
 *   RECORD  number lost before it │ record ─▶ recv
 *   REPORT  number lost           │        ─▶ added to those lost before the next record
 * </pre>
 */
public final class LossyReceiver {
    private final Channel channel;
    private long lostBefore;
    private volatile long received;
    private volatile long lost;

    /**
     * A record that was received.
     *
     * @param bytes the bytes of the record
     * @param lostBefore how many records were lost before it
     */
    public record Received(byte[] bytes, long lostBefore) {}

    /** Makes a receiver of records over a channel. The caller keeps the channel and closes it. */
    public LossyReceiver(Channel channel) {
        this.channel = channel;
    }

    /** Waits for the next record; returns null once the sender has finished. */
    public Received recv() throws IOException {
        return recv(Deadline.NEVER);
    }

    /**
     * Waits for the next record; returns null once the sender has finished. Throws {@link
     * TimedOutException} if no record comes in time. A {@link PartywallException} with the code
     * {@link PartywallException#NOT_A_RECORD} says that the sender has sent a message that is no
     * record; the next call receives what follows.
     */
    public Received recv(Duration timeout) throws IOException {
        return recv(Deadline.after(timeout));
    }

    private Received recv(long deadline) throws IOException {
        while (true) {
            try (View message = channel.recvView(deadline)) {
                if (message == null) {
                    return null;
                }
                int kind = kind(message);
                long count = message.getLong(8);
                lost = sum(lost, count);
                lostBefore = sum(lostBefore, count);
                if (kind == RECORD) {
                    byte[] bytes = new byte[Math.toIntExact(message.byteSize() - HEADER_BYTES)];
                    message.copyTo(HEADER_BYTES, bytes, 0, bytes.length);
                    long before = lostBefore;
                    lostBefore = 0;
                    received = received + 1;
                    return new Received(bytes, before);
                }
            }
        }
    }

    /**
     * Returns whether a message is a record or a report of lost records, as the number of its kind.
     * Throws if it is neither.
     */
    private static int kind(View message) throws PartywallException {
        boolean isLong = message.byteSize() >= HEADER_BYTES;
        int kind = isLong ? message.getInt(0) : 0;
        boolean isReport = kind == REPORT && message.byteSize() == HEADER_BYTES;
        if (!isLong || message.getInt(4) != 0 || (kind != RECORD && !isReport)) {
            throw new PartywallException(PartywallException.NOT_A_RECORD,
                    "the message is no record: does the sender send lossy records?");
        }
        return kind;
    }

    /** Adds two unsigned counts; the sum is at most the greatest unsigned number. */
    private static long sum(long one, long other) {
        long sum = one + other;
        return Long.compareUnsigned(sum, one) < 0 ? -1 : sum;
    }

    /** Returns how many records this receiver has received so far. */
    public long received() {
        return received;
    }

    /** Returns how many records the sender has reported as lost, as a number without a sign. */
    public long lost() {
        return lost;
    }

    private static final long HEADER_BYTES = 16;
    private static final int RECORD = 1;
    private static final int REPORT = 2;
}
