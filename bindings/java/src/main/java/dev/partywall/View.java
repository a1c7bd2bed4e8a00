// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;

/**
 * A received message in the memory in which it arrived, without a copy. {@link #close} ends the
 * view and gives the memory back to the sender. Close the view before the next message is received.
 *
 * <p>A channel or stream has one view, which it uses again for each message, so a message allocates
 * nothing. After {@code close} every method throws {@link IllegalStateException}, until the next
 * message is received. Only the thread that received the message may use the view.
 */
public final class View implements AutoCloseable {
    private final MessageChannel channel;
    /**
     * The thread that received the message; null unless the view is open. A thread compares the
     * field only with itself, so it needs no memory order.
     */
    private Thread owner;
    private long address;
    private long length;
    private Arena arena;
    private MemorySegment segment;

    View(MessageChannel channel) {
        this.channel = channel;
    }

    void open(long address, long length) {
        this.address = address;
        this.length = length;
        owner = Thread.currentThread();
    }

    /** Returns the length of the message in bytes. */
    public long byteSize() {
        check();
        return length;
    }

    /** Returns the byte at an offset of the message. */
    public byte get(long offset) {
        return Native.MEMORY.get(ValueLayout.JAVA_BYTE, at(offset, 1));
    }

    /** Returns the {@code int} at an offset of the message, in the byte order of the machine. */
    public int getInt(long offset) {
        return Native.MEMORY.get(ValueLayout.JAVA_INT_UNALIGNED, at(offset, Integer.BYTES));
    }

    /** Returns the {@code long} at an offset of the message, in the byte order of the machine. */
    public long getLong(long offset) {
        return Native.MEMORY.get(ValueLayout.JAVA_LONG_UNALIGNED, at(offset, Long.BYTES));
    }

    /** Copies {@code count} bytes from an offset of the message to an array. */
    public void copyTo(long offset, byte[] target, int targetOffset, int count) {
        MemorySegment.copy(
                Native.MEMORY, ValueLayout.JAVA_BYTE, at(offset, count), target, targetOffset, count);
    }

    /** Copies as many bytes from an offset of the message as {@code target} has room for. */
    public void copyTo(long offset, ByteBuffer target) {
        int count = target.remaining();
        MemorySegment.copy(Native.MEMORY, at(offset, count), MemorySegment.ofBuffer(target), 0, count);
        target.position(target.limit());
    }

    /** Returns a copy of the message. */
    public byte[] toArray() {
        check();
        return Native.bytes(address, length);
    }

    /**
     * Returns the message as a read-only segment. Closing the view closes the segment's arena,
     * after which the segment throws {@link IllegalStateException}. This method allocates the
     * segment and its arena.
     */
    public MemorySegment segment() {
        check();
        if (segment == null) {
            arena = Arena.ofConfined();
            segment = MemorySegment.ofAddress(address).reinterpret(length, arena, null).asReadOnly();
        }
        return segment;
    }

    /**
     * Makes the message an object that the program owns, and ends the view. A long message is not
     * copied, and stays in the memory of its sender.
     */
    public Message keep() throws IOException {
        check();
        Message message = channel.keepMessage();
        close();
        return message;
    }

    /** Ends the view. A second call does nothing. */
    @Override
    public void close() {
        if (owner == null) {
            return;
        }
        check();
        if (arena != null) {
            arena.close();
            arena = null;
            segment = null;
        }
        owner = null;
        channel.endView();
    }

    /** Ends the view if this thread received its message. */
    void closeIfOwned() {
        if (owner == Thread.currentThread()) {
            close();
        }
    }

    /** Throws an exception if this thread has not closed its view of the last message. */
    void checkClosed() {
        if (owner == Thread.currentThread()) {
            throw new IllegalStateException("close the view of the last message first");
        }
    }

    private long at(long offset, long count) {
        check();
        if ((offset | count) < 0 || offset > length - count) {
            throw new IndexOutOfBoundsException(
                    count + " bytes at " + offset + " of a message of " + length);
        }
        return address + offset;
    }

    private void check() {
        if (owner != Thread.currentThread()) {
            throw owner == null
                    ? new IllegalStateException("the view has ended")
                    : new WrongThreadException("the view belongs to the thread that received it");
        }
    }
}
