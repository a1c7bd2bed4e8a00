// SPDX-License-Identifier: MIT OR Apache-2.0

import dev.partywall.Channel;
import dev.partywall.Listener;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;

/**
 * The client and the server of a measurement, written in Java. The programs of all languages have
 * the same command line, which {@code bench/languages/README.md} describes.
 */
final class Rate {
    private Rate() {}

    /**
     * What carries the messages of a measurement: a channel or a Unix socket. Both sides know the
     * length of each message.
     */
    private interface Carrier {
        void send(ByteBuffer message) throws IOException;

        /** Fills a buffer with the next message; returns false once the peer has finished. */
        boolean recv(ByteBuffer message) throws IOException;
    }

    private record OverChannel(Channel channel) implements Carrier {
        @Override
        public void send(ByteBuffer message) throws IOException {
            channel.send(message.rewind());
        }

        @Override
        public boolean recv(ByteBuffer message) throws IOException {
            return channel.recv(message.rewind()) >= 0;
        }
    }

    private record OverSocket(SocketChannel socket) implements Carrier {
        @Override
        public void send(ByteBuffer message) throws IOException {
            message.rewind();
            while (message.hasRemaining()) {
                socket.write(message);
            }
        }

        @Override
        public boolean recv(ByteBuffer message) throws IOException {
            message.rewind();
            while (message.hasRemaining()) {
                if (socket.read(message) < 0) {
                    return false;
                }
            }
            return true;
        }
    }

    public static void main(String[] words) throws IOException {
        switch (words.length == 3 ? words[0] : "") {
            case "serve" -> serve(words[1], words[2]);
            case "run" -> run(words[1], words[2]);
            default -> throw new IllegalArgumentException("rate serve|run ADDRESS SOCKET");
        }
        // The process ends at once, because the thread that serves the socket may still wait for
        // the client.
        System.exit(0);
    }

    private static ByteBuffer buffer(long size) {
        return ByteBuffer.allocateDirect((int) size).order(ByteOrder.LITTLE_ENDIAN);
    }

    private static void serve(String address, String path) throws IOException {
        Listener channels = Listener.bind(address);
        ServerSocketChannel sockets = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
        sockets.bind(UnixDomainSocketAddress.of(path));
        System.out.println("ready");
        Carrier first = new OverChannel(channels.accept());
        Carrier second = new OverSocket(sockets.accept());
        Thread.ofPlatform().daemon().start(() -> {
            try {
                answer(second);
            } catch (IOException failure) {
                System.err.println("rate: " + failure);
            }
        });
        answer(first);
    }

    /**
     * Performs the server's part of each task that the client announces, until the client has
     * closed.
     */
    private static void answer(Carrier carrier) throws IOException {
        ByteBuffer command = buffer(24);
        while (carrier.recv(command)) {
            boolean isWay = command.getLong(0) == WAY;
            ByteBuffer message = buffer(command.getLong(8));
            long count = command.getLong(16);
            for (long index = 0; index < count; index++) {
                if (!carrier.recv(message)) {
                    throw new EOFException("the client has gone");
                }
                if (!isWay) {
                    carrier.send(message);
                }
            }
            if (isWay) {
                carrier.send(buffer(8));
            }
        }
    }

    private static void run(String address, String path) throws IOException {
        try (Channel channel = Channel.connect(address);
                SocketChannel socket = SocketChannel.open(UnixDomainSocketAddress.of(path))) {
            Carrier first = new OverChannel(channel);
            Carrier second = new OverSocket(socket);
            System.out.println("ready");
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine()) {
                String[] words = line.split(" ");
                Carrier chosen = words[0].equals("ours") ? first : second;
                long task = words[1].equals("way") ? WAY : 0;
                System.out.println(measure(
                        chosen, task, Long.parseLong(words[2]), Long.parseLong(words[3])));
            }
        }
    }

    /**
     * Performs the client's part of a task with {@code count} messages of {@code size} bytes, and
     * returns its duration in nanoseconds.
     */
    private static long measure(Carrier carrier, long task, long size, long count)
            throws IOException {
        carrier.send(buffer(24).putLong(task).putLong(size).putLong(count));
        ByteBuffer message = buffer(size);
        boolean isAlive = true;
        long start = System.nanoTime();
        for (long index = 0; index < count && isAlive; index++) {
            carrier.send(message);
            if (task != WAY) {
                isAlive = carrier.recv(message);
            }
        }
        if (task == WAY) {
            isAlive = carrier.recv(buffer(8));
        }
        if (!isAlive) {
            throw new EOFException("the server has gone");
        }
        return System.nanoTime() - start;
    }

    /**
     * Number of the task in which messages go only from client to server; in any other task the
     * server returns each message.
     */
    private static final long WAY = 1;
}
