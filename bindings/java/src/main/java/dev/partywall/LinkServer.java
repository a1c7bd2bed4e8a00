// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * A server of links: accepts the links that clients attach at an address. Any thread may accept.
 */
public final class LinkServer implements AutoCloseable {
    private final LinkDriver driver = LinkDriver.get();
    private final WaitList waiters = new WaitList(Link.BRIEF_WAIT_NS);
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private final long handle;

    /**
     * Listens for links of the end called {@code name} at {@code address}, and keeps them in files
     * of {@code directory}. The directory must belong to this user alone. If it is null, links are
     * kept in memory.
     */
    public LinkServer(String address, Path directory, String name, LinkConfig config)
            throws IOException {
        try (Call call = new Call(); NativeConfig settings = config.toNative(driver)) {
            call.check("partywall_link_server_bind", call.text(address),
                    call.text(LinkClient.text(directory)), call.text(name), settings.handle(),
                    call.result());
            handle = call.resultLong();
        }
        driver.register(waiters);
    }

    /** Waits for the next link that a client attaches, without a limit. */
    public Link accept() throws IOException {
        return accept(Deadline.NEVER);
    }

    /**
     * Waits for the next link that a client attaches. Throws {@link TimedOutException} if none is
     * attached in time.
     */
    public Link accept(Duration timeout) throws IOException {
        return accept(Deadline.after(timeout));
    }

    private Link accept(long deadline) throws IOException {
        try (Call call = new Call()) {
            return new Link(driver, waiters.await(call, Native.TIMED_OUT, deadline, timeout ->
                    call.status("partywall_link_server_accept", handle, call.result(), timeout)));
        }
    }

    /** Stops listening for links. Ends calls of other threads that wait for a link. */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            driver.unregister(waiters);
            waiters.close();
            Call.free("partywall_link_server_free", handle);
        }
    }
}
