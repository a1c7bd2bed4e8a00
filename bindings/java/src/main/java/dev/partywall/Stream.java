// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.Objects;
import java.util.function.IntConsumer;

/** A stream of a session: messages in two directions, with an end and back-pressure of its own. */
public final class Stream extends MessageChannel {
    private final SessionLoop loop;
    private final long tag;
    private final byte[] metadata;
    private volatile IntConsumer observer = kinds -> { };

    Stream(SessionLoop loop, long handle, long tag) {
        super(handle);
        this.loop = loop;
        this.tag = tag;
        try (Call call = new Call()) {
            Call.invoke("partywall_stream_metadata", handle, call.result(), call.secondResult());
            metadata = Native.bytes(call.resultLong(), call.secondResultLong());
        }
        loop.register(tag, this::signal);
    }

    /**
     * Sets the observer of the stream: the thread of its session's loop calls {@code observer} with
     * a set of kinds, such as {@link Loop#READABLE}. After this call, attempt once to receive,
     * because events from before are not reported again.
     */
    public void onEvents(IntConsumer observer) {
        this.observer = Objects.requireNonNull(observer);
    }

    /**
     * Returns the metadata with which the peer has opened the stream; empty if this side opened it.
     */
    public byte[] metadata() {
        return metadata.clone();
    }

    /** Ends the sending direction: the peer receives every sent message, then the end. */
    public void finish() throws IOException {
        beginSending();
        try (Call call = new Call()) {
            call.check("partywall_stream_finish", handle);
        } finally {
            endSending();
        }
    }

    /**
     * Ends the sending direction at once: the peer's receiving fails with {@code code}. A thread of
     * this process that is sending gets an exception.
     */
    public void reset(int code) throws IOException {
        end("partywall_stream_reset", code);
        sender.signal();
    }

    /**
     * Ends the receiving direction: the peer's sending fails with {@code code}. A thread of this
     * process that is receiving gets an exception.
     */
    public void stop(int code) throws IOException {
        end("partywall_stream_stop", code);
        receiver.signal();
    }

    /**
     * Ends a direction by a native call, which is repeated while another thread attempts to use the
     * direction; such an attempt never waits.
     */
    private void end(String function, int code) throws IOException {
        try (Call call = new Call()) {
            int status = call.statusAlone(function, handle, code);
            if (status != Native.OK) {
                throw isClosed() ? new ClosedChannelException() : call.failure(status);
            }
        }
    }

    /**
     * Returns the stream as a stream of bytes, in which the boundaries of messages are lost. The
     * peer has to use a stream of bytes as well.
     */
    public ByteStream bytes() {
        return new ByteStream(this);
    }

    private void signal(int kinds) {
        if ((kinds & (Native.READABLE | Native.ENDED)) != 0) {
            receiver.signal();
        }
        if ((kinds & (Native.WRITABLE | Native.ENDED)) != 0) {
            sender.signal();
        }
        observer.accept(kinds);
    }

    @Override
    int attempt(int operation, long first, long second, long timeout) {
        long error = errorPlace(operation);
        return switch (operation) {
            case SEND -> Native.streamSend(handle, first, second, error);
            case RESERVE -> Native.streamReserve(
                    handle, first, dataPlace(RESERVE), lengthPlace(RESERVE), error);
            case COMMIT -> Native.streamCommit(handle, first, error);
            default -> Native.streamRecv(handle, dataPlace(RECV), lengthPlace(RECV), error);
        };
    }

    /**
     * Never sends straight from an array: a stream's message goes through its session, which may
     * have to wait for another thread, and the garbage collector would have to wait as well.
     */
    @Override
    int attemptArray(byte[] payload, int length) {
        return Native.FULL;
    }

    @Override
    long briefWait() {
        return 0;
    }

    /**
     * Returns false: a yield to the peer's process does not help, because a message comes from the
     * thread of the session's loop, not from the peer itself.
     */
    @Override
    boolean yieldsFirst() {
        return false;
    }

    @Override
    boolean failsWhenFull() {
        return false;
    }

    @Override
    boolean await(boolean isSending, long deadline) throws IOException {
        return (isSending ? sender : receiver).await(deadline);
    }

    /**
     * Does nothing after a message was sent: the thread that drives the session writes what a
     * socket has not taken.
     */
    @Override
    void settle(long deadline) {}

    @Override
    Message keepMessage() throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_stream_keep", handle, call.result());
            return new Message(call.resultLong());
        }
    }

    @Override
    void free() {
        loop.unregister(tag);
        Call.free("partywall_stream_free", handle);
    }
}
