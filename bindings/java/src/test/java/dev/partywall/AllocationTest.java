// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import com.sun.management.ThreadMXBean;
import java.io.InputStream;
import java.io.OutputStream;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.concurrent.FutureTask;

/** Tests that messages allocate nothing on the heap, once the first messages have been carried. */
final class AllocationTest {
    private static final int WARM_UP = 20_000;
    private static final int MESSAGES = 10_000;

    private interface Exchange {
        void run() throws Exception;
    }

    void arraysAllocateNothing() throws Exception {
        for (int size : new int[] {48, 1024, 65536}) {
            try (Pair pair = Pair.open()) {
                byte[] payload = new byte[size];
                byte[] target = new byte[size];
                allocatesNothing(() -> {
                    pair.client().send(payload);
                    Check.that(pair.server().recv(target) == size, "the length");
                });
            }
        }
    }

    void segmentsAllocateNothing() throws Exception {
        try (Pair pair = Pair.open(); Arena arena = Arena.ofConfined()) {
            MemorySegment payload = arena.allocate(2000);
            MemorySegment target = arena.allocate(2000);
            allocatesNothing(() -> {
                pair.client().send(payload);
                Check.that(pair.server().recv(target) == 2000, "the length");
            });
        }
    }

    void directBuffersAllocateNothing() throws Exception {
        for (int size : new int[] {300, 4096}) {
            try (Pair pair = Pair.open()) {
                ByteBuffer payload = ByteBuffer.allocateDirect(size);
                ByteBuffer target = ByteBuffer.allocateDirect(size);
                allocatesNothing(() -> {
                    pair.client().send(payload.clear());
                    Check.that(pair.server().recv(target.clear()) == size, "the length");
                });
            }
        }
    }

    void streamsAllocateNothing() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            Stream client = sessions.client().open();
            Stream server = sessions.server().accept(Pair.SOON);
            byte[] payload = new byte[2000];
            byte[] target = new byte[2000];
            allocatesNothing(() -> {
                client.send(payload);
                Check.that(server.recv(target) == 2000, "the length");
                server.send(target, 0, 48);
                try (View view = client.recv()) {
                    Check.that(view.byteSize() == 48, "the length");
                }
            });
        }
    }

    void byteStreamsAllocateNothing() throws Exception {
        try (Sessions sessions = Sessions.open(Pair.address(), new Config())) {
            ByteStream client = sessions.client().open().bytes();
            ByteStream server = sessions.server().accept(Pair.SOON).bytes();
            byte[] payload = new byte[3000];
            byte[] target = new byte[1700];
            OutputStream output = client.outputStream();
            InputStream input = server.inputStream();
            allocatesNothing(() -> {
                output.write(payload);
                output.write(7);
                for (int left = 3000; left > 0; ) {
                    left -= input.read(target, 0, Math.min(left, 1700));
                }
                Check.that(input.read() == 7, "the byte");
            });
        }
    }

    void heapBuffersAllocateNothing() throws Exception {
        try (Pair pair = Pair.open()) {
            ByteBuffer payload = ByteBuffer.allocate(300);
            ByteBuffer target = ByteBuffer.allocate(300);
            allocatesNothing(() -> {
                pair.client().send(payload.clear());
                Check.that(pair.server().recv(target.clear()) == 300, "the length");
            });
        }
    }

    void viewsAllocateNothing() throws Exception {
        for (int size : new int[] {48, 65536}) {
            try (Pair pair = Pair.open()) {
                byte[] payload = new byte[size];
                allocatesNothing(() -> {
                    pair.client().send(payload);
                    try (View view = pair.server().recv()) {
                        Check.that(view.byteSize() == size && view.get(size - 1) == 0, "the bytes");
                    }
                });
            }
        }
    }

    void waitsOfPlatformThreadsAllocateNothing() throws Exception {
        try (Pair pair = Pair.open(Pair.address(), new Config().waiting(Config.Wait.PARK))) {
            byte[] payload = new byte[48];
            byte[] target = new byte[48];
            FutureTask<Void> echoing = Pair.start(() -> {
                byte[] echo = new byte[48];
                while (pair.server().recv(echo) >= 0) {
                    pair.server().send(echo);
                }
                return null;
            });
            allocatesNothing(() -> {
                pair.client().send(payload);
                Check.that(pair.client().recv(target) == 48, "the length");
            });
            pair.client().closeWrite();
            echoing.get();
        }
    }

    private static void allocatesNothing(Exchange exchange) throws Exception {
        ThreadMXBean threads = (ThreadMXBean) ManagementFactory.getThreadMXBean();
        for (int count = 0; count < WARM_UP; count++) {
            exchange.run();
        }
        // Reading the counter of allocated bytes allocates, and the compiler may allocate in a
        // round. Some objects are allocated until the compiler has compiled their method, for which
        // it takes long on a busy machine. So rounds follow until one allocates nothing.
        long deadline = Deadline.after(Pair.SOON);
        long allocated = Long.MAX_VALUE;
        while (allocated >= MESSAGES && Deadline.left(deadline) > 0) {
            long before = threads.getCurrentThreadAllocatedBytes();
            for (int count = 0; count < MESSAGES; count++) {
                exchange.run();
            }
            allocated = threads.getCurrentThreadAllocatedBytes() - before;
        }
        // The smallest object has 16 bytes. Fewer bytes than messages mean that fewer than one
        // message in 16 has made an object.
        Check.that(allocated < MESSAGES, allocated + " bytes for " + MESSAGES + " messages");
    }
}
