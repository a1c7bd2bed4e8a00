// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/**
 * Measures round trips of two processes, over streams of Partywall and over Netty's own domain
 * sockets: an echo of Netty, and unary calls of grpc-java. The rounds of both transports take
 * turns, and the ratio of their times is the result.
 *
 * <pre>
 *   mvn … test -Dtest=Benchmark -DargLine=--enable-native-access=ALL-UNNAMED
 * </pre>
 */
final class Benchmark {
    private static final int ROUNDS = Integer.getInteger("partywall.rounds", 15);
    private static final long ROUND_NS = 300_000_000;

    private enum Kind { OURS, UNIX }

    /** A client that makes one round trip in each call of its operation. */
    private interface Client extends AutoCloseable {
        void run(int count) throws Exception;
    }

    /** The second process, with the servers: an echo and a gRPC service over each transport. */
    static final class Servers {
        private Servers() {}

        public static void main(String[] arguments) throws Exception {
            Path directory = Path.of(arguments[0]);
            for (Kind kind : Kind.values()) {
                EventLoopGroup group = Ends.group(1);
                Ends.done(new ServerBootstrap().group(group)
                        .channel(kind == Kind.OURS
                                ? PartywallServerChannel.class : EpollServerDomainSocketChannel.class)
                        .childHandler(new ChannelInitializer<>() {
                            @Override
                            protected void initChannel(Channel channel) {
                                channel.pipeline().addLast(new EchoTest.Echo());
                            }
                        }).bind(address(kind, directory, "echo")));
                NettyServerBuilder.forAddress(address(kind, directory, "grpc"))
                        .bossEventLoopGroup(group).workerEventLoopGroup(group)
                        .channelType(kind == Kind.OURS
                                ? PartywallServerChannel.class : EpollServerDomainSocketChannel.class)
                        .directExecutor().addService(new EchoService()).build().start();
            }
            System.out.println("listening");
            System.in.read(); // until the client has ended
            System.exit(0);
        }
    }

    /** Sends a message; when its echo has come, sends the next. */
    private static final class PingPong extends ChannelInboundHandlerAdapter {
        private final byte[] message;
        private int missing;
        private int left;
        private CountDownLatch done;

        PingPong(int size) {
            message = new byte[size];
        }

        void start(ChannelHandlerContext context, int count, CountDownLatch latch) {
            left = count;
            done = latch;
            send(context);
        }

        private void send(ChannelHandlerContext context) {
            missing = message.length;
            context.writeAndFlush(context.alloc().ioBuffer(message.length).writeBytes(message));
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object received) {
            ByteBuf buffer = (ByteBuf) received;
            missing -= buffer.readableBytes();
            buffer.release();
            if (missing > 0) {
                return;
            }
            if (--left > 0) {
                send(context);
            } else {
                done.countDown();
            }
        }
    }

    private static SocketAddress address(Kind kind, Path directory, String name) {
        Path path = directory.resolve(kind + "-" + name);
        return kind == Kind.OURS
                ? new PartywallAddress("unix:" + path) : new DomainSocketAddress(path.toString());
    }

    private static Client echo(Kind kind, Path directory, int size) throws Exception {
        PingPong handler = new PingPong(size);
        EventLoopGroup group = Ends.group(1);
        Channel channel = Ends.done(new Bootstrap().group(group)
                .channel(kind == Kind.OURS ? PartywallChannel.class : EpollDomainSocketChannel.class)
                .handler(handler).connect(address(kind, directory, "echo"))).channel();
        ChannelHandlerContext context = channel.pipeline().firstContext();
        return new Client() {
            @Override
            public void run(int count) throws InterruptedException {
                CountDownLatch done = new CountDownLatch(1);
                channel.eventLoop().execute(() -> handler.start(context, count, done));
                done.await();
            }

            @Override
            public void close() throws Exception {
                Ends.shutDown(group);
            }
        };
    }

    private static Client unary(Kind kind, Path directory, int size) {
        EventLoopGroup group = Ends.group(1);
        ManagedChannel channel = NettyChannelBuilder.forAddress(address(kind, directory, "grpc"))
                .overrideAuthority("localhost").usePlaintext().eventLoopGroup(group)
                .channelType(kind == Kind.OURS ? PartywallChannel.class : EpollDomainSocketChannel.class)
                .directExecutor().build();
        byte[] request = new byte[size];
        return new Client() {
            @Override
            public void run(int count) {
                for (int number = 0; number < count; number++) {
                    ClientCalls.blockingUnaryCall(
                            channel, EchoService.UNARY, CallOptions.DEFAULT, request);
                }
            }

            @Override
            public void close() throws Exception {
                channel.shutdownNow().awaitTermination(Ends.SOON_SECONDS, TimeUnit.SECONDS);
                Ends.shutDown(group);
            }
        };
    }

    private static double time(Client client, int count) throws Exception {
        long start = System.nanoTime();
        client.run(count);
        return (System.nanoTime() - start) / 1e3 / count;
    }

    private static void compare(String name, Client ours, Client unix) throws Exception {
        for (Client client : List.of(ours, unix, ours, unix)) {
            client.run(WARM_UP);
        }
        int count = (int) Math.max(100, ROUND_NS / 1e3 / time(unix, WARM_UP));
        double[] here = new double[ROUNDS];
        double[] there = new double[ROUNDS];
        double[] ratios = new double[ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            here[round] = time(ours, count);
            there[round] = time(unix, count);
            ratios[round] = here[round] / there[round];
        }
        System.out.printf(Locale.ROOT, "%-22s %s   %s   %s%n",
                name, spread(here), spread(there), spread(ratios));
        ours.close();
        unix.close();
    }

    private static String spread(double[] values) {
        double[] sorted = values.clone();
        Arrays.sort(sorted);
        return String.format(Locale.ROOT, "%7.2f (%.2f–%.2f)",
                sorted[sorted.length / 2], sorted[0], sorted[sorted.length - 1]);
    }

    @Test
    void compare() throws Exception {
        main(new String[0]);
    }

    public static void main(String[] arguments) throws Exception {
        Path directory = Files.createTempDirectory("partywall-netty-");
        Process servers = new ProcessBuilder(System.getProperty("java.home") + "/bin/java",
                "--enable-native-access=ALL-UNNAMED", "-cp", System.getProperty("java.class.path"),
                Servers.class.getName(), directory.toString())
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            if (!"listening".equals(servers.inputReader().readLine())) {
                throw new IllegalStateException("the servers have not started");
            }
            System.out.println("µs, median (least–greatest)    ours    Unix socket    ratio");
            for (int size : new int[] {48, 4096, 65_536}) {
                compare("Netty echo " + size, echo(Kind.OURS, directory, size),
                        echo(Kind.UNIX, directory, size));
            }
            for (int size : new int[] {48, 4096, 65_536}) {
                compare("grpc unary " + size, unary(Kind.OURS, directory, size),
                        unary(Kind.UNIX, directory, size));
            }
        } finally {
            servers.destroyForcibly().waitFor();
            List<Path> files = new ArrayList<>();
            try (var found = Files.list(directory)) {
                found.forEach(files::add);
            }
            for (Path file : files) {
                Files.delete(file);
            }
            Files.delete(directory);
        }
    }

    private static final int WARM_UP = 5000;
}
