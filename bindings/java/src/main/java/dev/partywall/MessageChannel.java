// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.Objects;

/**
 * Messages in two directions: a {@link Channel}, or a {@link Stream} of a session.
 *
 * <p>One thread may send while another receives; a second thread in the same direction gets a
 * {@link PartywallException} with the code {@link PartywallException#BUSY}. A virtual thread that
 * waits leaves its carrier thread free. {@link Thread#interrupt} ends a wait with an {@link
 * java.io.InterruptedIOException} and leaves the interrupt status set; {@link #close} by another
 * thread ends a wait with an {@link AsynchronousCloseException}. The channel stays usable after an
 * interrupt.
 *
 * <pre>
 *   send, reserve ── lock of sending ──┐
 *                                      ├─ close: freed once it can take both locks
 *   recv, view ── lock of receiving ───┘
 * </pre>
 */
public abstract sealed class MessageChannel implements AutoCloseable permits Channel, Stream {
    final long handle;
    final Waiter sender = new Waiter();
    final Waiter receiver = new Waiter();
    /** Memory for the results of native calls, followed by a buffer for short messages. */
    private final MemorySegment memory = Arena.ofAuto().allocate(PLACES_BYTES + STAGING_BYTES, 16);
    private final long places = memory.address();
    private final View view = new View(this);
    /**
     * A view of the buffer for short messages, into which sending copies a direct buffer of the
     * caller. It is null until sending first needs it.
     */
    private ByteBuffer sendBuffer;
    /**
     * The receiving direction's buffer for short messages. The sending direction has another,
     * because both may be in use at the same time.
     */
    private MemorySegment recvMemory;
    private ByteBuffer recvBuffer;
    /**
     * Decides whether the thread that receives yields its processor before it parks. Only that
     * thread uses it.
     */
    private final Yields yields = new Yields();
    private final Object freeing = new Object();
    private final DirectionLock sending = new DirectionLock();
    private final DirectionLock receiving = new DirectionLock();
    private volatile boolean isClosed;
    private volatile boolean isFinished;
    /**
     * Whether the next receive returns the last message again, because it was not copied to the
     * caller's buffer.
     */
    private boolean isReturned;

    MessageChannel(long handle) {
        this.handle = handle;
    }

    /** Sends a copy of {@code payload}. Waits for room without a limit. */
    public final void send(byte[] payload) throws IOException {
        send(payload, 0, payload.length, Deadline.NEVER);
    }

    /** Sends a copy of {@code length} bytes of {@code payload}. Waits for room without a limit. */
    public final void send(byte[] payload, int offset, int length) throws IOException {
        send(payload, offset, length, Deadline.NEVER);
    }

    /**
     * Sends a copy of {@code payload}. Throws {@link TimedOutException} if there is no room in
     * time.
     */
    public final void send(byte[] payload, Duration timeout) throws IOException {
        send(payload, 0, payload.length, Deadline.after(timeout));
    }

    final void send(byte[] payload, long deadline) throws IOException {
        send(payload, 0, payload.length, deadline);
    }

    /** Sends a copy of {@code payload} if there is room now, and returns whether there was. */
    public final boolean trySend(byte[] payload) throws IOException {
        return send(payload, 0, payload.length, Deadline.NOW);
    }

    /** Sends a copy of {@code payload}. Waits for room without a limit. */
    public final void send(MemorySegment payload) throws IOException {
        send(payload, Deadline.NEVER);
    }

    /**
     * Sends a copy of {@code payload}. Throws {@link TimedOutException} if there is no room in
     * time.
     */
    public final void send(MemorySegment payload, Duration timeout) throws IOException {
        send(payload, Deadline.after(timeout));
    }

    /** Sends a copy of {@code payload} if there is room now, and returns whether there was. */
    public final boolean trySend(MemorySegment payload) throws IOException {
        return send(payload, Deadline.NOW);
    }

    /**
     * Sends a copy of the remaining bytes of {@code payload}, which then has no remaining bytes.
     */
    public final void send(ByteBuffer payload) throws IOException {
        send(payload, Deadline.NEVER);
    }

    /**
     * Sends a copy of the remaining bytes of {@code payload}, which then has no remaining bytes.
     * Throws {@link TimedOutException} if there is no room in time.
     */
    public final void send(ByteBuffer payload, Duration timeout) throws IOException {
        send(payload, Deadline.after(timeout));
    }

    /**
     * Sends a copy of the remaining bytes of {@code payload} if there is room now, and returns
     * whether there was. If so, {@code payload} then has no remaining bytes.
     */
    public final boolean trySend(ByteBuffer payload) throws IOException {
        return send(payload, Deadline.NOW);
    }

    /**
     * Sends the remaining bytes of the first {@code count} buffers as one message if there is room
     * now, and returns whether there was. The buffers keep their positions.
     */
    public final boolean trySend(ByteBuffer[] parts, int count) throws IOException {
        long length = 0;
        for (int index = 0; index < count; index++) {
            length += parts[index].remaining();
        }
        beginSending();
        try {
            if (length <= STAGING_BYTES) {
                gather(parts, count, memory, PLACES_BYTES);
                return sent(perform(SEND, places + PLACES_BYTES, length, Deadline.NOW), Deadline.NOW);
            }
            if (!reserved(perform(RESERVE, length, 0, Deadline.NOW), Deadline.NOW)) {
                return false;
            }
            boolean isCopied = false;
            try {
                gather(parts, count, Native.MEMORY, Native.getLong(dataPlace(RESERVE)));
                isCopied = true;
            } finally {
                if (!isCopied) {
                    Call.invoke("partywall_reservation_abort", Native.getLong(lengthPlace(RESERVE)));
                }
            }
            return commitReserved(Deadline.NOW);
        } finally {
            endSending();
        }
    }

    private static void gather(ByteBuffer[] parts, int count, MemorySegment target, long offset) {
        for (int index = 0; index < count; index++) {
            MemorySegment part = MemorySegment.ofBuffer(parts[index]);
            MemorySegment.copy(part, 0, target, offset, part.byteSize());
            offset += part.byteSize();
        }
    }

    /** Reserves memory for a message of {@code length} bytes. Waits for room without a limit. */
    public final Reservation reserve(long length) throws IOException {
        return reserve(length, Deadline.NEVER);
    }

    /**
     * Reserves memory for a message of {@code length} bytes. Throws {@link TimedOutException} if
     * there is no room in time.
     */
    public final Reservation reserve(long length, Duration timeout) throws IOException {
        return reserve(length, Deadline.after(timeout));
    }

    /**
     * Receives the next message as a view, without a copy. Waits without a limit; returns null once
     * the peer has finished and every message was received. Close the view before the next message
     * is received.
     */
    public final View recv() throws IOException {
        return recvView(Deadline.NEVER);
    }

    /**
     * Receives the next message as a view, without a copy; returns null once the peer has finished.
     * Throws {@link TimedOutException} if no message comes in time. Close the view before the next
     * message is received.
     */
    public final View recv(Duration timeout) throws IOException {
        return recvView(Deadline.after(timeout));
    }

    /**
     * Receives a message if one has come; returns null if none has, or if the peer has finished.
     */
    public final View tryRecv() throws IOException {
        return recvView(Deadline.NOW);
    }

    /** Calls {@code handler} with the next message; returns false once the peer has finished. */
    public final boolean recv(MessageHandler handler) throws IOException {
        return handle(handler, Deadline.NEVER);
    }

    /**
     * Calls {@code handler} with the next message; returns false once the peer has finished. Throws
     * {@link TimedOutException} if no message comes in time.
     */
    public final boolean recv(MessageHandler handler, Duration timeout) throws IOException {
        return handle(handler, Deadline.after(timeout));
    }

    /**
     * Receives a copy of the next message, and returns its length, or -1 once the peer has
     * finished. If the array is too short, throws {@link IndexOutOfBoundsException}. After that,
     * and after every other failure to write into the target, the next call receives the same
     * message again.
     */
    public final int recv(byte[] target) throws IOException {
        return recv(target, Deadline.NEVER);
    }

    /**
     * Receives a copy of the next message, and returns its length, or -1 once the peer has
     * finished. Throws {@link TimedOutException} if no message comes in time. If the array is too
     * short, throws {@link IndexOutOfBoundsException}, and the next call receives the same message.
     */
    public final int recv(byte[] target, Duration timeout) throws IOException {
        return recv(target, Deadline.after(timeout));
    }

    /**
     * Receives a copy of the next message into the remaining space of a buffer, and returns its
     * length, or -1 once the peer has finished. If the space is too short, throws
     * {@link IndexOutOfBoundsException}, and the next call receives the same message.
     */
    public final int recv(ByteBuffer target) throws IOException {
        return recv(target, Deadline.NEVER);
    }

    /**
     * Receives a copy of the next message into the remaining space of a buffer, and returns its
     * length, or -1 once the peer has finished. Throws {@link TimedOutException} if no message
     * comes in time. If the space is too short, throws {@link IndexOutOfBoundsException}, and the
     * next call receives the same message.
     */
    public final int recv(ByteBuffer target, Duration timeout) throws IOException {
        return recv(target, Deadline.after(timeout));
    }

    /**
     * Receives a copy of the next message into a segment, and returns its length, or -1 once the
     * peer has finished. If the segment is too short, throws {@link IndexOutOfBoundsException}, and
     * the next call receives the same message.
     */
    public final long recv(MemorySegment target) throws IOException {
        return recv(target, Deadline.NEVER);
    }

    /**
     * Receives a copy of the next message into a segment, and returns its length, or -1 once the
     * peer has finished. Throws {@link TimedOutException} if no message comes in time. If the
     * segment is too short, throws {@link IndexOutOfBoundsException}, and the next call receives
     * the same message.
     */
    public final long recv(MemorySegment target, Duration timeout) throws IOException {
        return recv(target, Deadline.after(timeout));
    }

    /** Returns whether the peer has finished and every message of the peer was received. */
    public final boolean isFinished() {
        return isFinished;
    }

    /** Returns whether {@link #close} was called on this object. */
    public final boolean isClosed() {
        return isClosed;
    }

    /**
     * Ends both directions. The peer receives every sent message, then the end. Calls of other
     * threads that wait end with an {@link AsynchronousCloseException}; a view of another thread
     * stays valid until it is closed. A second call does nothing.
     */
    @Override
    public final void close() {
        isClosed = true;
        sender.signal();
        receiver.signal();
        view.closeIfOwned();
        freeUnlessUsed();
    }

    /**
     * Makes one native call for {@code operation}, which waits at most {@code timeout} nanoseconds.
     * {@code first} and {@code second} are the operation's arguments. Returns the status.
     */
    abstract int attempt(int operation, long first, long second, long timeout);

    /**
     * Attempts to send the first {@code length} bytes of an array, which the native library copies.
     * Returns {@link Native#FULL} if there is no room, and also if the channel does not send that
     * many bytes in this way.
     */
    abstract int attemptArray(byte[] payload, int length);

    /** Returns for how many nanoseconds a native call may wait before this thread parks. */
    abstract long briefWait();

    /** Returns whether this thread may yield its processor before it parks for a message. */
    abstract boolean yieldsFirst();

    /** Returns whether sending fails, instead of waiting, when there is no room. */
    abstract boolean failsWhenFull();

    /**
     * Parks the thread after an attempt that found no message or no room. Returns false if the
     * deadline has passed.
     */
    abstract boolean await(boolean isSending, long deadline) throws IOException;

    /** Makes the message of the view an object that the program owns. */
    abstract Message keepMessage() throws IOException;

    /**
     * Called after a message was sent: does the rest of the work, such as writing what a socket has
     * not taken.
     */
    abstract void settle(long deadline) throws IOException;

    abstract void free();

    final long errorPlace(int operation) {
        return operation == RECV ? places : places + SEND_PLACES;
    }

    final long dataPlace(int operation) {
        return errorPlace(operation) + 8;
    }

    final long lengthPlace(int operation) {
        return errorPlace(operation) + 16;
    }

    /**
     * Returns the address of memory for two {@code struct pollfd}. Sending and receiving have two
     * each, and {@code operation} says which of the two directions is meant.
     */
    final long pollPlaces(int operation) {
        return places + (operation == RECV ? POLL_PLACES : POLL_PLACES + 2 * Native.POLL_BYTES);
    }

    final void commit(long reservation, long deadline) throws IOException {
        beginSending();
        try {
            sent(perform(COMMIT, reservation, 0, deadline), deadline);
        } finally {
            endSending();
        }
    }

    final void endView() {
        receiving.release();
        if (isClosed) {
            freeUnlessUsed();
        }
    }

    final void beginSending() throws IOException {
        if (!sending.take()) {
            throw refusal();
        }
        if (isClosed) {
            endSending();
            throw new ClosedChannelException();
        }
    }

    final void endSending() {
        sending.release();
        if (isClosed) {
            freeUnlessUsed();
        }
    }

    private void beginReceiving() throws IOException {
        if (!receiving.take()) {
            view.checkClosed();
            throw refusal();
        }
        if (isClosed) {
            endView();
            throw new ClosedChannelException();
        }
    }

    private IOException refusal() {
        return isClosed ? new ClosedChannelException() : PartywallException.busy();
    }

    private boolean send(byte[] payload, int offset, int length, long deadline) throws IOException {
        Objects.checkFromIndexSize(offset, length, payload.length);
        beginSending();
        try {
            if (length <= STAGING_BYTES) {
                MemorySegment.copy(payload, offset, memory, ValueLayout.JAVA_BYTE, PLACES_BYTES, length);
                return sent(perform(SEND, places + PLACES_BYTES, length, deadline), deadline);
            }
            int status = offset == 0 ? attemptArray(payload, length) : Native.FULL;
            if (status != Native.FULL && status != Native.BUSY) {
                return sent(status, deadline);
            }
            if (!reserved(perform(RESERVE, length, 0, deadline), deadline)) {
                return false;
            }
            long target = Native.getLong(dataPlace(RESERVE));
            MemorySegment.copy(payload, offset, Native.MEMORY, ValueLayout.JAVA_BYTE, target, length);
            return commitReserved(deadline);
        } finally {
            endSending();
        }
    }

    /**
     * Sends a segment, which the JDK copies; the native library never gets the segment's address.
     * If the segment's arena is closed before or during the copy, the copy throws. A copy by the
     * native library would read memory that is gone.
     */
    private boolean send(MemorySegment payload, long deadline) throws IOException {
        long length = payload.byteSize();
        beginSending();
        try {
            if (length <= STAGING_BYTES) {
                MemorySegment.copy(payload, 0, memory, PLACES_BYTES, length);
                return sent(perform(SEND, places + PLACES_BYTES, length, deadline), deadline);
            }
            if (!reserved(perform(RESERVE, length, 0, deadline), deadline)) {
                return false;
            }
            boolean isCopied = false;
            try {
                long target = Native.getLong(dataPlace(RESERVE));
                MemorySegment.copy(payload, 0, Native.MEMORY, target, length);
                isCopied = true;
            } finally {
                if (!isCopied) {
                    Call.invoke("partywall_reservation_abort", Native.getLong(lengthPlace(RESERVE)));
                }
            }
            return commitReserved(deadline);
        } finally {
            endSending();
        }
    }

    private boolean send(ByteBuffer payload, long deadline) throws IOException {
        boolean isSent;
        if (payload.hasArray()) {
            int offset = payload.arrayOffset() + payload.position();
            isSent = send(payload.array(), offset, payload.remaining(), deadline);
        } else if (payload.remaining() <= STAGING_BYTES) {
            isSent = sendStaged(payload, deadline);
        } else {
            isSent = send(MemorySegment.ofBuffer(payload), deadline);
        }
        if (isSent) {
            payload.position(payload.limit());
        }
        return isSent;
    }

    /**
     * Sends a short direct buffer through the buffer for short messages, because a segment of the
     * direct buffer would have to be allocated.
     */
    private boolean sendStaged(ByteBuffer payload, long deadline) throws IOException {
        beginSending();
        try {
            if (sendBuffer == null) {
                sendBuffer = memory.asSlice(PLACES_BYTES, STAGING_BYTES).asByteBuffer();
            }
            int length = payload.remaining();
            sendBuffer.put(0, payload, payload.position(), length);
            return sent(perform(SEND, places + PLACES_BYTES, length, deadline), deadline);
        } finally {
            endSending();
        }
    }

    private boolean commitReserved(long deadline) throws IOException {
        long reservation = Native.getLong(lengthPlace(RESERVE));
        int status = perform(COMMIT, reservation, 0, deadline);
        if (status != Native.OK) {
            // After most failures the native library has freed the reservation already; this call
            // then does nothing.
            Call.invoke("partywall_reservation_abort", reservation);
        }
        return sent(status, deadline);
    }

    private Reservation reserve(long length, long deadline) throws IOException {
        if (length < 0) {
            throw new IllegalArgumentException("the length is negative: " + length);
        }
        beginSending();
        try {
            reserved(perform(RESERVE, length, 0, deadline), deadline);
            long handle = Native.getLong(lengthPlace(RESERVE));
            return new Reservation(this, handle, Native.getLong(dataPlace(RESERVE)), length);
        } finally {
            endSending();
        }
    }

    /**
     * Returns true if the status says that a message was sent, false if the call does not wait and
     * there is no room now. Throws on any other status.
     */
    private boolean sent(int status, long deadline) throws IOException {
        boolean isSent = reserved(status, deadline);
        if (isSent) {
            settle(deadline);
        }
        return isSent;
    }

    /**
     * Returns true if the status says that memory was reserved, false if the call does not wait and
     * there is no room now. Throws on any other status.
     */
    private boolean reserved(int status, long deadline) throws IOException {
        if (status == Native.OK) {
            return true;
        }
        if (deadline == Deadline.NOW && status == Native.FULL) {
            return false;
        }
        throw PartywallException.of(status, errorPlace(SEND));
    }

    /**
     * Attempts an operation of the sending direction until there is room, at most until the
     * deadline.
     */
    private int perform(int operation, long first, long second, long deadline) throws IOException {
        int status = attemptAlone(operation, first, second, 0);
        if (status != Native.FULL || deadline == Deadline.NOW || failsWhenFull()) {
            return status;
        }
        // A commit does not wait in the native library: if it timed out there, its reservation
        // would be used up.
        long brief = operation == COMMIT ? 0 : Math.min(briefWait(), Deadline.left(deadline));
        if (brief > 0) {
            status = attemptAlone(operation, first, second, brief);
        }
        while (status == Native.FULL || (status == Native.TIMED_OUT && brief > 0)) {
            sender.begin();
            status = attemptAlone(operation, first, second, 0);
            if (status == Native.FULL && !isClosed && !await(true, deadline)) {
                return Native.TIMED_OUT;
            }
            checkOpen();
        }
        return status;
    }

    /**
     * Attempts an operation again while the native library reports that another call uses the
     * direction. That can only be a call which never waits, such as one for counters, because this
     * class lets one thread at a time into a direction.
     */
    private int attemptAlone(int operation, long first, long second, long timeout) {
        int status = attempt(operation, first, second, timeout);
        while (status == Native.BUSY) {
            Thread.onSpinWait();
            status = attempt(operation, first, second, timeout);
        }
        return status;
    }

    final View recvView(long deadline) throws IOException {
        return receive(deadline) ? openView() : null;
    }

    private View openView() {
        view.open(Native.getLong(dataPlace(RECV)), Native.getLong(lengthPlace(RECV)));
        return view;
    }

    private boolean handle(MessageHandler handler, long deadline) throws IOException {
        Objects.requireNonNull(handler);
        if (!receive(deadline)) {
            return false;
        }
        try (View message = openView()) {
            handler.handle(message.segment());
        }
        return true;
    }

    private int recv(byte[] target, long deadline) throws IOException {
        int capacity = target.length;
        if (!receive(deadline)) {
            return -1;
        }
        try {
            int length = (int) received(capacity);
            long address = Native.getLong(dataPlace(RECV));
            MemorySegment.copy(Native.MEMORY, ValueLayout.JAVA_BYTE, address, target, 0, length);
            isReturned = false;
            return length;
        } finally {
            endView();
        }
    }

    private int recv(ByteBuffer target, long deadline) throws IOException {
        if (target.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        if (!receive(deadline)) {
            return -1;
        }
        try {
            int length = (int) received(target.remaining());
            long address = Native.getLong(dataPlace(RECV));
            int position = target.position();
            if (target.hasArray()) {
                int offset = target.arrayOffset() + position;
                MemorySegment.copy(
                        Native.MEMORY, ValueLayout.JAVA_BYTE, address, target.array(), offset, length);
            } else if (length <= STAGING_BYTES) {
                if (recvMemory == null) {
                    recvMemory = Arena.ofAuto().allocate(STAGING_BYTES, 16);
                    recvBuffer = recvMemory.asByteBuffer();
                }
                MemorySegment.copy(Native.MEMORY, address, recvMemory, 0, length);
                target.put(position, recvBuffer, 0, length);
            } else {
                MemorySegment.copy(Native.MEMORY, address, MemorySegment.ofBuffer(target), 0, length);
            }
            target.position(position + length);
            isReturned = false;
            return length;
        } finally {
            endView();
        }
    }

    private long recv(MemorySegment target, long deadline) throws IOException {
        long capacity = target.byteSize();
        if (!receive(deadline)) {
            return -1;
        }
        try {
            long length = received(capacity);
            MemorySegment.copy(Native.MEMORY, Native.getLong(dataPlace(RECV)), target, 0, length);
            isReturned = false;
            return length;
        } finally {
            endView();
        }
    }

    /**
     * Returns the length of the received message; throws if it exceeds {@code capacity}. Unless the
     * caller has copied the message, the next call receives it again.
     */
    private long received(long capacity) {
        long length = Native.getLong(lengthPlace(RECV));
        isReturned = true;
        if (length > capacity) {
            throw new IndexOutOfBoundsException(
                    "the message has " + length + " bytes, and the target has room for " + capacity);
        }
        return length;
    }

    /**
     * Receives the next message, and leaves its address and length in the memory for results.
     * Returns false if there is no message: the peer has finished, or the call does not wait. The
     * receiving direction is then free for other threads.
     */
    private boolean receive(long deadline) throws IOException {
        beginReceiving();
        boolean isReceived = isReturned;
        isReturned = false;
        try {
            if (!isReceived) {
                int status = receiveStatus(deadline);
                isReceived = status == Native.OK;
                if (status == Native.FINISHED) {
                    isFinished = true;
                }
                boolean isNone = status == Native.EMPTY && deadline == Deadline.NOW;
                if (!isReceived && !isNone && status != Native.FINISHED) {
                    throw PartywallException.of(status, errorPlace(RECV));
                }
            }
        } finally {
            if (!isReceived) {
                endView();
            }
        }
        return isReceived;
    }

    private int receiveStatus(long deadline) throws IOException {
        int status = attemptAlone(RECV, 0, 0, 0);
        if (status != Native.EMPTY || deadline == Deadline.NOW) {
            return status;
        }
        if (yieldsFirst() && yields.isDue()) {
            long started = System.nanoTime();
            Thread.yield();
            status = attemptAlone(RECV, 0, 0, 0);
            yields.count(status != Native.EMPTY, System.nanoTime() - started);
        }
        long brief = Math.min(briefWait(), Deadline.left(deadline));
        if (brief > 0) {
            status = attemptAlone(RECV, 0, 0, brief);
        }
        while (status == Native.EMPTY || (status == Native.TIMED_OUT && brief > 0)) {
            receiver.begin();
            status = attemptAlone(RECV, 0, 0, 0);
            if (status == Native.EMPTY && !isClosed && !await(false, deadline)) {
                return Native.TIMED_OUT;
            }
            checkOpen();
        }
        return status;
    }

    final void checkOpen() throws IOException {
        if (isClosed) {
            throw new AsynchronousCloseException();
        }
    }

    /**
     * Frees the native channel or stream if this object is closed and neither direction is in use.
     */
    private void freeUnlessUsed() {
        synchronized (freeing) {
            if (!sending.takeForever()) {
                return;
            }
            if (!receiving.takeForever()) {
                sending.release();
                return;
            }
            // This thread has taken the locks of both directions for ever, so no other thread comes
            // here, and the object is freed only once.
            free();
        }
    }

    /** The operation that sends bytes. Its arguments are their address and their length. */
    static final int SEND = 0;
    /** The operation that reserves memory. Its argument is the length. */
    static final int RESERVE = 1;
    /** The operation that sends the message in a reservation. */
    static final int COMMIT = 2;
    /** The operation that receives a view. */
    static final int RECV = 3;

    private static final long SEND_PLACES = 24;
    private static final long POLL_PLACES = 48;
    private static final long PLACES_BYTES = POLL_PLACES + 4 * Native.POLL_BYTES;
    /**
     * Maximum length in bytes of a message that is copied through the buffer for short messages.
     * For a longer message, shared memory is reserved.
     */
    private static final int STAGING_BYTES = 4096;
}
