// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.netty;

import dev.partywall.Config;
import dev.partywall.Loop;
import dev.partywall.Session;
import dev.partywall.SessionListener;
import io.netty.channel.Channel;
import io.netty.channel.ChannelPromise;
import io.netty.channel.EventLoop;
import io.netty.channel.IoEvent;
import io.netty.channel.IoEventLoop;
import io.netty.channel.IoRegistration;
import io.netty.channel.epoll.EpollIoHandle;
import io.netty.channel.epoll.EpollIoOps;
import io.netty.channel.unix.FileDescriptor;
import io.netty.util.concurrent.Future;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * The loop of the library in one epoll event loop of Netty, which watches its descriptor.
 *
 * <pre>
 *   descriptor is readable ─▶ turn: poll ─▶ observers: channels read, write, accept
 *            ▲                  ▲                              │ a channel has sent
 *            └─ nothing came ─ spin: polls, at most for the spin budget ◀┘
 * </pre>
 *
 * Whoever has sent something expects an answer, so the event loop spins for it. What only receives
 * leaves the processor to others. Each poll of a spin is a task of the event loop, so that other tasks
 * run in between; and it ends after a millisecond, so that the event loop looks at its other
 * descriptors. A spin in vain makes the next ones rarer. Every method is called by the thread of the
 * event loop.
 */
final class EpollLoop implements EpollIoHandle {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(EpollLoop.class);
    private static final Map<IoEventLoop, EpollLoop> LOOPS = new ConcurrentHashMap<>();

    private final IoEventLoop eventLoop;
    private final Loop loop = new Loop();
    private final FileDescriptor descriptor = new FileDescriptor(loop.fd());
    private final Set<Channel> channels = new LinkedHashSet<>();
    private final Runnable spin = this::spin;
    private boolean isSpinning;
    /** When the spin began, and when it is in vain if nothing comes, in the JVM's nanoseconds. */
    private long spinStart;
    private long spinUntil;
    /** Whether a spin has lasted so long that the event loop first looks at its other sources. */
    private boolean isResting;
    /** Whether a channel has sent something since the last poll of the spin began. */
    private boolean hasSent;
    /** How many sends go by without a spin, and how many are left of them. */
    private int skips;
    private int skipsLeft;

    private EpollLoop(IoEventLoop eventLoop) throws IOException {
        this.eventLoop = eventLoop;
    }

    /** What is called with a session, or with the reason why there is none. */
    interface Connected {
        void done(Session session, IOException failure);
    }

    /** Returns the loop in an event loop of Netty, whose thread calls. */
    static EpollLoop of(EventLoop eventLoop) throws IOException {
        IoEventLoop key = (IoEventLoop) eventLoop;
        EpollLoop found = LOOPS.get(key);
        if (found != null) {
            return found;
        }
        EpollLoop made = new EpollLoop(key);
        Future<IoRegistration> registered = key.register(made);
        if (!registered.isSuccess()) {
            made.loop.close();
            throw new IOException("the event loop cannot watch another descriptor", registered.cause());
        }
        LOOPS.put(key, made);
        key.terminationFuture().addListener(terminated -> made.end());
        registered.getNow().submit(EpollIoOps.EPOLLIN);
        return made;
    }

    /** Returns whether an event loop is one of epoll. */
    static boolean isCompatible(EventLoop eventLoop) {
        return eventLoop instanceof IoEventLoop it && it.isCompatible(EpollLoop.class);
    }

    /**
     * Adds a channel, which is closed together with the event loop, completes its registration, and
     * then runs {@code first} as a task of the event loop.
     */
    static void register(Channel channel, ChannelPromise promise, Runnable first) {
        try {
            of(channel.eventLoop()).channels.add(channel);
        } catch (IOException | RuntimeException failure) {
            promise.setFailure(failure);
            return;
        }
        promise.setSuccess();
        channel.eventLoop().execute(first);
    }

    static void remove(EventLoop eventLoop, Channel channel) {
        EpollLoop found = LOOPS.get((IoEventLoop) eventLoop);
        if (found != null) {
            found.channels.remove(channel);
        }
    }

    SessionListener bind(PartywallAddress address, Config config) throws IOException {
        return loop.bind(address.toString(), config);
    }

    /**
     * Opens a session, and calls {@code connected} in the event loop. Another thread waits for the
     * handshake.
     */
    void connect(PartywallAddress address, Config config, Connected connected) {
        HANDSHAKES.execute(() -> {
            Session session;
            try {
                session = loop.connect(address.toString(), config);
            } catch (IOException failure) {
                run(() -> connected.done(null, failure), null);
                return;
            }
            run(() -> connected.done(session, null), session);
        });
    }

    private void run(Runnable task, Session session) {
        try {
            eventLoop.execute(task);
        } catch (RejectedExecutionException isShutDown) {
            if (session != null) {
                session.close();
            }
        }
    }

    @Override
    public FileDescriptor fd() {
        return descriptor;
    }

    @Override
    public void handle(IoRegistration registration, IoEvent event) {
        if (isSpinning) {
            return; // the spin polls
        }
        isResting = false;
        // A poll that arms, and then finds events, makes the descriptor readable again. So the first
        // poll, which is likely to find some, does not arm.
        poll(true);
        if (!isSpinning) {
            poll(false);
        }
    }

    /** Notes that a channel of the event loop has sent something, whose answer is worth a spin. */
    static void sent(EventLoop eventLoop) {
        EpollLoop found = LOOPS.get((IoEventLoop) eventLoop);
        if (found != null) {
            found.expectAnswer();
        }
    }

    private void expectAnswer() {
        hasSent = true;
        if (isSpinning) {
            spinUntil = System.nanoTime() + SPIN_BUDGET_NS;
        } else if (skipsLeft > 0) {
            skipsLeft--;
        } else if (PROCESSORS > 1 && !isResting && !eventLoop.isShuttingDown()) {
            eventLoop.execute(spin);
            isSpinning = true;
            spinStart = System.nanoTime();
            spinUntil = spinStart + SPIN_BUDGET_NS;
        }
    }

    /** Closes every channel of the event loop, which is about to end, and frees the loop. */
    @Override
    public void close() {
        LOOPS.remove(eventLoop, this);
        for (Channel channel : new ArrayList<>(channels)) {
            channel.unsafe().close(channel.unsafe().voidPromise());
        }
        try {
            loop.drain(DRAIN_MAX);
        } catch (IOException failure) {
            LOGGER.warn("The sessions of an event loop cannot end in good order.", failure);
        }
        loop.close();
    }

    /**
     * Frees the loop if the event loop has not closed it: without a quiet period, one that is shut
     * down may end at once, and leaves its channels as they are.
     */
    private void end() {
        if (LOOPS.remove(eventLoop, this)) {
            loop.close();
        }
    }

    /** Polls; {@code isAwake} says that another poll follows before the event loop waits. */
    private int poll(boolean isAwake) {
        try {
            return isAwake ? loop.pollAwake() : loop.poll();
        } catch (IOException failure) {
            LOGGER.warn("The sessions of an event loop cannot advance.", failure);
            return 0;
        } catch (RuntimeException failure) {
            LOGGER.warn("A channel has failed to handle an event.", failure);
            return 1;
        }
    }

    /** Polls once, and does so again in a further task as long as that is worth it. */
    private void spin() {
        boolean goesOn = false;
        try {
            if (pollInSpin() && !eventLoop.isShuttingDown()) {
                eventLoop.execute(spin);
                goesOn = true;
            }
        } finally {
            // Also after an error, because nothing else polls during a spin.
            isSpinning = goesOn;
            if (!goesOn) {
                poll(false);
            }
        }
    }

    /** Polls once, and returns whether a further poll is worth it. */
    private boolean pollInSpin() {
        long now = System.nanoTime();
        boolean isInTime = now - spinUntil < 0;
        hasSent = false;
        boolean hasCome = poll(true) > 0;
        if (hasCome || !isInTime) {
            // Spinning is in vain, too, if others needed the processor meanwhile.
            skips = hasCome && isInTime ? 0 : Math.min(2 * skips + 1, SKIPS_MAX);
            skipsLeft = skips;
        }
        // Messages that follow each other for so long must not keep the event loop from its other
        // sources, so it looks at these before it spins again.
        isResting = now - spinStart >= SPIN_MAX_NS;
        return !isResting && (hasCome ? hasSent && skips == 0 : isInTime);
    }

    private static Executor handshakes() {
        ThreadPoolExecutor executor = new ThreadPoolExecutor(HANDSHAKES_MAX, HANDSHAKES_MAX, 1,
                TimeUnit.SECONDS, new LinkedBlockingQueue<>(),
                Thread.ofPlatform().name("partywall-handshake-", 0).daemon().factory());
        executor.allowCoreThreadTimeOut(true);
        return executor;
    }

    private static final int PROCESSORS = Runtime.getRuntime().availableProcessors();
    /** Longest time of spinning after something was sent. */
    private static final long SPIN_BUDGET_NS = 50_000;
    /** Longest time of spinning, however many messages come. */
    private static final long SPIN_MAX_NS = 1_000_000;
    private static final int SKIPS_MAX = 63;
    /** Number of handshakes of clients at the same time; others wait. */
    private static final int HANDSHAKES_MAX = 64;
    private static final Executor HANDSHAKES = handshakes();
    /** Longest time for which an event loop that ends waits for peers that do not read. */
    private static final Duration DRAIN_MAX = Duration.ofSeconds(1);
}
