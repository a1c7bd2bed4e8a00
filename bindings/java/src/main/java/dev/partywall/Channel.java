// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;

/**
 * A channel: one pipe of messages in each direction, to and from one other process.
 *
 * <pre>{@code
 *   try (Channel channel = Channel.connect("unix:/run/app.sock")) {
 *       channel.send("hello".getBytes(UTF_8));
 *       channel.recv(answer -> System.out.println(answer.byteSize()));
 *   }
 * }</pre>
 */
public final class Channel extends MessageChannel {
    private final Connection connection;
    private final boolean beginsOnSocket;
    /**
     * Maximum length in bytes of a message that one native call sends straight from an array; the
     * garbage collector waits for such a call. It is 0 over a socket: the system call that writes
     * to a socket takes much longer than a copy to shared memory.
     */
    private final int arrayBytesMax;
    private final boolean failsWhenFull;
    private final boolean parksAtOnce;
    private final boolean spins;
    private final ChannelWakeup wakeup;

    Channel(long handle, Config config) {
        super(handle);
        connection = new Connection("channel", handle);
        beginsOnSocket = !sharesMemory();
        arrayBytesMax = beginsOnSocket ? 0 : Native.ARRAY_BYTES_MAX;
        failsWhenFull = config.failsWhenFull();
        parksAtOnce = config.parksAtOnce();
        spins = config.spins();
        wakeup = new ChannelWakeup(handle, errorPlace(RECV));
    }

    /** Opens a channel with the listener at {@code address}, such as {@code unix:/run/app.sock}. */
    public static Channel connect(String address) throws IOException {
        return connect(address, new Config());
    }

    /** Opens a channel with the settings of {@code config}. Waits for the handshake. */
    public static Channel connect(String address, Config config) throws IOException {
        return BlockingCalls.run(() -> {
            try (Call call = new Call(); NativeConfig settings = config.toNative()) {
                call.check("partywall_connect", call.text(address), settings.handle(), call.result());
                return new Channel(call.resultLong(), config);
            }
        });
    }

    /** Returns whether the channel shares memory now, instead of sending on a socket. */
    public boolean sharesMemory() {
        try (Call call = new Call()) {
            int status = Call.invokeAlone(
                    "partywall_channel_transport", handle, call.result(), call.secondResult());
            return status == Native.OK
                    && call.resultInt() == Config.Transport.SHARED_MEMORY.ordinal();
        }
    }

    /**
     * Returns what is known of the peer process. Any thread may call this method, and the others
     * that return properties, at any time.
     */
    public Peer peer() throws IOException {
        return connection.peer();
    }

    /** Returns the transport that the channel has now. */
    public Transport transport() throws IOException {
        return connection.transport();
    }

    /** Returns the counters of the sending direction. */
    public SenderStats senderStats() throws IOException {
        return connection.senderStats();
    }

    /** Returns the counters of the receiving direction. */
    public ReceiverStats receiverStats() throws IOException {
        return connection.receiverStats();
    }

    /**
     * Waits until the kernel has accepted the bytes of all sent messages, at most for
     * {@code timeout}. Over shared memory the kernel gets no bytes, so the call returns at once.
     */
    public void flush(Duration timeout) throws IOException {
        beginSending();
        try {
            if (!write(Deadline.after(timeout))) {
                throw new TimedOutException();
            }
        } finally {
            endSending();
        }
    }

    /**
     * Writes the rest of a message of which the channel's socket has taken only a part. The sending
     * thread waits for this, because the application may make no later call that would write the
     * rest. The message counts as sent already, also if the deadline passes or the thread is
     * interrupted. The interrupt status of the thread stays set.
     */
    @Override
    void settle(long deadline) throws IOException {
        if (beginsOnSocket && deadline != Deadline.NOW) {
            try {
                write(deadline);
            } catch (InterruptedIOException interrupt) {
                // The message is sent, so this call succeeds. The thread's interrupt status stays
                // set, and its next call that waits throws the exception.
            }
        }
    }

    /**
     * Writes the bytes of sent messages that the kernel has not accepted yet. Returns false if the
     * deadline has passed before all are written.
     */
    private boolean write(long deadline) throws IOException {
        while (true) {
            sender.begin();
            int status = Native.channelTryFlush(handle, errorPlace(SEND));
            if (status == Native.BUSY) {
                continue;
            }
            if (status == Native.OK || status == Native.FINISHED) {
                return true;
            }
            if (status != Native.TIMED_OUT && status != Native.FULL) {
                throw PartywallException.of(status, errorPlace(SEND));
            }
            if (!await(true, deadline)) {
                return false;
            }
            checkOpen();
        }
    }

    /** Ends the sending direction. The channel still receives the peer's messages. */
    public void closeWrite() throws IOException {
        beginSending();
        try (Call call = new Call()) {
            call.check("partywall_channel_close_write", handle);
        } finally {
            endSending();
        }
    }

    @Override
    int attempt(int operation, long first, long second, long timeout) {
        long error = errorPlace(operation);
        return switch (operation) {
            case SEND -> timeout == 0
                    ? Native.channelTrySend(handle, first, second, error)
                    : Native.channelSend(handle, first, second, timeout, error);
            case RESERVE -> Native.channelReserve(
                    handle, first, dataPlace(RESERVE), lengthPlace(RESERVE), timeout, error);
            case COMMIT -> Native.channelCommit(handle, first, timeout, error);
            default -> timeout == 0
                    ? Native.channelTryRecv(handle, dataPlace(RECV), lengthPlace(RECV), error)
                    : Native.channelRecv(handle, dataPlace(RECV), lengthPlace(RECV), timeout, error);
        };
    }

    @Override
    int attemptArray(byte[] payload, int length) {
        if (length > arrayBytesMax) {
            return Native.FULL;
        }
        return Native.channelTrySend(handle, payload, length, errorPlace(SEND));
    }

    /**
     * Returns how long a waiting platform thread first waits in the native library, which polls as
     * the setting {@code wait} says. Most answers come in that time. A virtual thread does not wait
     * there, because it would hold its carrier thread.
     */
    @Override
    long briefWait() {
        return parksAtOnce || spins || Thread.currentThread().isVirtual() ? 0 : BRIEF_WAIT_NS;
    }

    /**
     * Returns whether the thread yields before it parks: a platform thread does with the setting
     * PARK. With the other values of {@code wait} it polls in the native library instead.
     */
    @Override
    boolean yieldsFirst() {
        return parksAtOnce && !Thread.currentThread().isVirtual();
    }

    @Override
    boolean failsWhenFull() {
        return failsWhenFull;
    }

    @Override
    boolean await(boolean isSending, long deadline) throws IOException {
        Waiter waiter = isSending ? sender : receiver;
        // A virtual thread never polls: it would keep virtual threads that became ready later from
        // its carrier thread. Yielding would not help, because a carrier prefers the threads that
        // it has run before.
        boolean isVirtual = Thread.currentThread().isVirtual();
        if (spins && !isVirtual) {
            return waiter.spin(deadline);
        }
        if (!isSending && !isVirtual && wakeup.isPossible()) {
            return receiver.poll(wakeup, deadline);
        }
        int operation = isSending ? SEND : RECV;
        long error = errorPlace(operation);
        int status = Native.channelArm(handle, isSending, dataPlace(operation), error);
        if (status == Native.BUSY) {
            return true;
        }
        if (status != Native.OK) {
            throw PartywallException.of(status, error);
        }
        int fd = Native.getInt(dataPlace(operation));
        if (fd < 0) {
            return true;
        }
        if (!isVirtual) {
            return waiter.poll(fd, pollPlaces(operation), deadline);
        }
        Poller poller = Poller.get();
        poller.register(fd, waiter);
        try {
            return waiter.await(deadline);
        } finally {
            poller.unregister(fd, waiter);
        }
    }

    @Override
    Message keepMessage() throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_channel_keep", handle, call.result());
            return new Message(call.resultLong());
        }
    }

    @Override
    void free() {
        Call.free("partywall_channel_free", handle);
        sender.free();
        receiver.free();
    }

    /**
     * Time in nanoseconds for which a platform thread waits in the native library: four times the
     * default spin budget. An interrupt or a close is noticed only after this time.
     */
    private static final long BRIEF_WAIT_NS = 200_000;
}
