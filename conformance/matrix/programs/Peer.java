// SPDX-License-Identifier: MIT OR Apache-2.0

import dev.partywall.Channel;
import dev.partywall.Config;
import dev.partywall.Link;
import dev.partywall.LinkClient;
import dev.partywall.LinkConfig;
import dev.partywall.LinkMessage;
import dev.partywall.LinkServer;
import dev.partywall.Listener;
import dev.partywall.MessageChannel;
import dev.partywall.PartywallException;
import dev.partywall.Session;
import dev.partywall.SessionListener;
import dev.partywall.Stream;
import dev.partywall.View;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.FutureTask;

/**
 * One end of a pair of programs in the matrix of languages, written in Java. The programs of all
 * languages have the same command line and output, which {@code conformance/matrix/README.md}
 * describes.
 */
final class Peer {
    private Peer() {}

    public static void main(String[] words) {
        try {
            perform(words);
            System.exit(0);
        } catch (Exception failure) {
            System.out.println("failed " + failure);
            System.exit(1);
        }
    }

    private static void perform(String[] words) throws Exception {
        String task = String.join(" ", Arrays.copyOf(words, Math.min(words.length, 2)));
        if (task.startsWith("serve")) {
            Thread.ofPlatform().daemon().start(Peer::endWithInput);
        }
        switch (task) {
            case "features" -> System.out.println("channel session link");
            case "serve channel" -> serveChannels(words[2], words[3]);
            case "serve session" -> serveSessions(words[2], words[3]);
            case "serve link" -> serveLinks(words[2], words[3], words[4]);
            case "serve chain" -> serveChain(words[2], words[3], words[4]);
            case "serve errors" -> serveErrors(words[2], words[3], Integer.parseInt(words[4]));
            case "run channel" -> runChannel(words[2], words[3], numbers(words[4]));
            case "run session" -> runSession(words[2], words[3], numbers(words[4]));
            case "run link" ->
                runLink(connectLink(words[2], words[3], words[5], words[6]), numbers(words[4]));
            case "run chain" -> runChain(connectLink(words[2], words[3], words[5], words[6]),
                    Long.parseLong(words[4]), words[7].equals("new"));
            case "run errors" ->
                runErrors(words[2], words[3], words[4], Integer.parseInt(words[5]));
            default -> throw new IllegalArgumentException("the arguments are not those of the matrix");
        }
    }

    /** Ends this server process when its standard input ends, which the harness closes. */
    private static void endWithInput() {
        try {
            while (System.in.read() >= 0) {
                // The bytes of standard input do not matter, only their end.
            }
        } catch (IOException failure) {
            System.out.println("failed " + failure);
        }
        Runtime.getRuntime().halt(0);
    }

    private static int[] numbers(String list) {
        return Arrays.stream(list.split(",")).mapToInt(Integer::parseInt).toArray();
    }

    private static Config.Transport policy(String transport) {
        return switch (transport) {
            case "shared" -> Config.Transport.SHARED_MEMORY;
            case "unix" -> Config.Transport.SOCKET;
            default -> Config.Transport.AUTO;
        };
    }

    private static Config config(String transport) {
        return new Config().transport(policy(transport));
    }

    private static long mix(long word) {
        word = (word ^ word >>> 30) * 0xbf58476d1ce4e5b9L;
        word = (word ^ word >>> 27) * 0x94d049bb133111ebL;
        return word ^ word >>> 31;
    }

    /**
     * Fills {@code bytes} from index {@code from} on with the pattern of a seed, as
     * crates/testkit/src/pattern.rs defines it.
     */
    private static void fill(byte[] bytes, int from, long seed) {
        ByteBuffer buffer = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).position(from);
        long word = mix(seed);
        while (buffer.remaining() >= 8) {
            buffer.putLong(word);
            word += STEP;
        }
        while (buffer.hasRemaining()) {
            buffer.put((byte) word);
            word >>>= 8;
        }
    }

    private static byte[] pattern(int size, long seed) {
        byte[] bytes = new byte[size];
        fill(bytes, 0, seed);
        return bytes;
    }

    /**
     * Returns the payload of message {@code number} with {@code size} bytes, as
     * crates/testkit/src/pattern.rs defines it.
     */
    private static byte[] payload(long number, int size) {
        byte[] bytes = new byte[size];
        ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).putLong(number);
        fill(bytes, 8, number);
        return bytes;
    }

    /** The number of messages that this end has received, and the sum of their bytes. */
    private static final class Counters {
        private long messages;
        private long bytes;

        /**
         * Checks that a received message has the bytes that {@code seed} determines, and counts the
         * message.
         */
        void check(byte[] message, long seed) throws IOException {
            if (!Arrays.equals(message, pattern(message.length, seed))) {
                throw new IOException("message " + Long.toHexString(seed) + " of " + message.length
                        + " bytes is wrong");
            }
            messages++;
            bytes += message.length;
        }

        /**
         * Checks that {@code answer} has {@code size} bytes and answers the message with {@code
         * seed}, and counts the answer.
         */
        void checkAnswer(byte[] answer, long seed, int size) throws IOException {
            if (answer == null || answer.length != size) {
                throw new IOException("no answer of " + size + " bytes");
            }
            check(answer, seed | ANSWER);
        }

        void report(String what) {
            System.out.println(what + " " + messages + " " + bytes);
        }
    }

    /**
     * Returns the next message of a channel or stream, or null once the peer has ended its
     * direction.
     */
    private static byte[] recv(MessageChannel pipe) throws IOException {
        try (View view = pipe.recv()) {
            return view == null ? null : view.toArray();
        }
    }

    private static void answerAll(MessageChannel pipe, Counters counters, long first) throws IOException {
        for (byte[] message = recv(pipe); message != null; message = recv(pipe)) {
            long seed = first | counters.messages;
            counters.check(message, seed);
            pipe.send(pattern(message.length, seed | ANSWER));
        }
    }

    private static void serveChannels(String transport, String address) throws IOException {
        try (Listener listener = Listener.bind(address, config(transport))) {
            System.out.println("ready");
            while (true) {
                Counters counters = new Counters();
                try (Channel channel = listener.accept()) {
                    answerAll(channel, counters, 0);
                }
                counters.report("served");
            }
        }
    }

    private static void runChannel(String transport, String address, int[] sizes) throws IOException {
        Counters counters = new Counters();
        try (Channel channel = Channel.connect(address, config(transport))) {
            for (int number = 0; number < sizes.length; number++) {
                channel.send(pattern(sizes[number], number));
                counters.checkAnswer(recv(channel), number, sizes[number]);
            }
        }
        counters.report("done");
    }

    private static void serveSessions(String transport, String address) throws Exception {
        try (SessionListener listener = SessionListener.bind(address, config(transport))) {
            System.out.println("ready");
            while (true) {
                try (Session session = listener.accept()) {
                    serveSession(session);
                }
            }
        }
    }

    private static void serveSession(Session session) throws Exception {
        List<FutureTask<Counters>> tasks = new ArrayList<>();
        for (Stream stream = session.accept(); stream != null; stream = session.accept()) {
            Stream accepted = stream;
            FutureTask<Counters> task = new FutureTask<>(() -> serveStream(accepted));
            Thread.ofPlatform().start(task);
            tasks.add(task);
        }
        Counters total = new Counters();
        for (FutureTask<Counters> task : tasks) {
            total.messages += task.get().messages;
            total.bytes += task.get().bytes;
        }
        total.report("served");
    }

    private static Counters serveStream(Stream stream) throws IOException {
        Counters counters = new Counters();
        try (stream) {
            answerAll(stream, counters, (long) stream.metadata()[0] << 32);
            stream.finish();
        }
        return counters;
    }

    /**
     * Sends messages of the given sizes on two streams, alternating, and checks the answers. Each
     * stream was opened with its own number, 0 or 1, as its one byte of metadata.
     */
    private static void runSession(String transport, String address, int[] sizes) throws IOException {
        Counters counters = new Counters();
        try (Session session = Session.connect(address, config(transport))) {
            Stream[] streams = {session.open(new byte[] {0}), session.open(new byte[] {1})};
            for (int number = 0; number < sizes.length; number++) {
                for (int first = 0; first < streams.length; first++) {
                    streams[first].send(pattern(sizes[number], (long) first << 32 | number));
                }
                for (int first = 0; first < streams.length; first++) {
                    byte[] answer = recv(streams[first]);
                    counters.checkAnswer(answer, (long) first << 32 | number, sizes[number]);
                }
            }
            for (Stream stream : streams) {
                stream.finish();
                if (recv(stream) != null) {
                    throw new IOException("a message instead of the end");
                }
                stream.close();
            }
            session.shutdown(0, "");
            session.awaitFinished(LIMIT);
        }
        counters.report("done");
    }

    private static LinkConfig linkConfig(String transport) {
        LinkConfig config = new LinkConfig().transport(policy(transport)).slabBytes(SLAB_BYTES);
        return config.set("allow_anonymous_tcp", transport.equals("tcp") ? 1 : 0);
    }

    private static LinkServer bindLinks(String transport, String address, String directory)
            throws IOException {
        LinkServer server =
                new LinkServer(address, Path.of(directory), "bob", linkConfig(transport));
        System.out.println("ready");
        return server;
    }

    private static Link connectLink(String transport, String address, String directory, String name)
            throws IOException {
        try (LinkClient client = new LinkClient(Path.of(directory), "alice", linkConfig(transport))) {
            return client.connect(address, "bob", name);
        }
    }

    private static void serveLinks(String transport, String address, String directory)
            throws IOException {
        try (LinkServer server = bindLinks(transport, address, directory)) {
            while (true) {
                Counters counters = new Counters();
                Link link = server.accept();
                for (LinkMessage it = link.recv(); it != null; it = link.recv()) {
                    byte[] message = it.bytes();
                    long seed = counters.messages;
                    counters.check(message, seed);
                    it.reply(pattern(message.length, seed | ANSWER));
                }
                link.shutdown(LIMIT);
                counters.report("served");
            }
        }
    }

    private static void runLink(Link link, int[] sizes) throws IOException {
        Counters counters = new Counters();
        for (int number = 0; number < sizes.length; number++) {
            link.send(pattern(sizes[number], number));
            LinkMessage answer = link.recv();
            counters.checkAnswer(answer == null ? null : answer.bytes(), number, sizes[number]);
            answer.ack();
        }
        link.shutdown(LIMIT);
        counters.report("done");
    }

    /**
     * Returns the length in bytes of message {@code number} in the test that kills an end of the
     * link.
     */
    private static int chainSize(long number) {
        return number % 64 == 63 ? 70_000 : 8 + (int) (number % 50);
    }

    /**
     * Checks a received message in the test that kills an end of the link, and returns the
     * message's number. Prints the line "got" before the caller acknowledges or answers the
     * message, so that the harness learns of every receipt.
     */
    private static long numberOf(LinkMessage message, long mark) throws IOException {
        byte[] bytes = message.bytes();
        long word = bytes.length < 8
                ? 0 : ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).getLong();
        long number = word & ~ANSWER;
        if ((word & ANSWER) != mark || !Arrays.equals(bytes, payload(word, chainSize(number)))) {
            throw new IOException("a message of " + bytes.length + " bytes is wrong");
        }
        System.out.println("got " + number + " " + message.attempt() + " " + PADDING);
        return number;
    }

    private static void serveChain(String transport, String address, String directory)
            throws IOException {
        try (LinkServer server = bindLinks(transport, address, directory)) {
            Link link = server.accept();
            for (LinkMessage it = link.recv(); it != null; it = link.recv()) {
                long number = numberOf(it, 0);
                it.reply(payload(number | ANSWER, chainSize(number)));
            }
            link.shutdown(LIMIT);
        }
        System.out.println("finished");
    }

    private static void runChain(Link link, long count, boolean isNew) throws IOException {
        for (long number = 0; isNew && number < IN_FLIGHT; number++) {
            link.send(payload(number, chainSize(number)));
        }
        long number;
        do {
            LinkMessage message = link.recv();
            if (message == null) {
                throw new IOException("the end instead of an answer");
            }
            number = numberOf(message, ANSWER);
            long next = number + IN_FLIGHT;
            if (next < count) {
                message.reply(payload(next, chainSize(next)));
            } else {
                message.ack();
            }
        } while (number + 1 < count);
        link.shutdown(LIMIT);
        System.out.println("finished");
    }

    /**
     * The server of the error tests: accepts channels and keeps them open without sending. A second
     * listener admits only the user {@code user}.
     */
    private static void serveErrors(String transport, String address, int user) throws IOException {
        Listener listener = Listener.bind(address, config(transport).messageMax(MESSAGE_MAX));
        if (!transport.equals("tcp")) {
            Config strict = config(transport).messageMax(MESSAGE_MAX).admitUser(user);
            Listener other = Listener.bind(address + ".strict", strict);
            Thread.ofPlatform().daemon().start(new FutureTask<>(other::accept));
        }
        System.out.println("ready");
        List<Channel> channels = new ArrayList<>();
        while (true) {
            channels.add(listener.accept());
        }
    }

    private static void runErrors(String transport, String address, String nobody, int user)
            throws IOException {
        cause("address-syntax", () -> Channel.connect("nowhere", config(transport)));
        cause("no-listener", () -> Channel.connect(nobody, config(transport)));
        cause("setting", () -> Channel.connect(address, config(transport).ringBytes(5000)));
        if (!transport.equals("tcp")) {
            cause("no-socket", () -> Channel.connect(nobody + ".none", config(transport)));
            cause("not-admitted",
                    () -> Channel.connect(address, config(transport).admitUser(user)));
            cause("refused", () -> Channel.connect(address + ".strict", config(transport)));
        }
        Channel channel = Channel.connect(address, config(transport));
        cause("deadline", () -> channel.recv(Duration.ofMillis(20)));
        cause("too-long", () -> channel.send(new byte[MESSAGE_MAX + 1]));
        System.out.println("connected");
        cause("gone", () -> recv(channel));
    }

    /** A call that the test of error numbers expects to fail. */
    private interface Act {
        void run() throws IOException;
    }

    /**
     * Makes a call that has to fail, and prints the name of the cause with the number of the error,
     * or with 0 if the call succeeds.
     */
    private static void cause(String name, Act act) throws IOException {
        int number = 0;
        try {
            act.run();
        } catch (PartywallException failure) {
            number = failure.code();
        }
        System.out.println("cause " + name + " " + number);
    }

    /** The bit of a seed that distinguishes an answer from the message that it answers. */
    private static final long ANSWER = 1L << 63;
    /** The difference of two successive words of a pattern: a message's bytes are such words. */
    private static final long STEP = 0x9e3779b97f4a7c15L;
    private static final long SLAB_BYTES = 32 << 20;
    /**
     * Number of messages that the client sends before it waits for the first answer, in the test
     * that kills an end of the link. After that it sends one more for each answer.
     */
    private static final long IN_FLIGHT = 8;
    /**
     * Characters that lengthen each printed line, so that about a thousand lines fill the pipe to
     * the harness.
     */
    private static final String PADDING = "-".repeat(48);
    /** Maximum length in bytes of a message that the server of the error tests receives. */
    private static final int MESSAGE_MAX = 65_536;
    /** Maximum time that closing a link or a session may take. */
    private static final Duration LIMIT = Duration.ofSeconds(60);
}
