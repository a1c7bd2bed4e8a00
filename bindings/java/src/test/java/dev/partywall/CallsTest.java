// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.lang.invoke.MethodHandle;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;

/**
 * Tests calls over a stream: between a client and a server of this package, with those of the
 * native library, and with the test vectors of {@code spec/calls.tsv}.
 */
final class CallsTest {
    private static final int VECTORS = 56;

    private record Ends(Sessions sessions, Stream client, Stream server) implements AutoCloseable {
        static Ends open() throws Exception {
            Sessions sessions = Sessions.open(Pair.address(), new Config());
            Stream client = sessions.client().open("calls".getBytes());
            return new Ends(sessions, client, sessions.server().accept(Pair.SOON));
        }

        @Override
        public void close() {
            sessions.close();
        }
    }

    private static FutureTask<Integer> echo(CallsServer server) {
        return Pair.start(() -> {
            int count = 0;
            CallRequest request;
            while ((request = server.recv(Pair.SOON)) != null) {
                if (!request.isOneWay()) {
                    request.answer(request.bytes());
                }
                request.close();
                count++;
            }
            return count;
        });
    }

    void manyThreadsGetTheirOwnAnswers() throws Exception {
        try (Ends ends = Ends.open(); CallsServer server = new CallsServer(ends.server())) {
            FutureTask<Integer> echoing = echo(server);
            List<FutureTask<Void>> calling = new ArrayList<>();
            try (CallsClient client = new CallsClient(ends.client(), 5)) {
                for (int thread = 0; thread < 20; thread++) {
                    int seed = thread;
                    calling.add(new FutureTask<>(() -> {
                        for (int count = 0; count < 50; count++) {
                            byte[] payload = Check.pattern(seed * count * 10, seed);
                            Check.equal(client.call(payload, Pair.SOON), payload);
                            client.callOneWay(payload, Pair.SOON);
                        }
                        return null;
                    }));
                    Thread.ofVirtual().start(calling.getLast());
                }
                for (FutureTask<Void> called : calling) {
                    called.get();
                }
            }
            Check.equal(echoing.get(), 2000);
        }
    }

    void failuresSayWhatBecameOfTheCall() throws Exception {
        try (Ends ends = Ends.open(); CallsServer server = new CallsServer(ends.server(), 1);
                CallsClient client = new CallsClient(ends.client())) {
            PendingCall failed = client.begin(new byte[] {1});
            server.recv(Pair.SOON).fail(7, new byte[] {9});
            CallException failure = Check.thrown(CallException.class, () -> failed.await(Pair.SOON));
            Check.equal(failure.code(), PartywallException.CALL_FAILED);
            Check.equal(failure.applicationCode(), 7);
            Check.equal(failure.detail(), new byte[] {9});
            PendingCall aborted = client.begin(new byte[] {2});
            CallRequest request = server.recv(Pair.SOON);
            Check.thrown(IllegalArgumentException.class, () -> request.fail(-1, new byte[0]));
            request.close();
            Check.thrown(IllegalStateException.class, () -> request.answer(new byte[0]));
            Check.equal(Check.thrown(CallException.class, () -> aborted.await(Pair.SOON)).code(),
                    PartywallException.CALL_ABORTED);
            PendingCall waits = client.begin(new byte[] {3});
            PendingCall refused = client.begin(new byte[] {4});
            Check.equal(Check.thrown(CallException.class, () -> refused.await(Pair.SOON)).code(),
                    PartywallException.CALL_REFUSED);
            server.recv(Pair.SOON).answer(new byte[] {5});
            Check.equal(waits.await(Pair.SOON), new byte[] {5});
            PendingCall tooLong = client.begin(new byte[] {6});
            CallRequest last = server.recv(Pair.SOON);
            Check.equal(Check.thrown(PartywallException.class, () -> last.answer(new byte[100 << 20])).code(),
                    PartywallException.MESSAGE_TOO_LONG);
            CallException text = Check.thrown(CallException.class, () -> tooLong.await(Pair.SOON));
            Check.equal(text.code(), PartywallException.CALL_ABORTED);
            Check.that(text.detail().length > 0, "the client learns why");
        }
    }

    void givenUpAndLateCallsAreCancelled() throws Exception {
        try (Ends ends = Ends.open(); CallsServer server = new CallsServer(ends.server());
                CallsClient client = new CallsClient(ends.client())) {
            PendingCall call = client.begin(new byte[0], Duration.ofHours(1));
            CallRequest request = server.recv(Pair.SOON);
            Check.that(!request.isCancelled() && request.timeLeft().toMinutes() >= 59, "an hour is left");
            call.close();
            Check.equal(Check.thrown(PartywallException.class, call::await).code(),
                    PartywallException.CALL_ABORTED);
            while (!request.isCancelled()) {
                Thread.yield();
            }
            request.answer(new byte[1]); // nobody waits for it
            Check.thrown(TimedOutException.class, () -> client.call(new byte[0], Duration.ofMillis(1)));
            CountDownLatch isInterrupted = new CountDownLatch(1);
            Thread caller = Thread.ofVirtual().start(() -> {
                try {
                    client.call(new byte[] {77});
                } catch (IOException interrupted) {
                    isInterrupted.countDown();
                }
            });
            CallRequest interrupted;
            do {
                // The server may first receive the earlier call, which timed out and whose payload
                // is empty; it skips that call.
                interrupted = server.recv(Pair.SOON);
            } while (interrupted.bytes().length == 0);
            caller.interrupt();
            isInterrupted.await();
            while (!interrupted.isCancelled()) {
                Thread.yield();
            }
            interrupted.close();
            FutureTask<byte[]> next = Pair.start(() -> client.call(new byte[] {1}, Pair.SOON));
            server.recv(Pair.SOON).answer(new byte[] {2});
            Check.equal(next.get(), new byte[] {2});
        }
    }

    void callsEndWithTheirStream() throws Exception {
        try (Ends ends = Ends.open(); CallsClient client = new CallsClient(ends.client(), 1)) {
            PendingCall call = client.begin(new byte[1]);
            FutureTask<Void> waiting = Pair.start(() -> {
                Check.thrown(IOException.class, () -> client.call(new byte[1]));
                return null;
            });
            ends.server().reset(3);
            PartywallException end = Check.thrown(PartywallException.class, () -> call.await(Pair.SOON));
            Check.equal(end.code(), PartywallException.STREAM_RESET);
            waiting.get();
            Check.equal(Check.thrown(PartywallException.class, () -> client.begin(new byte[1])).code(),
                    PartywallException.STREAM_RESET);
        }
    }

    void messagesHaveTheOutcomeOfTheirRow() throws Exception {
        int count = 0;
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            for (String row : Files.readAllLines(Path.of("spec/calls.tsv"))) {
                if (row.startsWith("#")) {
                    continue;
                }
                String[] cells = row.split("\t");
                List<byte[]> messages = new ArrayList<>();
                for (String digits : cells[3].split(",")) {
                    if (!digits.equals("none")) {
                        messages.add(HexFormat.of().parseHex(digits.replace("-", "")));
                    }
                }
                try (Stream peer = sessions.client().open();
                        Stream stream = sessions.server().accept(Pair.SOON)) {
                    int outcome = cells[1].equals("server") ? serve(stream, peer, messages)
                            : call(stream, peer, messages, Integer.parseInt(cells[2]));
                    Check.that(outcome == Integer.parseInt(cells[4]), cells[0] + ": " + outcome);
                }
                count++;
            }
        }
        Check.equal(count, VECTORS);
    }

    /**
     * Sends the messages of a test vector to a server of calls. Returns the number of the violation
     * that the server finds, or 0 if it finds none.
     */
    private static int serve(Stream stream, Stream peer, List<byte[]> messages) throws Exception {
        sendAll(peer, messages);
        int outcome = 0;
        try {
            echo(new CallsServer(stream)).get();
        } catch (java.util.concurrent.ExecutionException failure) {
            outcome = ((PartywallException) failure.getCause()).code();
        }
        checkEnd(peer, outcome);
        return outcome;
    }

    /**
     * Makes {@code made} calls by a client, and sends that client the messages of a test vector.
     * Returns the number of the violation that the client finds, or 0 if it finds none.
     */
    private static int call(Stream stream, Stream peer, List<byte[]> messages, int made) throws Exception {
        CallsClient client = new CallsClient(stream);
        for (int count = 0; count < made; count++) {
            client.begin(new byte[0]);
            peer.recv(new byte[16], Pair.SOON);
        }
        sendAll(peer, messages);
        // The test makes the next call once the client knows that the stream has ended. An earlier
        // call would get an id that the messages of the test vector name.
        while (client.lost() == null) {
            Thread.yield();
        }
        PartywallException end =
                Check.thrown(PartywallException.class, () -> client.call(new byte[0], Pair.SOON));
        int outcome = end.code() == PartywallException.FINISHED ? 0 : end.code();
        client.close();
        checkEnd(peer, outcome);
        return outcome;
    }

    private static void sendAll(Stream peer, List<byte[]> messages) throws IOException {
        for (byte[] message : messages) {
            peer.send(message, Pair.SOON);
        }
        peer.finish();
    }

    /**
     * Checks that the side under test has reset its sending direction after a violation of its
     * peer, and otherwise has ended it in good order.
     */
    private static void checkEnd(Stream peer, int outcome) throws IOException {
        byte[] target = new byte[1000];
        try {
            while (peer.recv(target, Pair.SOON) >= 0) {
                // The loop discards the frames.
            }
            Check.equal(outcome, 0);
        } catch (PartywallException reset) {
            Check.that(outcome != 0, "a reset without a violation: " + reset);
            Check.equal(reset.applicationCode(), CallFrame.VIOLATION);
        }
    }

    /**
     * Tests the client and the server of calls of the native library, which need a session with a
     * thread, against those of this package.
     */
    void callsOfTheLibraryAreUnderstoodInBothRoles() throws Exception {
        try (SessionListener listener = SessionListener.bind(Pair.address()); Call call = new Call()) {
            FutureTask<Long> connecting = Pair.start(() -> {
                try (Call other = new Call()) {
                    ok("partywall_session_connect", other.text(listener.address()), 0, 0, 0, other.result(), 0);
                    return other.resultLong();
                }
            });
            Session session = listener.accept(Pair.SOON);
            long connected = connecting.get();
            ok("partywall_session_open", connected, 0, 0, 0, call.result(), -1, 0);
            long stream = call.resultLong();
            Stream here = session.accept(Pair.SOON);
            ok("partywall_calls_client_new", stream, 0, call.result(), 0);
            long client = call.resultLong();
            FutureTask<Integer> echoing = echo(new CallsServer(here));
            for (int size : new int[] {0, 100, 100_000}) {
                byte[] payload = Check.pattern(size, 3);
                ok("partywall_calls_client_call", client, call.bytes(payload), size, call.result(),
                        Pair.SOON.toNanos(), 0);
                try (Message answer = new Message(call.resultLong())) {
                    Check.equal(answer.segment().toArray(java.lang.foreign.ValueLayout.JAVA_BYTE), payload);
                }
            }
            ok("partywall_calls_client_free", client);
            Check.equal(echoing.get(), 3);

            ok("partywall_session_open", connected, 0, 0, 0, call.result(), -1, 0);
            ok("partywall_calls_server_new", call.resultLong(), 0, call.result(), 0);
            long server = call.resultLong();
            try (CallsClient calls = new CallsClient(session.accept(Pair.SOON))) {
                byte[] payload = Check.pattern(5000, 4);
                PendingCall pending = calls.begin(payload, Pair.SOON);
                ok("partywall_calls_server_recv", server, call.result(), -1, 0);
                long request = call.resultLong();
                ok("partywall_request_data", request, call.result(), call.secondResult());
                byte[] received = Native.bytes(call.resultLong(), call.secondResultLong());
                Check.equal(received, payload);
                ok("partywall_request_answer", request, call.bytes(Arrays.copyOf(received, 10)), 10, -1, 0);
                Check.equal(pending.await(Pair.SOON), Arrays.copyOf(payload, 10));
            }
            ok("partywall_calls_server_free", server);
            ok("partywall_session_free", connected);
            session.close();
        }
    }

    /** Calls a native function whose arguments all have 64 bits, and checks that it succeeds. */
    private static void ok(String name, long... arguments) {
        MethodHandle function = Native.value(name, "I", "J".repeat(arguments.length));
        int status;
        try {
            status = (int) function.asSpreader(long[].class, arguments.length).invokeExact(arguments);
        } catch (Throwable failure) {
            throw Native.unexpected(failure);
        }
        Check.that(status == Native.OK, name + ": " + status);
    }
}
