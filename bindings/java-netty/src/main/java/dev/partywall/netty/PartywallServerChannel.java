// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import dev.partywall.Loop;
import dev.partywall.PartywallException;
import dev.partywall.Session;
import dev.partywall.SessionListener;
import dev.partywall.Stream;
import io.netty.channel.AbstractServerChannel;
import io.netty.channel.ChannelPromise;
import io.netty.channel.EventLoop;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.io.IOException;
import java.net.SocketAddress;
import java.util.HashSet;
import java.util.Queue;
import java.util.Set;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * A listener for sessions as a server channel of Netty. Each stream that a peer opens becomes a
 * child channel.
 *
 * <pre>
 *   listener ─▶ session ─▶ stream ─▶ channelRead(PartywallChannel)
 * </pre>
 *
 * The event loop of this channel drives the sessions. A child channel in the same event loop needs
 * no switch of threads.
 */
public final class PartywallServerChannel extends AbstractServerChannel {
    private static final InternalLogger LOGGER =
            InternalLoggerFactory.getInstance(PartywallServerChannel.class);

    private final PartywallChannelConfig config = new PartywallChannelConfig(this);
    private final Set<Accepted> sessions = new HashSet<>();
    /** Accepted sessions that may have a stream to accept, or that have ended. */
    private final Queue<Accepted> reported = new ConcurrentLinkedQueue<>();
    private volatile boolean isListenerReported = true;
    private volatile boolean isClosed;
    private volatile PartywallAddress local;
    private SessionListener listener;
    private boolean isReadPending;

    private final class Accepted {
        private final Session session;
        private final PartywallAddress peer;
        private volatile boolean hasEnded;

        Accepted(Session session) throws IOException {
            this.session = session;
            peer = new PartywallAddress(session.peer().description());
        }

        void report(int kinds) {
            hasEnded |= (kinds & Loop.ENDED) != 0;
            reported.add(this);
            runAccept();
        }
    }

    /** Makes a server channel, which has to be bound. */
    public PartywallServerChannel() {}

    @Override
    public PartywallChannelConfig config() {
        return config;
    }

    @Override
    public boolean isOpen() {
        return !isClosed;
    }

    @Override
    public boolean isActive() {
        return !isClosed && local != null;
    }

    @Override
    public PartywallAddress localAddress() {
        return (PartywallAddress) super.localAddress();
    }

    @Override
    protected SocketAddress localAddress0() {
        return local;
    }

    @Override
    protected boolean isCompatible(EventLoop loop) {
        return EpollLoop.isCompatible(loop);
    }

    @Override
    protected void doRegister(ChannelPromise promise) {
        EpollLoop.register(this, promise, this::accept);
    }

    @Override
    protected void doDeregister() {
        EpollLoop.remove(eventLoop(), this);
    }

    @Override
    protected void doBind(SocketAddress address) throws Exception {
        listener = EpollLoop.of(eventLoop()).bind(PartywallAddress.of(address), config.getConfig());
        listener.onEvents(kinds -> {
            isListenerReported = true;
            runAccept();
        });
        local = new PartywallAddress(listener.address());
    }

    /** Stops listening. The child channels stay open; their sessions accept no further streams. */
    @Override
    protected void doClose() {
        isClosed = true;
        if (listener != null) {
            listener.close();
            listener = null;
        }
        for (Accepted accepted : sessions) {
            try {
                accepted.session.goAway(0);
            } catch (IOException over) {
                // The session is over, so it accepts no further streams anyway.
            }
            accepted.session.close();
        }
        sessions.clear();
    }

    @Override
    protected void doBeginRead() {
        isReadPending = true;
        if (isListenerReported || !reported.isEmpty()) {
            eventLoop().execute(this::accept);
        }
    }

    private void runAccept() {
        if (!isRegistered()) {
            return; // the registration accepts
        }
        if (eventLoop().inEventLoop()) {
            accept();
        } else {
            eventLoop().execute(this::accept);
        }
    }

    private void accept() {
        if (listener == null || !(isReadPending || config.isAutoRead())) {
            return;
        }
        boolean hasRead = false;
        IOException failure = null;
        try {
            acceptSessions();
        } catch (IOException cause) {
            failure = cause;
        }
        Accepted accepted;
        while (listener != null && (accepted = reported.poll()) != null) {
            hasRead |= acceptStreams(accepted);
        }
        if (hasRead) {
            isReadPending = false;
            pipeline().fireChannelReadComplete();
        }
        if (failure != null) {
            pipeline().fireExceptionCaught(failure);
        }
    }

    /**
     * Accepts sessions until no session is there. Throws if this process lacks descriptors or
     * memory.
     */
    private void acceptSessions() throws IOException {
        if (!isListenerReported) {
            return;
        }
        for (int attempts = 0; attempts < ATTEMPTS_MAX; attempts++) {
            Session session;
            try {
                session = listener.tryAccept();
            } catch (PartywallException failure) {
                if (isOfThisProcess(failure)) {
                    throw failure;
                }
                LOGGER.debug("A handshake has failed.", failure);
                continue;
            }
            if (session == null) {
                isListenerReported = false;
                return;
            }
            Accepted accepted = new Accepted(session);
            sessions.add(accepted);
            session.onEvents(accepted::report);
            reported.add(accepted);
        }
        eventLoop().execute(this::accept);
    }

    /**
     * Fires {@code channelRead} with a child channel for each new stream of a session. Returns
     * whether there was a stream.
     */
    private boolean acceptStreams(Accepted accepted) {
        boolean hasRead = false;
        boolean isOver = accepted.hasEnded;
        try {
            Stream stream;
            while ((stream = accepted.session.tryAccept()) != null) {
                hasRead = true;
                pipeline().fireChannelRead(new PartywallChannel(this, stream, local, accepted.peer));
            }
        } catch (IOException over) {
            isOver = true;
        }
        if (isOver && sessions.remove(accepted)) {
            accepted.session.close();
        }
        return hasRead;
    }

    private static boolean isOfThisProcess(PartywallException failure) {
        return switch (failure.errno()) {
            case ENOMEM, ENFILE, EMFILE, ENOBUFS -> true;
            default -> false;
        };
    }

    /**
     * Maximum number of attempts to accept a session before the event loop runs its other tasks.
     */
    private static final int ATTEMPTS_MAX = 64;
    private static final int ENOMEM = 12;
    private static final int ENFILE = 23;
    private static final int EMFILE = 24;
    private static final int ENOBUFS = 105;
}
