// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import io.netty.buffer.ByteBuf;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Keeps the bytes, events and exceptions that a channel receives. */
final class Collector extends ChannelInboundHandlerAdapter {
    /** User events and exceptions of the channel, in their order. */
    final LinkedBlockingQueue<Object> events = new LinkedBlockingQueue<>();
    final CompletableFuture<Void> inactive = new CompletableFuture<>();
    private byte[] bytes = new byte[1024];
    private int length;

    @Override
    public synchronized void channelRead(ChannelHandlerContext context, Object message) {
        ByteBuf buffer = (ByteBuf) message;
        int count = buffer.readableBytes();
        if (length + count > bytes.length) {
            bytes = Arrays.copyOf(bytes, Math.max(2 * bytes.length, length + count));
        }
        buffer.readBytes(bytes, length, count);
        buffer.release();
        length += count;
        notifyAll();
    }

    @Override
    public void userEventTriggered(ChannelHandlerContext context, Object event) {
        events.add(event);
    }

    @Override
    public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
        events.add(cause);
    }

    @Override
    public synchronized void channelInactive(ChannelHandlerContext context) {
        inactive.complete(null);
        notifyAll();
    }

    /**
     * Waits until {@code count} bytes have come, or the channel has ended, and returns the bytes.
     */
    synchronized byte[] await(int count) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Ends.SOON_SECONDS);
        while (length < count && !inactive.isDone()) {
            long left = TimeUnit.NANOSECONDS.toMillis(deadline - System.nanoTime());
            if (left <= 0) {
                throw new AssertionError("only " + length + " bytes of " + count + " have come");
            }
            wait(left);
        }
        return Arrays.copyOf(bytes, length);
    }

    Object event() throws InterruptedException {
        return events.poll(Ends.SOON_SECONDS, TimeUnit.SECONDS);
    }

    static byte[] pattern(int length, int seed) {
        byte[] pattern = new byte[length];
        for (int index = 0; index < length; index++) {
            pattern[index] = (byte) (seed + index * 31 + (index >> 8) + (index >> 16));
        }
        return pattern;
    }
}
