// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.ByteBuffer;
import java.nio.ReadOnlyBufferException;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.FutureTask;

/**
 * Tests that channels carry every kind of message over every transport, and report every failure.
 */
final class ChannelTest {
    private static final List<Integer> SIZES =
            List.of(0, 1, 48, 104, 1024, 1025, 4096, 4097, 1 << 16, (1 << 16) + 1, 8 << 20);

    void everySizeArrivesOverSharedMemory() throws Exception {
        everySizeArrives(Pair.address(), new Config().transport(Config.Transport.SHARED_MEMORY));
    }

    void everySizeArrivesOverAUnixSocket() throws Exception {
        everySizeArrives(Pair.address(), new Config().transport(Config.Transport.SOCKET));
    }

    void everySizeArrivesOverTcp() throws Exception {
        everySizeArrives("tcp:127.0.0.1:0", new Config().transport(Config.Transport.SOCKET));
    }

    private void everySizeArrives(String address, Config config) throws Exception {
        try (Pair pair = Pair.open(address, config)) {
            FutureTask<Integer> echoing = Pair.start(() -> {
                int count = 0;
                while (pair.server().recv(message -> pair.server().send(message))) {
                    count++;
                }
                return count;
            });
            byte[] target = new byte[8 << 20];
            for (int size : SIZES) {
                byte[] sent = Check.pattern(size, size);
                pair.client().send(sent, Pair.SOON);
                int length = pair.client().recv(target, Pair.SOON);
                Check.equal(java.util.Arrays.copyOf(target, length), sent);
            }
            pair.client().closeWrite();
            Check.equal(echoing.get(), SIZES.size());
        }
    }

    void everyKindOfBufferIsSentAndReceived() throws Exception {
        try (Pair pair = Pair.open(); Arena arena = Arena.ofConfined()) {
            for (int size : List.of(5, 5000, 70_000)) {
                byte[] bytes = Check.pattern(size, 3);
                ByteBuffer direct = ByteBuffer.allocateDirect(size).put(bytes).flip();
                ByteBuffer heap = ByteBuffer.wrap(bytes);
                byte[] inTheMiddle = new byte[size + 8];
                System.arraycopy(bytes, 0, inTheMiddle, 3, size);
                pair.client().send(inTheMiddle, 3, size);
                pair.client().send(direct);
                pair.client().send(heap);
                pair.client().send(MemorySegment.ofArray(bytes));
                pair.client().send(arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes));
                Check.that(!direct.hasRemaining() && !heap.hasRemaining(), "a sent buffer has no rest");
                byte[] array = new byte[size];
                Check.equal(pair.server().recv(array, Pair.SOON), size);
                Check.equal(array, bytes);
                ByteBuffer first = ByteBuffer.allocate(size + 1).position(1);
                Check.equal(pair.server().recv(first, Pair.SOON), size);
                Check.that(first.flip().position(1).equals(ByteBuffer.wrap(bytes)), "a heap buffer");
                ByteBuffer second = ByteBuffer.allocateDirect(size);
                Check.equal(pair.server().recv(second, Pair.SOON), size);
                Check.that(second.flip().equals(ByteBuffer.wrap(bytes)), "a direct buffer");
                MemorySegment segment = arena.allocate(size);
                Check.equal(pair.server().recv(segment, Pair.SOON), (long) size);
                Check.equal(segment.toArray(ValueLayout.JAVA_BYTE), bytes);
                try (View view = pair.server().recv(Pair.SOON)) {
                    Check.equal(view.toArray(), bytes);
                }
            }
        }
    }

    void endIsReceivedOnceAllMessagesWere() throws Exception {
        try (Pair pair = Pair.open()) {
            pair.client().send(new byte[] {7});
            pair.client().closeWrite();
            Check.that(!pair.server().isFinished(), "a message is left");
            Check.equal(pair.server().recv(new byte[1]), 1);
            Check.equal(pair.server().recv(new byte[1]), -1);
            Check.equal(pair.server().recv(Pair.SOON), null);
            Check.that(!pair.server().recv(message -> { }), "no message is left");
            Check.that(pair.server().isFinished(), "the peer has finished");
            pair.server().send(new byte[] {8});
            Check.equal(pair.client().recv(new byte[1]), 1);
            pair.client().close();
            PartywallException failure = Check.thrown(PartywallException.class, () -> {
                while (true) {
                    pair.server().send(new byte[1000], Pair.SOON);
                }
            });
            Check.equal(failure.code(), PartywallException.FINISHED);
        }
    }

    void messageThatDoesNotFitIsReceivedAgain() throws Exception {
        try (Pair pair = Pair.open()) {
            pair.client().send(Check.pattern(100, 1));
            Check.thrown(IndexOutOfBoundsException.class, () -> pair.server().recv(new byte[99]));
            Check.thrown(IndexOutOfBoundsException.class,
                    () -> pair.server().recv(ByteBuffer.allocate(99)));
            byte[] target = new byte[100];
            Check.equal(pair.server().recv(target), 100);
            Check.equal(target, Check.pattern(100, 1));
        }
    }

    void messageThatCannotBeWrittenIsReceivedAgain() throws Exception {
        for (int size : new int[] {10, 10_000}) {
            try (Pair pair = Pair.open(); Arena arena = Arena.ofConfined()) {
                pair.client().send(Check.pattern(size, 2));
                Channel server = pair.server();
                MemorySegment readOnly = arena.allocate(size).asReadOnly();
                Check.thrown(RuntimeException.class, () -> server.recv(readOnly));
                ByteBuffer direct = ByteBuffer.allocateDirect(size).asReadOnlyBuffer();
                Check.thrown(ReadOnlyBufferException.class, () -> server.recv(direct));
                ByteBuffer heap = ByteBuffer.allocate(size).asReadOnlyBuffer();
                Check.thrown(ReadOnlyBufferException.class, () -> server.recv(heap));
                Check.thrown(NullPointerException.class, () -> server.recv((byte[]) null));
                Check.thrown(NullPointerException.class, () -> server.recv((MessageHandler) null));
                byte[] target = new byte[size];
                Check.equal(server.recv(target), size);
                Check.equal(target, Check.pattern(size, 2));
            }
        }
    }

    void sendingThatFailsKeepsNoMemory() throws Exception {
        try (Pair pair = Pair.open(Pair.address(), new Config().memoryMax(256 << 10));
                Arena arena = Arena.ofConfined()) {
            MemorySegment segment = arena.allocate(100_000);
            Arena ended = Arena.ofConfined();
            MemorySegment late = ended.allocate(100_000);
            ended.close();
            byte[] payload = new byte[100_000];
            Channel client = pair.client();
            for (int round = 0; round < 100; round++) {
                Check.thrown(IndexOutOfBoundsException.class, () -> client.send(payload, 1, 100_000));
                Check.thrown(IndexOutOfBoundsException.class, () -> client.send(payload, -1, 50_000));
                Check.thrown(IndexOutOfBoundsException.class, () -> client.send(payload, 0, -1));
                Check.thrown(IllegalStateException.class, () -> client.send(late));
                Check.thrown(IllegalArgumentException.class, () -> client.reserve(-1));
            }
            Check.that(client.trySend(payload), "no failure has kept memory");
            Check.equal(pair.server().recv(new byte[100_000]), 100_000);
            client.send(segment, Pair.SOON);
            Check.equal(pair.server().recv(new byte[100_000]), 100_000);
        }
    }

    void configurationChangedLaterIsThatOfNoListener() throws Exception {
        Config config = new Config().ringBytes(8192).memoryMax(64 << 10);
        try (Pair pair = Pair.open(Pair.address(), config)) {
            config.backPressure(Config.BackPressure.ERROR);
            FutureTask<Channel> connecting =
                    Pair.start(() -> Channel.connect(pair.listener().address()));
            try (Channel server = pair.listener().accept(Pair.SOON); Channel client = connecting.get()) {
                while (server.trySend(new byte[1000])) {
                    // The loop sends messages until the ring has no room.
                }
                Check.thrown(TimedOutException.class, () -> server.send(new byte[1000], Duration.ofMillis(5)));
                Check.equal(client.recv(new byte[1000], Pair.SOON), 1000);
            }
        }
    }

    void addressThatTheLibraryWouldSeeAsAnotherIsRefused() throws Exception {
        String address = Pair.address();
        for (String wrong : List.of(address + "\0/elsewhere", address + "\ud800")) {
            Check.thrown(IllegalArgumentException.class, () -> Listener.bind(wrong));
            Check.thrown(IllegalArgumentException.class, () -> Channel.connect(wrong));
            Check.thrown(IllegalArgumentException.class, () -> SessionListener.bind(wrong));
        }
        try (Pair pair = Pair.open(address + "-ä-\ud83d\ude00", new Config())) {
            Check.equal(pair.listener().address(), address + "-ä-\ud83d\ude00");
        }
    }

    void overflowingMessagesAreSentFromEveryKindOfBuffer() throws Exception {
        Config config = new Config().memoryMax(64 << 10).messageMax(1 << 20)
                .backPressure(Config.BackPressure.OVERFLOW);
        try (Pair pair = Pair.open(Pair.address(), config); Arena arena = Arena.ofConfined()) {
            FutureTask<Integer> receiving = Pair.start(() -> {
                int count = 0;
                byte[] target = new byte[1 << 20];
                while (pair.server().recv(target) >= 0) {
                    count++;
                }
                return count;
            });
            byte[] payload = new byte[60_000];
            for (int round = 0; round < 20; round++) {
                pair.client().send(payload, Pair.SOON);
                pair.client().send(arena.allocate(60_000), Pair.SOON);
                pair.client().send(ByteBuffer.wrap(payload), Pair.SOON);
            }
            pair.client().closeWrite();
            Check.equal(receiving.get(), 60);
        }
    }

    void senderWithoutRoomWaitsFailsOrTries() throws Exception {
        Config small = new Config().ringBytes(8192).memoryMax(64 << 10);
        try (Pair pair = Pair.open(Pair.address(), small)) {
            int count = 0;
            while (pair.client().trySend(new byte[1000])) {
                count++;
            }
            Check.that(count > 0, "there was room at first");
            Check.thrown(TimedOutException.class,
                    () -> pair.client().send(new byte[1000], Duration.ofMillis(5)));
            Channel client = pair.client();
            FutureTask<Void> sending = Pair.start(() -> {
                client.send(new byte[1000]);
                return null;
            });
            byte[] target = new byte[1000];
            for (int index = 0; index < count + 1; index++) {
                Check.equal(pair.server().recv(target, Pair.SOON), 1000);
            }
            sending.get();
        }
        try (Pair pair = Pair.open(Pair.address(), small.backPressure(Config.BackPressure.ERROR))) {
            PartywallException failure = Check.thrown(PartywallException.class, () -> {
                while (true) {
                    pair.client().send(new byte[1000]);
                }
            });
            Check.equal(failure.code(), PartywallException.FULL);
        }
    }

    void reservationIsWrittenInPlaceAndEndsWithItsCommit() throws Exception {
        try (Pair pair = Pair.open()) {
            Reservation reservation = pair.client().reserve(1 << 20);
            MemorySegment segment = reservation.segment();
            Check.equal(segment.byteSize(), 1L << 20);
            segment.fill((byte) 9);
            reservation.truncate(100_000);
            reservation.commit(Pair.SOON);
            Check.thrown(IllegalStateException.class, () -> segment.get(ValueLayout.JAVA_BYTE, 0));
            Check.thrown(IllegalStateException.class, () -> {
                reservation.commit();
            });
            reservation.close();
            try (View view = pair.server().recv(Pair.SOON)) {
                Check.equal(view.byteSize(), 100_000L);
                Check.equal(view.get(99_999), (byte) 9);
            }
            try (Reservation given = pair.client().reserve(10)) {
                given.segment().fill((byte) 1);
            }
            Check.equal(pair.server().tryRecv(), null);
            Pair other = Pair.open();
            try (other; Reservation ofOther = other.client().reserve(10)) {
                Check.equal(ofOther.segment().byteSize(), 10L);
            }
        }
    }

    void failuresHaveTheNumbersOfTheSpecification() throws Exception {
        PartywallException failure = Check.thrown(PartywallException.class,
                () -> Channel.connect("unix:/no/such/directory/app.sock"));
        Check.equal(failure.code(), 332);
        Check.that(failure.getMessage().contains("/no/such/directory"), failure.getMessage());
        Check.equal(Check.thrown(PartywallException.class, () -> Channel.connect("nonsense")).code(), 301);
        Check.equal(Check.thrown(PartywallException.class,
                () -> Listener.bind(Pair.address(), new Config().set("transport", 9))).code(),
                PartywallException.SETTING);
        try (Pair pair = Pair.open(Pair.address(), new Config().memoryMax(1 << 20))) {
            Check.equal(Check.thrown(PartywallException.class, () -> {
                pair.client().send(new byte[4 << 20]);
            }).code(), PartywallException.MESSAGE_TOO_LONG);
            Listener listener = pair.listener();
            Check.equal(Check.thrown(PartywallException.class,
                    () -> Listener.bind(listener.address())).code(), 311);
            Check.thrown(TimedOutException.class, () -> listener.accept(Duration.ofMillis(1)));
            Check.thrown(TimedOutException.class, () -> pair.server().recv(Duration.ofMillis(1)));
        }
    }
}
