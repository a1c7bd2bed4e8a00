// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import io.netty.channel.unix.DomainSocketAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.UnsupportedAddressTypeException;
import java.util.Objects;

/** An address of Partywall, such as {@code unix:/run/app.sock}, as Netty passes addresses. */
public final class PartywallAddress extends SocketAddress {
    private static final long serialVersionUID = 1L;

    /** The local address of a channel that has connected: its end has no address of its own. */
    static final PartywallAddress UNNAMED = new PartywallAddress("unnamed");

    private final String text;

    /**
     * Makes an address of {@code unix:/path}, {@code unix:@name} or {@code tcp:host:port}. Any
     * other text is refused when a channel binds or connects.
     */
    public PartywallAddress(String text) {
        this.text = Objects.requireNonNull(text);
    }

    /**
     * Converts an address of another type: the path of a Unix socket, or a host and port for TCP.
     */
    public static PartywallAddress of(SocketAddress address) {
        return switch (address) {
            case PartywallAddress it -> it;
            case DomainSocketAddress it -> new PartywallAddress("unix:" + it.path());
            case UnixDomainSocketAddress it -> new PartywallAddress("unix:" + it.getPath());
            case InetSocketAddress it -> new PartywallAddress("tcp:" + host(it) + ":" + it.getPort());
            case null -> throw new NullPointerException("the address is null");
            default -> throw new UnsupportedAddressTypeException();
        };
    }

    private static String host(InetSocketAddress address) {
        String host = address.isUnresolved()
                ? address.getHostString() : address.getAddress().getHostAddress();
        return host.indexOf(':') >= 0 ? "[" + host + "]" : host;
    }

    @Override
    public boolean equals(Object other) {
        return other instanceof PartywallAddress address && address.text.equals(text);
    }

    @Override
    public int hashCode() {
        return text.hashCode();
    }

    /** Returns the text of the address. */
    @Override
    public String toString() {
        return text;
    }
}
