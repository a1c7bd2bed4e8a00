// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A sender of records that may be lost, such as logs and samples. It never waits for its receiver
 * unless its settings or its caller say so. Any number of threads may call it.
 *
 * <p>The sender takes the sending direction of its channel, whose own sending methods fail from
 * then on. Close the sender before the channel.
 */
public final class LossySender implements AutoCloseable {
    private final long handle;
    private final AtomicBoolean isFreed = new AtomicBoolean();

    /** What became of a record that was logged. */
    public enum Outcome {
        /** The record is sent. */
        SENT,
        /** The record waits in the queue of the sender. */
        QUEUED,
        /** The record is lost, because there was no room. */
        DROPPED_FULL,
        /** The record is lost, because it is too long for this channel. */
        DROPPED_TOO_LONG,
        /** The record is lost, because the receiver is gone. */
        DROPPED_CLOSED
    }

    /**
     * Counters of a sender: their sum is the number of records that were logged.
     *
     * @param sent records that were sent
     * @param queued records that wait in the sender's queue
     * @param droppedFull records that were lost because there was no room
     * @param droppedTooLong records that were lost because they were too long
     * @param droppedClosed records that were lost because the receiver is gone
     */
    public record Stats(
            long sent, long queued, long droppedFull, long droppedTooLong, long droppedClosed) {}

    /** Makes a sender that drops a record for which there is no room. */
    public LossySender(Channel channel) throws IOException {
        this(channel, new Config());
    }

    /**
     * Makes a sender with those settings of {@code config} that concern records: {@code on_full},
     * {@code on_full_block_ns}, {@code queue_records}, {@code queue_bytes} and
     * {@code flush_on_drop_ns}. {@link Config#set} sets them.
     */
    public LossySender(Channel channel, Config config) throws IOException {
        channel.beginSending();
        try (Call call = new Call(); NativeConfig settings = config.toNative()) {
            int status = call.statusAlone(
                    "partywall_lossy_sender_new", channel.handle, settings.handle(), call.result());
            if (status != Native.OK) {
                throw call.failure(status);
            }
            handle = call.resultLong();
        } finally {
            channel.endSending();
        }
    }

    /** Logs a record, and returns what became of it. */
    public Outcome log(byte[] bytes) throws IOException {
        return log(bytes, 0, bytes.length);
    }

    /** Logs {@code length} bytes of an array as a record, and returns what became of it. */
    public Outcome log(byte[] bytes, int offset, int length) throws IOException {
        try (Call call = new Call()) {
            long data = call.bytes(bytes, offset, length);
            check(call, call.statusAlone("partywall_lossy_log", handle, data, length, call.result()));
            return Outcome.values()[call.resultInt()];
        }
    }

    /**
     * Logs an important record: waits for room whatever the sender's policy, at most for
     * {@code timeout}, and sends the record after those in the queue. An interrupt is noticed once
     * the call is done.
     */
    public Outcome logAndWait(byte[] bytes, Duration timeout) throws IOException {
        long nanos = Deadline.left(Deadline.after(timeout));
        return BlockingCalls.run(() -> {
            try (Call call = new Call()) {
                long data = call.bytes(bytes);
                check(call, call.statusAlone(
                        "partywall_lossy_log_wait", handle, data, bytes.length, call.result(), nanos));
                return Outcome.values()[call.resultInt()];
            }
        });
    }

    /**
     * Sends the records in the queue and the count of lost records, if there is room now. Returns
     * whether the queue is empty.
     */
    public boolean tryFlush() throws IOException {
        try (Call call = new Call()) {
            int status = call.statusAlone("partywall_lossy_flush", handle, 0);
            if (status != Native.FULL) {
                check(call, status);
            }
            return status == Native.OK;
        }
    }

    /** Returns the counters of the sender. */
    public Stats stats() throws IOException {
        try (Call call = new Call()) {
            long place = call.buffer(STATS_BYTES);
            check(call, Call.invokeAlone("partywall_lossy_sender_stats", handle, place, STATS_BYTES));
            return new Stats(Native.getLong(place), Native.getLong(place + 8), Native.getLong(place + 16),
                    Native.getLong(place + 24), Native.getLong(place + 32));
        }
    }

    /** Returns whether the receiver is gone, so that every record is dropped. Then connect anew. */
    public boolean isClosed() {
        try (Call call = new Call()) {
            int status = Call.invokeAlone("partywall_lossy_sender_is_closed", handle, call.result());
            return status != Native.OK || call.resultInt() != 0;
        }
    }

    private void check(Call call, int status) throws IOException {
        if (status != Native.OK) {
            throw isFreed.get() ? new ClosedChannelException() : call.failure(status);
        }
    }

    /**
     * Sends the records in the queue, waits for that at most {@code flush_on_drop_ns}, by default
     * 100 ms, and frees the sender.
     */
    @Override
    public void close() {
        if (isFreed.compareAndSet(false, true)) {
            Call.free("partywall_lossy_sender_free", handle);
        }
    }

    /** Size in bytes of the C structure {@code partywall_lossy_stats}. */
    private static final long STATS_BYTES = 40;
}
