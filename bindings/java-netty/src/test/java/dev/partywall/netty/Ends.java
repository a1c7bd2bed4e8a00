// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import dev.partywall.Config;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.util.concurrent.Future;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;

/** Event loops, a server channel, and clients of it, for one test. */
final class Ends implements AutoCloseable {
    static final long SOON_SECONDS = 60;
    private static final long QUIET_MILLIS = 50;
    private static final AtomicInteger COUNT = new AtomicInteger();

    final EventLoopGroup boss;
    final EventLoopGroup workers;
    final EventLoopGroup clients;
    /** The server's child channels, in the order in which their pipelines were made. */
    final BlockingQueue<Channel> children = new LinkedBlockingQueue<>();
    Channel server;

    /**
     * Makes event loops of a server and of its clients. With {@code bossThreads} 0 the worker
     * threads also accept.
     */
    Ends(int bossThreads, int workerThreads, int clientThreads) {
        workers = group(workerThreads);
        boss = bossThreads == 0 ? workers : group(bossThreads);
        clients = group(clientThreads);
    }

    Ends() {
        this(0, 1, 1);
    }

    static EventLoopGroup group(int threads) {
        return new MultiThreadIoEventLoopGroup(threads, EpollIoHandler.newFactory());
    }

    static String address() {
        return "unix:@partywall-netty-" + ProcessHandle.current().pid() + "-" + COUNT.incrementAndGet();
    }

    /**
     * Returns the settings for a transport: shared memory from the beginning, or one of the
     * sockets.
     */
    static Config config(String transport) {
        return switch (transport) {
            case "memory" -> new Config().begin(Config.Begin.SHARED_MEMORY);
            case "begins on a socket" -> new Config();
            default -> new Config().transport(Config.Transport.SOCKET);
        };
    }

    ServerBootstrap server() {
        return new ServerBootstrap().group(boss, workers).channel(PartywallServerChannel.class);
    }

    /** Binds a bootstrap at an address; the supplier makes the handlers of its child channels. */
    Ends bind(ServerBootstrap bootstrap, String address, Supplier<ChannelHandler[]> handlers)
            throws Exception {
        bootstrap.childHandler(new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel child) {
                children.add(child);
                child.pipeline().addLast(handlers.get());
            }
        });
        server = done(bootstrap.bind(new PartywallAddress(address))).channel();
        return this;
    }

    Ends bind(Supplier<ChannelHandler[]> handlers) throws Exception {
        return bind(server(), address(), handlers);
    }

    Bootstrap client(ChannelHandler... handlers) {
        return new Bootstrap().group(clients).channel(PartywallChannel.class)
                .handler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(handlers);
                    }
                });
    }

    Channel connect(ChannelHandler... handlers) throws Exception {
        return done(client(handlers).connect(server.localAddress())).channel();
    }

    Channel child() throws Exception {
        Channel child = children.poll(SOON_SECONDS, TimeUnit.SECONDS);
        if (child == null) {
            throw new AssertionError("no child in time");
        }
        return child;
    }

    /** Waits for a future, and returns it if it has succeeded; throws if not. */
    static <V, F extends Future<V>> F done(F future) throws Exception {
        if (!future.await(SOON_SECONDS, TimeUnit.SECONDS)) {
            throw new AssertionError("not done in time");
        }
        if (!future.isSuccess()) {
            throw new AssertionError("failed", future.cause());
        }
        return future;
    }

    /**
     * Shuts event loops down and waits for their end, with a quiet period: without it, some
     * channels would stay open.
     */
    static void shutDown(EventLoopGroup... groups) throws Exception {
        for (EventLoopGroup group : groups) {
            group.shutdownGracefully(QUIET_MILLIS, 1000 * SOON_SECONDS, TimeUnit.MILLISECONDS);
        }
        for (EventLoopGroup group : groups) {
            done(group.terminationFuture());
        }
    }

    @Override
    public void close() throws Exception {
        shutDown(clients, workers, boss);
    }

}
