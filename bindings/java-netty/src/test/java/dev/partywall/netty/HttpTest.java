// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufUtil;
import io.netty.buffer.Unpooled;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandler;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.SimpleChannelInboundHandler;
import io.netty.handler.codec.http.DefaultFullHttpRequest;
import io.netty.handler.codec.http.DefaultFullHttpResponse;
import io.netty.handler.codec.http.FullHttpRequest;
import io.netty.handler.codec.http.FullHttpResponse;
import io.netty.handler.codec.http.HttpClientCodec;
import io.netty.handler.codec.http.HttpHeaderNames;
import io.netty.handler.codec.http.HttpMethod;
import io.netty.handler.codec.http.HttpObjectAggregator;
import io.netty.handler.codec.http.HttpResponseStatus;
import io.netty.handler.codec.http.HttpServerCodec;
import io.netty.handler.codec.http.HttpVersion;
import io.netty.handler.codec.http2.DefaultHttp2DataFrame;
import io.netty.handler.codec.http2.DefaultHttp2Headers;
import io.netty.handler.codec.http2.DefaultHttp2HeadersFrame;
import io.netty.handler.codec.http2.Http2DataFrame;
import io.netty.handler.codec.http2.Http2FrameCodecBuilder;
import io.netty.handler.codec.http2.Http2HeadersFrame;
import io.netty.handler.codec.http2.Http2MultiplexHandler;
import io.netty.handler.codec.http2.Http2StreamChannel;
import io.netty.handler.codec.http2.Http2StreamChannelBootstrap;
import io.netty.util.ReferenceCountUtil;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Tests Netty's codecs of HTTP/1.1 and HTTP/2, unmodified, over Partywall's channels. */
@Timeout(120)
final class HttpTest {
    private static final int BODY_BYTES_MAX = 1 << 20;

    private static final class Answer extends SimpleChannelInboundHandler<FullHttpRequest> {
        @Override
        protected void channelRead0(ChannelHandlerContext context, FullHttpRequest request) {
            FullHttpResponse response = new DefaultFullHttpResponse(
                    HttpVersion.HTTP_1_1, HttpResponseStatus.OK, request.content().retain());
            response.headers().set(HttpHeaderNames.CONTENT_LENGTH, response.content().readableBytes());
            context.writeAndFlush(response);
        }
    }

    @AfterAll
    static void nothingHasLeaked() {
        RecordingLeakDetector.check();
    }

    @Test
    void requestsOfHttp1AreAnswered() throws Exception {
        BlockingQueue<byte[]> answers = new LinkedBlockingQueue<>();
        ChannelHandler reader = new SimpleChannelInboundHandler<FullHttpResponse>() {
            @Override
            protected void channelRead0(ChannelHandlerContext context, FullHttpResponse response) {
                answers.add(ByteBufUtil.getBytes(response.content()));
            }
        };
        try (Ends ends = new Ends()) {
            ends.bind(() -> new ChannelHandler[] {
                new HttpServerCodec(), new HttpObjectAggregator(BODY_BYTES_MAX), new Answer()});
            Channel client = ends.connect(
                    new HttpClientCodec(), new HttpObjectAggregator(BODY_BYTES_MAX), reader);
            for (int size : new int[] {0, 10, 5000, 500_000}) {
                ByteBuf body = Unpooled.wrappedBuffer(Collector.pattern(size, size));
                FullHttpRequest request = new DefaultFullHttpRequest(
                        HttpVersion.HTTP_1_1, HttpMethod.POST, "/echo", body);
                request.headers().set(HttpHeaderNames.CONTENT_LENGTH, size);
                Ends.done(client.writeAndFlush(request));
                assertArrayEquals(Collector.pattern(size, size),
                        answers.poll(Ends.SOON_SECONDS, TimeUnit.SECONDS));
            }
        }
    }

    private static final class FrameEcho extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object frame) {
            if (frame instanceof Http2HeadersFrame) {
                context.write(new DefaultHttp2HeadersFrame(new DefaultHttp2Headers().status("200")));
            } else if (frame instanceof Http2DataFrame data) {
                context.write(new DefaultHttp2DataFrame(data.content(), data.isEndStream()));
            } else {
                ReferenceCountUtil.release(frame);
            }
        }

        @Override
        public void channelReadComplete(ChannelHandlerContext context) {
            context.flush();
        }
    }

    /** A handler that keeps the bytes of an HTTP/2 stream's answer. */
    private static final class FrameReader extends ChannelInboundHandlerAdapter {
        private final ByteBuf bytes = Unpooled.buffer();
        private final BlockingQueue<byte[]> answers = new LinkedBlockingQueue<>();

        @Override
        public void channelRead(ChannelHandlerContext context, Object frame) {
            if (frame instanceof Http2DataFrame data) {
                bytes.writeBytes(data.content());
                if (data.isEndStream()) {
                    answers.add(ByteBufUtil.getBytes(bytes));
                    bytes.release();
                }
            }
            ReferenceCountUtil.release(frame);
        }
    }

    private static ChannelInitializer<Channel> handler(ChannelHandler handler) {
        return new ChannelInitializer<>() {
            @Override
            protected void initChannel(Channel channel) {
                channel.pipeline().addLast(handler);
            }
        };
    }

    @Test
    void streamsOfHttp2AreAnswered() throws Exception {
        try (Ends ends = new Ends()) {
            ends.bind(() -> new ChannelHandler[] {Http2FrameCodecBuilder.forServer().build(),
                new Http2MultiplexHandler(new ChannelInitializer<>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(new FrameEcho());
                    }
                })});
            Channel client = ends.connect(Http2FrameCodecBuilder.forClient().build(),
                    new Http2MultiplexHandler(handler(new ChannelInboundHandlerAdapter())));
            List<FrameReader> readers = new ArrayList<>();
            int[] sizes = {1, 5000, 30_000, 200_000};
            for (int size : sizes) {
                FrameReader reader = new FrameReader();
                readers.add(reader);
                Http2StreamChannel stream = Ends.done(new Http2StreamChannelBootstrap(client)
                        .handler(handler(reader)).open()).getNow();
                stream.write(new DefaultHttp2HeadersFrame(
                        new DefaultHttp2Headers().method("POST").path("/").scheme("http")));
                stream.writeAndFlush(new DefaultHttp2DataFrame(
                        Unpooled.wrappedBuffer(Collector.pattern(size, size)), true));
            }
            for (int index = 0; index < sizes.length; index++) {
                byte[] answer = readers.get(index).answers.poll(Ends.SOON_SECONDS, TimeUnit.SECONDS);
                assertArrayEquals(Collector.pattern(sizes[index], sizes[index]), answer);
            }
            assertTrue(client.isActive());
            assertEquals(1, ends.children.size());
        }
    }
}
