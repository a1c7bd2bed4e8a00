// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import dev.partywall.Config;
import io.netty.channel.ChannelOption;

/** Options of channels over streams, besides those of Netty. */
public final class PartywallChannelOption {
    /** The settings of the channel's session, which {@code bind} and {@code connect} use. */
    public static final ChannelOption<Config> CONFIG =
            ChannelOption.valueOf(PartywallChannelOption.class, "CONFIG");

    private PartywallChannelOption() {}
}
