// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import io.netty.channel.EventLoopGroup;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Tests grpc-java, unmodified, with Partywall's channel types and event loops set in its builders.
 */
@Timeout(120)
final class GrpcTest {
    private static final class Pair implements AutoCloseable {
        private final EventLoopGroup servers = Ends.group(1);
        private final EventLoopGroup clients = Ends.group(1);
        private final EchoService service = new EchoService();
        private final Server server;
        private final ManagedChannel channel;

        Pair() throws IOException {
            server = EchoService.serve(servers, new PartywallAddress(Ends.address()), service);
            channel = connect(clients, server.getListenSockets().get(0).toString());
        }

        @Override
        public void close() throws Exception {
            channel.shutdownNow();
            assertTrue(channel.awaitTermination(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            server.shutdownNow();
            assertTrue(server.awaitTermination(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            Ends.shutDown(clients, servers);
        }
    }

    /** The server process, which the test kills. */
    static final class Peer {
        private Peer() {}

        public static void main(String[] arguments) throws Exception {
            try {
                EchoService.serve(Ends.group(1), new PartywallAddress(arguments[0]), new EchoService());
                System.out.println("listening");
                System.in.read(); // until the test ends, which closes the pipe
            } finally {
                System.exit(0); // event loops are no daemons
            }
        }
    }

    @AfterAll
    static void nothingHasLeaked() {
        RecordingLeakDetector.check();
    }

    private static ManagedChannel connect(EventLoopGroup group, String address) {
        return NettyChannelBuilder.forAddress(new PartywallAddress(address))
                .overrideAuthority("localhost").channelType(PartywallChannel.class)
                .eventLoopGroup(group).usePlaintext().build();
    }

    private static byte[] call(ManagedChannel channel, byte[] request) {
        CallOptions soon = CallOptions.DEFAULT.withDeadlineAfter(Ends.SOON_SECONDS, TimeUnit.SECONDS);
        return ClientCalls.blockingUnaryCall(channel, EchoService.UNARY, soon, request);
    }

    private static Status.Code codeOf(Runnable call) {
        return assertThrows(StatusRuntimeException.class, call::run).getStatus().getCode();
    }

    private static final class Answers implements StreamObserver<byte[]> {
        private final BlockingQueue<byte[]> messages = new LinkedBlockingQueue<>();
        private final CompletableFuture<Void> end = new CompletableFuture<>();

        @Override
        public void onNext(byte[] answer) {
            messages.add(answer);
        }

        @Override
        public void onError(Throwable failure) {
            end.completeExceptionally(failure);
        }

        @Override
        public void onCompleted() {
            end.complete(null);
        }

        byte[] next() throws InterruptedException {
            return messages.poll(Ends.SOON_SECONDS, TimeUnit.SECONDS);
        }
    }

    @Test
    void unaryCallsOfEverySizeAreAnswered() throws Exception {
        try (Pair pair = new Pair()) {
            for (int size : new int[] {0, 1, 100, 16_384, 100_000, 4_000_000}) {
                byte[] request = Collector.pattern(size, size);
                assertArrayEquals(request, call(pair.channel, request));
            }
            List<CompletableFuture<byte[]>> calls = new ArrayList<>();
            for (int number = 0; number < 200; number++) {
                byte[] request = Collector.pattern(1000, number);
                calls.add(CompletableFuture.supplyAsync(() -> call(pair.channel, request)));
            }
            for (int number = 0; number < calls.size(); number++) {
                assertArrayEquals(Collector.pattern(1000, number), calls.get(number).get());
            }
        }
    }

    @Test
    void callsStreamInEachDirection() throws Exception {
        try (Pair pair = new Pair()) {
            Iterator<byte[]> split = ClientCalls.blockingServerStreamingCall(
                    pair.channel, EchoService.SPLIT, CallOptions.DEFAULT, Collector.pattern(1000, 1));
            for (byte value : Collector.pattern(1000, 1)) {
                assertArrayEquals(new byte[] {value}, split.next());
            }
            assertEquals(false, split.hasNext());
            Answers counted = new Answers();
            send(ClientCalls.asyncClientStreamingCall(
                    pair.channel.newCall(EchoService.COUNT, CallOptions.DEFAULT), counted),
                    requests -> {
                        for (int number = 0; number < 100; number++) {
                            requests.onNext(new byte[5000]);
                        }
                    });
            assertArrayEquals("500000".getBytes(), counted.next());
            Answers echoed = new Answers();
            StreamObserver<byte[]> requests = ClientCalls.asyncBidiStreamingCall(
                    pair.channel.newCall(EchoService.ECHO, CallOptions.DEFAULT), echoed);
            for (int number = 0; number < 100; number++) {
                requests.onNext(Collector.pattern(3000, number));
                assertArrayEquals(Collector.pattern(3000, number), echoed.next());
            }
            requests.onCompleted();
            echoed.end.get(Ends.SOON_SECONDS, TimeUnit.SECONDS);
        }
    }

    private static void send(StreamObserver<byte[]> requests, Consumer<StreamObserver<byte[]>> body) {
        body.accept(requests);
        requests.onCompleted();
    }

    @Test
    void cancelledCallIsCancelledAtTheServer() throws Exception {
        try (Pair pair = new Pair()) {
            var call = ClientCalls.futureUnaryCall(
                    pair.channel.newCall(EchoService.SILENT, CallOptions.DEFAULT), new byte[1]);
            assertTrue(pair.service.begun.await(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            assertTrue(call.cancel(true));
            assertTrue(pair.service.cancelled.await(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            assertArrayEquals(new byte[] {7}, call(pair.channel, new byte[] {7}));
        }
    }

    @Test
    void callWithoutAnAnswerEndsAtItsDeadline() throws Exception {
        try (Pair pair = new Pair()) {
            CallOptions late = CallOptions.DEFAULT.withDeadlineAfter(100, TimeUnit.MILLISECONDS);
            assertEquals(Status.Code.DEADLINE_EXCEEDED, codeOf(() -> ClientCalls.blockingUnaryCall(
                    pair.channel, EchoService.SILENT, late, new byte[1])));
            assertArrayEquals(new byte[] {7}, call(pair.channel, new byte[] {7}));
        }
    }

    @Test
    void killedServerIsUnavailableAndItsSuccessorIsFound() throws Exception {
        String address = Ends.address();
        EventLoopGroup group = Ends.group(1);
        ManagedChannel channel = connect(group, address);
        try {
            Process first = start(address);
            try {
                assertArrayEquals(new byte[] {1}, call(channel, new byte[] {1}));
                var pending = ClientCalls.futureUnaryCall(
                        channel.newCall(EchoService.SILENT, CallOptions.DEFAULT), new byte[1]);
                assertArrayEquals(new byte[] {2}, call(channel, new byte[] {2}));
                first.destroyForcibly().waitFor();
                var failure = assertThrows(java.util.concurrent.ExecutionException.class,
                        () -> pending.get(Ends.SOON_SECONDS, TimeUnit.SECONDS));
                assertEquals(Status.Code.UNAVAILABLE, Status.fromThrowable(failure).getCode());
                assertEquals(Status.Code.UNAVAILABLE, codeOf(() -> call(channel, new byte[1])));
            } finally {
                first.destroyForcibly();
            }
            Process second = start(address);
            try {
                CallOptions ready = CallOptions.DEFAULT.withWaitForReady()
                        .withDeadlineAfter(Ends.SOON_SECONDS, TimeUnit.SECONDS);
                assertArrayEquals(new byte[] {3}, ClientCalls.blockingUnaryCall(
                        channel, EchoService.UNARY, ready, new byte[] {3}));
            } finally {
                second.destroyForcibly();
            }
        } finally {
            channel.shutdownNow();
            assertTrue(channel.awaitTermination(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            Ends.shutDown(group);
        }
    }

    private static Process start(String address) throws IOException {
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java",
                "--enable-native-access=ALL-UNNAMED", "-cp", System.getProperty("java.class.path")));
        String library = System.getProperty("partywall.library");
        if (library != null) {
            command.add("-Dpartywall.library=" + library);
        }
        command.addAll(List.of(Peer.class.getName(), address));
        Process process = new ProcessBuilder(command)
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = process.inputReader().readLine();
        if (!"listening".equals(line)) {
            process.destroyForcibly();
            throw new IOException("the server has said: " + line);
        }
        return process;
    }
}
