// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.Objects;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntConsumer;

/** A listener for sessions. Any thread may accept. */
public final class SessionListener implements AutoCloseable {
    private final SessionLoop loop;
    private final long handle;
    private final long tag;
    private final String address;
    private final WaitList waiters = new WaitList();
    private final AtomicBoolean isClosed = new AtomicBoolean();

    private volatile IntConsumer observer = kinds -> { };

    private SessionListener(SessionLoop loop, long handle, long tag) throws PartywallException {
        this.loop = loop;
        this.handle = handle;
        this.tag = tag;
        address = Listener.addressOf("partywall_session_listener_address", handle);
        loop.register(tag, this::signal);
    }

    private void signal(int kinds) {
        waiters.signal();
        observer.accept(kinds);
    }

    /**
     * Listens for sessions at {@code address}: {@code unix:/path}, {@code unix:@name} or
     * {@code tcp:host:port}.
     */
    public static SessionListener bind(String address) throws IOException {
        return bind(address, new Config());
    }

    /**
     * Listens for sessions with the settings of {@code config}, which apply to every accepted
     * session.
     */
    public static SessionListener bind(String address, Config config) throws IOException {
        return bind(address, config, SessionLoop.get());
    }

    static SessionListener bind(String address, Config config, SessionLoop loop) throws IOException {
        long tag = loop.nextTag();
        try (Call call = new Call(); NativeConfig settings = config.toNative()) {
            call.check("partywall_session_listener_bind", call.text(address), settings.handle(),
                    loop.handle(), tag, call.result());
            return new SessionListener(loop, call.resultLong(), tag);
        }
    }

    /**
     * Sets the observer of the listener: the thread of its loop calls {@code observer} with a set
     * of kinds, such as {@link Loop#OPENED}. After this call, attempt once to accept a session,
     * because events from before are not reported again.
     */
    public void onEvents(IntConsumer observer) {
        this.observer = Objects.requireNonNull(observer);
    }

    /** Returns the address that the listener is bound to, with the port that the system chose. */
    public String address() {
        return address;
    }

    /**
     * Makes the listener serve clients of shmipc, too. Clients of Partywall's own protocol are
     * served as before. Returns this listener.
     */
    public SessionListener addShmipc(Shmipc protocol) throws IOException {
        try (Call call = new Call()) {
            int status =
                    call.statusAlone("partywall_session_listener_add_shmipc", handle, protocol.handle());
            if (status != Native.OK) {
                throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
            }
        }
        return this;
    }

    /** Waits for the next session, without a limit. */
    public Session accept() throws IOException {
        return accept(Deadline.NEVER);
    }

    /**
     * Waits for the next session. Throws {@link TimedOutException} if none is established in time.
     */
    public Session accept(Duration timeout) throws IOException {
        return accept(Deadline.after(timeout));
    }

    private Session accept(long deadline) throws IOException {
        long sessionTag = loop.nextTag();
        try (Call call = new Call()) {
            long session = waiters.await(call, Native.TIMED_OUT, deadline, timeout -> call.status(
                    "partywall_session_listener_accept", handle, sessionTag, call.result(), timeout));
            return new Session(loop, session, sessionTag);
        }
    }

    /** Accepts a session if one is established; returns null if none is. */
    public Session tryAccept() throws IOException {
        long sessionTag = loop.nextTag();
        try (Call call = new Call()) {
            int status = call.status(
                    "partywall_session_listener_accept", handle, sessionTag, call.result(), 0);
            if (status == Native.TIMED_OUT) {
                return null;
            }
            if (status != Native.OK) {
                throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
            }
            return new Session(loop, call.resultLong(), sessionTag);
        }
    }

    /**
     * Stops listening, and removes the socket file. Ends calls of other threads that wait for a
     * session.
     */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            loop.unregister(tag);
            waiters.close();
            Call.free("partywall_session_listener_free", handle);
        }
    }
}
