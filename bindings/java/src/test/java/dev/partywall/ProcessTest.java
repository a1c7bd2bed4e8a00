// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;

/** A second process: one that is killed, and the command {@code partywall}. */
final class ProcessTest {
    /** The program of {@link #killedPeerIsNoticedOnceItsMessagesWereReceived}. */
    static final class Peer {
        private Peer() {}

        public static void main(String[] arguments) throws Exception {
            Channel channel = Channel.connect(arguments[0]);
            channel.send("one".getBytes(StandardCharsets.UTF_8));
            channel.send(new byte[100_000]);
            channel.recv(message -> { });
        }
    }

    void killedPeerIsNoticedOnceItsMessagesWereReceived() throws Exception {
        try (Listener listener = Listener.bind(Pair.address())) {
            List<String> command = new ArrayList<>(java());
            command.addAll(List.of(Peer.class.getName(), listener.address()));
            Process peer = new ProcessBuilder(command).inheritIO().start();
            try (Channel channel = listener.accept(Pair.SOON)) {
                byte[] target = new byte[100_000];
                Check.equal(channel.recv(target, Pair.SOON), 3);
                View view = channel.recv(Pair.SOON);
                peer.destroyForcibly();
                peer.waitFor();
                Check.equal(view.get(99_999), (byte) 0);
                view.close();
                PartywallException failure =
                        Check.thrown(PartywallException.class, () -> channel.recv(Pair.SOON));
                Check.equal(failure.code(), PartywallException.DISCONNECTED);
            } finally {
                peer.destroyForcibly();
            }
        }
    }

    private static List<String> java() {
        String library = System.getProperty("partywall.library");
        List<String> command = new ArrayList<>(List.of(
                System.getProperty("java.home") + "/bin/java", "--enable-native-access=ALL-UNNAMED", "-cp",
                System.getProperty("java.class.path")));
        if (library != null) {
            command.add("-Dpartywall.library=" + library);
        }
        return command;
    }

    void clientUnderstandsTheServerOfTheCommand() throws Exception {
        String program = System.getProperty("partywall.program");
        if (program == null) {
            System.out.println("skipped: the property partywall.program names no command");
            return;
        }
        String address = Pair.address();
        Process server = new ProcessBuilder(program, "echo", "serve", "--listen", address)
                .redirectErrorStream(true).start();
        try (BufferedReader output = server.inputReader()) {
            Check.that(output.readLine().contains(address), "the server listens");
            try (Channel channel = Channel.connect(address)) {
                byte[] target = new byte[100_000];
                for (int size : new int[] {0, 5, 2000, 100_000}) {
                    channel.send(Check.pattern(size, size));
                    Check.equal(channel.recv(target, Pair.SOON), size);
                    Check.equal(java.util.Arrays.copyOf(target, size), Check.pattern(size, size));
                }
            }
        } finally {
            server.destroy();
        }
        Check.equal(server.waitFor(), 0);
    }

    void serverUnderstandsTheClientOfTheCommand() throws Exception {
        String program = System.getProperty("partywall.program");
        if (program == null) {
            System.out.println("skipped: the property partywall.program names no command");
            return;
        }
        try (Listener listener = Listener.bind(Pair.address())) {
            Process client = new ProcessBuilder(program, "echo", "run", "--connect", listener.address(),
                    "--count", "1000", "--size", "3000").redirectErrorStream(true).start();
            try (Channel channel = listener.accept(Pair.SOON)) {
                int count = 0;
                while (channel.recv(message -> channel.send(message), Pair.SOON)) {
                    count++;
                }
                Check.equal(count, 1000);
            }
            String output = new String(client.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
            Check.equal(client.waitFor(), 0);
            Check.that(output.contains("1000 echoes"), output);
        }
    }
}
