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
 * The library's event loop within one epoll event loop of Netty, which watches its descriptor.
 *
 * <pre>
 *   descriptor is readable ─▶ poll ───────▶ observers: channels read, write, accept
 *            ▲                  ▲                              │ a channel has sent
 *            └─ nothing came ─ spin: polls, at most for the spin budget ◀┘
 * </pre>
 *
 * When a channel has sent a message, an answer is expected, so the event loop spins: it polls again
 * and again. When channels only receive, it does not spin, and leaves the processor to others. Each
 * poll of a spin is a task of the event loop, so other tasks run in between. A spin ends after a
 * millisecond, so that the event loop looks at its other descriptors. If a spin gets no answer, the
 * next spins are rarer. Every method is called by the thread of the event loop.
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
    /**
     * When the present spin began, and when it ends if no event comes, in nanoseconds of {@link
     * System#nanoTime}.
     */
    private long spinStart;
    private long spinUntil;
    /**
     * Whether the last spin reached the maximum time of a spin, so that the event loop looks at its
     * other descriptors before the next one.
     */
    private boolean isResting;
    /** Whether a channel has sent a message since the spin's last poll began. */
    private boolean hasSent;
    /**
     * Number of sends that are followed by no spin because the last spins got no answer, and how
     * many of those sends are left.
     */
    private int skips;
    private int skipsLeft;

    private EpollLoop(IoEventLoop eventLoop) throws IOException {
        this.eventLoop = eventLoop;
    }

    /**
     * What to do once an attempt to connect has ended: with the session that was opened, or with
     * the reason why none was.
     */
    interface Connected {
        void done(Session session, IOException failure);
    }

    /**
     * Returns the library's loop within an event loop of Netty, and makes it at the first call,
     * which the event loop's thread makes.
     */
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

    static boolean isCompatible(EventLoop eventLoop) {
        return eventLoop instanceof IoEventLoop it && it.isCompatible(EpollLoop.class);
    }

    /**
     * Adds a channel to the event loop, which will close the channel when it ends. Completes the
     * channel's registration, then runs {@code first} as a task of the event loop.
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
     * Opens a session, and calls {@code connected} in the event loop. A thread of its own waits for
     * the handshake.
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
        // A poll that arms the loop and then finds events makes the descriptor readable again. The
        // first poll is likely to find events, so it does not arm the loop.
        poll(true);
        if (!isSpinning) {
            poll(false);
        }
    }

    /**
     * Notes that a channel of the event loop has sent a message, so that the event loop spins for
     * the answer.
     */
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
     * Frees the library's loop if the event loop has not called {@link #close}. An event loop of
     * Netty that is shut down without a quiet period may end at once, and leaves its channels as
     * they are.
     */
    private void end() {
        if (LOOPS.remove(eventLoop, this)) {
            loop.close();
        }
    }

    /**
     * Polls the sessions of the library's loop. {@code isAwake} says that another poll follows
     * before Netty's event loop waits.
     */
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

    /**
     * Polls the sessions once, and submits itself as a further task while another poll is worth it.
     */
    private void spin() {
        boolean goesOn = false;
        try {
            if (pollInSpin() && !eventLoop.isShuttingDown()) {
                eventLoop.execute(spin);
                goesOn = true;
            }
        } finally {
            // The field is set after an exception, too. If it stayed true although no spin runs,
            // the sessions would not be polled any more.
            isSpinning = goesOn;
            if (!goesOn) {
                poll(false);
            }
        }
    }

    private boolean pollInSpin() {
        long now = System.nanoTime();
        boolean isInTime = now - spinUntil < 0;
        hasSent = false;
        boolean hasCome = poll(true) > 0;
        if (hasCome || !isInTime) {
            // Events that come after the time of the spin do not count: other threads needed the
            // processor meanwhile, so spinning did not help.
            skips = hasCome && isInTime ? 0 : Math.min(2 * skips + 1, SKIPS_MAX);
            skipsLeft = skips;
        }
        // After a spin of a millisecond, in which messages kept coming, the event loop looks at its
        // other descriptors before it spins again.
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
    /**
     * Maximum time in nanoseconds for which the event loop spins after a channel has sent a message
     * and no event comes.
     */
    private static final long SPIN_BUDGET_NS = 50_000;
    /**
     * Maximum time of one spin in nanoseconds, however many messages come: the event loop has other
     * descriptors.
     */
    private static final long SPIN_MAX_NS = 1_000_000;
    private static final int SKIPS_MAX = 63;
    /**
     * Maximum number of handshakes at the same time by clients of this process; further handshakes
     * wait.
     */
    private static final int HANDSHAKES_MAX = 64;
    private static final Executor HANDSHAKES = handshakes();
    /**
     * Maximum time for which an event loop that ends waits until peers have read the last bytes.
     */
    private static final Duration DRAIN_MAX = Duration.ofSeconds(1);
}
