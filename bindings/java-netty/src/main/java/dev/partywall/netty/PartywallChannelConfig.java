// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import dev.partywall.Config;
import io.netty.buffer.ByteBufAllocator;
import io.netty.channel.Channel;
import io.netty.channel.ChannelOption;
import io.netty.channel.DefaultChannelConfig;
import io.netty.channel.MessageSizeEstimator;
import io.netty.channel.RecvByteBufAllocator;
import io.netty.channel.WriteBufferWaterMark;
import io.netty.channel.socket.DuplexChannelConfig;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/**
 * Settings of a channel or a server channel.
 *
 * <p>{@code SO_BACKLOG} is the setting {@code backlog} of the listener. {@code SO_KEEPALIVE},
 * {@code TCP_NODELAY} and {@code SO_REUSEADDR} are accepted and have no effect: a dead peer is
 * noticed without probes, no bytes wait for others, and a socket file that nobody uses is replaced.
 */
public final class PartywallChannelConfig extends DefaultChannelConfig implements DuplexChannelConfig {
    private static final Set<ChannelOption<?>> MEANINGLESS =
            Set.of(ChannelOption.SO_KEEPALIVE, ChannelOption.TCP_NODELAY, ChannelOption.SO_REUSEADDR);

    private volatile Config config = new Config();
    private volatile boolean isHalfClosureAllowed;

    PartywallChannelConfig(Channel channel) {
        super(channel);
    }

    /** Returns the settings of the channel's session. */
    public Config getConfig() {
        return config;
    }

    /** Sets the settings of the channel's session, before {@code bind} or {@code connect}. */
    public PartywallChannelConfig setConfig(Config config) {
        this.config = Objects.requireNonNull(config);
        return this;
    }

    @Override
    public boolean isAllowHalfClosure() {
        return isHalfClosureAllowed;
    }

    @Override
    public PartywallChannelConfig setAllowHalfClosure(boolean isAllowed) {
        isHalfClosureAllowed = isAllowed;
        return this;
    }

    @Override
    public Map<ChannelOption<?>, Object> getOptions() {
        Map<ChannelOption<?>, Object> options = new LinkedHashMap<>(super.getOptions());
        options.put(PartywallChannelOption.CONFIG, config);
        options.put(ChannelOption.ALLOW_HALF_CLOSURE, isHalfClosureAllowed);
        return options;
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T getOption(ChannelOption<T> option) {
        if (option == PartywallChannelOption.CONFIG) {
            return (T) config;
        }
        if (option == ChannelOption.ALLOW_HALF_CLOSURE) {
            return (T) Boolean.valueOf(isHalfClosureAllowed);
        }
        return super.getOption(option);
    }

    @Override
    public <T> boolean setOption(ChannelOption<T> option, T value) {
        validate(option, value);
        if (option == PartywallChannelOption.CONFIG) {
            setConfig((Config) value);
        } else if (option == ChannelOption.ALLOW_HALF_CLOSURE) {
            setAllowHalfClosure((Boolean) value);
        } else if (option == ChannelOption.SO_BACKLOG) {
            config.backlog((Integer) value);
        } else if (!MEANINGLESS.contains(option)) {
            return super.setOption(option, value);
        }
        return true;
    }

    @Override
    @Deprecated
    public PartywallChannelConfig setMaxMessagesPerRead(int count) {
        super.setMaxMessagesPerRead(count);
        return this;
    }

    @Override
    public PartywallChannelConfig setWriteSpinCount(int count) {
        super.setWriteSpinCount(count);
        return this;
    }

    @Override
    public PartywallChannelConfig setAllocator(ByteBufAllocator allocator) {
        super.setAllocator(allocator);
        return this;
    }

    @Override
    public PartywallChannelConfig setRecvByteBufAllocator(RecvByteBufAllocator allocator) {
        super.setRecvByteBufAllocator(allocator);
        return this;
    }

    @Override
    public PartywallChannelConfig setAutoRead(boolean isAutomatic) {
        super.setAutoRead(isAutomatic);
        return this;
    }

    @Override
    public PartywallChannelConfig setAutoClose(boolean isAutomatic) {
        super.setAutoClose(isAutomatic);
        return this;
    }

    @Override
    public PartywallChannelConfig setMessageSizeEstimator(MessageSizeEstimator estimator) {
        super.setMessageSizeEstimator(estimator);
        return this;
    }

    @Override
    public PartywallChannelConfig setWriteBufferWaterMark(WriteBufferWaterMark mark) {
        super.setWriteBufferWaterMark(mark);
        return this;
    }
}
