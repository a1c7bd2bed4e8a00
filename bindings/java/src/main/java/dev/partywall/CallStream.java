// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A stream of calls, of either side: one virtual thread receives its frames, and any number of
 * threads send some, one after the other.
 */
final class CallStream {
    private final Stream stream;
    private final ReentrantLock sending = new ReentrantLock();
    /** Why no more frames are received; null while they are, and if the peer has finished. */
    private volatile IOException cause;
    private volatile boolean isOver;

    /** The side of the stream. */
    interface Side {
        /** Handles a frame of the peer; a violation is an exception. */
        void receive(CallFrame frame) throws IOException;

        /** Learns that no more frames come: the peer has finished, if {@code cause} is null. */
        void end(IOException cause);
    }

    /** A frame that has its number only when it is its turn, because numbers rise (CALLS 3.1). */
    interface Numbered {
        CallFrame get() throws IOException;
    }

    CallStream(Stream stream) {
        this.stream = stream;
    }

    void start(Side side) {
        Thread.ofVirtual().name("partywall-calls").start(() -> receiveAll(side));
    }

    private void receiveAll(Side side) {
        IOException failed = null;
        try {
            CallFrame frame;
            while ((frame = receive()) != null) {
                side.receive(frame);
            }
        } catch (IOException failure) {
            failed = failure;
            cause = failure;
            if (failure instanceof PartywallException it && it.code() >= CallFrame.TOO_SHORT
                    && it.code() <= CallFrame.ANSWER_TO_NOTHING) {
                resetForViolation();
            }
        }
        // Whoever closes the stream because of the cause does that after the reset.
        isOver = true;
        side.end(failed);
    }

    /** Receives the next frame; returns null once the peer has finished. */
    private CallFrame receive() throws IOException {
        try (View message = stream.recv()) {
            return message == null ? null : CallFrame.decode(message.toArray());
        }
    }

    private void resetForViolation() {
        try {
            stream.stop(CallFrame.VIOLATION);
            stream.reset(CallFrame.VIOLATION);
        } catch (IOException ended) {
            // The stream is closed, or its session is over: the peer learns of that instead.
        }
    }

    void send(CallFrame frame, long deadline) throws IOException {
        send(() -> frame, deadline);
    }

    /** Sends a frame when it is its turn, and there is room. */
    void send(Numbered frame, long deadline) throws IOException {
        try {
            if (!sending.tryLock() && !sending.tryLock(Deadline.left(deadline), TimeUnit.NANOSECONDS)) {
                throw new TimedOutException();
            }
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the thread was interrupted");
        }
        try {
            stream.send(frame.get().encode(), deadline);
        } catch (PartywallException failure) {
            // The cause says more than that the stream was reset for it.
            throw failure.code() == PartywallException.MESSAGE_TOO_LONG || cause == null
                    ? failure : copied(awaitCause());
        } finally {
            sending.unlock();
        }
    }

    private IOException awaitCause() {
        while (!isOver) {
            Thread.yield();
        }
        return cause;
    }

    /** Returns whether the stream has ended otherwise than by its peer's finish. */
    boolean hasFailed() {
        return cause != null;
    }

    /** Returns an exception of this thread's own: others may get the same. */
    static IOException copied(Throwable cause) {
        return switch (cause) {
            case CallException it -> new CallException(
                    it.code(), it.getMessage(), it.applicationCode(), it.detail());
            case TimedOutException it -> new TimedOutException();
            case PartywallException it -> new PartywallException(
                    it.code(), it.getMessage(), it.errno(), it.applicationCode());
            default -> new IOException(cause.getMessage(), cause);
        };
    }

    /** Ends the sending direction. */
    void finish() throws IOException {
        sending.lock();
        try {
            stream.finish();
        } finally {
            sending.unlock();
        }
    }

    void close() {
        stream.close();
    }
}
