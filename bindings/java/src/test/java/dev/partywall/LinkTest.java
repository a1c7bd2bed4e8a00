// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.InterruptedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.FutureTask;

/** Links keep messages over the end of either side. */
final class LinkTest {
    void messagesAreKeptUntilTheyAreAcknowledged() throws Exception {
        Path root = Files.createTempDirectory("partywall-link-");
        Path alice = Files.createDirectory(root.resolve("a"), ownerOnly());
        Path bob = Files.createDirectory(root.resolve("b"), ownerOnly());
        String address = "unix:" + root.resolve("link.sock");
        try {
            try (LinkClient client = new LinkClient(alice, "alice", new LinkConfig());
                    Link orders = client.connect(address, "bob", "orders")) {
                orders.send("first".getBytes());
                orders.send("second".getBytes());
                Check.that(orders.unackedBytes() > 0, "both are kept");
            }
            try (LinkClient client = new LinkClient(alice, "alice", new LinkConfig());
                    Link orders = client.connect(address, "bob", "orders")) {
                FutureTask<Void> receiving = Pair.start(() -> {
                    receive(address, bob, "first", 1);
                    receive(address, bob, "second", 2);
                    return null;
                });
                orders.awaitAcked(Pair.SOON);
                receiving.get();
                Check.equal(orders.unackedBytes(), 0L);
            }
        } finally {
            try (var paths = Files.walk(root)) {
                paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    /** Serves once, and acknowledges one message. A second one is received, and comes again. */
    private static void receive(String address, Path directory, String expected, int attempt)
            throws Exception {
        try (LinkServer server = new LinkServer(address, directory, "bob", new LinkConfig());
                Link orders = server.accept(Pair.SOON)) {
            LinkMessage message = orders.recv(Pair.SOON);
            Check.equal(new String(message.bytes()), expected);
            Check.equal(message.attempt(), attempt);
            message.ack();
            Check.thrown(IllegalStateException.class, message::attempt);
            if (attempt == 1) {
                orders.recv(Pair.SOON).close();
            } else {
                orders.awaitAttached(Pair.SOON);
            }
        }
    }

    private static java.nio.file.attribute.FileAttribute<?> ownerOnly() {
        return java.nio.file.attribute.PosixFilePermissions.asFileAttribute(
                java.nio.file.attribute.PosixFilePermissions.fromString("rwx------"));
    }

    void answersAndTheEndArriveInVirtualThreads() throws Exception {
        String address = Pair.address();
        try (LinkServer server = new LinkServer(address, null, "bob", new LinkConfig());
                LinkClient client = new LinkClient(null, "alice", new LinkConfig())) {
            FutureTask<Void> answering = new FutureTask<>(() -> {
                Link link = server.accept(Pair.SOON);
                try (LinkMessage request = link.recv(Pair.SOON)) {
                    request.reply("answer".getBytes());
                }
                Check.equal(link.recv(Pair.SOON), null);
                link.shutdown(Pair.SOON);
                return null;
            });
            Thread.ofVirtual().start(answering);
            Link link = client.connect(address, "bob", "calls");
            link.send("request".getBytes(), Pair.SOON);
            try (LinkMessage answer = link.recv(Pair.SOON)) {
                Check.equal(new String(answer.bytes()), "answer");
                answer.ack();
            }
            link.awaitAcked(Pair.SOON);
            Check.equal(link.status(), Link.Status.ATTACHED);
            link.shutdown(Pair.SOON);
            answering.get();
        }
    }

    void interruptEndsTheWaitOfALink() throws Exception {
        for (Thread.Builder threads : java.util.List.of(Thread.ofPlatform().daemon(), Thread.ofVirtual())) {
            try (LinkServer server =
                    new LinkServer(Pair.address(), null, "bob", new LinkConfig())) {
                FutureTask<Void> accepting = new FutureTask<>(() -> {
                    Check.thrown(InterruptedIOException.class, server::accept);
                    return null;
                });
                Thread thread = threads.start(accepting);
                thread.interrupt();
                accepting.get();
            }
        }
    }
}
