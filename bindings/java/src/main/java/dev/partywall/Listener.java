// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.ReentrantLock;

/**
 * A listener for channels. Any thread may accept; threads that accept at the same time take turns.
 */
public final class Listener implements AutoCloseable {
    private final long handle;
    private final Config config;
    private final String address;
    private final ReentrantLock accepting = new ReentrantLock();
    private final Waiter waiter = new Waiter();
    private volatile boolean isClosed;
    private boolean isFreed;

    private Listener(long handle, Config config) throws PartywallException {
        this.handle = handle;
        this.config = config.copy();
        address = addressOf("partywall_listener_address", handle);
    }

    /**
     * Listens for channels at {@code address}: {@code unix:/path}, {@code unix:@name} or
     * {@code tcp:host:port}.
     */
    public static Listener bind(String address) throws IOException {
        return bind(address, new Config());
    }

    /**
     * Listens for channels with the settings of {@code config}, which apply to every accepted
     * channel.
     */
    public static Listener bind(String address, Config config) throws IOException {
        try (Call call = new Call(); NativeConfig settings = config.toNative()) {
            call.check("partywall_listener_bind", call.text(address), settings.handle(), call.result());
            return new Listener(call.resultLong(), config);
        }
    }

    static String addressOf(String function, long handle) throws PartywallException {
        try (Call call = new Call()) {
            long buffer = call.buffer(ADDRESS_BYTES_MAX);
            call.check(function, handle, buffer, ADDRESS_BYTES_MAX, call.result());
            return Native.text(buffer, call.resultLong());
        }
    }

    /** Returns the address that the listener is bound to, with the port that the system chose. */
    public String address() {
        return address;
    }

    /** Waits for the next channel, without a limit. */
    public Channel accept() throws IOException {
        return accept(Deadline.NEVER);
    }

    /**
     * Waits for the next channel. Throws {@link TimedOutException} if none is established in time.
     */
    public Channel accept(Duration timeout) throws IOException {
        return accept(Deadline.after(timeout));
    }

    private Channel accept(long deadline) throws IOException {
        if (isClosed) {
            throw new ClosedChannelException();
        }
        lock(deadline);
        try (Call call = new Call()) {
            if (isClosed) {
                throw new AsynchronousCloseException();
            }
            while (true) {
                waiter.begin();
                int status = call.status("partywall_listener_accept", handle, call.result(), 0);
                if (status == Native.OK) {
                    return new Channel(call.resultLong(), config);
                }
                if (status != Native.TIMED_OUT) {
                    throw call.failure(status);
                }
                await(call, deadline);
            }
        } finally {
            accepting.unlock();
        }
    }

    /**
     * Waits until the threads that began to accept before this thread have left, at most until the
     * deadline.
     */
    private void lock(long deadline) throws IOException {
        try {
            if (deadline == Deadline.NEVER) {
                accepting.lockInterruptibly();
            } else if (!accepting.tryLock(Deadline.left(deadline), TimeUnit.NANOSECONDS)) {
                throw new TimedOutException();
            }
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the thread was interrupted");
        }
    }

    private void await(Call call, long deadline) throws IOException {
        call.check("partywall_listener_fd", handle, call.result());
        int fd = call.resultInt();
        Poller poller = Poller.get();
        poller.register(fd, waiter);
        try {
            if (!isClosed && !waiter.await(deadline)) {
                throw new TimedOutException();
            }
        } finally {
            poller.unregister(fd, waiter);
        }
        if (isClosed) {
            throw new AsynchronousCloseException();
        }
    }

    /**
     * Stops listening, and removes the socket file. Ends calls of other threads that wait to
     * accept. When this method returns, the address is free.
     */
    @Override
    public void close() {
        isClosed = true;
        waiter.signal();
        // The threads that accept leave soon: the signal has ended the wait of the first one, and
        // the others find that the listener is closed.
        accepting.lock();
        try {
            if (!isFreed) {
                isFreed = true;
                Call.free("partywall_listener_free", handle);
            }
        } finally {
            accepting.unlock();
        }
    }

    private static final long ADDRESS_BYTES_MAX = 512;
}
