// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.nio.channels.ByteChannel;
import java.util.Objects;

/**
 * A stream of bytes over a {@link Stream} of a session. One thread may write while another reads.
 *
 * <pre>
 *   message ─┬─ its first bytes ─▶ the array of the caller
 *            └─ its other bytes ─▶ rest ─▶ later reads
 * </pre>
 *
 * <p>A read takes at most one message. A write is sent as messages of at most 32 KiB. Once the
 * arrays are long enough, neither allocates anything.
 */
public final class ByteStream implements ByteChannel {
    private final Stream stream;
    private final InputStream input = new Input();
    private final OutputStream output = new Output();
    /**
     * Bytes of a received message; those from {@code position} to {@code limit} are still unread.
     */
    private byte[] rest = new byte[0];
    private int position;
    private int limit;

    ByteStream(Stream stream) {
        this.stream = stream;
    }

    /**
     * Returns the receiving direction as a stream of the JDK. Closing it closes both directions.
     */
    public InputStream inputStream() {
        return input;
    }

    /**
     * Returns the sending direction as a stream of the JDK. Closing it ends that direction alone.
     */
    public OutputStream outputStream() {
        return output;
    }

    @Override
    public int read(ByteBuffer target) throws IOException {
        if (target.isReadOnly()) {
            throw new ReadOnlyBufferException();
        }
        if (target.hasArray()) {
            int count = read(target.array(), target.arrayOffset() + target.position(), target.remaining());
            target.position(target.position() + Math.max(count, 0));
            return count;
        }
        if (!target.hasRemaining()) {
            return 0;
        }
        if (!fill()) {
            return -1;
        }
        int count = Math.min(target.remaining(), limit - position);
        target.put(rest, position, count);
        position += count;
        return count;
    }

    private int read(byte[] target, int offset, int length) throws IOException {
        if (length == 0) {
            return 0;
        }
        if (position == limit) {
            return receive(target, offset, length);
        }
        int count = Math.min(length, limit - position);
        System.arraycopy(rest, position, target, offset, count);
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

    /** Ends the sending direction: the peer reads every byte, then the end. */
    public void shutdownOutput() throws IOException {
        stream.finish();
    }

    @Override
    public boolean isOpen() {
        return !stream.isClosed();
    }

    /** Closes both directions of the stream. */
    @Override
    public void close() {
        stream.close();
    }

    /**
     * Receives a message, unless unread bytes of the last one are left in {@code rest}. Returns
     * false at the stream's end.
     */
    private boolean fill() throws IOException {
        return position < limit || receive(rest, 0, 0) >= 0;
    }

    /**
     * Receives the next message that is not empty: its first bytes, at most {@code length}, into
     * {@code target}, and the others into {@code rest}. Returns the number of bytes in
     * {@code target}, or -1 at the stream's end.
     */
    private int receive(byte[] target, int offset, int length) throws IOException {
        while (true) {
            try (View message = stream.recv()) {
                if (message == null) {
                    return -1;
                }
                long size = message.byteSize();
                if (size > Integer.MAX_VALUE) {
                    throw new IOException("a message of " + size + " bytes is too long for a stream of bytes");
                }
                if (size > 0) {
                    int count = (int) Math.min(size, length);
                    int left = (int) size - count;
                    makeRoom(left);
                    message.copyTo(0, target, offset, count);
                    message.copyTo(count, rest, 0, left);
                    position = 0;
                    limit = left;
                    return count;
                }
            }
        }
    }

    /**
     * Makes {@code rest} long enough for the unread bytes of a message. A very long array is not
     * kept for later messages.
     */
    private void makeRoom(int length) {
        if (rest.length < length || (rest.length > REST_BYTES_MAX && length <= REST_BYTES_MAX)) {
            rest = new byte[length];
        }
    }

    private final class Input extends InputStream {
        @Override
        public int read() throws IOException {
            return fill() ? rest[position++] & 0xff : -1;
        }

        @Override
        public int read(byte[] target, int offset, int length) throws IOException {
            Objects.checkFromIndexSize(offset, length, target.length);
            return ByteStream.this.read(target, offset, length);
        }

        @Override
        public int available() {
            return limit - position;
        }

        @Override
        public void close() {
            stream.close();
        }
    }

    private final class Output extends OutputStream {
        private final byte[] one = new byte[1];

        @Override
        public void write(int value) throws IOException {
            one[0] = (byte) value;
            stream.send(one);
        }

        @Override
        public void write(byte[] source, int offset, int length) throws IOException {
            Objects.checkFromIndexSize(offset, length, source.length);
            for (int sent = 0; sent < length; ) {
                int count = Math.min(length - sent, MESSAGE_BYTES_MAX);
                stream.send(source, offset + sent, count);
                sent += count;
            }
        }

        @Override
        public void close() throws IOException {
            if (!stream.isClosed()) {
                stream.finish();
            }
        }
    }

    private static final int MESSAGE_BYTES_MAX = 32 << 10;
    /** Maximum length in bytes of the array that is kept for unread bytes of later messages. */
    private static final int REST_BYTES_MAX = 64 << 10;
}
