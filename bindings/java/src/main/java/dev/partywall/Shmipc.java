// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * The protocol of shmipc-go and of the crate shmipc, as client and as server. Its streams are those
 * of a {@link Session}, but have no metadata. All sessions that it opens as a client share one
 * buffer region.
 *
 * <p>A peer can truncate memory that it has made. Therefore the first mapping of such memory
 * installs a handler of SIGBUS: when a session reads truncated memory, that session ends, and the
 * process goes on. Faults in other memory go to the handler of the JVM, whichever of the two
 * handlers was installed first.
 */
public final class Shmipc implements AutoCloseable {
    private final long handle;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    /** The state of a hot restart. */
    public enum HotRestart {
        /** There was no hot restart. */
        NEVER,
        /** A hot restart is under way. */
        PENDING,
        /** Every client goes on with the new process. */
        DONE,
        /** Some clients have not answered the hot restart in time. */
        TIMED_OUT
    }

    /** Makes the protocol shmipc with the settings of {@code config}. */
    public Shmipc(ShmipcConfig config) throws IOException {
        try (Call call = new Call(); NativeConfig settings = config.toNative()) {
            call.check("partywall_shmipc_new", settings.handle(), call.result());
            handle = call.resultLong();
        }
    }

    long handle() {
        return handle;
    }

    /** Opens a session with a server of shmipc. Waits for the handshake. */
    public Session connect(String address, Config config) throws IOException {
        SessionLoop loop = SessionLoop.get();
        long tag = loop.nextTag();
        return BlockingCalls.run(() -> {
            try (Call call = new Call(); NativeConfig settings = config.toNative()) {
                check(call, call.statusAlone("partywall_shmipc_connect", handle, call.text(address),
                        settings.handle(), loop.handle(), tag, call.result()));
                return new Session(loop, call.resultLong(), tag);
            }
        });
    }

    /**
     * Begins a hot restart: sends the clients of all accepted sessions to the process that now
     * listens at the address. {@code epoch} is at least 1, and differs from that of an earlier
     * restart. Streams in use go on.
     */
    public void hotRestart(long epoch) throws IOException {
        try (Call call = new Call()) {
            check(call, call.statusAlone("partywall_shmipc_hot_restart", handle, epoch));
        }
    }

    /** Returns the state of the last hot restart. */
    public HotRestart hotRestartState() throws IOException {
        try (Call call = new Call()) {
            int status = Call.invokeAlone("partywall_shmipc_hot_restart_state", handle, call.result());
            if (status != Native.OK) {
                throw isClosed.get() ? new ClosedChannelException() : PartywallException.of(status);
            }
            return HotRestart.values()[call.resultInt()];
        }
    }

    private void check(Call call, int status) throws IOException {
        if (status != Native.OK) {
            throw isClosed.get() ? new ClosedChannelException() : call.failure(status);
        }
    }

    /** Frees the protocol shmipc. Its sessions and listeners go on. */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            Call.free("partywall_shmipc_free", handle);
        }
    }
}
