// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.partywall.Config;
import dev.partywall.Session;
import dev.partywall.Stream;
import io.netty.buffer.AdaptiveByteBufAllocator;
import io.netty.buffer.ByteBufAllocator;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.buffer.Unpooled;
import io.netty.buffer.UnpooledByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.FileRegion;
import io.netty.channel.FixedRecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.ChannelInputShutdownReadComplete;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Tests that channels carry bytes and their end, and hold bytes back while there is no credit. */
@Timeout(120)
final class EchoTest {
    static final class Echo extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.write(message);
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }
    }

    private static ChannelHandler[] echo() {
        return new ChannelHandler[] {new Echo()};
    }

    @AfterAll
    static void nothingHasLeaked() {
        RecordingLeakDetector.check();
    }

    @ParameterizedTest
    @ValueSource(strings = {"memory", "begins on a socket", "socket"})
    void bytesOfEverySizeComeBack(String transport) throws Exception {
        Config config = Ends.config(transport);
        try (Ends ends = new Ends()) {
            ends.bind(ends.server().option(PartywallChannelOption.CONFIG, config), Ends.address(),
                    EchoTest::echo);
            Collector collector = new Collector();
            Channel client = Ends.done(ends.client(collector)
                    .option(PartywallChannelOption.CONFIG, config)
                    .connect(ends.server.localAddress())).channel();
            ByteArrayOutputStream sent = new ByteArrayOutputStream();
            for (int size : new int[] {0, 1, 48, 1024, 1025, 4095, 4096, 4097, 65_471, 65_472, 65_473,
                    131_072, 1 << 20, 8 << 20}) {
                byte[] bytes = Collector.pattern(size, size);
                sent.write(bytes);
                client.writeAndFlush(Unpooled.wrappedBuffer(bytes));
            }
            assertArrayEquals(sent.toByteArray(), collector.await(sent.size()));
        }
    }

    @Test
    void buffersOfEveryKindAreSent() throws Exception {
        List<ByteBufAllocator> allocators = List.of(PooledByteBufAllocator.DEFAULT,
                UnpooledByteBufAllocator.DEFAULT, new AdaptiveByteBufAllocator());
        for (ByteBufAllocator allocator : allocators) {
            try (Ends ends = new Ends()) {
                ends.bind(ends.server().childOption(ChannelOption.ALLOCATOR, allocator),
                        Ends.address(), EchoTest::echo);
                Collector collector = new Collector();
                Channel client = ends.connect(collector);
                ByteArrayOutputStream sent = new ByteArrayOutputStream();
                int seed = 0;
                for (int size : new int[] {1, 3000, 40_000, 200_000}) {
                    byte[][] parts = new byte[5][];
                    for (int index = 0; index < parts.length; index++) {
                        parts[index] = Collector.pattern(size, ++seed);
                        sent.write(parts[index]);
                    }
                    client.write(allocator.heapBuffer(size).writeBytes(parts[0]));
                    client.write(allocator.directBuffer(size).writeBytes(parts[1]));
                    client.write(Unpooled.EMPTY_BUFFER);
                    client.write(allocator.compositeBuffer()
                            .addComponent(true, allocator.heapBuffer(size).writeBytes(parts[2]))
                            .addComponent(true, allocator.directBuffer(size).writeBytes(parts[3])));
                    client.writeAndFlush(Unpooled.wrappedBuffer(parts[4]).asReadOnly());
                }
                assertArrayEquals(sent.toByteArray(), collector.await(sent.size()));
            }
        }
    }

    @Test
    void channelWithoutAutomaticReadsReceivesOncePerRead() throws Exception {
        try (Ends ends = new Ends()) {
            Collector collector = new Collector();
            ends.bind(ends.server().childOption(ChannelOption.AUTO_READ, false)
                    .childOption(ChannelOption.RECVBUF_ALLOCATOR,
                            new FixedRecvByteBufAllocator(1000).maxMessagesPerRead(1)),
                    Ends.address(), () -> new ChannelHandler[] {collector});
            Channel client = ends.connect();
            Channel child = ends.child();
            for (int number = 0; number < 3; number++) {
                Ends.done(client.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {(byte) number})));
            }
            assertEquals(0, collector.await(0).length);
            for (int number = 1; number <= 3; number++) {
                child.read();
                assertEquals(number, collector.await(number).length);
            }
            child.read(); // reads what comes later
            client.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {3}));
            assertArrayEquals(new byte[] {0, 1, 2, 3}, collector.await(4));
        }
    }

    @Test
    void channelIsNotWritableWithoutCredit() throws Exception {
        BlockingQueue<Boolean> changes = new LinkedBlockingQueue<>();
        ChannelHandler observer = new ChannelInboundHandlerAdapter() {
            @Override
            public void channelWritabilityChanged(ChannelHandlerContext context) {
                changes.add(context.channel().isWritable());
            }
        };
        try (Ends ends = new Ends()) {
            Collector collector = new Collector();
            ends.bind(ends.server().childOption(ChannelOption.AUTO_READ, false), Ends.address(),
                    () -> new ChannelHandler[] {collector});
            Channel client = Ends.done(ends.client(observer).option(ChannelOption.WRITE_BUFFER_WATER_MARK,
                    new WriteBufferWaterMark(10_000, 20_000)).connect(ends.server.localAddress())).channel();
            byte[] bytes = Collector.pattern(1 << 20, 1);
            ChannelFuture written = client.writeAndFlush(Unpooled.wrappedBuffer(bytes));
            assertEquals(false, changes.poll(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            Ends.done(client.eventLoop().submit(() -> { })); // which runs behind the flush
            assertFalse(client.isWritable());
            assertFalse(written.isDone());
            ends.child().config().setAutoRead(true);
            assertArrayEquals(bytes, collector.await(bytes.length));
            Ends.done(written);
            Boolean isWritable;
            do {
                isWritable = changes.poll(Ends.SOON_SECONDS, TimeUnit.SECONDS);
            } while (Boolean.FALSE.equals(isWritable)); // Netty itself reports some changes twice
            assertEquals(true, isWritable);
            assertTrue(client.isWritable());
        }
    }

    @Test
    void halfClosedChannelStillSends() throws Exception {
        try (Ends ends = new Ends()) {
            Collector there = new Collector();
            ends.bind(ends.server().childOption(ChannelOption.ALLOW_HALF_CLOSURE, true),
                    Ends.address(), () -> new ChannelHandler[] {there});
            Collector here = new Collector();
            PartywallChannel client = (PartywallChannel) ends.connect(here);
            client.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {1, 2}));
            Ends.done(client.shutdownOutput());
            assertTrue(client.isOutputShutdown() && !client.isInputShutdown());
            assertEquals(ChannelInputShutdownEvent.INSTANCE, there.event());
            assertEquals(ChannelInputShutdownReadComplete.INSTANCE, there.event());
            assertArrayEquals(new byte[] {1, 2}, there.await(2));
            PartywallChannel child = (PartywallChannel) ends.child();
            assertTrue(child.isActive() && child.isInputShutdown() && !child.isOutputShutdown());
            child.writeAndFlush(Unpooled.wrappedBuffer(Collector.pattern(300_000, 7)))
                    .addListener(ChannelFutureListener.CLOSE);
            here.inactive.get(Ends.SOON_SECONDS, TimeUnit.SECONDS);
            assertArrayEquals(Collector.pattern(300_000, 7), here.await(300_000));
        }
    }

    @Test
    void peerThatWantsNoInputMakesWritingFail() throws Exception {
        try (Ends ends = new Ends()) {
            ends.bind(() -> new ChannelHandler[0]);
            Channel client = ends.connect();
            Ends.done(((PartywallChannel) ends.child()).shutdownInput());
            Throwable failure;
            do {
                ChannelFuture written = client.writeAndFlush(Unpooled.wrappedBuffer(new byte[100]));
                assertTrue(written.await(Ends.SOON_SECONDS, TimeUnit.SECONDS));
                failure = written.cause();
            } while (failure == null);
            assertInstanceOf(java.io.IOException.class, failure);
            Ends.done(client.closeFuture());
        }
    }

    @Test
    void regionOfAFileIsSent(@TempDir Path directory) throws Exception {
        byte[] bytes = Collector.pattern(300_000, 3);
        File file = Files.write(directory.resolve("file"), bytes).toFile();
        try (Ends ends = new Ends()) {
            Collector collector = new Collector();
            ends.bind(() -> new ChannelHandler[] {collector});
            Channel client = ends.connect();
            client.write(Unpooled.wrappedBuffer(new byte[] {9}));
            FileRegion region = new DefaultFileRegion(file, 0, bytes.length);
            Ends.done(client.writeAndFlush(region));
            byte[] received = collector.await(bytes.length + 1);
            assertEquals(9, received[0]);
            assertArrayEquals(bytes, java.util.Arrays.copyOfRange(received, 1, received.length));
            ChannelFuture tooLong = client.writeAndFlush(new DefaultFileRegion(file, 0, bytes.length + 1));
            assertTrue(tooLong.await(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            assertInstanceOf(java.io.IOException.class, tooLong.cause());
        }
    }

    /**
     * A channel in shared memory takes ten descriptors at each end, so the test has fewer channels
     * over shared memory than over a socket.
     */
    @ParameterizedTest
    @CsvSource({"socket, 500", "memory, 100"})
    void manyChannelsOverSeveralEventLoopsAreServed(String transport, int count) throws Exception {
        Config config = Ends.config(transport);
        try (Ends ends = new Ends(1, 2, 2)) {
            ends.bind(ends.server().option(PartywallChannelOption.CONFIG, config), Ends.address(),
                    EchoTest::echo);
            List<Collector> collectors = new ArrayList<>();
            List<ChannelFuture> connecting = new ArrayList<>();
            for (int number = 0; number < count; number++) {
                Collector collector = new Collector();
                collectors.add(collector);
                connecting.add(ends.client(collector).option(PartywallChannelOption.CONFIG, config)
                        .connect(ends.server.localAddress()));
            }
            for (int round = 1; round <= 3; round++) {
                for (ChannelFuture future : connecting) {
                    Ends.done(future).channel().writeAndFlush(Unpooled.wrappedBuffer(new byte[100]));
                }
                for (Collector collector : collectors) {
                    assertEquals(round * 100, collector.await(round * 100).length);
                }
            }
        }
    }

    @Test
    void streamsOfOneSessionAreChannels() throws Exception {
        try (Ends ends = new Ends(1, 2, 1)) {
            ends.bind(EchoTest::echo);
            try (Session session = Session.connect(ends.server.localAddress().toString())) {
                List<Stream> streams = new ArrayList<>();
                for (int number = 0; number < 20; number++) {
                    streams.add(session.open());
                }
                byte[] target = new byte[1000];
                for (Stream stream : streams) {
                    stream.send(Collector.pattern(1000, 5));
                    assertEquals(1000, stream.recv(target, Duration.ofSeconds(Ends.SOON_SECONDS)));
                    assertArrayEquals(Collector.pattern(1000, 5), target);
                }
                for (Stream stream : streams) {
                    stream.finish();
                    assertEquals(null, stream.recv(Duration.ofSeconds(Ends.SOON_SECONDS)));
                    stream.close();
                }
            }
        }
    }

    @Test
    void messagesOfAnySizeOfAnotherProgramAreRead() throws Exception {
        Config config = new Config().begin(Config.Begin.SHARED_MEMORY);
        try (Ends ends = new Ends()) {
            Collector collector = new Collector();
            ends.bind(() -> new ChannelHandler[] {collector});
            try (Session session = Session.connect(ends.server.localAddress().toString(), config);
                    Stream stream = session.open()) {
                stream.send(new byte[0]);
                stream.send(Collector.pattern(200_000, 1));
                stream.send(new byte[0]);
                stream.finish();
                assertArrayEquals(Collector.pattern(200_000, 1), collector.await(200_001));
            }
        }
    }
}
