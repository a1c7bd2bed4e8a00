// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.ByteChannel;
import java.util.Objects;

/**
 * A stream of bytes over a {@link Stream} of a session. One thread may write while another reads.
 *
 * <p>A read takes one message, copies it, and keeps the rest for the next read. A write is sent as
 * messages of at most 32 KiB.
 */
public final class ByteStream implements ByteChannel {
    private final Stream stream;
    private final InputStream input = new Input();
    private final OutputStream output = new Output();
    private byte[] rest = new byte[0];
    private int position;

    ByteStream(Stream stream) {
        this.stream = stream;
    }

    /** Returns the receiving direction. Closing it closes the stream. */
    public InputStream inputStream() {
        return input;
    }

    /** Returns the sending direction. Closing it finishes that direction alone. */
    public OutputStream outputStream() {
        return output;
    }

    @Override
    public int read(ByteBuffer target) throws IOException {
        if (!target.hasRemaining()) {
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int count = Math.min(target.remaining(), rest.length - position);
        target.put(rest, position, count);
        position += count;
        return count;
    }

    @Override
    public int write(ByteBuffer source) throws IOException {
        int count = source.remaining();
        int limit = source.limit();
        try {
            while (source.position() < limit) {
                source.limit(Math.min(limit, source.position() + MESSAGE_BYTES_MAX));
                stream.send(source);
            }
        } finally {
            source.limit(limit);
        }
        return count;
    }

    /** Finishes the sending direction: the peer reads every byte, then the end. */
    public void shutdownOutput() throws IOException {
        stream.finish();
    }

    @Override
    public boolean isOpen() {
        return !stream.isClosed();
    }

    /** Closes both directions. */
    @Override
    public void close() {
        stream.close();
    }

    /** Makes {@code rest} have a byte. Returns false at the end. */
    private boolean fill() throws IOException {
        while (position == rest.length) {
            try (View message = stream.recv()) {
                if (message == null) {
                    return false;
                }
                rest = message.toArray();
                position = 0;
            }
        }
        return true;
    }

    private final class Input extends InputStream {
        @Override
        public int read() throws IOException {
            return fill() ? rest[position++] & 0xff : -1;
        }

        @Override
        public int read(byte[] target, int offset, int length) throws IOException {
            Objects.checkFromIndexSize(offset, length, target.length);
            return ByteStream.this.read(ByteBuffer.wrap(target, offset, length));
        }

        @Override
        public int available() {
            return rest.length - position;
        }

        @Override
        public void close() {
            stream.close();
        }
    }

    private final class Output extends OutputStream {
        @Override
        public void write(int value) throws IOException {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public void write(byte[] source, int offset, int length) throws IOException {
            ByteStream.this.write(ByteBuffer.wrap(source, offset, length));
        }

        @Override
        public void close() throws IOException {
            if (!stream.isClosed()) {
                stream.finish();
            }
        }
    }

    private static final int MESSAGE_BYTES_MAX = 32 << 10;
}
