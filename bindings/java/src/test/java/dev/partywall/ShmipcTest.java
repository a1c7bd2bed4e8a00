// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.FutureTask;

/**
 * Tests the protocol shmipc as client and as server, and faults of mapped memory: each fault goes
 * to the handler that it concerns, that of Partywall or that of the JVM.
 */
final class ShmipcTest {
    void streamsCarryMessagesInBothRoles() throws Exception {
        for (ShmipcConfig.MemoryType type : ShmipcConfig.MemoryType.values()) {
            Path directory = Files.createTempDirectory("partywall-shmipc-");
            ShmipcConfig config = config(directory).memoryType(type);
            try (Shmipc shmipc = new Shmipc(config);
                    SessionListener listener = SessionListener.bind(Pair.address()).addShmipc(shmipc)) {
                FutureTask<Integer> echoing = Pair.start(() -> {
                    int count = 0;
                    try (Session session = listener.accept(Pair.SOON);
                            Stream stream = session.accept(Pair.SOON)) {
                        while (stream.recv(message -> stream.send(message), Pair.SOON)) {
                            count++;
                        }
                    }
                    return count;
                });
                try (Session session = shmipc.connect(listener.address(), new Config());
                        Stream stream = session.open()) {
                    Check.equal(session.transport().kind(), Transport.Kind.PROTOCOL);
                    byte[] target = new byte[300_000];
                    for (int size : new int[] {1, 48, 8172, 8173, 300_000}) {
                        stream.send(Check.pattern(size, size), Pair.SOON);
                        Check.equal(stream.recv(target, Pair.SOON), size);
                        Check.equal(java.util.Arrays.copyOf(target, size), Check.pattern(size, size));
                    }
                }
                Check.equal(echoing.get(), 5);
                Check.equal(shmipc.hotRestartState(), Shmipc.HotRestart.NEVER);
                Check.equal(Check.thrown(PartywallException.class, () -> shmipc.hotRestart(0)).code(), 812);
            } finally {
                remove(directory);
            }
        }
        Check.equal(Check.thrown(PartywallException.class,
                () -> new Shmipc(new ShmipcConfig().addSlices(8172, 50))).code(), 801);
    }

    private static ShmipcConfig config(Path directory) {
        return new ShmipcConfig().shareMemoryBufferCap(4 << 20).directory(directory)
                .shareMemoryPathPrefix(directory.resolve("region"));
    }

    private static void remove(Path directory) throws IOException {
        try (var paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    void faultsGoToTheHandlerThatTheyConcernWhenTheJvmInstalledItsFirst() throws Exception {
        truncateTheMemoryOf(new ProcessBuilder(serverCommand()));
    }

    /**
     * With the JDK's library libjsig in the process, the JVM's handler of SIGBUS is called first,
     * as if it had been installed after Partywall's.
     */
    void faultsGoToTheHandlerThatTheyConcernWhenTheJvmInstalledItsLast() throws Exception {
        Path library = Path.of(System.getProperty("java.home"), "lib", "libjsig.so");
        if (!Files.exists(library)) {
            System.out.println("skipped: this JDK has no libjsig.so, which chains the handlers");
            return;
        }
        ProcessBuilder server = new ProcessBuilder(serverCommand());
        server.environment().put("LD_PRELOAD", library.toString());
        truncateTheMemoryOf(server);
    }

    private static List<String> serverCommand() {
        List<String> command = new ArrayList<>(ProcessTest.java());
        command.add(Server.class.getName());
        return command;
    }

    /**
     * Starts a server that maps files of this process, opens a session with it, and truncates the
     * files.
     */
    private static void truncateTheMemoryOf(ProcessBuilder builder) throws Exception {
        Path directory = Files.createTempDirectory("partywall-sigbus-");
        String address = Pair.address();
        builder.command().addAll(List.of(address, directory.toString()));
        Process server = builder.redirectErrorStream(true).start();
        ShmipcConfig config = config(directory).memoryType(ShmipcConfig.MemoryType.FILE);
        try (BufferedReader output = server.inputReader(); Shmipc shmipc = new Shmipc(config)) {
            Check.equal(output.readLine(), "listening");
            try (Session session = shmipc.connect(address, new Config()); Stream stream = session.open()) {
                stream.send(new byte[100_000], Pair.SOON);
                Check.equal(output.readLine(), "received");
                truncateRegions(directory);
                server.outputWriter().append("truncated\n").flush();
                Check.equal(output.readLine(), "survived");
                Check.equal(server.waitFor(), 0);
                Check.that(sendUntilItFails(stream) != null, "the session has ended here as well");
                mappedBufferFaults(directory);
            }
        } finally {
            server.destroyForcibly();
            remove(directory);
        }
    }

    private static void truncateRegions(Path directory) throws IOException {
        List<Path> regions;
        try (var paths = Files.list(directory)) {
            regions = paths.filter(path -> path.getFileName().toString().startsWith("region")).toList();
        }
        Check.that(regions.size() >= 2, "a region and its queues: " + regions);
        for (Path region : regions) {
            try (FileChannel file = FileChannel.open(region, StandardOpenOption.WRITE)) {
                file.truncate(0);
            }
        }
    }

    private static PartywallException sendUntilItFails(Stream stream) {
        return Check.thrown(PartywallException.class, () -> {
            while (true) {
                stream.send(new byte[100_000], Pair.SOON);
            }
        });
    }

    /**
     * Checks that reading a mapped buffer of the JDK whose file was truncated throws the JVM's
     * error for the fault.
     */
    private static void mappedBufferFaults(Path directory) throws IOException {
        Path path = Files.createTempFile(directory, "mapped-", "");
        try (FileChannel file = FileChannel.open(path, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            MappedByteBuffer buffer = file.map(FileChannel.MapMode.READ_WRITE, 0, 16 << 10);
            file.truncate(0);
            Check.thrown(InternalError.class, () -> {
                int sum = 0;
                // The JVM may throw the error a little later than at the access that faults, so the
                // loop makes many accesses.
                for (int index = 0; index < 100_000; index++) {
                    sum += buffer.get(index % (16 << 10));
                }
                throw new IOException("no fault in " + sum);
            });
        }
    }

    /** The server process of shmipc, whose mapped memory the test truncates. */
    static final class Server {
        private Server() {}

        public static void main(String[] arguments) throws Exception {
            Path directory = Path.of(arguments[1]);
            mappedBufferFaults(directory);
            try (Shmipc shmipc = new Shmipc(config(directory));
                    SessionListener listener = SessionListener.bind(arguments[0]).addShmipc(shmipc)) {
                System.out.println("listening");
                Session session = listener.accept(Pair.SOON);
                Stream stream = session.accept(Pair.SOON);
                Check.equal(stream.recv(new byte[100_000], Pair.SOON), 100_000);
                mappedBufferFaults(directory);
                System.out.println("received");
                Check.that(System.in.read() >= 0, "the client has truncated the memory");
                PartywallException failure = sendUntilItFails(stream);
                Check.that(failure.getMessage().contains("truncated"), failure.getMessage());
                mappedBufferFaults(directory);
                System.out.println("survived");
            }
        }
    }
}
