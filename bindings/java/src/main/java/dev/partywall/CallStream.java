// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A stream that carries the frames of calls, of a client or a server. One virtual thread receives
 * frames, and any number of threads send frames, one after the other.
 */
final class CallStream {
    private final Stream stream;
    private final ReentrantLock sending = new ReentrantLock();
    /**
     * The reason why no more frames are received; null while frames can come, and after the peer
     * has finished.
     */
    private volatile IOException cause;
    private volatile boolean isOver;

    interface Side {
        /** Handles a frame of the peer. Throws an exception if the frame is a violation. */
        void receive(CallFrame frame) throws IOException;

        /**
         * Called when no more frames come. {@code cause} is null if the peer has finished, else the
         * failure.
         */
        void end(IOException cause);
    }

    /**
     * A frame that gets its id only when it is sent, because the ids on a stream rise (CALLS 3.1).
     */
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
        // The stream is reset before the threads that wait for frames learn that it is over: they
        // may close it at once, and the peer would then not get the reset.
        isOver = true;
        side.end(failed);
    }

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
            // The reset has failed because the stream is closed or its session is over; the peer
            // learns of that instead.
        }
    }

    void send(CallFrame frame, long deadline) throws IOException {
        send(() -> frame, deadline);
    }

    /** Sends a frame once no other thread is sending, and there is room. */
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
            // After a violation the receiving thread has reset the stream, so that sending fails.
            // The exception of the violation says more than that of the reset.
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

    /** Returns whether the stream has ended for another reason than that the peer has finished. */
    boolean hasFailed() {
        return cause != null;
    }

    /**
     * Returns a copy of an exception for the calling thread, because other threads throw the same
     * one.
     */
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

    /** Ends the sending direction of the stream once no thread sends a frame. */
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
