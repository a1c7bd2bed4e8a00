// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.InterruptedIOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;

/** Tests records that may be lost: each record is received, or both sides count it as lost. */
final class LossyTest {
    private static final Config SMALL = new Config().ringBytes(8192).memoryMax(64 << 10);

    void everyRecordIsReceivedOrCounted() throws Exception {
        for (int policy = 0; policy < 3; policy++) {
            try (Pair pair = Pair.open(Pair.address(), SMALL)) {
                LossySender sender = new LossySender(pair.client(), new Config().set("on_full", policy)
                        .set("queue_records", 10).set("flush_on_drop_ns", Pair.SOON.toNanos()));
                LossyReceiver receiver = new LossyReceiver(pair.server());
                for (int number = 0; number < 500; number++) {
                    byte[] bytes = new byte[1002];
                    ByteBuffer.wrap(bytes, 1, 4).putInt(number);
                    sender.log(bytes, 1, 1000);
                }
                LossySender.Stats stats = sender.stats();
                Check.equal(stats.sent() + stats.queued() + stats.droppedFull(), 500L);
                Check.that(stats.droppedFull() > 0, "" + stats);
                FutureTask<Void> closing = Pair.start(() -> {
                    sender.close();
                    pair.client().close();
                    return null;
                });
                long next = 0;
                LossyReceiver.Received record;
                while ((record = receiver.recv(Pair.SOON)) != null) {
                    Check.equal(record.bytes().length, 1000);
                    next += record.lostBefore();
                    Check.equal((long) ByteBuffer.wrap(record.bytes()).getInt(), next);
                    next++;
                }
                closing.get();
                Check.equal(receiver.received() + receiver.lost(), 500L);
                Check.thrown(ClosedChannelException.class, () -> sender.log(new byte[1]));
                Check.that(sender.isClosed(), "a closed sender sends nothing");
            }
        }
    }

    void importantRecordWaitsForRoom() throws Exception {
        try (Pair pair = Pair.open(Pair.address(), SMALL);
                LossySender sender = new LossySender(pair.client())) {
            while (sender.log(new byte[1000]) == LossySender.Outcome.SENT) {
                // The loop logs records until the ring has no room.
            }
            FutureTask<LossySender.Outcome> waiting =
                    Pair.start(() -> sender.logAndWait(new byte[] {7}, Pair.SOON));
            LossyReceiver receiver = new LossyReceiver(pair.server());
            LossyReceiver.Received record;
            do {
                record = receiver.recv(Pair.SOON);
            } while (record.bytes().length != 1);
            Check.equal(waiting.get(), LossySender.Outcome.SENT);
            Check.equal(record.bytes()[0], (byte) 7);
            Check.equal(record.lostBefore(), 1L);
            Check.that(sender.tryFlush(), "nothing is queued");
            Check.equal(sender.log(new byte[1 << 20]), LossySender.Outcome.DROPPED_TOO_LONG);
            PartywallException failure =
                    Check.thrown(PartywallException.class, () -> pair.client().send(new byte[1]));
            Check.equal(failure.code(), 408);
        }
    }

    void goldenRecordsAreUnderstoodAndOthersRefused() throws Exception {
        try (Pair pair = Pair.open()) {
            pair.client().send(message(1, 0, 259, 5, 6));
            pair.client().send(message(2, 0, 7));
            pair.client().send(message(2, 0, -1));
            pair.client().send(message(1, 0, 1, 9));
            LossyReceiver receiver = new LossyReceiver(pair.server());
            LossyReceiver.Received first = receiver.recv(Pair.SOON);
            Check.equal(first.lostBefore(), 259L);
            Check.equal(first.bytes(), new byte[] {5, 6});
            Check.equal(receiver.recv(Pair.SOON).lostBefore(), -1L);
            Check.equal(receiver.lost(), -1L);
            List<byte[]> wrong = new ArrayList<>(List.of(message(3, 0, 0), message(0, 0, 0, 1),
                    message(1, 1, 0), message(2, 0, 1, 1), new byte[0], new byte[15]));
            for (byte[] bytes : wrong) {
                pair.client().send(bytes);
                Check.equal(Check.thrown(PartywallException.class, () -> receiver.recv(Pair.SOON)).code(),
                        PartywallException.NOT_A_RECORD);
            }
            pair.client().send(message(1, 0, 0));
            Check.equal(receiver.recv(Pair.SOON).bytes().length, 0);
        }
    }

    private static byte[] message(int kind, int zero, long lost, int... record) {
        ByteBuffer bytes = ByteBuffer.allocate(16 + record.length).order(ByteOrder.LITTLE_ENDIAN);
        bytes.putInt(kind).putInt(zero).putLong(lost);
        for (int value : record) {
            bytes.put((byte) value);
        }
        return bytes.array();
    }

    void interruptEndsTheWaitForARecord() throws Exception {
        try (Pair pair = Pair.open()) {
            LossyReceiver receiver = new LossyReceiver(pair.server());
            CountDownLatch isInterrupted = new CountDownLatch(1);
            FutureTask<byte[]> receiving = new FutureTask<>(() -> {
                Check.thrown(InterruptedIOException.class, receiver::recv);
                Check.that(Thread.interrupted(), "the interrupt status stays");
                isInterrupted.countDown();
                return receiver.recv(Pair.SOON).bytes();
            });
            Thread.ofVirtual().start(receiving).interrupt();
            isInterrupted.await();
            try (LossySender sender = new LossySender(pair.client())) {
                Check.equal(sender.log(new byte[] {4}), LossySender.Outcome.SENT);
                Check.equal(receiving.get(), new byte[] {4});
            }
        }
    }
}
