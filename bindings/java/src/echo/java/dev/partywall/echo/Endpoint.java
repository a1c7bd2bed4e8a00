// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.echo;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;

/** An address, and whether its protocol is Partywall or lines over a plain socket. */
record Endpoint(String address, boolean isPlain) {
    static Endpoint parse(String text) {
        boolean isPlain = text.startsWith(PLAIN);
        return new Endpoint(isPlain ? text.substring(PLAIN.length()) : text, isPlain);
    }

    SocketChannel connect() throws IOException {
        SocketAddress address = socketAddress();
        SocketChannel socket = SocketChannel.open(address);
        if (address instanceof InetSocketAddress) {
            socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
        }
        return socket;
    }

    ServerSocketChannel listen() throws IOException {
        SocketAddress address = socketAddress();
        ServerSocketChannel listener = address instanceof UnixDomainSocketAddress
                ? ServerSocketChannel.open(StandardProtocolFamily.UNIX) : ServerSocketChannel.open();
        return listener.bind(address);
    }

    /** Removes the file of a plain Unix socket, which the JDK leaves. */
    void removeFile() throws IOException {
        if (socketAddress() instanceof UnixDomainSocketAddress address) {
            Files.deleteIfExists(address.getPath());
        }
    }

    private SocketAddress socketAddress() {
        if (address.startsWith("unix:@")) {
            throw new IllegalArgumentException("the JDK knows no abstract sockets: use unix:/path");
        }
        if (address.startsWith("unix:")) {
            return UnixDomainSocketAddress.of(address.substring("unix:".length()));
        }
        int colon = address.lastIndexOf(':');
        if (!address.startsWith("tcp:") || colon < "tcp:".length()) {
            throw new IllegalArgumentException("this is no address: " + address);
        }
        String host = address.substring("tcp:".length(), colon).replaceAll("[\\[\\]]", "");
        return new InetSocketAddress(host, Integer.parseInt(address.substring(colon + 1)));
    }

    @Override
    public String toString() {
        return (isPlain ? PLAIN : "") + address;
    }

    private static final String PLAIN = "plain:";
}
