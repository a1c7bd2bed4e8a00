// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT_UNALIGNED;
import static java.lang.foreign.ValueLayout.JAVA_LONG_UNALIGNED;

import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.nio.charset.StandardCharsets;

/**
 * The functions of {@code partywall.h} that carry messages, and those of the C library that
 * {@link Poller} calls. {@link Call} calls all other functions.
 *
 * <p>Handles and addresses are {@code long} values, so that no call allocates. Functions that never
 * wait and copy little are linked as critical (see {@code Linker.Option.critical}): the thread does
 * not leave its Java state, which saves a few nanoseconds.
 */
final class Native {
    static final int OK = 0;
    static final int TIMED_OUT = 4;
    static final int FULL = 5;
    static final int EMPTY = 6;
    static final int WOULD_BLOCK = 7;
    static final int BUSY = 8;
    static final int FINISHED = 9;
    static final int ARGUMENT = 901;
    static final int HANDLE = 902;
    static final int READABLE = 1;
    static final int WRITABLE = 2;
    static final int OPENED = 4;
    static final int ENDED = 8;

    static final int EPOLL_CLOEXEC = 0x80000;
    static final int EPOLL_CTL_ADD = 1;
    static final int EPOLL_CTL_MOD = 3;
    /**
     * Size in bytes of {@code struct epoll_event}, which is packed on x86-64 and on no other
     * architecture.
     */
    static final int EPOLL_EVENT_BYTES = System.getProperty("os.arch").equals("amd64") ? 12 : 16;
    /** Size in bytes of the C structure {@code partywall_event}. */
    static final int EVENT_BYTES = 16;
    /**
     * Maximum length in bytes of a message that is copied by a critical native call, one during
     * which the thread keeps its Java state. For a message in a Java array the maximum is {@code
     * ARRAY_BYTES_MAX}.
     */
    static final long CRITICAL_BYTES_MAX = 4096;
    /**
     * Maximum length in bytes of the part of an array that is copied to shared memory by a critical
     * native call, one during which the thread keeps its Java state. The garbage collector waits
     * until the call returns. As a rule the call lasts only for the copy, and the JDK itself copies
     * up to sixteen times as much without a pause for the collector. If the call finds no memory,
     * the collector also waits until the kernel has allocated a segment.
     */
    static final int ARRAY_BYTES_MAX = 65_536;

    private static final Linker LINKER = Linker.nativeLinker();
    private static final SymbolLookup LIBRARY = compatible(NativeLibrary.load());
    /**
     * A segment of all memory of the process. The package reads and writes it only at addresses
     * that the native library returned.
     */
    static final MemorySegment MEMORY = MemorySegment.NULL.reinterpret(Long.MAX_VALUE);

    private static final MethodHandle ERROR_MESSAGE = value("partywall_error_message", "J", "J");
    private static final MethodHandle ERROR_ERRNO = value("partywall_error_errno", "I", "J");
    private static final MethodHandle ERROR_APPLICATION =
            value("partywall_error_application_code", "I", "J");
    private static final MethodHandle ERROR_FREE = value("partywall_error_free", "I", "J");
    private static final MethodHandle CHANNEL_TRY_SEND = critical("partywall_channel_send", "JJJJJ");
    private static final MethodHandle CHANNEL_TRY_SEND_ARRAY =
            value("partywall_channel_send", "I", "JAJJJ", Linker.Option.critical(true));
    private static final MethodHandle CHANNEL_SEND = value("partywall_channel_send", "I", "JJJJJ");
    private static final MethodHandle CHANNEL_TRY_RECV = critical("partywall_channel_recv_view", "JJJJJ");
    private static final MethodHandle CHANNEL_RECV = value("partywall_channel_recv_view", "I", "JJJJJ");
    private static final MethodHandle CHANNEL_RESERVE = value("partywall_channel_reserve", "I", "JJJJJJ");
    private static final MethodHandle CHANNEL_COMMIT = value("partywall_channel_commit", "I", "JJJJ");
    private static final MethodHandle CHANNEL_FLUSH = value("partywall_channel_flush", "I", "JJJ");
    private static final MethodHandle STREAM_SEND = value("partywall_stream_send", "I", "JJJJJ");
    private static final MethodHandle STREAM_RECV = value("partywall_stream_recv_view", "I", "JJJJJ");
    private static final MethodHandle STREAM_RESERVE = value("partywall_stream_reserve", "I", "JJJJJJ");
    private static final MethodHandle STREAM_COMMIT = value("partywall_stream_commit", "I", "JJJJ");
    private static final MethodHandle LOOP_WAIT = value("partywall_loop_wait", "I", "JJJJJJ");
    private static final MethodHandle LOOP_POLL_AWAKE = value("partywall_loop_poll_awake", "I", "JJJJJ");
    private static final MethodHandle CHANNEL_ARM_SEND = value("partywall_channel_arm_send", "I", "JJJ");
    private static final MethodHandle CHANNEL_ARM_RECV = value("partywall_channel_arm_recv", "I", "JJJ");
    private static final MethodHandle CHANNEL_WAIT_RECV = value("partywall_channel_wait_recv", "I", "JJJ");
    private static final MethodHandle CHANNEL_WAKE = value("partywall_channel_wake", "I", "JJ");
    private static final MethodHandle LINK_GROUP_POLL = value("partywall_link_group_poll", "I", "JJJJ");
    private static final MethodHandle LINK_GROUP_NEXT_TIMER =
            value("partywall_link_group_next_timer", "I", "JJ");
    private static final MethodHandle EVENTFD = system("eventfd", "II");
    private static final MethodHandle READ = system("read", "J", "IJJ");
    private static final MethodHandle WRITE = system("write", "J", "IJJ");
    private static final MethodHandle CLOSE = system("close", "I");
    private static final MethodHandle POLL = system("poll", "JJI");
    private static final MethodHandle EPOLL_CREATE = system("epoll_create1", "I");
    private static final MethodHandle EPOLL_CTL = system("epoll_ctl", "IIIJ");
    private static final MethodHandle EPOLL_WAIT = system("epoll_wait", "IJII");
    private static final MethodHandle SYSCALL =
            system("syscall", "J", "JIII", Linker.Option.firstVariadicArg(1));

    private Native() {}

    static long errorMessage(long error) {
        try {
            return (long) ERROR_MESSAGE.invokeExact(error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int errorErrno(long error) {
        try {
            return (int) ERROR_ERRNO.invokeExact(error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int errorApplicationCode(long error) {
        try {
            return (int) ERROR_APPLICATION.invokeExact(error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static void errorFree(long error) {
        try {
            int ignored = (int) ERROR_FREE.invokeExact(error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelTrySend(long channel, long data, long length, long error) {
        try {
            if (length <= CRITICAL_BYTES_MAX) {
                return (int) CHANNEL_TRY_SEND.invokeExact(channel, data, length, 0L, error);
            }
            return (int) CHANNEL_SEND.invokeExact(channel, data, length, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Sends the first {@code length} bytes of an array if there is room now. The native library
     * copies from the array itself, which the JVM does not move until the call ends. The call
     * passes a segment of the whole array, for which the compiler makes no object; a segment of a
     * part of the array would be allocated.
     */
    static int channelTrySend(long channel, byte[] data, int length, long error) {
        try {
            MemorySegment array = MemorySegment.ofArray(data);
            return (int) CHANNEL_TRY_SEND_ARRAY.invokeExact(channel, array, (long) length, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelSend(long channel, long data, long length, long timeout, long error) {
        try {
            return (int) CHANNEL_SEND.invokeExact(channel, data, length, timeout, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelTryRecv(long channel, long data, long length, long error) {
        try {
            return (int) CHANNEL_TRY_RECV.invokeExact(channel, data, length, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelRecv(long channel, long data, long length, long timeout, long error) {
        try {
            return (int) CHANNEL_RECV.invokeExact(channel, data, length, timeout, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelReserve(long channel, long length, long data, long place, long timeout, long error) {
        try {
            return (int) CHANNEL_RESERVE.invokeExact(channel, length, data, place, timeout, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelCommit(long channel, long reservation, long timeout, long error) {
        try {
            return (int) CHANNEL_COMMIT.invokeExact(channel, reservation, timeout, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int channelTryFlush(long channel, long error) {
        try {
            return (int) CHANNEL_FLUSH.invokeExact(channel, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int streamSend(long stream, long data, long length, long error) {
        try {
            return (int) STREAM_SEND.invokeExact(stream, data, length, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int streamRecv(long stream, long data, long length, long error) {
        try {
            return (int) STREAM_RECV.invokeExact(stream, data, length, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int streamReserve(long stream, long length, long data, long place, long error) {
        try {
            return (int) STREAM_RESERVE.invokeExact(stream, length, data, place, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int streamCommit(long stream, long reservation, long error) {
        try {
            return (int) STREAM_COMMIT.invokeExact(stream, reservation, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int loopWait(
            long loop, long events, long capacity, long count, long timeout, long error) {
        try {
            return (int) LOOP_WAIT.invokeExact(loop, events, capacity, count, timeout, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Collects the events of a session loop without waiting, for a thread that polls again before
     * it waits.
     */
    static int loopPollAwake(long loop, long events, long capacity, long count, long error) {
        try {
            return (int) LOOP_POLL_AWAKE.invokeExact(loop, events, capacity, count, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int linkGroupPoll(long group, long count, long error) {
        try {
            return (int) LINK_GROUP_POLL.invokeExact(group, count, 0L, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Writes after how many nanoseconds the next timer of a group of links is due; -1 if no timer
     * is set.
     */
    static void linkGroupNextTimer(long group, long place) {
        try {
            int ignored = (int) LINK_GROUP_NEXT_TIMER.invokeExact(group, place);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Arms a direction of a channel, and writes to {@code fd} the descriptor for which the thread
     * then waits.
     */
    static int channelArm(long channel, boolean isSending, long fd, long error) {
        try {
            if (isSending) {
                return (int) CHANNEL_ARM_SEND.invokeExact(channel, fd, error);
            }
            return (int) CHANNEL_ARM_RECV.invokeExact(channel, fd, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Waits for a message of a channel, at most for {@code left} nanoseconds, or until another
     * thread calls {@link #channelWake}.
     */
    static int channelWaitRecv(long channel, long left, long error) {
        try {
            long timeout = left == Long.MAX_VALUE ? -1 : left;
            return (int) CHANNEL_WAIT_RECV.invokeExact(channel, timeout, error);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /** Ends the present wait of another thread in {@link #channelWaitRecv}, or the next one. */
    static void channelWake(long channel) {
        try {
            int ignored = (int) CHANNEL_WAKE.invokeExact(channel, 0L);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /** Makes an eventfd and returns its descriptor, or returns a negative number on failure. */
    static int eventfd() {
        try {
            return (int) EVENTFD.invokeExact(0, EFD_CLOEXEC | EFD_NONBLOCK);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Reads an eventfd, so that it is not readable any more. The 8 bytes at {@code place} are
     * overwritten.
     */
    static void readEvent(int fd, long place) {
        try {
            long ignored = (long) READ.invokeExact(fd, place, 8L);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /** Writes to an eventfd, so that it becomes readable. */
    static void writeEvent(int fd) {
        try {
            long ignored = (long) WRITE.invokeExact(fd, ONE, 8L);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static void closeDescriptor(int fd) {
        try {
            int ignored = (int) CLOSE.invokeExact(fd);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Fills in the {@code struct pollfd} at {@code place}, so that a poll waits until {@code fd} is
     * readable.
     */
    static void setPoll(long place, int fd) {
        MEMORY.set(JAVA_LONG_UNALIGNED, place, (long) POLLIN << 32 | Integer.toUnsignedLong(fd));
    }

    /**
     * Returns whether a poll has reported an event in the {@code struct pollfd} at {@code place}.
     */
    static boolean isPolled(long place) {
        return getInt(place + 4) >>> 16 != 0;
    }

    static int poll(long places, long count, int timeoutMillis) {
        try {
            return (int) POLL.invokeExact(places, count, timeoutMillis);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int epollCreate(int flags) {
        try {
            return (int) EPOLL_CREATE.invokeExact(flags);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    /**
     * Adds a descriptor to an epoll set, or enables it again there. The set then reports once that
     * the descriptor is readable.
     */
    static int epollControl(int epoll, int operation, int fd) {
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment event = arena.allocate(EPOLL_EVENT_BYTES, 8);
            event.set(JAVA_INT_UNALIGNED, 0, EPOLLIN | EPOLLONESHOT);
            event.set(JAVA_LONG_UNALIGNED, EPOLL_EVENT_BYTES - 8, fd);
            return (int) EPOLL_CTL.invokeExact(epoll, operation, fd, event.address());
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int epollWait(int epoll, long events, int capacity) {
        try {
            return (int) EPOLL_WAIT.invokeExact(epoll, events, capacity, -1);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static int epollFd(long events, int index) {
        return getInt(events + (long) index * EPOLL_EVENT_BYTES + EPOLL_EVENT_BYTES - 8);
    }

    /**
     * Calls membarrier(2), for which the C library has no function. Returns 0, or -1 if the kernel
     * refuses the call or its number is not known for this processor.
     */
    static long membarrier(int command) {
        if (MEMBARRIER < 0) {
            return -1;
        }
        try {
            return (long) SYSCALL.invokeExact(MEMBARRIER, command, 0, 0);
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
    }

    static long getLong(long address) {
        return MEMORY.get(JAVA_LONG_UNALIGNED, address);
    }

    static int getInt(long address) {
        return MEMORY.get(JAVA_INT_UNALIGNED, address);
    }

    /** Returns the text at an address of the native library's memory, up to its zero byte. */
    static String string(long address) {
        return MEMORY.asSlice(address).getString(0);
    }

    /** Returns a copy of bytes that the native library owns. */
    static byte[] bytes(long address, long length) {
        if (length > Integer.MAX_VALUE) {
            throw new IllegalStateException("an array has no room for " + length + " bytes");
        }
        byte[] copy = new byte[(int) length];
        MemorySegment.copy(MEMORY, JAVA_BYTE, address, copy, 0, copy.length);
        return copy;
    }

    static String text(long address, long length) {
        return new String(bytes(address, length), StandardCharsets.UTF_8);
    }

    static long allocateForever(long bytes) {
        return Arena.global().allocate(bytes, 16).address();
    }

    /**
     * Returns the native library; throws if its binary interface has another number than {@link
     * #ABI}.
     */
    private static SymbolLookup compatible(SymbolLookup library) {
        MemorySegment symbol = library.find("partywall_abi").orElseThrow(() -> new UnsatisfiedLinkError(
                "the native library has no partywall_abi: it is another library"));
        int abi;
        try {
            abi = (int) LINKER.downcallHandle(symbol, descriptor("I", "")).invokeExact();
        } catch (Throwable failure) {
            throw unexpected(failure);
        }
        if (abi != ABI) {
            throw new UnsatisfiedLinkError("the native library has the binary interface " + abi
                    + ", and this jar needs " + ABI + ": use a library and a jar of one version");
        }
        return library;
    }

    /**
     * Returns a function of the native library. {@code result} and {@code arguments} have a letter
     * for each type: J for 64 bits, I for 32 bits, A for the address of a segment.
     */
    static MethodHandle value(String name, String result, String arguments, Linker.Option... options) {
        MemorySegment symbol = LIBRARY.find(name).orElseThrow(() -> new UnsatisfiedLinkError(
                "the native library has no " + name + ": it is of another version"));
        return LINKER.downcallHandle(symbol, descriptor(result, arguments), options);
    }

    private static MethodHandle critical(String name, String arguments) {
        return value(name, "I", arguments, Linker.Option.critical(false));
    }

    private static MethodHandle system(String name, String arguments) {
        return system(name, "I", arguments);
    }

    private static MethodHandle system(
            String name, String result, String arguments, Linker.Option... options) {
        MemorySegment symbol = LINKER.defaultLookup().find(name).orElseThrow();
        return LINKER.downcallHandle(symbol, descriptor(result, arguments), options);
    }

    private static FunctionDescriptor descriptor(String result, String arguments) {
        MemoryLayout[] layouts = arguments.chars().mapToObj(Native::layout).toArray(MemoryLayout[]::new);
        return FunctionDescriptor.of(layout(result.charAt(0)), layouts);
    }

    private static MemoryLayout layout(int letter) {
        return switch (letter) {
            case 'A' -> ValueLayout.ADDRESS;
            case 'J' -> ValueLayout.JAVA_LONG;
            default -> ValueLayout.JAVA_INT;
        };
    }

    private static long one() {
        long place = allocateForever(8);
        MEMORY.set(JAVA_LONG_UNALIGNED, place, 1);
        return place;
    }

    /**
     * Returns the error for a native call that throws: native functions throw nothing, so it is a
     * fault of the virtual machine.
     */
    static Error unexpected(Throwable failure) {
        if (failure instanceof Error error) {
            return error;
        }
        return new AssertionError("a native call has thrown", failure);
    }

    /** The number of the binary interface that this class is written for. */
    private static final int ABI = 0;
    /** Size in bytes of {@code struct pollfd}. */
    static final long POLL_BYTES = 8;
    private static final int POLLIN = 1;
    private static final int EFD_NONBLOCK = 0x800;
    private static final int EFD_CLOEXEC = 0x80000;
    private static final long ONE = one();
    private static final int EPOLLIN = 1;
    private static final int EPOLLONESHOT = 1 << 30;
    /** Number of the system call membarrier(2); negative if it is not known. */
    private static final long MEMBARRIER = switch (System.getProperty("os.arch")) {
        case "amd64" -> 324;
        case "aarch64", "riscv64", "loongarch64" -> 283;
        default -> -1;
    };
}
