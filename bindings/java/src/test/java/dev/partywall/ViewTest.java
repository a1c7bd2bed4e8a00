// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicReference;

/** Views and messages used late, or by the wrong thread, throw; nothing crashes. */
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
