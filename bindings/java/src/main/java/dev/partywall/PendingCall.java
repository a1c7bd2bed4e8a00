// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * A call that was sent. Any thread may wait for its answer. Closing it before its answer gives the
 * call up.
 */
public final class PendingCall implements AutoCloseable {
    private final CallsClient client;
    private final long id;
    private final CompletableFuture<byte[]> answer = new CompletableFuture<>();

    PendingCall(CallsClient client, long id) {
        this.client = client;
        this.id = id;
    }

    long id() {
        return id;
    }

    void complete(byte[] payload) {
        answer.complete(payload);
    }

    void fail(IOException cause) {
        answer.completeExceptionally(cause);
    }

    /** Waits for the answer of the call, without a limit. */
    public byte[] await() throws IOException {
        return await(Deadline.NEVER);
    }

    /**
     * Waits for the answer. After a {@link TimedOutException}, and after an interrupt, the call is
     * still in flight. A {@link CallException} says how the call has failed; with any other
     * exception the stream has ended.
     */
    public byte[] await(Duration timeout) throws IOException {
        return await(Deadline.after(timeout));
    }

    byte[] await(long deadline) throws IOException {
        try {
            return answer.get(Deadline.left(deadline), TimeUnit.NANOSECONDS).clone();
        } catch (TimeoutException late) {
            throw new TimedOutException();
        } catch (InterruptedException interrupt) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("the thread was interrupted");
        } catch (ExecutionException failure) {
            throw CallStream.copied(failure.getCause());
        }
    }

    /** Gives the call up, unless its answer has come: the server gets a CANCEL. */
    @Override
    public void close() {
        client.cancel(this);
    }
}
