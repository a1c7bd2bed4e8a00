// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.security.MessageDigest;
import java.util.Random;
import java.util.concurrent.FutureTask;

/** Tests that byte streams carry every byte in order, whatever the sizes of reads and writes. */
final class ByteStreamTest {
    private static final int BYTES = 8 << 20;

    void bytesArriveInOrderThroughStreams() throws Exception {
        try (SessionListener listener = SessionListener.bind(Pair.address())) {
            FutureTask<byte[]> reading = Pair.start(() -> {
                try (Session session = listener.accept(Pair.SOON);
                        ByteStream bytes = session.accept(Pair.SOON).bytes()) {
                    return digestOf(bytes.inputStream());
                }
            });
            MessageDigest digest = MessageDigest.getInstance("SHA-256");
            Random random = new Random(5);
            try (Session session = Session.connect(listener.address());
                    ByteStream bytes = session.open().bytes()) {
                OutputStream output = bytes.outputStream();
                byte[] buffer = new byte[100_000];
                output.write(77);
                digest.update((byte) 77);
                for (int left = BYTES; left > 0; ) {
                    int count = Math.min(left, 1 + random.nextInt(buffer.length));
                    random.nextBytes(buffer);
                    output.write(buffer, 0, count);
                    digest.update(buffer, 0, count);
                    left -= count;
                }
                output.close();
                Check.equal(bytes.inputStream().read(), -1);
                Check.equal(reading.get(), digest.digest());
            }
        }
    }

    private static byte[] digestOf(InputStream input) throws Exception {
        MessageDigest digest = MessageDigest.getInstance("SHA-256");
        Random random = new Random(6);
        byte[] buffer = new byte[70_000];
        digest.update((byte) input.read());
        for (int count = 0; count >= 0; ) {
            digest.update(buffer, 0, count);
            count = input.read(buffer, 0, 1 + random.nextInt(buffer.length));
        }
        return digest.digest();
    }

    void byteChannelsReadAndWriteBuffers() throws Exception {
        try (SessionListener listener = SessionListener.bind(Pair.address())) {
            FutureTask<Void> echoing = Pair.start(() -> {
                try (Session session = listener.accept(Pair.SOON);
                        ByteStream bytes = session.accept(Pair.SOON).bytes()) {
                    ByteBuffer buffer = ByteBuffer.allocateDirect(1000);
                    while (bytes.read(buffer) >= 0) {
                        bytes.write(buffer.flip());
                        buffer.clear();
                    }
                }
                return null;
            });
            try (Session session = Session.connect(listener.address());
                    ByteStream bytes = session.open().bytes()) {
                byte[] sent = Check.pattern(100_000, 1);
                FutureTask<Void> writing = Pair.start(() -> {
                    Check.equal(bytes.write(ByteBuffer.wrap(sent)), sent.length);
                    bytes.shutdownOutput();
                    return null;
                });
                ByteBuffer received = ByteBuffer.allocate(sent.length);
                while (received.hasRemaining()) {
                    Check.that(bytes.read(received) > 0, "bytes are left");
                }
                Check.equal(received.array(), sent);
                Check.equal(bytes.read(ByteBuffer.allocate(1)), -1);
                writing.get();
                echoing.get();
                bytes.close();
                Check.that(!bytes.isOpen(), "a closed stream is not open");
            }
        }
    }
}
