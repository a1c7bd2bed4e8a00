// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import dev.partywall.Loop;
import dev.partywall.PartywallException;
import dev.partywall.Session;
import dev.partywall.Stream;
import dev.partywall.View;
import io.netty.buffer.ByteBuf;
import io.netty.channel.AbstractChannel;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelMetadata;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPipeline;
import io.netty.channel.ChannelPromise;
import io.netty.channel.ConnectTimeoutException;
import io.netty.channel.EventLoop;
import io.netty.channel.FileRegion;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.ChannelInputShutdownReadComplete;
import io.netty.channel.socket.DuplexChannel;
import io.netty.util.concurrent.Future;
import java.io.IOException;
import java.net.ConnectException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.AlreadyConnectedException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ConnectionPendingException;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * A stream of a session as a channel of Netty: bytes in two directions.
 *
 * <pre>
 *   write, flush ─▶ outbound buffer ─▶ messages of at most 64 KiB ─▶ stream, while there is credit
 *   stream ─▶ message ─▶ one buffer of the allocator ─▶ channelRead
 * </pre>
 *
 * A client channel has a session of its own; the channels of a server may share one. Without credit
 * the outbound buffer grows. From its high-water mark on the channel is not writable, until the
 * stream has credit again. Bytes are copied once in each direction.
 *
 * <p>Only the thread of the channel's event loop uses the stream. If another event loop drives the
 * session, events of the stream come as tasks.
 */
public final class PartywallChannel extends AbstractChannel implements DuplexChannel {
    private static final ChannelMetadata METADATA = new ChannelMetadata(false, 16);

    private enum State { OPEN, ACTIVE, CLOSED }

    private final PartywallChannelConfig config = new PartywallChannelConfig(this);
    private final Runnable readTask = this::readTask;
    private final Runnable flushTask = () -> unsafe0().flushAgain();
    /**
     * Kinds of events of the stream that another thread has reported, or that came before the
     * channel was registered.
     */
    private final AtomicInteger reportedKinds = new AtomicInteger();
    private volatile State state = State.OPEN;
    private volatile boolean isInputShutdown;
    private volatile boolean isOutputShutdown;
    private PartywallAddress local = PartywallAddress.UNNAMED;
    private PartywallAddress remote;
    /**
     * The session of a client channel; null in a channel of a server, whose session others may
     * share.
     */
    private Session session;
    /**
     * The stream that carries the channel's bytes; null before a client has connected, and after
     * the channel was closed.
     */
    private Stream stream;
    private ChannelPromise connecting;
    private Future<?> connectTimeout;
    private boolean isReadPending;
    private boolean isReadScheduled;
    /**
     * Whether a message may have come since the last attempt to receive; that attempt found none.
     */
    private boolean mayHaveInput = true;
    /**
     * Whether the last attempt to send found no room. An event of the stream reports when there is
     * room.
     */
    private boolean isWriteBlocked;
    private int messageBytesMax = MESSAGE_BYTES_MAX;

    /** Makes a client channel, which has to be connected. */
    public PartywallChannel() {
        super(null);
    }

    /** Makes the channel of a stream that a peer has opened. */
    PartywallChannel(Channel parent, Stream stream, PartywallAddress local, PartywallAddress remote) {
        super(parent);
        this.stream = stream;
        this.local = local;
        this.remote = remote;
        state = State.ACTIVE;
        stream.onEvents(this::report);
    }

    @Override
    public PartywallChannelConfig config() {
        return config;
    }

    @Override
    public boolean isOpen() {
        return state != State.CLOSED;
    }

    @Override
    public boolean isActive() {
        return state == State.ACTIVE;
    }

    @Override
    public ChannelMetadata metadata() {
        return METADATA;
    }

    @Override
    public PartywallAddress localAddress() {
        return (PartywallAddress) super.localAddress();
    }

    @Override
    public PartywallAddress remoteAddress() {
        return (PartywallAddress) super.remoteAddress();
    }

    @Override
    protected SocketAddress localAddress0() {
        return local;
    }

    @Override
    protected SocketAddress remoteAddress0() {
        return isActive() ? remote : null;
    }

    @Override
    protected boolean isCompatible(EventLoop loop) {
        return EpollLoop.isCompatible(loop);
    }

    @Override
    protected AbstractUnsafe newUnsafe() {
        return new StreamUnsafe();
    }

    private StreamUnsafe unsafe0() {
        return (StreamUnsafe) unsafe();
    }

    @Override
    protected void doRegister(ChannelPromise promise) {
        EpollLoop.register(this, promise, this::takeReported);
    }

    @Override
    protected void doDeregister() {
        EpollLoop.remove(eventLoop(), this);
    }

    @Override
    protected void doBind(SocketAddress address) {
        throw new UnsupportedOperationException("a channel that connects has no address of its own");
    }

    @Override
    protected void doDisconnect() {
        doClose();
    }

    @Override
    protected void doClose() {
        state = State.CLOSED;
        ChannelPromise promise = connecting;
        connecting = null;
        if (promise != null) {
            promise.tryFailure(new ClosedChannelException());
        }
        cancelTimeout();
        if (stream != null) {
            finish();
            stream.close();
            stream = null;
        }
        if (session != null) {
            session.close();
            session = null;
        }
    }

    /** Ends the stream's sending direction, unless the session is over. */
    private void finish() {
        if (isOutputShutdown) {
            return;
        }
        isOutputShutdown = true;
        try {
            stream.finish();
        } catch (IOException over) {
            // The session is over, which tells the peer that no more bytes come.
        }
    }

    private void cancelTimeout() {
        if (connectTimeout != null) {
            connectTimeout.cancel(false);
            connectTimeout = null;
        }
    }

    /**
     * Handles kinds of events of the stream. The event loop that drives the session calls this
     * method.
     */
    private void report(int kinds) {
        if (isRegistered() && eventLoop().inEventLoop()) {
            handle(kinds);
            return;
        }
        reportedKinds.getAndUpdate(before -> before | kinds);
        if (isRegistered()) {
            try {
                eventLoop().execute(this::takeReported);
            } catch (RejectedExecutionException isShutDown) {
                // The channel's event loop is shut down: it has closed the channel, or leaves it
                // open for ever.
            }
        }
    }

    private void takeReported() {
        handle(reportedKinds.getAndSet(0));
    }

    private void handle(int kinds) {
        if (stream != null && isWriteBlocked && (kinds & (Loop.WRITABLE | Loop.ENDED)) != 0) {
            isWriteBlocked = false;
            unsafe0().flushAgain();
        }
        if (stream != null && (kinds & (Loop.READABLE | Loop.ENDED)) != 0) {
            mayHaveInput = true;
            if (isReadWanted()) {
                read0();
            }
        }
    }

    @Override
    protected void doBeginRead() {
        isReadPending = true;
        scheduleRead();
    }

    private void scheduleRead() {
        if (mayHaveInput && stream != null && !isReadScheduled) {
            isReadScheduled = true;
            eventLoop().execute(readTask);
        }
    }

    private void readTask() {
        isReadScheduled = false;
        if (isReadWanted()) {
            read0();
        }
    }

    private boolean isReadWanted() {
        return isReadPending || config.isAutoRead();
    }

    /**
     * Receives messages until none is there, or until as many were received as the channel's
     * configuration says.
     */
    @SuppressWarnings("deprecation") // Netty 4.2 has no other type for it
    private void read0() {
        if (stream == null || isInputShutdown) {
            return;
        }
        RecvByteBufAllocator.Handle limit = unsafe().recvBufAllocHandle();
        limit.reset(config);
        ChannelPipeline pipeline = pipeline();
        Throwable failure = null;
        boolean hasRead = false;
        try {
            ByteBuf received;
            while (stream != null && !isInputShutdown && (received = receive(limit)) != null) {
                hasRead = true;
                isReadPending = false;
                pipeline.fireChannelRead(received);
                if (!limit.continueReading()) {
                    break;
                }
            }
        } catch (IOException | RuntimeException | OutOfMemoryError cause) {
            failure = cause;
        }
        if (hasRead || failure != null) {
            limit.readComplete();
            pipeline.fireChannelReadComplete();
        }
        if (failure != null) {
            pipeline.fireExceptionCaught(failure);
            unsafe().close(unsafe().voidPromise());
        } else if (stream != null && stream.isFinished()) {
            endInput();
        }
    }

    /** Returns the bytes of the next message that is not empty, or null if there is none. */
    @SuppressWarnings("deprecation") // Netty 4.2 has no other type for it
    private ByteBuf receive(RecvByteBufAllocator.Handle limit) throws IOException {
        while (true) {
            View view = stream.tryRecv();
            if (view == null) {
                mayHaveInput = false;
                limit.lastBytesRead(stream.isFinished() ? -1 : 0);
                return null;
            }
            try (view) {
                int length = Math.toIntExact(view.byteSize());
                if (length > 0) {
                    limit.attemptedBytesRead(length);
                    limit.lastBytesRead(length);
                    limit.incMessagesRead(1);
                    return copy(view, length);
                }
            }
        }
    }

    private ByteBuf copy(View view, int length) {
        ByteBuf copy = config.getAllocator().ioBuffer(length);
        view.copyTo(0, copy.internalNioBuffer(0, length));
        return copy.writerIndex(length);
    }

    private void endInput() {
        if (isInputShutdown) {
            return;
        }
        if (!config.isAllowHalfClosure()) {
            unsafe().close(unsafe().voidPromise());
            return;
        }
        isInputShutdown = true;
        pipeline().fireUserEventTriggered(ChannelInputShutdownEvent.INSTANCE);
        pipeline().fireUserEventTriggered(ChannelInputShutdownReadComplete.INSTANCE);
    }

    @Override
    protected Object filterOutboundMessage(Object message) {
        if (message instanceof ByteBuf || message instanceof FileRegion) {
            return message;
        }
        throw new UnsupportedOperationException(
                "a channel sends ByteBuf and FileRegion, and no " + message.getClass().getName());
    }

    @Override
    protected void doWrite(ChannelOutboundBuffer in) throws Exception {
        boolean hasSent = writeAll(in);
        if (hasSent && (parent() == null || parent().eventLoop() == eventLoop())) {
            EpollLoop.sent(eventLoop()); // it drives the session
        }
    }

    /**
     * Sends as much of the outbound buffer as there is room for. Returns whether a message was
     * sent.
     */
    private boolean writeAll(ChannelOutboundBuffer in) throws Exception {
        boolean hasSent = false;
        for (int left = config.getWriteSpinCount(); left > 0; left--) {
            if (in.isEmpty()) {
                return hasSent;
            }
            boolean hasRoom = in.current() instanceof FileRegion region
                    ? writeRegion(in, region) : writeBuffers(in);
            if (!hasRoom) {
                isWriteBlocked = true;
                return hasSent;
            }
            hasSent = true;
        }
        if (!in.isEmpty()) {
            eventLoop().execute(flushTask);
        }
        return hasSent;
    }

    /**
     * Sends one message with the first bytes of the outbound buffer. Returns whether there was
     * room.
     */
    private boolean writeBuffers(ChannelOutboundBuffer in) throws IOException {
        ByteBuffer[] parts = in.nioBuffers(PARTS_MAX, messageBytesMax);
        int count = in.nioBufferCount();
        long total = in.nioBufferSize();
        if (count == 0) {
            in.removeBytes(0); // only empty buffers
            return true;
        }
        try {
            if (count > 1 && total <= messageBytesMax) {
                if (!stream.trySend(parts, count)) {
                    return false;
                }
            } else {
                total = send(parts[0]);
                if (total == 0) {
                    return false;
                }
            }
        } catch (PartywallException failure) {
            if (failure.code() != PartywallException.MESSAGE_TOO_LONG
                    || messageBytesMax == MESSAGE_BYTES_SMALL) {
                throw failure;
            }
            messageBytesMax = MESSAGE_BYTES_SMALL;
            return true;
        }
        in.removeBytes(total);
        return true;
    }

    /**
     * Sends one message with as many bytes of the buffer as it may have. Returns their number, 0 if
     * there was no room.
     */
    private int send(ByteBuffer buffer) throws IOException {
        int limit = buffer.limit();
        int count = Math.min(buffer.remaining(), messageBytesMax);
        buffer.limit(buffer.position() + count);
        try {
            return stream.trySend(buffer) ? count : 0;
        } finally {
            buffer.limit(limit);
        }
    }

    /** Sends the next part of a file in one message. Returns whether there was room. */
    private boolean writeRegion(ChannelOutboundBuffer in, FileRegion region) throws IOException {
        RegionTarget target = new RegionTarget();
        if (region.transferred() < region.count()) {
            long count = region.transferTo(target, region.transferred());
            if (count <= 0 && !target.isFull) {
                throw new IOException("the file has fewer bytes than its region");
            }
            in.progress(Math.max(count, 0));
        }
        if (region.transferred() >= region.count()) {
            in.remove();
        }
        return !target.isFull;
    }

    @Override
    protected void doShutdownOutput() throws IOException {
        isOutputShutdown = true;
        if (stream != null) {
            stream.finish();
        }
    }

    @Override
    public boolean isInputShutdown() {
        return isInputShutdown || state == State.CLOSED;
    }

    @Override
    public boolean isOutputShutdown() {
        return isOutputShutdown || state == State.CLOSED;
    }

    @Override
    public boolean isShutdown() {
        return isInputShutdown() && isOutputShutdown();
    }

    @Override
    public ChannelFuture shutdownInput() {
        return shutdownInput(newPromise());
    }

    @Override
    public ChannelFuture shutdownInput(ChannelPromise promise) {
        run(() -> shutdownInput0(promise));
        return promise;
    }

    private void shutdownInput0(ChannelPromise promise) {
        isInputShutdown = true;
        try {
            if (stream != null) {
                stream.stop(0);
            }
            promise.setSuccess();
        } catch (IOException failure) {
            promise.setFailure(failure);
        }
    }

    @Override
    public ChannelFuture shutdownOutput() {
        return shutdownOutput(newPromise());
    }

    @Override
    public ChannelFuture shutdownOutput(ChannelPromise promise) {
        run(() -> unsafe0().shutdownOutput(promise));
        return promise;
    }

    @Override
    public ChannelFuture shutdown() {
        return shutdown(newPromise());
    }

    @Override
    public ChannelFuture shutdown(ChannelPromise promise) {
        shutdownOutput().addListener(output -> shutdownInput().addListener(input -> {
            Throwable failure = output.isSuccess() ? input.cause() : output.cause();
            if (failure == null) {
                promise.setSuccess();
            } else {
                promise.setFailure(failure);
            }
        }));
        return promise;
    }

    private void run(Runnable task) {
        if (eventLoop().inEventLoop()) {
            task.run();
        } else {
            eventLoop().execute(task);
        }
    }

    private void connected(Session established, IOException failure) {
        if (connecting == null) {
            if (established != null) {
                established.close(); // the channel was closed meanwhile
            }
            return;
        }
        if (failure != null) {
            failConnect(failure);
            return;
        }
        session = established;
        session.onEvents(kinds -> run(this::openStream));
        openStream();
    }

    private void openStream() {
        if (connecting == null) {
            return;
        }
        try {
            stream = session.tryOpen(NO_METADATA);
            if (stream == null) {
                return; // the loop reports the session once a stream may be opened
            }
            session.goAway(0); // streams are opened by this side alone
        } catch (IOException failure) {
            failConnect(failure);
            return;
        }
        stream.onEvents(this::report);
        state = State.ACTIVE;
        cancelTimeout();
        ChannelPromise promise = connecting;
        connecting = null;
        boolean isWanted = promise.trySuccess();
        pipeline().fireChannelActive();
        if (!isWanted) {
            unsafe().close(unsafe().voidPromise());
        } else if (isReadWanted()) {
            scheduleRead();
        }
    }

    private void failConnect(IOException cause) {
        ChannelPromise promise = connecting;
        connecting = null;
        promise.tryFailure(cause instanceof ConnectException ? cause : wrapped(cause));
        unsafe().close(unsafe().voidPromise());
    }

    /** Returns the exception of a failed connect, of the type that programs for Netty expect. */
    private static ConnectException wrapped(IOException cause) {
        ConnectException failure = new ConnectException(cause.getMessage());
        failure.initCause(cause);
        return failure;
    }

    private void startConnecting(PartywallAddress address, ChannelPromise promise) throws IOException {
        connecting = promise;
        remote = address;
        int limitMillis = config.getConnectTimeoutMillis();
        if (limitMillis > 0) {
            connectTimeout = eventLoop().schedule(() -> {
                if (connecting != null) {
                    failConnect(new ConnectTimeoutException(
                            "no session after " + limitMillis + " ms: " + address));
                }
            }, limitMillis, TimeUnit.MILLISECONDS);
        }
        promise.addListener(future -> {
            if (future.isCancelled()) {
                connecting = null;
                unsafe().close(unsafe().voidPromise());
            }
        });
        EpollLoop.of(eventLoop()).connect(address, config.getConfig(), this::connected);
    }

    private final class StreamUnsafe extends AbstractUnsafe {
        @Override
        public void connect(SocketAddress remoteAddress, SocketAddress localAddress,
                ChannelPromise promise) {
            if (promise.isDone() || !ensureOpen(promise)) {
                return;
            }
            try {
                if (connecting != null) {
                    throw new ConnectionPendingException();
                }
                if (isActive()) {
                    throw new AlreadyConnectedException();
                }
                if (localAddress != null) {
                    doBind(localAddress);
                }
                startConnecting(PartywallAddress.of(remoteAddress), promise);
            } catch (IOException | RuntimeException failure) {
                if (connecting == promise) {
                    connecting = null;
                    cancelTimeout();
                }
                promise.tryFailure(failure);
                closeIfClosed();
            }
        }

        /**
         * Writes the outbound buffer. After an attempt that found no room, waits for the event that
         * reports room.
         */
        @Override
        protected void flush0() {
            if (!isWriteBlocked) {
                super.flush0();
            }
        }

        void flushAgain() {
            flush0();
        }
    }

    /** The target of {@link FileRegion#transferTo}: sends the region's bytes on the stream. */
    private final class RegionTarget implements java.nio.channels.WritableByteChannel {
        private boolean isFull;

        @Override
        public int write(ByteBuffer source) throws IOException {
            int count = source.hasRemaining() ? send(source) : 0;
            isFull |= count == 0 && source.hasRemaining();
            return count;
        }

        @Override
        public boolean isOpen() {
            return true;
        }

        @Override
        public void close() {}
    }

    private static final byte[] NO_METADATA = new byte[0];
    /**
     * Maximum length in bytes of a message: four such messages and their headers fit the default
     * window of a stream.
     */
    private static final int MESSAGE_BYTES_MAX = (64 << 10) - 64;
    /**
     * Maximum length in bytes of a message after the session has refused a longer one: a session
     * with little memory carries messages of this length, too.
     */
    private static final int MESSAGE_BYTES_SMALL = 4 << 10;
    /** Maximum number of buffers of which one message is made. */
    private static final int PARTS_MAX = 1024;
}
