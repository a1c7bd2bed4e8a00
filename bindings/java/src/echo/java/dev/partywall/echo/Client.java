// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.echo;

import dev.partywall.Channel;
import java.io.EOFException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;
import java.util.Arrays;

/** The client of one endpoint: sends numbered messages, one at a time, and verifies each echo. */
final class Client {
    private final byte[] payload;
    private final byte[] echo;
    private final long[] times;

    private Client(int count, int size) {
        payload = new byte[size];
        for (int index = 0; index < size; index++) {
            payload[index] = (byte) ('a' + index % 26);
        }
        // On a plain socket, a message ends with a newline.
        echo = new byte[size + 1];
        times = new long[count];
    }

    static Outcome measure(Endpoint endpoint, int count, int size) throws IOException {
        Client client = new Client(count, size);
        long start = System.nanoTime();
        String transport;
        if (endpoint.isPlain()) {
            try (SocketChannel socket = endpoint.connect()) {
                start = System.nanoTime();
                client.exchange(socket);
                transport = "plain lines over a socket";
            }
        } else {
            try (Channel channel = Channel.connect(endpoint.address())) {
                start = System.nanoTime();
                client.exchange(channel);
                transport = channel.sharesMemory() ? "shared memory" : "messages over a socket";
            }
        }
        return new Outcome(endpoint, transport, size, System.nanoTime() - start, client.times);
    }

    private void exchange(Channel channel) throws IOException {
        for (int index = 0; index < times.length; index++) {
            number(index);
            long sent = System.nanoTime();
            channel.send(payload, LIMIT);
            int length = channel.recv(echo, LIMIT);
            times[index] = System.nanoTime() - sent;
            if (length < 0) {
                throw new EOFException("the peer has finished before its echo");
            }
            verify(length);
        }
    }

    private void exchange(SocketChannel socket) throws IOException {
        ByteBuffer line = ByteBuffer.allocateDirect(payload.length + 1);
        for (int index = 0; index < times.length; index++) {
            number(index);
            long sent = System.nanoTime();
            line.clear().put(payload).put((byte) '\n').flip();
            while (line.hasRemaining()) {
                socket.write(line);
            }
            line.clear();
            while (line.hasRemaining()) {
                if (socket.read(line) < 0) {
                    throw new EOFException("the peer has closed before its echo");
                }
            }
            times[index] = System.nanoTime() - sent;
            line.flip().get(echo);
            verify(payload.length);
        }
    }

    private void number(int index) {
        int width = Math.min(payload.length, 16);
        for (int place = 0; place < width; place++) {
            int digit = place < 8 ? index >>> (4 * place) & 15 : 0;
            payload[width - 1 - place] = (byte) "0123456789abcdef".charAt(digit);
        }
    }

    private void verify(int length) throws IOException {
        if (length != payload.length || !Arrays.equals(echo, 0, length, payload, 0, length)) {
            throw new IOException("the echo is not what was sent: is this an echo server?");
        }
    }

    private static final Duration LIMIT = Duration.ofSeconds(10);
}
