// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;

/** Tests that the lock of a direction lets one thread in, also while it favours a thread. */
final class DirectionLockTest {
    /**
     * Number of releases in a row: more than a lock needs before it favours a thread for the first
     * time.
     */
    private static final int ENOUGH = 40;
    private static final int LOCKS = 20_000;
    private static final int CHANNELS = 50;
    private static final int OVERFLOWS = 4_000;
    /**
     * Number of stack depths at which the test takes a lock: first with a full stack, then each
     * time with room for one call of {@link #descend} more. At the last depth the stack has room
     * for all calls that take a lock.
     */
    private static final int LEVELS = 60;
    private static int level;

    void favouredThreadHasTheLockOnce() throws Exception {
        for (boolean isFavoured : new boolean[] {false, true}) {
            DirectionLock lock = new DirectionLock();
            if (isFavoured) {
                favour(lock);
            }
            Check.that(lock.take(), "nobody has the lock");
            Check.that(!lock.take(), "this thread has the lock");
            Check.that(!elsewhere(lock), "another thread cannot take it");
            lock.release();
            Check.that(lock.take(), "the lock is released");
            lock.release();
        }
    }

    void anotherThreadTakesTheLockFromTheFavouredOne() throws Exception {
        DirectionLock lock = new DirectionLock();
        favour(lock);
        for (int round = 0; round < 10; round++) {
            Check.that(elsewhere(lock), "the favoured thread does not have the lock");
            Check.that(lock.take(), "the other thread has released the lock");
            Check.that(!elsewhere(lock), "this thread has the lock");
            lock.release();
            favour(lock);
        }
    }

    void lockOfAnEndedThreadIsTaken() throws Exception {
        DirectionLock lock = new DirectionLock();
        Thread ended = Thread.ofPlatform().start(() -> favour(lock));
        ended.join();
        Check.that(lock.take(), "the thread that the lock favours has ended");
        Check.that(!elsewhere(lock), "this thread has the lock");
    }

    void lockThatIsTakenForeverIsNotTakenAgain() throws Exception {
        DirectionLock lock = new DirectionLock();
        favour(lock);
        Check.that(lock.takeForever(), "nobody has the lock");
        Check.that(!lock.take() && !lock.takeForever(), "this thread has the lock");
        FutureTask<Boolean> other = Pair.start(lock::takeForever);
        Check.equal(other.get(), false);
    }

    /**
     * A first thread uses one lock after the other, each until the lock favours it and then for
     * some time. A second thread takes the lock that favours the first one. Each thread adds to a
     * sum while it has the lock; the second pauses between reading and writing the sum. If both had
     * the lock at the same time, an addition would be lost.
     */
    void favouredThreadAndAnotherNeverHaveTheLockTogether() throws Exception {
        DirectionLock[] locks = new DirectionLock[LOCKS];
        Arrays.setAll(locks, index -> new DirectionLock());
        AtomicLongArray sums = new AtomicLongArray(LOCKS);
        AtomicInteger current = new AtomicInteger();
        AtomicBoolean isDone = new AtomicBoolean();
        FutureTask<Long> favoured = Pair.start(() -> {
            long taken = 0;
            for (int index = 0; !isDone.get(); index = (index + 1) % LOCKS) {
                for (int count = 0; count < 100 * ENOUGH; count++) {
                    taken += add(locks[index], sums, index, 0);
                    if (count == ENOUGH) {
                        current.set(index);
                    }
                }
            }
            return taken;
        });
        long taken = 0;
        int last = 0;
        // On a busy machine the two threads seldom run at the same time, so the test runs for a
        // bounded time.
        long deadline = Deadline.after(Duration.ofSeconds(5));
        for (int attempts = 0; attempts < LOCKS && Deadline.left(deadline) > 0; ) {
            int index = current.get();
            if (index != last) {
                taken += add(locks[index], sums, index, 50);
                attempts++;
                last = index;
            }
        }
        isDone.set(true);
        taken += favoured.get();
        for (int index = 0; index < LOCKS; index++) {
            taken -= sums.get(index);
        }
        Check.equal(taken, 0L);
    }

    /**
     * Adds one to a sum if this thread can take the lock; returns how much it has added. {@code
     * pauses} is the length of the pause between reading and writing the sum.
     */
    private static int add(DirectionLock lock, AtomicLongArray sums, int index, int pauses) {
        if (!lock.take()) {
            return 0;
        }
        long sum = sums.getOpaque(index);
        for (int pause = 0; pause < pauses; pause++) {
            Thread.onSpinWait();
        }
        sums.setOpaque(index, sum + 1);
        lock.release();
        return 1;
    }

    /**
     * One thread uses a lock some times while another closes it. Exactly one of them must take the
     * lock for ever, because that thread frees the channel.
     */
    void lockIsTakenForeverByTheUserOrByTheOneThatCloses() throws Exception {
        Closed[] all = new Closed[LOCKS];
        Arrays.setAll(all, index -> new Closed());
        FutureTask<Void> using = Pair.start(() -> {
            int further = 1;
            for (Closed it : all) {
                int count = 0;
                while (count < ENOUGH + further && it.use()) {
                    count++;
                    it.isUsed |= count == ENOUGH;
                }
                further = further % 64 + 1;
            }
            return null;
        });
        for (Closed it : all) {
            while (!it.isUsed && !using.isDone()) {
                Thread.yield();
            }
            it.isClosed = true;
            it.free();
        }
        using.get();
        for (Closed it : all) {
            Check.equal(it.freed.get(), 1);
        }
    }

    /** A lock that is used until it is closed, as {@link MessageChannel} uses its locks. */
    private static final class Closed {
        final DirectionLock lock = new DirectionLock();
        final AtomicInteger freed = new AtomicInteger();
        volatile boolean isClosed;
        volatile boolean isUsed;

        boolean use() {
            if (!lock.take()) {
                return !isClosed;
            }
            lock.release();
            if (isClosed) {
                free();
                return false;
            }
            return true;
        }

        synchronized void free() {
            if (lock.takeForever()) {
                freed.incrementAndGet();
            }
        }
    }

    /**
     * A thread takes locks away from the thread that they favour, with so little of its stack left
     * that one call or another overflows it. A lock that stayed revoked would let no thread return.
     */
    void lockIsNotLeftRevokedByAStackOverflow() throws Exception {
        DirectionLock[] locks = new DirectionLock[LOCKS];
        Arrays.setAll(locks, index -> new DirectionLock());
        for (DirectionLock lock : locks) {
            favour(lock);
        }
        FutureTask<Integer> other = new FutureTask<>(() -> {
            int overflows = 0;
            int index = 0;
            // Meanwhile the virtual machine compiles the methods of the lock: compiled code can
            // overflow the stack in a call after the exchange of the lock's state.
            while (index < LOCKS - OVERFLOWS) {
                descend(20, locks[index++]);
            }
            for (int count = 0; count < 20; count++) {
                levels();
            }
            while (index < LOCKS) {
                int tooDeep = levels() + 5;
                for (int less = 0; less < LEVELS && index < LOCKS; less++) {
                    try {
                        descend(tooDeep - less, locks[index++]);
                    } catch (StackOverflowError expected) {
                        overflows++;
                    }
                }
            }
            return overflows;
        });
        new Thread(null, other, "overflow", 1 << 19).start();
        Check.that(other.get() > 0, "the stack overflows");
        for (DirectionLock lock : locks) {
            lock.take();
        }
    }

    /** Returns the number of nested calls of {@link #descend} that the stack has room for. */
    private static int levels() {
        try {
            descend(Integer.MAX_VALUE, null);
        } catch (StackOverflowError expected) {
            // The stack is full, so the number of nested calls is known.
        }
        return Integer.MAX_VALUE - level;
    }

    private static void descend(int levels, DirectionLock lock) {
        level = levels;
        if (levels > 0) {
            descend(levels - 1, lock);
        } else {
            lock.take();
        }
    }

    /**
     * A thread sends, and receives views, on a channel that another thread closes. The first thread
     * gets an exception. One of the two threads frees the channel, so the peer receives the end of
     * its messages.
     */
    void channelClosedDuringItsUseIsFreed() throws Exception {
        for (int count = 0; count < CHANNELS; count++) {
            boolean isReceiver = count % 2 == 0;
            try (Pair pair = Pair.open()) {
                CountDownLatch isUsed = new CountDownLatch(1);
                FutureTask<Integer> using = Pair.start(() -> use(pair, isUsed));
                isUsed.await();
                Channel closed = isReceiver ? pair.server() : pair.client();
                Channel peer = isReceiver ? pair.client() : pair.server();
                closed.close();
                using.get();
                byte[] target = new byte[48];
                try {
                    while (peer.recv(target, Pair.SOON) >= 0) {
                        Check.that(!isReceiver, "the receiving side has sent nothing");
                    }
                } catch (PartywallException end) {
                    throw new AssertionError("channel " + count, end);
                }
            }
        }
    }

    /**
     * Sends messages from one end of the pair and receives them as views at the other, until one of
     * the ends is closed.
     */
    private static int use(Pair pair, CountDownLatch isUsed) {
        byte[] payload = Check.pattern(48, 1);
        for (int count = 0; ; count++) {
            if (count == ENOUGH) {
                isUsed.countDown();
            }
            try {
                pair.client().send(payload);
                try (View view = pair.server().recv()) {
                    if (view == null) {
                        return count;
                    }
                    Check.that(view.get(47) == payload[47], "the last byte");
                }
            } catch (IOException closed) {
                isUsed.countDown();
                return count;
            }
        }
    }

    private static void favour(DirectionLock lock) {
        for (int count = 0; count < ENOUGH; count++) {
            Check.that(lock.take(), "nobody has the lock");
            lock.release();
        }
    }

    /** Returns whether another thread can take the lock, which it then releases. */
    private static boolean elsewhere(DirectionLock lock) throws Exception {
        return Pair.start(() -> {
            boolean isTaken = lock.take();
            if (isTaken) {
                lock.release();
            }
            return isTaken;
        }).get();
    }
}
