// SPDX-License-Identifier: MIT OR Apache-2.0

import dev.partywall.Channel;
import dev.partywall.Config;
import dev.partywall.Listener;
import dev.partywall.View;
import java.io.BufferedReader;
import java.io.EOFException;
import java.io.IOException;
import java.io.Writer;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.FutureTask;

/**
 * Measures the Java package against the C library, and against Unix sockets of the JDK, in one run.
 * The ratios are reliable; the absolute times depend on the machine.
 *
 * <pre>
 *   loop        one thread holds both ends ÷ the same in C, a process of its own
 *   round trip  a second JVM sends each message back ÷ that over a SocketChannel
 * </pre>
 *
 * The two measurements of a ratio take turns, round by round. Each line has the medians of the
 * rounds, then the median, least and greatest ratio of a round. With the argument {@code quick},
 * few messages are sent, only to see that everything runs.
 */
final class Bench {
    private static final int SIZE = 48;

    private final int rounds;
    private final int scale;

    private Bench(boolean isQuick) {
        rounds = isQuick ? 1 : 15;
        scale = isQuick ? 1 : 1000;
    }

    /** A measurement of {@code count} messages, which returns the nanoseconds for each. */
    private interface Measured {
        double of(int count) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 4 && arguments[0].equals("echo")) {
            echo(arguments[1], Path.of(arguments[2]), Config.Wait.valueOf(arguments[3]));
            return;
        }
        Bench bench = new Bench(arguments.length == 1 && arguments[0].equals("quick"));
        Path directory = Files.createTempDirectory("partywall-bench-");
        try {
            System.out.printf("%-32s %10s %10s %6s   %s%n", "", "Java, ns", "other, ns", "ratio",
                    "least to greatest");
            bench.loops(directory.resolve("loop"));
            for (Config.Wait wait : List.of(Config.Wait.ADAPTIVE, Config.Wait.PARK)) {
                bench.roundTrips(directory, wait);
            }
        } finally {
            try (var paths = Files.list(directory)) {
                paths.forEach(path -> path.toFile().delete());
            }
            Files.deleteIfExists(directory);
        }
    }

    private void loops(Path program) throws Exception {
        Process compiler = new ProcessBuilder("cc", "-O2", "-Ibindings/c/include", "-o", program.toString(),
                "bindings/java/bench/loop.c", "target/release/libpartywall_capi.a", "-lpthread", "-lm",
                "-ldl").inheritIO().start();
        if (compiler.waitFor() != 0) {
            throw new IOException("the program in C does not compile: first run cargo xtask package java");
        }
        Process inC = new ProcessBuilder(program.toString())
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String address = "unix:@partywall-bench-" + ProcessHandle.current().pid();
        try (BufferedReader answers = inC.inputReader(); Writer questions = inC.outputWriter();
                Listener listener = Listener.bind(address)) {
            FutureTask<Channel> connecting = new FutureTask<>(() -> Channel.connect(address));
            Thread.ofPlatform().start(connecting);
            try (Channel server = listener.accept(); Channel client = connecting.get()) {
                for (int size : new int[] {SIZE, 64 << 10}) {
                    byte[] payload = new byte[size];
                    compare("loop, view of " + size + " B ÷ C", size == SIZE ? 500 : 50,
                            count -> loop(client, server, payload, count), count -> {
                                questions.write(size + " " + count + "\n");
                                questions.flush();
                                return Double.parseDouble(answers.readLine());
                            });
                }
            }
        } finally {
            inC.destroy();
        }
    }

    private static double loop(Channel client, Channel server, byte[] payload, int count)
            throws IOException {
        int sum = 0;
        long start = System.nanoTime();
        for (int index = 0; index < count; index++) {
            client.send(payload);
            try (View view = server.recv()) {
                sum += view.get(0) + view.get(view.byteSize() - 1);
            }
        }
        double taken = System.nanoTime() - start;
        if (sum != 0) {
            throw new IOException("the bytes are not those that were sent");
        }
        return taken / count;
    }

    private void roundTrips(Path directory, Config.Wait wait) throws Exception {
        String address = "unix:" + directory.resolve("ours-" + wait);
        Path plain = directory.resolve("plain-" + wait);
        List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java",
                "--enable-native-access=ALL-UNNAMED", "-cp", System.getProperty("java.class.path")));
        String library = System.getProperty("partywall.library");
        if (library != null) {
            command.add("-Dpartywall.library=" + library);
        }
        command.addAll(List.of("bindings/java/bench/Bench.java", "echo", address, plain.toString(), wait.name()));
        Process peer = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try (BufferedReader output = peer.inputReader()) {
            if (output.readLine() == null) {
                throw new IOException("the second process does not listen");
            }
            byte[] payload = new byte[SIZE];
            byte[] target = new byte[SIZE];
            ByteBuffer buffer = ByteBuffer.allocateDirect(SIZE);
            try (Channel channel = Channel.connect(address, new Config().waiting(wait));
                    SocketChannel socket = SocketChannel.open(UnixDomainSocketAddress.of(plain))) {
                String name = "round trip, " + wait.name().toLowerCase(Locale.ROOT) + " ÷ SocketChannel";
                compare(name, 20, count -> {
                    long start = System.nanoTime();
                    for (int index = 0; index < count; index++) {
                        channel.send(payload);
                        if (channel.recv(target) != SIZE) {
                            throw new EOFException("the second process has ended");
                        }
                    }
                    return (double) (System.nanoTime() - start) / count;
                }, count -> {
                    long start = System.nanoTime();
                    for (int index = 0; index < count; index++) {
                        buffer.clear();
                        while (buffer.hasRemaining()) {
                            socket.write(buffer);
                        }
                        readAll(socket, buffer.clear());
                    }
                    return (double) (System.nanoTime() - start) / count;
                });
            }
            peer.waitFor();
        } finally {
            peer.destroy();
        }
    }

    /** Reads from the socket until the buffer is full. Returns false if the peer has closed. */
    private static boolean readAll(SocketChannel socket, ByteBuffer buffer) throws IOException {
        while (buffer.hasRemaining()) {
            if (socket.read(buffer) < 0) {
                return false;
            }
        }
        return true;
    }

    /** The work of the second process: sends back the messages of one channel and of one socket. */
    private static void echo(String address, Path plain, Config.Wait wait) throws Exception {
        try (Listener listener = Listener.bind(address, new Config().waiting(wait));
                ServerSocketChannel sockets = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            sockets.bind(UnixDomainSocketAddress.of(plain));
            System.out.println("listening");
            Thread ours = Thread.ofPlatform().start(() -> {
                byte[] message = new byte[SIZE];
                try (Channel channel = listener.accept()) {
                    while (channel.recv(message) >= 0) {
                        channel.send(message);
                    }
                } catch (IOException failure) {
                    failure.printStackTrace();
                }
            });
            try (SocketChannel socket = sockets.accept()) {
                ByteBuffer buffer = ByteBuffer.allocateDirect(SIZE);
                while (readAll(socket, buffer.clear())) {
                    buffer.flip();
                    while (buffer.hasRemaining()) {
                        socket.write(buffer);
                    }
                }
            }
            ours.join();
        }
    }

    /**
     * Runs the measurement of the package and the one that it is compared with in turns, and prints
     * a line. Each has {@code thousands} thousand messages a round, or fewer if the benchmark is
     * quick.
     */
    private void compare(String name, int thousands, Measured ours, Measured other) throws Exception {
        int count = thousands * scale;
        // In the first rounds the JVM compiles the measured methods, so they do not count.
        for (int round = 0; round < rounds / 3; round++) {
            ours.of(count);
            other.of(count);
        }
        List<Double> mine = new ArrayList<>();
        List<Double> theirs = new ArrayList<>();
        List<Double> ratios = new ArrayList<>();
        for (int round = 0; round < rounds; round++) {
            mine.add(ours.of(count));
            theirs.add(other.of(count));
            ratios.add(mine.getLast() / theirs.getLast());
        }
        double[] sorted = ratios.stream().mapToDouble(it -> it).sorted().toArray();
        System.out.printf(Locale.ROOT, "%-32s %10.1f %10.1f %6.2f   %.2f to %.2f%n", name, median(mine),
                median(theirs), median(ratios), sorted[0], sorted[sorted.length - 1]);
    }

    private static double median(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(it -> it).toArray();
        Arrays.sort(sorted);
        return sorted[sorted.length / 2];
    }
}
