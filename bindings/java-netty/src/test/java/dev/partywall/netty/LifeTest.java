// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import dev.partywall.Config;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelFutureListener;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoop;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.unix.DomainSocketAddress;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.AlreadyConnectedException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ConnectionPendingException;
import java.nio.channels.UnsupportedAddressTypeException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Tests how channels begin and end. */
@Timeout(120)
final class LifeTest {
    private static ChannelHandler[] echo() {
        return new ChannelHandler[] {new EchoTest.Echo()};
    }

    @AfterAll
    static void nothingHasLeaked() {
        RecordingLeakDetector.check();
    }

    private static Throwable failureOf(ChannelFuture future) throws Exception {
        assertTrue(future.await(Ends.SOON_SECONDS, TimeUnit.SECONDS));
        assertFalse(future.isSuccess());
        return future.cause();
    }

    @Test
    void addressesOfOtherTypesAreUnderstood() throws Exception {
        assertEquals("unix:/run/a", PartywallAddress.of(new DomainSocketAddress("/run/a")).toString());
        assertEquals("unix:/run/a", PartywallAddress.of(UnixDomainSocketAddress.of("/run/a")).toString());
        InetAddress loopback = InetAddress.getByAddress(new byte[] {127, 0, 0, 1});
        assertEquals("tcp:127.0.0.1:80", PartywallAddress.of(new InetSocketAddress(loopback, 80)).toString());
        InetAddress six = InetAddress.getByName("::1");
        assertEquals("tcp:[0:0:0:0:0:0:0:1]:80",
                PartywallAddress.of(new InetSocketAddress(six, 80)).toString());
        PartywallAddress address = new PartywallAddress("unix:@a");
        assertEquals(address, PartywallAddress.of(new PartywallAddress("unix:@a")));
        assertEquals(address.hashCode(), new PartywallAddress("unix:@a").hashCode());
        assertNotEquals(address, new PartywallAddress("unix:@b"));
        assertThrows(UnsupportedAddressTypeException.class, () -> PartywallAddress.of(new SocketAddress() {
            private static final long serialVersionUID = 1L;
        }));
    }

    @Test
    void bothEndsKnowAddresses(@TempDir Path directory) throws Exception {
        Path path = directory.resolve("a.sock");
        try (Ends ends = new Ends()) {
            ends.bind(ends.server(), "unix:" + path, LifeTest::echo);
            assertEquals("unix:" + path, ends.server.localAddress().toString());
            Channel client = Ends.done(ends.client().connect(UnixDomainSocketAddress.of(path))).channel();
            assertEquals(ends.server.localAddress(), client.remoteAddress());
            Channel child = ends.child();
            assertEquals(ends.server.localAddress(), child.localAddress());
            String peer = child.remoteAddress().toString();
            assertTrue(peer.contains(Long.toString(ProcessHandle.current().pid())), peer);
            Ends.done(ends.server.close());
            assertFalse(Files.exists(path));
        }
    }

    @Test
    void connectionOverTcpIsServed() throws Exception {
        Config config = Ends.config("socket");
        try (Ends ends = new Ends()) {
            ends.bind(ends.server().option(PartywallChannelOption.CONFIG, config), "tcp:127.0.0.1:0",
                    LifeTest::echo);
            Collector collector = new Collector();
            Channel client = Ends.done(ends.client(collector)
                    .option(PartywallChannelOption.CONFIG, config)
                    .connect(ends.server.localAddress())).channel();
            client.writeAndFlush(Unpooled.wrappedBuffer(new byte[300_000]));
            assertEquals(300_000, collector.await(300_000).length);
        }
    }

    @Test
    void connectFailsWithoutAListener() throws Exception {
        try (Ends ends = new Ends()) {
            ChannelFuture future = ends.client().connect(new PartywallAddress(Ends.address()));
            assertInstanceOf(ConnectException.class, failureOf(future));
            Ends.done(future.channel().closeFuture());
            ChannelFuture impossible = ends.client().connect(new PartywallAddress("nothing"));
            assertInstanceOf(ConnectException.class, failureOf(impossible));
            ChannelFuture another = ends.client().connect(new SocketAddress() {
                private static final long serialVersionUID = 1L;
            });
            assertInstanceOf(UnsupportedAddressTypeException.class, failureOf(another));
        }
    }

    @Test
    void connectThatNobodyAnswersTimesOutOrIsClosed() throws Exception {
        Config config = new Config().transport(Config.Transport.SOCKET);
        try (ServerSocket silent = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
                Ends ends = new Ends()) {
            SocketAddress address = silent.getLocalSocketAddress();
            ChannelFuture late = ends.client().option(PartywallChannelOption.CONFIG, config)
                    .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, 50).connect(address);
            assertInstanceOf(ConnectException.class, failureOf(late));
            Ends.done(late.channel().closeFuture());
            ChannelFuture closed = ends.client().option(PartywallChannelOption.CONFIG, config)
                    .connect(address);
            Ends.done(closed.channel().close());
            assertInstanceOf(ClosedChannelException.class, failureOf(closed));
            Channel channel = Ends.done(ends.client()
                    .option(PartywallChannelOption.CONFIG, config).register()).channel();
            ChannelFuture cancelled = channel.connect(address);
            assertInstanceOf(ConnectionPendingException.class, failureOf(channel.connect(address)));
            assertTrue(cancelled.cancel(false));
            Ends.done(channel.closeFuture());
        }
    }

    @Test
    void connectedChannelCannotBeConnectedAgain() throws Exception {
        try (Ends ends = new Ends()) {
            ends.bind(LifeTest::echo);
            Channel client = ends.connect();
            ChannelFuture again = client.connect(ends.server.localAddress());
            assertInstanceOf(AlreadyConnectedException.class, failureOf(again));
            assertTrue(client.isActive());
        }
    }

    @Test
    void childrenOutliveTheirServerChannel() throws Exception {
        try (Ends ends = new Ends()) {
            ends.bind(LifeTest::echo);
            Collector collector = new Collector();
            Channel client = ends.connect(collector);
            ends.child();
            Ends.done(ends.server.close());
            client.writeAndFlush(Unpooled.wrappedBuffer(new byte[1000]));
            assertEquals(1000, collector.await(1000).length);
            ChannelFuture refused = ends.client().connect(ends.server.localAddress());
            assertInstanceOf(Exception.class, failureOf(refused));
        }
    }

    @Test
    void peersLearnThatAnEventLoopIsShutDown() throws Exception {
        for (String transport : new String[] {"memory", "socket"}) {
            // Netty may end an event loop that was quiet for long enough without closing its
            // channels. So the test repeats the shutdown until it has closed them.
            while (!shutDownClosesChannels(Ends.config(transport))) {
            }
        }
    }

    /**
     * Shuts an event loop of a server down. Returns whether the event loop closed its channels
     * before it ended.
     */
    private static boolean shutDownClosesChannels(Config config) throws Exception {
        try (Ends ends = new Ends()) {
            ends.bind(ends.server().option(PartywallChannelOption.CONFIG, config), Ends.address(),
                    LifeTest::echo);
            Collector collector = new Collector();
            Channel client = Ends.done(ends.client(collector)
                    .option(PartywallChannelOption.CONFIG, config)
                    .connect(ends.server.localAddress())).channel();
            Channel child = ends.child();
            child.writeAndFlush(Unpooled.wrappedBuffer(new byte[200_000]));
            Ends.done(child.eventLoop().submit(() -> { }));
            Ends.shutDown(ends.workers);
            collector.inactive.get(Ends.SOON_SECONDS, TimeUnit.SECONDS);
            Ends.done(client.closeFuture());
            if (child.isOpen()) {
                return false;
            }
            assertEquals(200_000, collector.await(200_000).length);
            return true;
        }
    }

    @Test
    void bytesWrittenBeforeTheCloseAreReceived() throws Exception {
        try (Ends ends = new Ends()) {
            ends.bind(() -> new ChannelHandler[] {new SendAndClose()});
            for (int number = 0; number < 50; number++) {
                Collector collector = new Collector();
                Channel client = ends.connect(collector);
                Ends.done(client.closeFuture());
                assertEquals(500_000, collector.await(500_000).length);
            }
        }
    }

    private static final class SendAndClose extends io.netty.channel.ChannelInboundHandlerAdapter {
        @Override
        public void channelActive(io.netty.channel.ChannelHandlerContext context) {
            context.writeAndFlush(Unpooled.wrappedBuffer(new byte[500_000]))
                    .addListener(ChannelFutureListener.CLOSE);
        }
    }

    @Test
    void channelGoesOnInAnotherEventLoop() throws Exception {
        try (Ends ends = new Ends(0, 1, 2)) {
            ends.bind(LifeTest::echo);
            Collector collector = new Collector();
            Channel client = ends.connect(collector);
            for (int round = 1; round <= 4; round++) {
                client.writeAndFlush(Unpooled.wrappedBuffer(new byte[100_000]));
                Ends.done(client.deregister());
                EventLoop next = ends.clients.next();
                Ends.done(next.register(client));
                assertEquals(round * 100_000, collector.await(round * 100_000).length);
            }
            assertTrue(client.isActive());
        }
    }

    @Test
    void otherEventLoopsAreRefused() throws Exception {
        EventLoopGroup nio = new MultiThreadIoEventLoopGroup(1, NioIoHandler.newFactory());
        try {
            ChannelFuture registered = nio.register(new PartywallChannel());
            assertInstanceOf(IllegalStateException.class, failureOf(registered));
            assertInstanceOf(IllegalStateException.class,
                    failureOf(nio.register(new PartywallServerChannel())));
        } finally {
            Ends.shutDown(nio);
        }
    }
}
