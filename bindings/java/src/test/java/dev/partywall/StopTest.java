// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.DirectoryIteratorException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Tests that a JVM that is stopped for 10 s does not count as dead, and goes on afterwards. */
final class StopTest {
    private static final Duration STOPPED = Duration.ofSeconds(10);

    void stoppedProcessGoesOn() throws Exception {
        String prefix = Pair.address();
        List<String> command = new ArrayList<>(ProcessTest.java());
        command.addAll(List.of(Echo.class.getName(), prefix));
        Process peer = new ProcessBuilder(command).redirectErrorStream(true).start();
        try (BufferedReader output = peer.inputReader()) {
            Check.equal(output.readLine(), "listening");
            try (Channel channel = Channel.connect(prefix + "-channel");
                    Session session = Session.connect(prefix + "-session");
                    Stream stream = session.open();
                    LinkClient client = new LinkClient(null, "alice", new LinkConfig());
                    Link link = client.connect(prefix + "-link", "bob", "stop")) {
                List<Echoed> all = List.of(Echoed.of(channel), Echoed.of(stream), Echoed.of(link));
                for (Echoed echoed : all) {
                    echoed.send(1);
                    echoed.expect(1);
                }
                signal(peer, "STOP");
                while (!isStopped(peer)) {
                    Thread.yield();
                }
                for (Echoed echoed : all) {
                    echoed.send(2);
                }
                Check.thrown(TimedOutException.class, () -> channel.recv(STOPPED));
                signal(peer, "CONT");
                for (Echoed echoed : all) {
                    echoed.expect(2);
                    echoed.send(3);
                    echoed.expect(3);
                }
            }
        } finally {
            peer.destroyForcibly();
        }
    }

    private static void signal(Process peer, String name) throws Exception {
        Process kill = new ProcessBuilder("sh", "-c", "kill -" + name + " " + peer.pid()).inheritIO().start();
        Check.equal(kill.waitFor(), 0);
    }

    /**
     * Returns whether every thread of a process is stopped, which takes a moment after the signal.
     */
    private static boolean isStopped(Process peer) {
        try (var threads = Files.newDirectoryStream(Path.of("/proc/" + peer.pid() + "/task"))) {
            for (Path thread : threads) {
                String status = Files.readString(thread.resolve("stat"));
                // In the thread's line of {@code /proc}, its state follows its name, which is in
                // parentheses.
                if (status.charAt(status.lastIndexOf(')') + 2) != 'T') {
                    return false;
                }
            }
        } catch (IOException | DirectoryIteratorException ended) {
            return false; // a thread has ended since the list was read, so it was not yet stopped
        }
        return true;
    }

    /** A connection whose peer sends every message back. */
    private interface Echoed {
        void send(int number) throws Exception;

        void expect(int number) throws Exception;

        static Echoed of(MessageChannel channel) {
            return new Echoed() {
                @Override
                public void send(int number) throws Exception {
                    channel.send(Check.pattern(5000, number), Pair.SOON);
                }

                @Override
                public void expect(int number) throws Exception {
                    byte[] target = new byte[5000];
                    Check.equal(channel.recv(target, Pair.SOON), 5000);
                    Check.equal(target, Check.pattern(5000, number));
                }
            };
        }

        static Echoed of(Link link) {
            return new Echoed() {
                @Override
                public void send(int number) throws Exception {
                    link.send(Check.pattern(5000, number), Pair.SOON);
                }

                @Override
                public void expect(int number) throws Exception {
                    try (LinkMessage message = link.recv(Pair.SOON)) {
                        Check.equal(message.bytes(), Check.pattern(5000, number));
                        message.ack();
                    }
                }
            };
        }
    }

    /**
     * The process that the test stops. It waits in a platform thread, in a virtual thread, and for
     * a link.
     */
    static final class Echo {
        private Echo() {}

        public static void main(String[] arguments) throws Exception {
            Listener channels = Listener.bind(arguments[0] + "-channel");
            SessionListener sessions = SessionListener.bind(arguments[0] + "-session");
            LinkServer links = new LinkServer(arguments[0] + "-link", null, "bob", new LinkConfig());
            System.out.println("listening");
            Thread.ofVirtual().start(() -> uncaught(() -> {
                Stream stream = sessions.accept(Pair.SOON).accept(Pair.SOON);
                while (stream.recv(message -> stream.send(message))) {
                    // recv has called the handler, which has sent the message back.
                }
            }));
            Thread.ofPlatform().daemon().start(() -> uncaught(() -> {
                Link link = links.accept(Pair.SOON);
                while (true) {
                    try (LinkMessage message = link.recv()) {
                        message.reply(message.bytes());
                    }
                }
            }));
            Channel channel = channels.accept(Pair.SOON);
            while (channel.recv(message -> channel.send(message))) {
                // recv has called the handler, which has sent the message back.
            }
        }

        private static void uncaught(Check.Body body) {
            try {
                body.run();
            } catch (Throwable failure) {
                failure.printStackTrace();
            }
        }
    }
}
