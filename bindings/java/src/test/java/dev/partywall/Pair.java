// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;

/** Both ends of a channel in this process. */
record Pair(Listener listener, Channel client, Channel server) implements AutoCloseable {
    /** Longest wait for an event that has to come. */
    static final Duration SOON = Duration.ofSeconds(30);
    private static final AtomicInteger COUNT = new AtomicInteger();

    /** Returns an address that no other test uses. */
    static String address() {
        return "unix:@partywall-java-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet();
    }

    static Pair open() throws Exception {
        return open(address(), new Config());
    }

    static Pair open(String address, Config config) throws Exception {
        Listener listener = Listener.bind(address, config);
        FutureTask<Channel> connecting = start(() -> Channel.connect(listener.address(), config));
        Channel server = listener.accept(SOON);
        return new Pair(listener, connecting.get(), server);
    }

    /** Starts a call in a thread of its own, and returns its future result. */
    static <T> FutureTask<T> start(Callable<T> call) {
        FutureTask<T> task = new FutureTask<>(call);
        Thread.ofPlatform().daemon().start(task);
        return task;
    }

    @Override
    public void close() throws IOException {
        client.close();
        server.close();
        listener.close();
    }
}
