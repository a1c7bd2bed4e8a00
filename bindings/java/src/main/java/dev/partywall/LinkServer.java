// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;

/** The server of links: clients attach links to it. Any thread may accept. */
public final class LinkServer implements AutoCloseable {
    private final long handle;
    private volatile boolean isClosed;

    /**
     * Listens for links of the end called {@code name} at {@code address}. {@code directory}
     * belongs to this user alone; null keeps the links in memory.
     */
    public LinkServer(String address, Path directory, String name, LinkConfig config)
            throws IOException {
        try (Call call = new Call(); NativeConfig settings = config.toNative()) {
            call.check("partywall_link_server_bind", call.text(address),
                    call.text(LinkClient.text(directory)), call.text(name), settings.handle(),
                    call.result());
            handle = call.resultLong();
        }
    }

    /** Waits for the next link that a client attaches, without a limit. */
    public Link accept() throws IOException {
        return accept(Deadline.NEVER);
    }

    /** Waits for the next link. Throws {@link TimedOutException} if none is attached in time. */
    public Link accept(Duration timeout) throws IOException {
        return accept(Deadline.after(timeout));
    }

    private Link accept(long deadline) throws IOException {
        return new Link(Link.await(() -> isClosed, deadline, (call, timeout) ->
                call.status("partywall_link_server_accept", handle, call.result(), timeout)));
    }

    /** Stops listening. Ends calls of other threads that wait. */
    @Override
    public void close() {
        if (!isClosed) {
            isClosed = true;
            Link.free("partywall_link_server_free", handle);
        }
    }
}
