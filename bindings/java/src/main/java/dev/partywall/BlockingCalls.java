// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Native calls that block, such as a handshake. A virtual thread in such a call would hold its
 * carrier thread, so a platform thread makes the call for it.
 */
final class BlockingCalls {
    private BlockingCalls() {}

    /**
     * Makes a blocking call, and returns its result. An interrupt does not end the call: the
     * thread is interrupted again after it.
     */
    static <T> T run(Callable<T> call) throws IOException {
        try {
            return Thread.currentThread().isVirtual() ? await(Threads.EXECUTOR.submit(call)) : call.call();
        } catch (IOException | RuntimeException failure) {
            throw failure;
        } catch (Exception failure) {
            throw new IOException(failure);
        }
    }

    private static <T> T await(Future<T> future) throws IOException {
        boolean isInterrupted = false;
        try {
            while (true) {
                try {
                    return future.get();
                } catch (InterruptedException interrupt) {
                    // The result may be an object that has to be freed, so an interrupt does not
                    // end the wait for it.
                    isInterrupted = true;
                } catch (ExecutionException failure) {
                    throw rethrown(failure.getCause());
                }
            }
        } finally {
            if (isInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private static IOException rethrown(Throwable cause) {
        return switch (cause) {
            case IOException failure -> failure;
            case RuntimeException failure -> throw failure;
            case Error failure -> throw failure;
            default -> new IOException(cause);
        };
    }

    private static final class Threads {
        static final ExecutorService EXECUTOR = Executors.newCachedThreadPool(
                Thread.ofPlatform().name("partywall-blocking-", 0).daemon().factory());
    }
}
