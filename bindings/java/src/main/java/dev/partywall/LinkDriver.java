// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The daemon thread that drives all links of the process: their connections, bytes,
 * acknowledgements and timers. The links are in one group. After each poll of the group the thread
 * signals the threads that wait for a link.
 *
 * <pre>
 *   descriptor of the group, next timer ─▶ poll ─▶ partywall_link_group_poll ─▶ waiters of links
 * </pre>
 *
 * Unreceived messages alone do not make the group's descriptor readable, so they do not keep the
 * thread busy. The descriptor also becomes readable when a call of another thread leaves work for
 * the driver.
 */
final class LinkDriver {
    private static volatile LinkDriver shared;

    private final Set<WaitList> waiting = ConcurrentHashMap.newKeySet();
    private final long group;
    private final int fd;

    private LinkDriver() throws PartywallException {
        try (Call call = new Call()) {
            call.check("partywall_link_group_new", call.result());
            group = call.resultLong();
            Call.invoke("partywall_link_group_fd", group, call.result());
            fd = call.resultInt();
        }
        Thread.ofPlatform().name("partywall-links").daemon().inheritInheritableThreadLocals(false)
                .start(this::run);
    }

    /**
     * Returns the driver of the process, and starts its thread at the first call. If a call fails,
     * a later call tries again.
     */
    static LinkDriver get() throws PartywallException {
        LinkDriver driver = shared;
        return driver == null ? make() : driver;
    }

    private static synchronized LinkDriver make() throws PartywallException {
        if (shared == null) {
            shared = new LinkDriver();
        }
        return shared;
    }

    long group() {
        return group;
    }

    void register(WaitList waiters) {
        waiting.add(waiters);
    }

    void unregister(WaitList waiters) {
        waiting.remove(waiters);
    }

    private void run() {
        long poll = Native.allocateForever(Native.POLL_BYTES + 16);
        long result = poll + Native.POLL_BYTES;
        long error = result + 8;
        while (true) {
            Native.setPoll(poll, fd);
            Native.poll(poll, 1, untilTimer(result));
            int status = Native.linkGroupPoll(group, result, error);
            if (status != Native.OK) {
                throw new IllegalStateException(PartywallException.of(status, error));
            }
            waiting.forEach(WaitList::signal);
        }
    }

    /**
     * Returns the milliseconds until the next timer of the group, rounded up; -1 if no timer is
     * set.
     */
    private int untilTimer(long place) {
        Native.linkGroupNextTimer(group, place);
        long nanos = Native.getLong(place);
        return nanos < 0 ? -1 : (int) Math.min(Math.ceilDiv(nanos, 1_000_000L), Integer.MAX_VALUE);
    }
}
