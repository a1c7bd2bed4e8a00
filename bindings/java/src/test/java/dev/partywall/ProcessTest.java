// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.BufferedReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Tests with a second process: a peer that is killed, and the command {@code partywall}. */
final class ProcessTest {
    /** The peer process of {@link #killedPeerIsNoticedOnceItsMessagesWereReceived}. */
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

    /**
     * The process that {@link #libraryOfAnotherVersionIsRefused} starts: it loads a native library,
     * and prints the reason for which the package refuses it.
     */
    static final class Loader {
        private Loader() {}

        public static void main(String[] arguments) throws Exception {
            try {
                Channel.connect("unix:@partywall-java-nobody");
            } catch (UnsatisfiedLinkError refusal) {
                System.out.println(refusal.getMessage());
            } catch (ExceptionInInitializerError refusal) {
                System.out.println(refusal.getCause().getMessage());
            }
        }
    }

    void libraryOfAnotherVersionIsRefused() throws Exception {
        Path directory = Files.createTempDirectory("partywall-library-");
        Path source = directory.resolve("other.c");
        Path other = directory.resolve("other.so");
        try {
            Files.writeString(source, "unsigned partywall_abi(void) { return 77; }\n");
            Process compiler = new ProcessBuilder("cc", "-shared", "-fPIC", "-o", other.toString(),
                    source.toString()).inheritIO().start();
            Check.equal(compiler.waitFor(), 0);
            Check.that(loadedFrom(other).contains("binary interface 77"), "the version is told");
            Check.that(loadedFrom(source).contains("cannot be loaded from " + source), "the file is named");
        } finally {
            Files.deleteIfExists(source);
            Files.deleteIfExists(other);
            Files.deleteIfExists(directory);
        }
    }

    private static String loadedFrom(Path library) throws Exception {
        List<String> command = new ArrayList<>(java());
        command.addAll(List.of("-Dpartywall.library=" + library, Loader.class.getName()));
        Process loader = new ProcessBuilder(command).redirectErrorStream(true).start();
        String output = new String(loader.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
        Check.equal(loader.waitFor(), 0);
        return output;
    }

    /** Returns the beginning of a command that starts a JVM and runs a class of the tests in it. */
    static List<String> java() {
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
            server.toHandle().destroy(); // unlike Process.destroy, it leaves the streams open
            while (output.readLine() != null) {
                // The loop discards the lines that the server prints.
            }
            Check.equal(server.waitFor(), 128 + 15);
        } finally {
            server.destroyForcibly();
        }
    }

    void echoExampleRunsByOneCommandWithoutAWarning() throws Exception {
        String program = System.getProperty("partywall.program");
        String example = System.getProperty("partywall.echo");
        if (program == null || example == null) {
            System.out.println("skipped: the properties partywall.program and partywall.echo are not set");
            return;
        }
        String java = System.getProperty("java.home") + "/bin/java";
        Path directory = Files.createTempDirectory("partywall-echo-");
        String plain = "plain:unix:" + directory.resolve("p.sock");
        String address = "unix:" + directory.resolve("e.sock");
        Process server = new ProcessBuilder(java, "-jar", example, "serve", "--listen", address, plain)
                .redirectErrorStream(true).start();
        try (BufferedReader output = server.inputReader()) {
            Check.equal(output.readLine(), "listening on " + address);
            Check.equal(output.readLine(), "listening on " + plain);
            for (List<String> client : List.of(List.of(java, "-jar", example, "run"),
                    List.of(program, "echo", "run"))) {
                List<String> command = new ArrayList<>(client);
                command.addAll(List.of("--count", "200", "--size", "2000", "--connect", address, plain));
                Process run = new ProcessBuilder(command).redirectErrorStream(true).start();
                String text = new String(run.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
                Check.equal(run.waitFor(), 0);
                Check.that(text.contains("200 echoes") && text.contains("÷ fastest"), text);
                Check.that(!text.contains("WARNING"), text);
            }
            server.toHandle().destroy();
            Check.equal(output.readLine(), null);
            server.waitFor();
            Files.delete(directory); // fails if a socket file is left
        } finally {
            server.destroyForcibly();
        }
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
