// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.InterruptedIOException;
import java.nio.channels.AsynchronousCloseException;
import java.nio.channels.ClosedChannelException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;

/**
 * Tests that waits end by a message, by an interrupt, and by close, in platform and virtual
 * threads.
 */
final class WaitTest {
    private static final List<Thread.Builder> THREADS =
            List.of(Thread.ofPlatform().daemon(), Thread.ofVirtual());
    private static final List<Config.Wait> STRATEGIES =
            List.of(Config.Wait.ADAPTIVE, Config.Wait.PARK, Config.Wait.SPIN);

    void messageEndsAWait() throws Exception {
        for (Config.Wait strategy : STRATEGIES) {
            for (Thread.Builder threads : THREADS) {
                try (Pair pair = Pair.open(Pair.address(), new Config().waiting(strategy))) {
                    Waiting<Integer> waiting = new Waiting<>(threads, () -> pair.server().recv(new byte[8]));
                    waiting.untilItWaits();
                    pair.client().send(new byte[5]);
                    Check.equal(waiting.task.get(), 5);
                }
            }
        }
    }

    /**
     * Virtual threads of a channel with the setting SPIN let other virtual threads run, although
     * there are more of them than carrier threads.
     */
    void virtualThreadsWithTheStrategyOfSpinningLetOthersRun() throws Exception {
        Config config = new Config().waiting(Config.Wait.SPIN);
        List<Pair> pairs = new ArrayList<>();
        List<Waiting<Integer>> receiving = new ArrayList<>();
        int count = 2 * Runtime.getRuntime().availableProcessors() + 4;
        for (int index = 0; index < count; index++) {
            Pair pair = Pair.open(Pair.address(), config);
            pairs.add(pair);
            receiving.add(new Waiting<>(Thread.ofVirtual(), () -> pair.server().recv(new byte[8])));
        }
        Waiting<Void> sending = new Waiting<>(Thread.ofVirtual(), () -> {
            for (Pair pair : pairs) {
                pair.client().send(new byte[3]);
            }
            return null;
        });
        sending.task.get();
        for (Waiting<Integer> received : receiving) {
            Check.equal(received.task.get(), 3);
        }
        for (Pair pair : pairs) {
            pair.close();
        }
    }

    void interruptEndsAWaitAndLeavesTheChannelUsable() throws Exception {
        for (Config.Wait strategy : STRATEGIES) {
            for (Thread.Builder threads : THREADS) {
                try (Pair pair = Pair.open(Pair.address(), new Config().waiting(strategy))) {
                    CountDownLatch isInterrupted = new CountDownLatch(1);
                    Waiting<Integer> waiting = new Waiting<>(threads, () -> {
                        Check.thrown(InterruptedIOException.class, () -> pair.server().recv());
                        Check.that(Thread.interrupted(), "the interrupt status stays");
                        isInterrupted.countDown();
                        return pair.server().recv(new byte[8], Pair.SOON);
                    });
                    waiting.untilItWaits();
                    waiting.thread.interrupt();
                    isInterrupted.await();
                    pair.client().send(new byte[3]);
                    Check.equal(waiting.task.get(), 3);
                }
            }
        }
    }

    void closeEndsAWait() throws Exception {
        for (Thread.Builder threads : THREADS) {
            try (Pair pair = Pair.open(); SessionListener sessions = SessionListener.bind(Pair.address())) {
                List<Waiting<?>> waits = new ArrayList<>();
                waits.add(new Waiting<>(threads, () -> pair.server().recv()));
                waits.add(new Waiting<>(threads, () -> pair.listener().accept()));
                waits.add(new Waiting<>(threads, sessions::accept));
                List<Boolean> areParked = waits.stream().map(Waiting::untilItWaits).toList();
                pair.server().close();
                pair.listener().close();
                sessions.close();
                for (int index = 0; index < waits.size(); index++) {
                    Waiting<?> waiting = waits.get(index);
                    ExecutionException failure =
                            Check.thrown(ExecutionException.class, () -> waiting.task.get());
                    // A thread that is not parked may begin its call only after the close, and then
                    // gets another exception.
                    Class<?> expected = areParked.get(index)
                            ? AsynchronousCloseException.class : ClosedChannelException.class;
                    Check.that(expected.isInstance(failure.getCause()), "" + failure.getCause());
                }
            }
        }
    }

    void addressIsFreeOnceTheListenerIsClosed() throws Exception {
        String address = Pair.address();
        for (int round = 0; round < 100; round++) {
            Thread.Builder threads = THREADS.get(round % THREADS.size());
            Listener listener = Listener.bind(address);
            Waiting<Channel> first = new Waiting<>(threads, listener::accept);
            Waiting<Channel> second = new Waiting<>(threads, listener::accept);
            first.untilItWaits();
            listener.close();
            Listener.bind(address).close();
            for (Waiting<Channel> waiting : List.of(first, second)) {
                ExecutionException end =
                        Check.thrown(ExecutionException.class, () -> waiting.task.get());
                Check.that(end.getCause() instanceof ClosedChannelException, "" + end.getCause());
            }
        }
    }

    void secondThreadThatAcceptsIsInterruptedAndHasItsDeadline() throws Exception {
        for (Thread.Builder threads : THREADS) {
            try (Listener listener = Listener.bind(Pair.address())) {
                Waiting<Channel> first = new Waiting<>(threads, listener::accept);
                while (!first.untilItWaits()) {
                    // A thread that accepts parks, so this loop ends.
                }
                Check.thrown(TimedOutException.class, () -> listener.accept(Duration.ofMillis(5)));
                Waiting<Channel> second = new Waiting<>(threads, () -> {
                    Check.thrown(InterruptedIOException.class, listener::accept);
                    Check.that(Thread.interrupted(), "the interrupt status stays");
                    return listener.accept();
                });
                second.thread.interrupt();
                FutureTask<Channel> connecting = Pair.start(() -> Channel.connect(listener.address()));
                while (!first.task.isDone() && !second.task.isDone()) {
                    Thread.yield();
                }
                connecting.get().close();
                listener.close();
                int accepted = 0;
                for (Waiting<Channel> waiting : List.of(first, second)) {
                    try {
                        waiting.task.get().close();
                        accepted++;
                    } catch (ExecutionException end) {
                        Check.that(end.getCause() instanceof ClosedChannelException, "" + end.getCause());
                    }
                }
                Check.equal(accepted, 1);
            }
        }
    }

    void messageSentOnASocketByAnInterruptedThreadIsSentOnce() throws Exception {
        Config config = new Config().transport(Config.Transport.SOCKET);
        for (Thread.Builder threads : THREADS) {
            try (Pair pair = Pair.open(Pair.address(), config)) {
                Waiting<Void> sending = new Waiting<>(threads, () -> {
                    Thread.currentThread().interrupt();
                    // The kernel takes only a part of the message. After an interrupt the call must
                    // not fail as if it had sent nothing.
                    pair.client().send(new byte[8 << 20]);
                    Check.that(Thread.interrupted(), "the interrupt status stays");
                    pair.client().flush(Pair.SOON);
                    pair.client().closeWrite();
                    return null;
                });
                Check.equal(pair.server().recv(new byte[8 << 20], Pair.SOON), 8 << 20);
                Check.equal(pair.server().recv(Pair.SOON), null);
                sending.task.get();
            }
        }
    }

    /**
     * A channel that is closed is freed although other threads ask for its transport. Otherwise its
     * peer would never learn that the channel has ended.
     */
    void channelIsFreedAlthoughOthersAskForItsTransport() throws Exception {
        for (int round = 0; round < 30; round++) {
            try (Pair pair = Pair.open()) {
                CountDownLatch isStarted = new CountDownLatch(2);
                AtomicBoolean isDone = new AtomicBoolean();
                List<FutureTask<Void>> asking = new ArrayList<>();
                for (int thread = 0; thread < 2; thread++) {
                    asking.add(Pair.start(() -> {
                        try (Call call = new Call()) {
                            while (!isDone.get()) {
                                Call.invoke("partywall_channel_transport", pair.client().handle,
                                        call.result(), call.secondResult());
                                isStarted.countDown();
                            }
                        }
                        return null;
                    }));
                }
                isStarted.await();
                pair.client().close();
                Check.equal(pair.server().recv(Pair.SOON), null);
                isDone.set(true);
                for (FutureTask<Void> asked : asking) {
                    asked.get();
                }
            }
        }
    }

    void secondThreadInADirectionIsRefused() throws Exception {
        try (Pair pair = Pair.open()) {
            Waiting<Integer> waiting = new Waiting<>(
                    Thread.ofPlatform().daemon(), () -> recvUnlessBusy(pair.server()));
            // While the other thread has not begun, this thread's attempts find no message. The
            // first attempt that is refused shows that the other thread waits for one.
            Check.thrown(PartywallException.class, () -> {
                while (true) {
                    Check.equal(pair.server().tryRecv(), null);
                }
            });
            PartywallException failure =
                    Check.thrown(PartywallException.class, () -> pair.server().recv(Pair.SOON));
            Check.equal(failure.code(), PartywallException.BUSY);
            pair.server().send(new byte[1]);
            pair.client().send(new byte[2]);
            Check.equal(waiting.task.get(), 2);
        }
    }

    /** Receives a message, again if another thread has been in the direction at that moment. */
    private static int recvUnlessBusy(Channel channel) throws Exception {
        while (true) {
            try {
                return channel.recv(new byte[8]);
            } catch (PartywallException busy) {
                Check.equal(busy.code(), PartywallException.BUSY);
            }
        }
    }

    void virtualThreadsExchangeMessagesOverChannels() throws Exception {
        try (Pair pair = Pair.open()) {
            Function<Channel, Callable<Integer>> echo = channel -> () -> {
                int count = 0;
                while (channel.recv(message -> channel.send(message))) {
                    count++;
                }
                return count;
            };
            Waiting<Integer> echoing = new Waiting<>(Thread.ofVirtual(), echo.apply(pair.server()));
            Waiting<Integer> asking = new Waiting<>(Thread.ofVirtual(), () -> {
                byte[] target = new byte[64];
                for (int index = 0; index < 2000; index++) {
                    pair.client().send(Check.pattern(index % 64, index));
                    Check.equal(pair.client().recv(target, Pair.SOON), index % 64);
                }
                pair.client().closeWrite();
                return 2000;
            });
            Check.equal(asking.task.get(), 2000);
            Check.equal(echoing.task.get(), 2000);
        }
    }

    /** A call that waits, in a thread of its own. */
    private static final class Waiting<T> {
        final FutureTask<T> task;
        final Thread thread;

        Waiting(Thread.Builder threads, Callable<T> call) {
            task = new FutureTask<>(call);
            thread = threads.start(task);
        }

        /**
         * Waits for a short time until the thread is parked, and returns whether it is. A thread
         * that polls, also in the kernel, counts as running.
         */
        boolean untilItWaits() {
            for (int attempt = 0; attempt < 200 && !task.isDone(); attempt++) {
                Thread.State state = thread.getState();
                if (state == Thread.State.WAITING || state == Thread.State.TIMED_WAITING) {
                    return true;
                }
                Thread.yield();
            }
            return false;
        }
    }
}
