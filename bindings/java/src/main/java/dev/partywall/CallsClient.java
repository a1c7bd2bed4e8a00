// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/**
 * The client of calls over a stream, which belongs to the client from then on: many calls in
 * flight, answered in any order. Any number of threads may call it.
 *
 * <pre>
 *   begin ─▶ a slot ─▶ its turn: the next id ─▶ sent ─┬─▶ ANSWER, ERROR ─▶ await
 *                                                     └─▶ given up ─▶ CANCEL
 * </pre>
 *
 * One virtual thread receives the answers, and a virtual thread of its own sends each CANCEL.
 */
public final class CallsClient implements AutoCloseable {
    private final CallStream stream;
    private final Semaphore slots;
    private final Map<Long, PendingCall> waiting = new ConcurrentHashMap<>();
    /**
     * The highest call id that was used. Only the thread that holds the right to send changes it.
     */
    private volatile long last;
    /** The reason why no more calls can be made; null while calls can be made. */
    private volatile IOException lost;

    /** Makes a client with at most 1024 calls in flight. */
    public CallsClient(Stream stream) {
        this(stream, IN_FLIGHT_MAX);
    }

    /**
     * Makes a client with at most {@code inFlightMax} calls without an answer. A further call waits
     * until one of them has its answer.
     */
    public CallsClient(Stream stream, int inFlightMax) {
        if (inFlightMax < 1) {
            throw new IllegalArgumentException("no call may be in flight: " + inFlightMax);
        }
        this.stream = new CallStream(stream);
        slots = new Semaphore(inFlightMax);
        this.stream.start(new Answers());
    }

    /** Makes a call, and waits for its answer without a limit. */
    public byte[] call(byte[] payload) throws IOException {
        return call(payload, Deadline.NEVER);
    }

    /**
     * Makes a call, and waits for its answer. The timeout is sent to the server with the call.
     * After a {@link TimedOutException}, and after an interrupt, the client gives the call up. A
     * {@link CallException} says how the call has failed.
     */
    public byte[] call(byte[] payload, Duration timeout) throws IOException {
        return call(payload, Deadline.after(timeout));
    }

    private byte[] call(byte[] payload, long deadline) throws IOException {
        try (PendingCall call = begin(payload, deadline)) {
            return call.await(deadline);
        }
    }

    /** Sends a call without waiting for its answer. */
    public PendingCall begin(byte[] payload) throws IOException {
        return begin(payload, Deadline.NEVER);
    }

    /**
     * Sends a call without waiting for its answer. The timeout is that of the whole call, with its
     * answer, and is sent to the server.
     */
    public PendingCall begin(byte[] payload, Duration timeout) throws IOException {
        return begin(payload, Deadline.after(timeout));
    }

    private PendingCall begin(byte[] payload, long deadline) throws IOException {
        try {
            if (!slots.tryAcquire(Deadline.left(deadline), TimeUnit.NANOSECONDS)) {
                throw new TimedOutException();
            }
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the thread was interrupted");
        }
        PendingCall[] made = new PendingCall[1];
        boolean isSent = false;
        try {
            stream.send(() -> {
                checkOpen();
                PendingCall call = new PendingCall(this, next());
                made[0] = call;
                waiting.put(call.id(), call);
                return new CallFrame(CallFrame.CALL, timeLeft(deadline), call.id(), payload);
            }, deadline);
            isSent = true;
        } finally {
            if (!isSent && (made[0] == null || waiting.remove(made[0].id()) != null)) {
                slots.release();
            }
        }
        if (lost != null && waiting.remove(made[0].id()) != null) {
            // The stream has ended after this thread found it open, and before the call was among
            // the waiting ones, which the end of the stream fails. So this thread fails the call
            // itself.
            slots.release();
            made[0].fail(lost);
        }
        return made[0];
    }

    /**
     * Makes a call to which the server sends no answer. Returns once the stream has taken the call.
     */
    public void callOneWay(byte[] payload) throws IOException {
        callOneWay(payload, Deadline.NEVER);
    }

    /**
     * Makes a call to which the server sends no answer. Throws {@link TimedOutException} if there
     * is no room in time.
     */
    public void callOneWay(byte[] payload, Duration timeout) throws IOException {
        callOneWay(payload, Deadline.after(timeout));
    }

    private void callOneWay(byte[] payload, long deadline) throws IOException {
        stream.send(() -> {
            checkOpen();
            return new CallFrame(CallFrame.ONE_WAY, 0, next(), payload);
        }, deadline);
    }

    /** Returns the reason why no more calls can be made; null while calls can be made. */
    IOException lost() {
        return lost;
    }

    private void checkOpen() throws IOException {
        IOException cause = lost;
        if (cause != null) {
            throw CallStream.copied(cause);
        }
    }

    /** Returns the next call id. Only the thread that holds the right to send calls this. */
    private long next() {
        long id = last + 1;
        last = id;
        return id;
    }

    /**
     * Returns the time left until the deadline in µs, rounded up; 0 if there is no deadline, or if
     * the time has more than 32 bits.
     */
    private static int timeLeft(long deadline) {
        if (deadline == Deadline.NEVER) {
            return 0;
        }
        long micros = Math.max(1, Math.ceilDiv(Deadline.left(deadline), 1000L));
        return micros > 0xffff_ffffL ? 0 : (int) micros;
    }

    void cancel(PendingCall call) {
        if (waiting.remove(call.id()) == null) {
            return;
        }
        call.fail(new PartywallException(PartywallException.CALL_ABORTED, "the call was given up here"));
        Thread.ofVirtual().name("partywall-cancel").start(() -> {
            try {
                stream.send(new CallFrame(CallFrame.CANCEL, 0, call.id(), new byte[0]), Deadline.NEVER);
            } catch (IOException ended) {
                // The stream has ended, and with it every call, so the server needs no CANCEL.
            } finally {
                slots.release();
            }
        });
    }

    /**
     * Gives up all calls without an answer, and closes the stream, so that the server learns that
     * no more calls come.
     */
    @Override
    public void close() {
        try {
            stream.finish();
        } catch (IOException ended) {
            // The stream is closed or its session is over, which tells the server that no more
            // calls come.
        }
        stream.close();
    }

    private final class Answers implements CallStream.Side {
        @Override
        public void receive(CallFrame frame) throws IOException {
            if (frame.kind() != CallFrame.ANSWER && frame.kind() != CallFrame.ERROR) {
                throw CallFrame.ofOtherRole();
            }
            if (Long.compareUnsigned(frame.id(), last) > 0) {
                throw new PartywallException(
                        CallFrame.ANSWER_TO_NOTHING, "an answer has an id that no call has used");
            }
            PendingCall call = waiting.remove(frame.id());
            if (call == null) {
                return;
            }
            slots.release();
            if (frame.kind() == CallFrame.ANSWER) {
                call.complete(frame.payload());
            } else {
                call.fail(failure(frame));
            }
        }

        private static IOException failure(CallFrame frame) {
            return switch (frame.word()) {
                case CallFrame.BUSY -> new CallException(PartywallException.CALL_REFUSED,
                        "the server has too many calls: try again", 0, frame.payload());
                case CallFrame.DEADLINE -> new TimedOutException();
                case CallFrame.ABORTED -> new CallException(PartywallException.CALL_ABORTED,
                        "the server has given up the call", 0, frame.payload());
                default -> new CallException(PartywallException.CALL_FAILED,
                        "the handler has failed with the code " + Integer.toUnsignedString(frame.word()),
                        frame.word(), frame.payload());
            };
        }

        @Override
        public void end(IOException cause) {
            lost = cause != null ? cause : PartywallException.of(PartywallException.FINISHED);
            for (PendingCall call : waiting.values()) {
                if (waiting.remove(call.id()) != null) {
                    slots.release();
                    call.fail(lost);
                }
            }
        }
    }

    private static final int IN_FLIGHT_MAX = 1024;
}
