// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.nio.channels.ClosedChannelException;
import java.util.List;
import java.util.concurrent.FutureTask;

/**
 * Tests what a connection reports of its peer, transport and counters, also while other threads use
 * it.
 */
final class ConnectionTest {
    void peerAndTransportAreThoseOfThisProcess() throws Exception {
        try (Pair pair = Pair.open(); Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            for (Peer peer : List.of(pair.client().peer(), sessions.server().peer())) {
                Check.equal((long) peer.credentials().pid(), ProcessHandle.current().pid());
                Check.that(peer.isTrusted() && peer.distrust() == null, peer.description());
                Check.that(peer.description().contains("trusted"), peer.description());
            }
            Check.equal(pair.client().transport().kind(), Transport.Kind.SHARED_MEMORY);
            Check.equal(pair.client().transport().reason(), 0);
            Check.equal(sessions.client().streams(), 0L);
            Stream stream = sessions.client().open();
            Check.equal(sessions.client().streams(), 1L);
            stream.send(new byte[100]);
            Check.equal(sessions.client().senderStats().messages() > 0, true);
            sessions.client().close();
            Check.thrown(ClosedChannelException.class, () -> sessions.client().streams());
            Check.thrown(ClosedChannelException.class, () -> sessions.client().peer());
        }
    }

    void peersOverSocketsAreDistrustedForTheirReason() throws Exception {
        Config untrusting = new Config().trust(Config.Trust.UNTRUSTED);
        try (Pair pair = Pair.open(Pair.address(), untrusting)) {
            Check.equal(pair.client().peer().distrust(), Peer.Distrust.POLICY);
        }
        try (Pair pair = Pair.open("tcp:127.0.0.1:0", new Config())) {
            Check.equal(pair.server().peer().credentials(), null);
            Check.that(!pair.server().peer().isTrusted(), "nothing attests a peer over TCP");
            Transport transport = pair.server().transport();
            Check.equal(transport.kind(), Transport.Kind.SOCKET);
            Check.that(transport.reason() > 0, transport.description());
        }
    }

    void countersCountMessagesWhileOthersSendAndReceive() throws Exception {
        try (Pair pair = Pair.open()) {
            FutureTask<Integer> receiving = Pair.start(() -> {
                int count = 0;
                byte[] target = new byte[20_000];
                while (pair.server().recv(target) >= 0) {
                    count++;
                }
                return count;
            });
            FutureTask<Void> counting = Pair.start(() -> {
                try (Call call = new Call()) {
                    long place = call.buffer(SenderStats.BYTES);
                    while (pair.server().receiverStats().messages() < 2000) {
                        // A call that returns a property, such as the transport, uses a direction
                        // of the connection for a moment. Threads that send and receive meanwhile
                        // must not fail because of that.
                        for (int count = 0; count < 1000; count++) {
                            Call.invoke("partywall_channel_receiver_stats", pair.server().handle, place,
                                    ReceiverStats.BYTES);
                            Call.invoke("partywall_channel_sender_stats", pair.client().handle, place,
                                    SenderStats.BYTES);
                        }
                    }
                }
                return null;
            });
            byte[] payload = new byte[20_000];
            for (int round = 0; round < 1000; round++) {
                pair.client().send(payload, 0, 100);
                pair.client().send(payload);
            }
            counting.get();
            SenderStats sender = pair.client().senderStats();
            Check.equal(sender.messages(), 2000L);
            Check.equal(sender.bytes(), 1000L * 20_100);
            Check.equal(sender.zeroCopy(), 1000L);
            Check.equal(sender.overflows(), 0L);
            Check.that(sender.memoryBytes() >= sender.memoryUsedBytes(), "" + sender);
            pair.client().closeWrite();
            Check.equal(receiving.get(), 2000);
            ReceiverStats receiver = pair.server().receiverStats();
            Check.equal(receiver.messages(), 2000L);
            Check.equal(receiver.bytes(), 1000L * 20_100);
            Check.equal(receiver.zeroCopy(), 1000L);
            pair.server().close();
            Check.thrown(ClosedChannelException.class, () -> pair.server().receiverStats());
            Check.thrown(ClosedChannelException.class, () -> pair.server().transport());
        }
    }
}
