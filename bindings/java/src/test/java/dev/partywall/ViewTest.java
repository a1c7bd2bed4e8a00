// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicReference;

/**
 * Tests that views and messages throw an exception when they are used late or by the wrong thread;
 * nothing crashes.
 */
final class ViewTest {
    void viewUsedAfterCloseThrows() throws Exception {
        for (int size : new int[] {10, 100_000}) {
            try (Pair pair = Pair.open()) {
                pair.client().send(Check.pattern(size, 1));
                View view = pair.server().recv(Pair.SOON);
                MemorySegment segment = view.segment();
                Check.that(segment.isReadOnly(), "a received segment is read-only");
                Check.equal(segment.get(ValueLayout.JAVA_BYTE, 3), Check.pattern(size, 1)[3]);
                Check.equal(view.getInt(2), segment.get(ValueLayout.JAVA_INT_UNALIGNED, 2));
                Check.equal(view.getLong(2), segment.get(ValueLayout.JAVA_LONG_UNALIGNED, 2));
                Check.thrown(IndexOutOfBoundsException.class, () -> view.get(size));
                Check.thrown(IndexOutOfBoundsException.class, () -> view.getLong(-1));
                Check.thrown(IllegalStateException.class, () -> pair.server().recv(Pair.SOON));
                view.close();
                view.close();
                Check.thrown(IllegalStateException.class, view::byteSize);
                Check.thrown(IllegalStateException.class, () -> view.get(0));
                Check.thrown(IllegalStateException.class, view::segment);
                Check.thrown(IllegalStateException.class, () -> segment.get(ValueLayout.JAVA_BYTE, 0));
            }
        }
    }

    void lateSegmentsAreNotSent() throws Exception {
        for (int size : new int[] {100, 100_000}) {
            try (Pair pair = Pair.open(); Pair other = Pair.open()) {
                List<MemorySegment> late = new ArrayList<>();
                pair.client().send(new byte[size]);
                pair.server().recv(late::add, Pair.SOON);
                pair.client().send(new byte[size]);
                try (View view = pair.server().recv(Pair.SOON)) {
                    late.add(view.segment());
                }
                pair.client().send(new byte[size]);
                try (Message message = pair.server().recv(Pair.SOON).keep()) {
                    late.add(message.segment());
                }
                try (Reservation reservation = pair.client().reserve(size)) {
                    late.add(reservation.segment());
                    reservation.commit();
                }
                try (Arena arena = Arena.ofConfined()) {
                    late.add(arena.allocate(size));
                }
                for (MemorySegment segment : late) {
                    Check.thrown(IllegalStateException.class, () -> other.client().send(segment));
                    Check.thrown(IllegalStateException.class, () -> other.client().trySend(segment));
                    Check.thrown(IllegalStateException.class,
                            () -> other.client().send(segment.asByteBuffer()));
                    other.client().send(new byte[size]);
                    Check.thrown(RuntimeException.class, () -> other.server().recv(segment));
                    Check.equal(other.server().recv(new byte[size]), size);
                }
                Check.equal(other.server().tryRecv(), null);
            }
        }
    }

    void segmentOfAnotherThreadIsNotSent() throws Exception {
        try (Pair pair = Pair.open(); Arena arena = Arena.ofConfined()) {
            MemorySegment segment = arena.allocate(100_000);
            FutureTask<Void> sending = Pair.start(() -> {
                pair.client().send(segment);
                return null;
            });
            ExecutionException failure = Check.thrown(ExecutionException.class, sending::get);
            Check.that(failure.getCause() instanceof WrongThreadException, "" + failure.getCause());
        }
    }

    /**
     * Closes the arena of a segment while the segment is sent: the message is sent whole, or not at
     * all.
     */
    void arenasClosedWhileTheirSegmentsAreSent() throws Exception {
        try (Pair pair = Pair.open()) {
            FutureTask<Integer> receiving = Pair.start(() -> {
                int count = 0;
                byte[] target = new byte[200_000];
                while (pair.server().recv(target) >= 0) {
                    for (byte value : target) {
                        Check.that(value == 9, "the bytes of one segment");
                    }
                    count++;
                }
                return count;
            });
            int sent = 0;
            for (int round = 0; round < 500; round++) {
                Arena arena = Arena.ofShared();
                MemorySegment segment = arena.allocate(200_000).fill((byte) 9);
                CountDownLatch isStarted = new CountDownLatch(1);
                FutureTask<Void> closing = Pair.start(() -> {
                    isStarted.countDown();
                    arena.close();
                    return null;
                });
                isStarted.await();
                try {
                    pair.client().send(segment);
                    sent++;
                } catch (IllegalStateException late) {
                    // The arena was closed before or while the segment was copied, so sending has
                    // thrown.
                }
                // Closing the arena may have interrupted the thread that was copying; the test
                // clears its interrupt status.
                Thread.interrupted();
                try {
                    closing.get();
                } catch (ExecutionException inUse) {
                    Check.that(inUse.getCause() instanceof IllegalStateException, "" + inUse.getCause());
                    arena.close();
                }
            }
            pair.client().closeWrite();
            Check.equal(receiving.get(), sent);
        }
    }

    void reservationThatAnotherThreadEndsStaysUsable() throws Exception {
        try (Pair pair = Pair.open()) {
            Reservation reservation = pair.client().reserve(5);
            for (Check.Body ending : List.<Check.Body>of(reservation::close, reservation::commit)) {
                FutureTask<Void> foreign = Pair.start(() -> {
                    Check.thrown(WrongThreadException.class, ending);
                    return null;
                });
                foreign.get();
            }
            reservation.segment().fill((byte) 3);
            reservation.commit();
            byte[] target = new byte[5];
            Check.equal(pair.server().recv(target, Pair.SOON), 5);
            Check.equal(target, new byte[] {3, 3, 3, 3, 3});
        }
    }

    void messageClosedByManyThreadsIsFreedOnce() throws Exception {
        try (Pair pair = Pair.open()) {
            for (int round = 0; round < 200; round++) {
                pair.client().send(new byte[5000]);
                Message message = pair.server().recv(Pair.SOON).keep();
                CountDownLatch isStarted = new CountDownLatch(1);
                List<FutureTask<Void>> closing = new ArrayList<>();
                for (int thread = 0; thread < 3; thread++) {
                    closing.add(Pair.start(() -> {
                        isStarted.await();
                        message.close();
                        return null;
                    }));
                }
                isStarted.countDown();
                for (FutureTask<Void> closed : closing) {
                    closed.get();
                }
            }
        }
    }

    void segmentUsedAfterItsHandlerThrows() throws Exception {
        try (Pair pair = Pair.open()) {
            AtomicReference<MemorySegment> kept = new AtomicReference<>();
            pair.client().send(Check.pattern(100_000, 2));
            Check.that(pair.server().recv(kept::set, Pair.SOON), "a message has come");
            Check.thrown(IllegalStateException.class, () -> kept.get().get(ValueLayout.JAVA_BYTE, 0));
            pair.client().send(new byte[1]);
            Check.thrown(java.io.IOException.class, () -> pair.server().recv(message -> {
                throw new java.io.IOException("of the handler");
            }));
            pair.client().send(new byte[2]);
            Check.equal(pair.server().recv(new byte[2], Pair.SOON), 2);
        }
    }

    void viewStaysValidUntilItIsClosedAlthoughItsChannelWas() throws Exception {
        try (Pair pair = Pair.open()) {
            pair.client().send(Check.pattern(100_000, 3));
            View view = pair.server().recv(Pair.SOON);
            Pair.start(() -> {
                pair.server().close();
                pair.client().close();
                return null;
            }).get();
            Check.equal(view.toArray(), Check.pattern(100_000, 3));
            FutureTask<Byte> reading = Pair.start(() -> view.get(0));
            ExecutionException failure = Check.thrown(ExecutionException.class, reading::get);
            Check.that(failure.getCause() instanceof WrongThreadException, "" + failure.getCause());
            view.close();
            Check.thrown(java.nio.channels.ClosedChannelException.class, () -> pair.server().recv());
        }
    }

    void channelClosedByTheOwnerOfItsViewEndsTheView() throws Exception {
        try (Pair pair = Pair.open()) {
            pair.client().send(new byte[100_000]);
            View view = pair.server().recv(Pair.SOON);
            MemorySegment segment = view.segment();
            pair.server().close();
            Check.thrown(IllegalStateException.class, view::byteSize);
            Check.thrown(IllegalStateException.class, () -> segment.get(ValueLayout.JAVA_BYTE, 0));
        }
    }

    void keptMessageOutlivesItsChannelAndIsClosedByAnyThread() throws Exception {
        Pair pair = Pair.open();
        pair.client().send(Check.pattern(100_000, 4));
        Message kept = pair.server().recv(Pair.SOON).keep();
        pair.client().send(Check.pattern(10, 5));
        Message little = pair.server().recv(Pair.SOON).keep();
        pair.close();
        Check.that(kept.isZeroCopy(), "a long message is not copied");
        Check.that(!little.isZeroCopy(), "a short message is copied");
        Check.equal(kept.segment().toArray(ValueLayout.JAVA_BYTE), Check.pattern(100_000, 4));
        Check.equal(little.segment().toArray(ValueLayout.JAVA_BYTE), Check.pattern(10, 5));
        Pair.start(() -> {
            kept.close();
            kept.close();
            little.close();
            return null;
        }).get();
        Check.thrown(IllegalStateException.class, () -> kept.segment().get(ValueLayout.JAVA_BYTE, 0));
    }
}
