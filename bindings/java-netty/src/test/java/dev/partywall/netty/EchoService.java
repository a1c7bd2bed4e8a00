// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import io.grpc.BindableService;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.ServerCallStreamObserver;
import io.grpc.stub.StreamObserver;
import io.netty.channel.EventLoopGroup;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.SocketAddress;
import java.util.concurrent.CountDownLatch;

/** A gRPC service whose messages are plain bytes, so it needs no generated code. */
final class EchoService implements BindableService {
    static final MethodDescriptor<byte[], byte[]> UNARY =
            method("Unary", MethodDescriptor.MethodType.UNARY);
    /** Method of the service that answers with each byte of the request in a message of its own. */
    static final MethodDescriptor<byte[], byte[]> SPLIT =
            method("Split", MethodDescriptor.MethodType.SERVER_STREAMING);
    /** Method of the service that answers with the number of bytes in all requests. */
    static final MethodDescriptor<byte[], byte[]> COUNT =
            method("Count", MethodDescriptor.MethodType.CLIENT_STREAMING);
    static final MethodDescriptor<byte[], byte[]> ECHO =
            method("Echo", MethodDescriptor.MethodType.BIDI_STREAMING);
    /** Method of the service that never answers. */
    static final MethodDescriptor<byte[], byte[]> SILENT =
            method("Silent", MethodDescriptor.MethodType.UNARY);

    /** Counted down when a call of the silent method has begun, and when it was cancelled. */
    final CountDownLatch begun = new CountDownLatch(1);
    final CountDownLatch cancelled = new CountDownLatch(1);

    private static MethodDescriptor<byte[], byte[]> method(
            String name, MethodDescriptor.MethodType type) {
        return MethodDescriptor.<byte[], byte[]>newBuilder().setType(type)
                .setFullMethodName("test.Echo/" + name).setRequestMarshaller(new Bytes())
                .setResponseMarshaller(new Bytes()).build();
    }

    /** Starts a gRPC server with the service at an address, in event loops of the caller. */
    static Server serve(EventLoopGroup group, SocketAddress address, BindableService service)
            throws IOException {
        return NettyServerBuilder.forAddress(address).bossEventLoopGroup(group)
                .workerEventLoopGroup(group).channelType(PartywallServerChannel.class)
                .addService(service).build().start();
    }

    @Override
    public ServerServiceDefinition bindService() {
        return ServerServiceDefinition.builder("test.Echo")
                .addMethod(UNARY, ServerCalls.asyncUnaryCall(EchoService::answer))
                .addMethod(SPLIT, ServerCalls.asyncServerStreamingCall(EchoService::split))
                .addMethod(COUNT, ServerCalls.asyncClientStreamingCall(EchoService::count))
                .addMethod(ECHO, ServerCalls.asyncBidiStreamingCall(EchoService::echo))
                .addMethod(SILENT, ServerCalls.asyncUnaryCall(this::beSilent)).build();
    }

    private static void answer(byte[] request, StreamObserver<byte[]> answers) {
        answers.onNext(request);
        answers.onCompleted();
    }

    private static void split(byte[] request, StreamObserver<byte[]> answers) {
        for (byte value : request) {
            answers.onNext(new byte[] {value});
        }
        answers.onCompleted();
    }

    private static StreamObserver<byte[]> count(StreamObserver<byte[]> answers) {
        return new StreamObserver<>() {
            private int count;

            @Override
            public void onNext(byte[] request) {
                count += request.length;
            }

            @Override
            public void onError(Throwable failure) {}

            @Override
            public void onCompleted() {
                answers.onNext(Integer.toString(count).getBytes());
                answers.onCompleted();
            }
        };
    }

    private static StreamObserver<byte[]> echo(StreamObserver<byte[]> answers) {
        return new StreamObserver<>() {
            @Override
            public void onNext(byte[] request) {
                answers.onNext(request);
            }

            @Override
            public void onError(Throwable failure) {}

            @Override
            public void onCompleted() {
                answers.onCompleted();
            }
        };
    }

    private void beSilent(byte[] request, StreamObserver<byte[]> answers) {
        ((ServerCallStreamObserver<byte[]>) answers).setOnCancelHandler(cancelled::countDown);
        begun.countDown();
    }

    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] message) {
            return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException failure) {
                throw new UncheckedIOException(failure);
            }
        }
    }
}
