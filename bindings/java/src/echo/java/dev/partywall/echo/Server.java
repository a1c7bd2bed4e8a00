// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.echo;

import dev.partywall.Channel;
import dev.partywall.Listener;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/**
 * The echo server of one endpoint: one thread accepts clients, and one thread serves each client.
 */
final class Server {
    private Server() {}

    /** Listens on the endpoint, prints its address, and starts the thread that accepts clients. */
    static Thread start(Endpoint endpoint) throws IOException {
        if (endpoint.isPlain()) {
            ServerSocketChannel listener = endpoint.listen();
            atExit(() -> {
                listener.close();
                endpoint.removeFile();
            });
            System.out.println("listening on " + endpoint);
            return Thread.ofPlatform().start(() -> accept(() -> {
                SocketChannel client = listener.accept();
                serve(() -> echo(client));
            }));
        }
        Listener listener = Listener.bind(endpoint.address());
        atExit(listener::close);
        System.out.println("listening on " + listener.address());
        return Thread.ofPlatform().start(() -> accept(() -> {
            Channel client = listener.accept();
            serve(() -> echo(client));
        }));
    }

    /** A step at the end of this process, such as the removal of a socket file; it may fail. */
    private interface Step {
        void run() throws IOException;
    }

    private static void atExit(Step step) {
        Runtime.getRuntime().addShutdownHook(Thread.ofPlatform().unstarted(() -> {
            try {
                step.run();
            } catch (IOException failure) {
                System.err.println("a socket file was not removed: " + failure.getMessage());
            }
        }));
    }

    private static void accept(Step step) {
        while (true) {
            try {
                step.run();
            } catch (ClosedChannelException end) {
                return;
            } catch (IOException failure) {
                System.err.println("a client was not accepted: " + failure.getMessage());
            }
        }
    }

    private static void serve(Step step) {
        Thread.ofPlatform().daemon().start(() -> {
            try {
                step.run();
            } catch (IOException failure) {
                System.err.println("a client ended: " + failure.getMessage());
            }
        });
    }

    private static void echo(Channel client) throws IOException {
        try (client) {
            while (client.recv(message -> client.send(message))) {
                // recv has called the handler, which has sent the message back.
            }
        }
    }

    private static void echo(SocketChannel client) throws IOException {
        ByteBuffer buffer = ByteBuffer.allocateDirect(64 << 10);
        try (client) {
            while (client.read(buffer) >= 0) {
                buffer.flip();
                while (buffer.hasRemaining()) {
                    client.write(buffer);
                }
                buffer.clear();
            }
        }
    }
}
