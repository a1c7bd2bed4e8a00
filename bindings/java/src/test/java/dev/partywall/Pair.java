// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicInteger;

record Pair(Listener listener, Channel client, Channel server) implements AutoCloseable {
    /** Maximum time until an event that has to come: 30 s, enough for a slow machine. */
    static final Duration SOON = Duration.ofSeconds(30);
    private static final AtomicInteger COUNT = new AtomicInteger();

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
