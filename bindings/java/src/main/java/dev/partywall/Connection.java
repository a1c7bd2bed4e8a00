// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.nio.channels.ClosedChannelException;

/**
 * The properties of a channel or session: its peer, transport and counters. Any thread may ask for
 * them at any time.
 *
 * @param kind the word for the object in names of native functions: {@code channel} or
 *     {@code session}
 * @param handle the handle of the object
 */
record Connection(String kind, long handle) {
    Peer peer() throws IOException {
        try (Call call = new Call()) {
            long place = call.buffer(PEER_BYTES);
            check(Call.invokeAlone(name("peer"), handle, place, PEER_BYTES));
            boolean isKnown = Native.getInt(place) != 0;
            int distrust = Native.getInt(place + 20);
            return new Peer(
                    isKnown ? new Peer.Credentials(Native.getInt(place + 4), Native.getInt(place + 8),
                            Native.getInt(place + 12)) : null,
                    distrust == 0 ? null : distrust(distrust), text("peer_text"));
        }
    }

    private static Peer.Distrust distrust(int number) {
        int unknown = Peer.Distrust.UNKNOWN.ordinal();
        return Peer.Distrust.values()[number < 0 || number > unknown ? unknown : number - 1];
    }

    Transport transport() throws IOException {
        try (Call call = new Call()) {
            check(Call.invokeAlone(name("transport"), handle, call.result(), call.secondResult()));
            Transport.Kind kind = switch (call.resultInt()) {
                case 1 -> Transport.Kind.SHARED_MEMORY;
                case 2 -> Transport.Kind.SOCKET;
                default -> Transport.Kind.PROTOCOL;
            };
            return new Transport(kind, (int) call.secondResultLong(), text("transport_text"));
        }
    }

    SenderStats senderStats() throws IOException {
        try (Call call = new Call()) {
            long place = call.buffer(SenderStats.BYTES);
            check(Call.invokeAlone(name("sender_stats"), handle, place, SenderStats.BYTES));
            return SenderStats.at(place);
        }
    }

    ReceiverStats receiverStats() throws IOException {
        try (Call call = new Call()) {
            long place = call.buffer(ReceiverStats.BYTES);
            check(Call.invokeAlone(name("receiver_stats"), handle, place, ReceiverStats.BYTES));
            return ReceiverStats.at(place);
        }
    }

    private String text(String property) throws IOException {
        try (Call call = new Call()) {
            long buffer = call.buffer(TEXT_BYTES_MAX);
            int status = call.status(name(property), handle, buffer, TEXT_BYTES_MAX, call.result());
            if (status == Native.HANDLE) {
                throw new ClosedChannelException();
            }
            if (status != Native.OK) {
                throw call.failure(status);
            }
            return Native.text(buffer, call.resultLong());
        }
    }

    private String name(String property) {
        return "partywall_" + kind + "_" + property;
    }

    private static void check(int status) throws IOException {
        if (status == Native.HANDLE) {
            throw new ClosedChannelException();
        }
        if (status != Native.OK) {
            throw PartywallException.of(status);
        }
    }

    /** Size in bytes of the C structure {@code partywall_peer}. */
    private static final long PEER_BYTES = 24;
    private static final long TEXT_BYTES_MAX = 4096;
}
