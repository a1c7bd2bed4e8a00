// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;

/** Tests that links keep messages when the process of either end ends. */
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
            deleteAll(root);
        }
    }

    private static void deleteAll(Path root) throws IOException {
        try (var paths = Files.walk(root)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    /**
     * Serves a link once, and acknowledges one message. If {@code attempt} is 1, a second message
     * is received and not acknowledged, so the next server receives it again, as attempt 2.
     */
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

    /**
     * Each kind of wait for a link parks its thread, instead of waiting in the native library again
     * and again, and ends when its event comes.
     */
    void everyWaitParksUntilItsEvent() throws Exception {
        for (Thread.Builder threads : THREADS) {
            for (Config.Transport transport : List.of(Config.Transport.AUTO, Config.Transport.SOCKET)) {
                everyWaitParks(threads, new LinkConfig().transport(transport).slabBytes(1 << 20));
            }
        }
    }

    private static void everyWaitParks(Thread.Builder threads, LinkConfig config) throws Exception {
        String address = Pair.address();
        try (LinkServer server = new LinkServer(address, null, "bob", config);
                LinkClient client = new LinkClient(null, "alice", config)) {
            FutureTask<Link> accepting = parked(threads, server::accept);
            try (Link here = client.connect(address, "bob", "waits"); Link there = accepting.get()) {
                here.awaitAttached(Pair.SOON);
                FutureTask<LinkMessage> receiving = parked(threads, there::recv);
                here.send(new byte[10]);
                LinkMessage message = receiving.get();
                FutureTask<Void> acked = parked(threads, () -> {
                    here.awaitAcked(Duration.ofDays(1));
                    return null;
                });
                message.ack();
                acked.get();
                FutureTask<Integer> sending = parked(threads, () -> {
                    for (int count = 0; count < 100; count++) {
                        here.send(new byte[100_000]);
                    }
                    return 100;
                });
                for (int count = 0; count < 100; count++) {
                    there.recv(Pair.SOON).ack();
                }
                Check.equal(sending.get(), 100);
            }
        }
    }

    /**
     * The events of a link say when its peer does not answer, attaches, goes away, attaches again
     * with its file, and ends.
     */
    void eventsSayWhatHappensToTheConnection() throws Exception {
        for (Thread.Builder threads : THREADS) {
            Path directory = Files.createTempDirectory("partywall-events-", ownerOnly());
            try {
                eventsSayWhatHappens(threads, directory, Pair.address());
            } finally {
                deleteAll(directory);
            }
        }
    }

    private static void eventsSayWhatHappens(Thread.Builder threads, Path directory, String address)
            throws Exception {
        Link here;
        try (LinkClient client = new LinkClient(directory, "alice", new LinkConfig())) {
            here = client.connect(address, "bob", "orders");
            LinkEvent refused = here.nextEvent(Pair.SOON);
            Check.equal(refused.kind(), LinkEvent.Kind.REFUSED);
            Check.that(refused.text().startsWith("not attached: "), refused.text());
        }
        try (LinkServer server = new LinkServer(address, null, "bob", new LinkConfig());
                Link there = server.accept(Pair.SOON)) {
            event(there.nextEvent(Pair.SOON), LinkEvent.Kind.ATTACHED, false, false);
            here.send("message".getBytes());
            there.recv(Pair.SOON).ack();
            here.awaitAcked(Pair.SOON);
            Check.equal(there.tryEvent(), null);
            Check.thrown(TimedOutException.class, () -> there.nextEvent(Duration.ofMillis(1)));

            FutureTask<LinkEvent> detached = parked(threads, there::nextEvent);
            here.close();
            event(detached.get(), LinkEvent.Kind.DETACHED, false, true);
            FutureTask<LinkEvent> attached = parked(threads, there::nextEvent);
            try (LinkClient client = new LinkClient(directory, "alice", new LinkConfig())) {
                Link again = client.connect(address, "bob", "orders");
                event(attached.get(), LinkEvent.Kind.ATTACHED, true, false);
                FutureTask<LinkEvent> ended = parked(threads, there::nextEvent);
                again.shutdown(Pair.SOON);
                event(ended.get(), LinkEvent.Kind.DETACHED, false, true);
                Check.thrown(ClosedChannelException.class, again::nextEvent);
                Check.thrown(ClosedChannelException.class, again::tryEvent);
            }
        }
    }

    private static void event(
            LinkEvent event, LinkEvent.Kind kind, boolean isResumed, boolean isFarewell) {
        Check.equal(event, new LinkEvent(kind, isResumed, isFarewell, 0, event.text()));
        Check.that(event.text().startsWith(kind.name().toLowerCase(Locale.ROOT) + ": "), event.text());
    }

    void impossibleSettingsAreRefused() throws Exception {
        Check.thrown(IllegalArgumentException.class, () -> new LinkConfig().deadAfter(Duration.ofSeconds(-1)));
        Check.equal(Check.thrown(PartywallException.class, () -> new LinkClient(null, "alice",
                new LinkConfig().set("delivery", 9))).code(), PartywallException.SETTING);
        Check.thrown(IllegalArgumentException.class, () -> new LinkClient(null, "a\0b", new LinkConfig()));
    }

    void interruptAndCloseEndTheWaitOfALink() throws Exception {
        for (Thread.Builder threads : THREADS) {
            String address = Pair.address();
            try (LinkServer server = new LinkServer(address, null, "bob", new LinkConfig());
                    LinkClient client = new LinkClient(null, "alice", new LinkConfig());
                    Link link = client.connect(address, "bob", "calls");
                    Link there = server.accept(Pair.SOON)) {
                there.awaitAttached(Pair.SOON);
                CountDownLatch isInterrupted = new CountDownLatch(1);
                FutureTask<Void> receiving = new FutureTask<>(() -> {
                    Check.thrown(InterruptedIOException.class, link::recv);
                    Check.that(Thread.interrupted(), "the interrupt status stays");
                    isInterrupted.countDown();
                    Check.thrown(AsynchronousCloseException.class, link::recv);
                    Check.thrown(ClosedChannelException.class, link::recv);
                    Check.thrown(ClosedChannelException.class, link::rewind);
                    return null;
                });
                Thread thread = threads.start(receiving);
                untilParked(thread, receiving);
                thread.interrupt();
                isInterrupted.await();
                untilParked(thread, receiving);
                link.close();
                receiving.get();
                Check.equal(link.status(), Link.Status.CLOSED);
                FutureTask<AsynchronousCloseException> accepting = parked(threads,
                        () -> Check.thrown(AsynchronousCloseException.class, server::accept));
                server.close();
                accepting.get();
            }
        }
    }

    void interruptAndCloseEndTheWaitForAnEvent() throws Exception {
        for (Thread.Builder threads : THREADS) {
            String address = Pair.address();
            try (LinkServer server = new LinkServer(address, null, "bob", new LinkConfig());
                    LinkClient client = new LinkClient(null, "alice", new LinkConfig());
                    Link link = client.connect(address, "bob", "calls");
                    Link there = server.accept(Pair.SOON)) {
                there.nextEvent(Pair.SOON);
                CountDownLatch isInterrupted = new CountDownLatch(1);
                FutureTask<Void> waiting = new FutureTask<>(() -> {
                    Check.thrown(InterruptedIOException.class, there::nextEvent);
                    Check.that(Thread.interrupted(), "the interrupt status stays");
                    isInterrupted.countDown();
                    Check.thrown(ClosedChannelException.class, there::nextEvent);
                    return null;
                });
                Thread thread = threads.start(waiting);
                untilParked(thread, waiting);
                thread.interrupt();
                isInterrupted.await();
                untilParked(thread, waiting);
                there.close();
                waiting.get();
            }
        }
    }

    void linkIsShutDownWhileOthersUseIt() throws Exception {
        String address = Pair.address();
        try (LinkServer server = new LinkServer(address, null, "bob", new LinkConfig());
                LinkClient client = new LinkClient(null, "alice", new LinkConfig())) {
            for (int round = 0; round < 20; round++) {
                Link here = client.connect(address, "bob", "round " + round);
                Link there = server.accept(Pair.SOON);
                FutureTask<Void> receiving = Pair.start(() -> {
                    Check.thrown(IOException.class, () -> {
                        while (true) {
                            here.recv().ack();
                        }
                    });
                    Check.thrown(ClosedChannelException.class, here::recv);
                    return null;
                });
                FutureTask<Void> asking = Pair.start(() -> {
                    while (here.status() != Link.Status.CLOSED) {
                        Thread.onSpinWait();
                    }
                    return null;
                });
                for (int count = 0; count < 50; count++) {
                    there.send(new byte[100]);
                }
                here.shutdown(Pair.SOON);
                receiving.get();
                asking.get();
                Check.equal(there.recv(Pair.SOON), null);
                there.close();
            }
        }
    }

    private static <T> FutureTask<T> parked(Thread.Builder threads, Callable<T> call) {
        FutureTask<T> task = new FutureTask<>(call);
        untilParked(threads.start(task), task);
        return task;
    }

    /**
     * Waits until a thread is parked. A thread that waited in the native library would count as
     * running.
     */
    private static void untilParked(Thread thread, FutureTask<?> task) {
        while (!task.isDone() && thread.getState() != Thread.State.WAITING
                && thread.getState() != Thread.State.TIMED_WAITING) {
            Thread.yield();
        }
    }

    private static final List<Thread.Builder> THREADS =
            List.of(Thread.ofPlatform().daemon(), Thread.ofVirtual());
}
