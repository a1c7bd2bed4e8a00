// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;

/**
 * The daemon thread that waits for the descriptors of channels and listeners, and signals the
 * threads that wait for them. Those threads park, so a virtual thread leaves its carrier thread
 * free.
 *
 * <p>The epoll set watches a descriptor for one event at a time ({@code EPOLLONESHOT}), as the
 * poller of the JDK does. A closed descriptor leaves the epoll set by itself. If a new descriptor
 * gets the number of a closed one, the threads that waited for the closed one are at most signalled
 * needlessly.
 */
final class Poller {
    private final ReentrantLock lock = new ReentrantLock();
    private final Map<Integer, List<Waiter>> waiters = new HashMap<>();
    private final int epoll;

    private Poller() throws IOException {
        epoll = Native.epollCreate(Native.EPOLL_CLOEXEC);
        if (epoll < 0) {
            throw new IOException("the process has too few free descriptors for an epoll set");
        }
        Thread.ofPlatform().name("partywall-poller").daemon().inheritInheritableThreadLocals(false)
                .start(this::run);
    }

    /**
     * Returns the poller of the process, and starts its thread at the first call. If a call fails,
     * a later call tries again.
     */
    static Poller get() throws IOException {
        Poller poller = shared;
        return poller == null ? make() : poller;
    }

    private static synchronized Poller make() throws IOException {
        if (shared == null) {
            shared = new Poller();
        }
        return shared;
    }

    /** Signals {@code waiter} once {@code fd} is readable. */
    void register(int fd, Waiter waiter) throws IOException {
        lock.lock();
        try {
            waiters.computeIfAbsent(fd, ignored -> new ArrayList<>(2)).add(waiter);
            if (Native.epollControl(epoll, Native.EPOLL_CTL_MOD, fd) != 0
                    && Native.epollControl(epoll, Native.EPOLL_CTL_ADD, fd) != 0) {
                remove(fd, waiter);
                throw new IOException("epoll cannot watch another descriptor");
            }
        } finally {
            lock.unlock();
        }
    }

    void unregister(int fd, Waiter waiter) {
        lock.lock();
        try {
            remove(fd, waiter);
        } finally {
            lock.unlock();
        }
    }

    private void remove(int fd, Waiter waiter) {
        List<Waiter> those = waiters.get(fd);
        if (those != null && those.remove(waiter) && those.isEmpty()) {
            waiters.remove(fd);
        }
    }

    private void run() {
        long events = Native.allocateForever((long) EVENTS_MAX * Native.EPOLL_EVENT_BYTES);
        while (true) {
            // Waiting for the epoll set gives a negative number only if a signal handler of the
            // process has interrupted it.
            int count = Native.epollWait(epoll, events, EVENTS_MAX);
            for (int index = 0; index < count; index++) {
                signal(Native.epollFd(events, index));
            }
        }
    }

    private void signal(int fd) {
        List<Waiter> those;
        lock.lock();
        try {
            those = waiters.remove(fd);
        } finally {
            lock.unlock();
        }
        if (those != null) {
            those.forEach(Waiter::signal);
        }
    }

    private static volatile Poller shared;
    private static final int EVENTS_MAX = 256;
}
