// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.atomic.AtomicBoolean;

/** The client of links: it opens links to servers, and keeps them in files of one directory. */
public final class LinkClient implements AutoCloseable {
    private final LinkDriver driver = LinkDriver.get();
    private final long handle;
    private final AtomicBoolean isClosed = new AtomicBoolean();

    /**
     * Makes a client called {@code name}, which keeps its links in files of {@code directory}. The
     * directory must belong to this user alone. If it is null, links are kept in memory.
     */
    public LinkClient(Path directory, String name, LinkConfig config) throws IOException {
        try (Call call = new Call(); NativeConfig settings = config.toNative(driver)) {
            call.check("partywall_link_client_new", call.text(text(directory)), call.text(name),
                    settings.handle(), call.result());
            handle = call.resultLong();
        }
    }

    static String text(Path directory) {
        return directory == null ? null : directory.toString();
    }

    /**
     * Opens the link called {@code name} to the server called {@code server} at {@code address}.
     * Does not wait for the server: the link keeps messages until the server is there.
     */
    public Link connect(String address, String server, String name) throws IOException {
        try (Call call = new Call()) {
            call.check("partywall_link_connect", handle, call.text(address), call.text(server),
                    call.text(name), call.result());
            return new Link(driver, call.resultLong());
        }
    }

    /** Frees the client. Links that it has opened stay open. */
    @Override
    public void close() {
        if (isClosed.compareAndSet(false, true)) {
            Call.free("partywall_link_client_free", handle);
        }
    }
}
