// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.locks.Condition;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The server of calls over a stream, which belongs to the server from then on. Any number of
 * threads may receive and answer calls.
 *
 * <pre>
 *   CALL ──▶ arrived, at most so many ──▶ recv ──▶ open until its answer
 *     └ beyond: ERROR busy    CANCEL ─▶ the request is cancelled, or forgotten if it only arrived
 * </pre>
 *
 * A virtual thread receives frames even while no thread waits for a call, so that a CANCEL is
 * noticed (CALLS 4.1).
 */
public final class CallsServer implements AutoCloseable {
    private final CallStream stream;
    private final int waitingMax;
    private final ReentrantLock lock = new ReentrantLock();
    private final Condition changed = lock.newCondition();
    private final ArrayDeque<CallRequest> arrived = new ArrayDeque<>();
    private final Map<Long, CallRequest> open = new HashMap<>();
    private long last;
    private boolean isFinished;
    private IOException lost;

    /** Makes a server in which at most 1024 calls wait to be received. */
    public CallsServer(Stream stream) {
        this(stream, WAITING_MAX);
    }

    /**
     * Makes a server in which at most {@code waitingMax} calls wait to be received. The server
     * refuses further calls.
     */
    public CallsServer(Stream stream, int waitingMax) {
        if (waitingMax < 1) {
            throw new IllegalArgumentException("no call may wait: " + waitingMax);
        }
        this.stream = new CallStream(stream);
        this.waitingMax = waitingMax;
        this.stream.start(new Calls());
    }

    /**
     * Waits for the next call; returns null once the client has finished. The stream ends after
     * that, when every received call is answered.
     */
    public CallRequest recv() throws IOException {
        return recv(Deadline.NEVER);
    }

    /**
     * Waits for the next call; returns null once the client has finished. Throws {@link
     * TimedOutException} if no call comes in time.
     */
    public CallRequest recv(Duration timeout) throws IOException {
        return recv(Deadline.after(timeout));
    }

    private CallRequest recv(long deadline) throws IOException {
        while (true) {
            CallRequest next = await(deadline);
            if (next == null || !next.isLate()) {
                return next;
            }
            // The call's timeout has passed, so the client does not wait for its answer any more
            // (CALLS 4.4).
            next.close();
        }
    }

    private CallRequest await(long deadline) throws IOException {
        lock.lock();
        try {
            while (arrived.isEmpty()) {
                if (lost != null) {
                    throw CallStream.copied(lost);
                }
                if (isFinished) {
                    return null;
                }
                long left = Deadline.left(deadline);
                if (left == 0) {
                    throw new TimedOutException();
                }
                changed.awaitNanos(left);
            }
            return arrived.removeFirst();
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the thread was interrupted");
        } finally {
            lock.unlock();
        }
    }

    /** Sends the answer or the failure of a call, if the client still waits for it. */
    void finish(CallRequest request, CallFrame result) throws IOException {
        try {
            if (!request.isOneWay() && !isGone(request)) {
                send(request.isLate()
                        ? new CallFrame(CallFrame.ERROR, CallFrame.DEADLINE, request.id(), new byte[0]) : result);
            }
        } catch (IOException failure) {
            boolean isTooLong = failure instanceof PartywallException it
                    && it.code() == PartywallException.MESSAGE_TOO_LONG;
            // The stream has ended, so the client does not wait for the answer. A thread that
            // receives calls gets the reason.
            if (isTooLong || !stream.hasFailed()) {
                throw failure;
            }
        } finally {
            forget(request);
        }
    }

    private boolean isGone(CallRequest request) {
        lock.lock();
        try {
            return lost != null || !open.containsKey(request.id());
        } finally {
            lock.unlock();
        }
    }

    private void send(CallFrame result) throws IOException {
        try {
            stream.send(result, Deadline.NEVER);
        } catch (PartywallException failure) {
            if (failure.code() == PartywallException.STREAM_STOPPED) {
                return; // the client has given up all its calls
            }
            if (failure.code() != PartywallException.MESSAGE_TOO_LONG) {
                throw failure;
            }
            byte[] text = failure.getMessage().getBytes(StandardCharsets.UTF_8);
            stream.send(new CallFrame(CallFrame.ERROR, CallFrame.ABORTED, result.id(), text), Deadline.NEVER);
            throw failure;
        }
    }

    private void forget(CallRequest request) {
        lock.lock();
        try {
            open.remove(request.id(), request);
        } finally {
            lock.unlock();
        }
        finishIfDone();
    }

    /**
     * Ends the server's sending direction once the client has finished and every call is answered
     * (CALLS 4.5).
     */
    private void finishIfDone() {
        lock.lock();
        try {
            if (isFinished && open.isEmpty()) {
                stream.finish();
            }
        } catch (IOException ended) {
            // The stream is closed or its session is over, which tells the client that no more
            // answers come.
        } finally {
            lock.unlock();
        }
    }

    /** Closes the stream. Calls that have no answer yet are cancelled. */
    @Override
    public void close() {
        stream.close();
    }

    private final class Calls implements CallStream.Side {
        @Override
        public void receive(CallFrame frame) throws IOException {
            switch (frame.kind()) {
                case CallFrame.CANCEL -> cancel(frame.id());
                case CallFrame.CALL, CallFrame.ONE_WAY -> {
                    if (!arrive(frame) && frame.kind() == CallFrame.CALL) {
                        send(new CallFrame(CallFrame.ERROR, CallFrame.BUSY, frame.id(), new byte[0]));
                    }
                }
                default -> throw CallFrame.ofOtherRole();
            }
        }

        /**
         * Adds a call to those that wait until the program receives them. Returns false, and adds
         * nothing, if the maximum number of calls waits already.
         */
        private boolean arrive(CallFrame frame) throws IOException {
            lock.lock();
            try {
                if (Long.compareUnsigned(frame.id(), last) <= 0) {
                    throw new PartywallException(
                            CallFrame.ID_NOT_RISING, "the id of a call is not above all before it");
                }
                last = frame.id();
                if (arrived.size() >= waitingMax) {
                    return false;
                }
                CallRequest request = new CallRequest(CallsServer.this, frame);
                open.put(frame.id(), request);
                arrived.add(request);
                changed.signal();
                return true;
            } finally {
                lock.unlock();
            }
        }

        private void cancel(long id) {
            lock.lock();
            try {
                CallRequest request = open.remove(id);
                if (request != null) {
                    request.cancel();
                    arrived.remove(request);
                }
            } finally {
                lock.unlock();
            }
        }

        @Override
        public void end(IOException cause) {
            lock.lock();
            try {
                isFinished = cause == null;
                lost = cause;
                if (cause != null) {
                    open.values().forEach(CallRequest::cancel);
                    arrived.clear();
                }
                changed.signalAll();
            } finally {
                lock.unlock();
            }
            finishIfDone();
        }
    }

    private static final int WAITING_MAX = 1024;
}
