// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.PooledByteBufAllocator;
import io.netty.util.ResourceLeakDetector;
import java.time.Duration;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** A leak detector for Netty that keeps its reports of buffers that were never released. */
public final class RecordingLeakDetector<T> extends ResourceLeakDetector<T> {
    private static final List<String> LEAKS = new CopyOnWriteArrayList<>();
    private static final String CANARY = "a buffer that is leaked on purpose ";
    private static int canaries;

    /** The constructor with which Netty makes its leak detector. */
    public RecordingLeakDetector(Class<?> type, int interval) {
        super(type, interval);
    }

    /** A constructor of earlier versions of Netty. Netty logs a warning if it is missing. */
    public RecordingLeakDetector(Class<?> type, int interval, long ignored) {
        super(type, interval);
    }

    @Override
    protected void reportTracedLeak(String type, String records) {
        LEAKS.add(type + records);
    }

    @Override
    protected void reportUntracedLeak(String type) {
        LEAKS.add(type);
    }

    @Override
    protected boolean needReport() {
        return true;
    }

    /**
     * Throws if a buffer has leaked. This method leaks a buffer itself and collects garbage until
     * that buffer is reported; then earlier leaks have been reported, too.
     */
    static void check() {
        String name = CANARY + ++canaries;
        leak(name);
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        while (LEAKS.stream().noneMatch(leak -> leak.contains(name))) {
            if (System.nanoTime() > deadline) {
                throw new AssertionError("the leak detector does not report a leaked buffer");
            }
            System.gc();
            PooledByteBufAllocator.DEFAULT.directBuffer(16).release(); // reports what was collected
        }
        List<String> leaks = LEAKS.stream().filter(leak -> !leak.contains(CANARY)).toList();
        if (!leaks.isEmpty()) {
            throw new AssertionError(leaks.size() + " buffers have leaked: " + leaks);
        }
    }

    private static void leak(String name) {
        ByteBuf buffer = PooledByteBufAllocator.DEFAULT.directBuffer(16);
        buffer.touch(name);
    }
}
