// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;

/**
 * A call of a native function by its name. Functions that carry messages are called by
 * {@link Native} instead, without an allocation. The object has memory for the results and for the
 * error of the call, which is freed when it is closed.
 *
 * <pre>
 *   try (Call call = new Call()) {
 *       call.check("partywall_connect", call.text(address), config, call.result());
 *       long channel = call.resultLong();
 *   }
 * </pre>
 */
final class Call implements AutoCloseable {
    private final Arena arena = Arena.ofConfined();
    /** Memory for the handle of an error object, and for two results of eight bytes each. */
    private final MemorySegment place = arena.allocate(ValueLayout.JAVA_LONG, 3);

    /**
     * Returns the address of a UTF-8 copy of a text for the native library, in which a text ends at
     * a zero byte. Refuses a text that contains one.
     */
    long text(String text) {
        if (text == null) {
            return 0;
        }
        if (text.indexOf('\0') >= 0 || !StandardCharsets.UTF_8.newEncoder().canEncode(text)) {
            throw new IllegalArgumentException("the text has a zero, or half a character: " + text);
        }
        return arena.allocateFrom(text).address();
    }

    /**
     * Copies bytes to memory that the native library can read, and returns the address of the copy.
     */
    long bytes(byte[] bytes) {
        return bytes.length == 0 ? 0 : arena.allocateFrom(ValueLayout.JAVA_BYTE, bytes).address();
    }

    long bytes(byte[] bytes, int offset, int length) {
        Objects.checkFromIndexSize(offset, length, bytes.length);
        return length == 0 ? 0
                : arena.allocateFrom(ValueLayout.JAVA_BYTE, MemorySegment.ofArray(bytes),
                        ValueLayout.JAVA_BYTE, offset, length).address();
    }

    long buffer(long bytes) {
        return arena.allocate(bytes).address();
    }

    long result() {
        return place.address() + 8;
    }

    long secondResult() {
        return place.address() + 16;
    }

    long resultLong() {
        return place.getAtIndex(ValueLayout.JAVA_LONG, 1);
    }

    int resultInt() {
        return place.get(ValueLayout.JAVA_INT, 8);
    }

    long secondResultLong() {
        return place.getAtIndex(ValueLayout.JAVA_LONG, 2);
    }

    /**
     * Calls a native function whose last argument is the address at which it stores an error
     * object, and returns the function's status.
     */
    int status(String name, long... arguments) {
        long[] all = Arrays.copyOf(arguments, arguments.length + 1);
        all[arguments.length] = place.address();
        return invoke(name, all);
    }

    /**
     * Calls a native function that reports an error object, and returns its status. While the
     * status is that another call uses the same object, calls again: that other call is short.
     */
    int statusAlone(String name, long... arguments) {
        int status = status(name, arguments);
        while (status == Native.BUSY) {
            Thread.onSpinWait();
            status = status(name, arguments);
        }
        return status;
    }

    /**
     * Calls a native function that reports an error object. Throws the error unless the call
     * succeeds.
     */
    void check(String name, long... arguments) throws PartywallException {
        int status = status(name, arguments);
        if (status != Native.OK) {
            throw failure(status);
        }
    }

    /** Returns the exception for the status of this object's last call. */
    PartywallException failure(int status) {
        return PartywallException.of(status, place.address());
    }

    /** Calls a native function that reports no error object, and returns its status. */
    static int invoke(String name, long... arguments) {
        MethodHandle function = FUNCTIONS.computeIfAbsent(name, Call::find);
        try {
            return (int) function.invokeExact(arguments);
        } catch (Throwable failure) {
            throw Native.unexpected(failure);
        }
    }

    /**
     * Calls a native function that reports no error object, and returns its status. While the
     * status is that another call uses the same object, calls again: that other call is short.
     */
    static int invokeAlone(String name, long... arguments) {
        int status = invoke(name, arguments);
        while (status == Native.BUSY) {
            Thread.onSpinWait();
            status = invoke(name, arguments);
        }
        return status;
    }

    /**
     * Frees an object of the native library by {@code function}. Waits for short calls of other
     * threads on the object, such as one that asks for its transport; no longer call may use it.
     */
    static void free(String function, long handle) {
        invokeAlone(function, handle);
    }

    private static MethodHandle find(String name) {
        String letters = SIGNATURES.get(name);
        MethodHandle function = Native.value(name, "I", letters);
        for (int index = 0; index < letters.length(); index++) {
            if (letters.charAt(index) == 'I') {
                function = MethodHandles.explicitCastArguments(
                        function, function.type().changeParameterType(index, long.class));
            }
        }
        return function.asSpreader(long[].class, letters.length());
    }

    @Override
    public void close() {
        arena.close();
    }

    private static final Map<String, MethodHandle> FUNCTIONS = new ConcurrentHashMap<>();

    /** The argument types of each native function, in order: J for 64 bits, I for 32 bits. */
    private static final Map<String, String> SIGNATURES = Map.ofEntries(
            Map.entry("partywall_config_new", "JJ"),
            Map.entry("partywall_config_set", "JJJJ"),
            Map.entry("partywall_config_admit_user", "JI"),
            Map.entry("partywall_config_admit_group", "JI"),
            Map.entry("partywall_config_free", "J"),
            Map.entry("partywall_listener_bind", "JJJJ"),
            Map.entry("partywall_listener_accept", "JJJJ"),
            Map.entry("partywall_listener_address", "JJJJJ"),
            Map.entry("partywall_listener_fd", "JJJ"),
            Map.entry("partywall_listener_free", "J"),
            Map.entry("partywall_connect", "JJJJ"),
            Map.entry("partywall_channel_free", "J"),
            Map.entry("partywall_channel_close_write", "JJ"),
            Map.entry("partywall_channel_keep", "JJJ"),
            Map.entry("partywall_channel_transport", "JJJ"),
            Map.entry("partywall_channel_transport_text", "JJJJJ"),
            Map.entry("partywall_channel_peer", "JJJ"),
            Map.entry("partywall_channel_peer_text", "JJJJJ"),
            Map.entry("partywall_channel_sender_stats", "JJJ"),
            Map.entry("partywall_channel_receiver_stats", "JJJ"),
            Map.entry("partywall_lossy_sender_new", "JJJJ"),
            Map.entry("partywall_lossy_sender_free", "J"),
            Map.entry("partywall_lossy_log", "JJJJJ"),
            Map.entry("partywall_lossy_log_wait", "JJJJJJ"),
            Map.entry("partywall_lossy_flush", "JJJ"),
            Map.entry("partywall_lossy_sender_stats", "JJJ"),
            Map.entry("partywall_lossy_sender_is_closed", "JJ"),
            Map.entry("partywall_message_data", "JJJ"),
            Map.entry("partywall_message_is_zero_copy", "JJ"),
            Map.entry("partywall_message_free", "J"),
            Map.entry("partywall_reservation_truncate", "JJ"),
            Map.entry("partywall_reservation_abort", "J"),
            Map.entry("partywall_loop_new_once", "JJ"),
            Map.entry("partywall_loop_fd", "JJ"),
            Map.entry("partywall_loop_next_timer", "JJ"),
            Map.entry("partywall_loop_free", "J"),
            Map.entry("partywall_session_listener_bind", "JJJJJJ"),
            Map.entry("partywall_session_listener_accept", "JJJJJ"),
            Map.entry("partywall_session_listener_address", "JJJJJ"),
            Map.entry("partywall_session_listener_free", "J"),
            Map.entry("partywall_session_connect", "JJJJJJ"),
            Map.entry("partywall_session_free", "J"),
            Map.entry("partywall_session_open", "JJJJJJJ"),
            Map.entry("partywall_session_accept", "JJJJJ"),
            Map.entry("partywall_session_go_away", "JIJ"),
            Map.entry("partywall_session_close", "JIJJ"),
            Map.entry("partywall_session_wait_finished", "JJJ"),
            Map.entry("partywall_session_transport", "JJJ"),
            Map.entry("partywall_session_transport_text", "JJJJJ"),
            Map.entry("partywall_session_peer", "JJJ"),
            Map.entry("partywall_session_peer_text", "JJJJJ"),
            Map.entry("partywall_session_sender_stats", "JJJ"),
            Map.entry("partywall_session_streams", "JJ"),
            Map.entry("partywall_stream_free", "J"),
            Map.entry("partywall_stream_metadata", "JJJ"),
            Map.entry("partywall_stream_finish", "JJ"),
            Map.entry("partywall_stream_reset", "JIJ"),
            Map.entry("partywall_stream_stop", "JIJ"),
            Map.entry("partywall_stream_keep", "JJJ"),
            Map.entry("partywall_shmipc_config_new", "JJ"),
            Map.entry("partywall_shmipc_config_set", "JJJJ"),
            Map.entry("partywall_shmipc_config_set_text", "JJJJ"),
            Map.entry("partywall_shmipc_config_add_slices", "JII"),
            Map.entry("partywall_shmipc_config_free", "J"),
            Map.entry("partywall_shmipc_new", "JJJ"),
            Map.entry("partywall_shmipc_connect", "JJJJJJJ"),
            Map.entry("partywall_shmipc_hot_restart", "JJJ"),
            Map.entry("partywall_shmipc_hot_restart_state", "JJ"),
            Map.entry("partywall_shmipc_free", "J"),
            Map.entry("partywall_session_listener_add_shmipc", "JJJ"),
            Map.entry("partywall_link_config_new", "JJ"),
            Map.entry("partywall_link_config_set", "JJJJ"),
            Map.entry("partywall_link_config_free", "J"),
            Map.entry("partywall_link_config_set_group", "JJJ"),
            Map.entry("partywall_link_group_new", "JJ"),
            Map.entry("partywall_link_group_fd", "JJ"),
            Map.entry("partywall_link_client_new", "JJJJJ"),
            Map.entry("partywall_link_client_free", "J"),
            Map.entry("partywall_link_connect", "JJJJJJ"),
            Map.entry("partywall_link_server_bind", "JJJJJJ"),
            Map.entry("partywall_link_server_accept", "JJJJ"),
            Map.entry("partywall_link_server_free", "J"),
            Map.entry("partywall_link_free", "J"),
            Map.entry("partywall_link_close", "JJJ"),
            Map.entry("partywall_link_send", "JJJJJ"),
            Map.entry("partywall_link_recv", "JJJJ"),
            Map.entry("partywall_link_wait_attached", "JJJ"),
            Map.entry("partywall_link_wait_acked", "JJJ"),
            Map.entry("partywall_link_rewind", "JJ"),
            Map.entry("partywall_link_next_event", "JJJJJ"),
            Map.entry("partywall_link_unacked_bytes", "JJJ"),
            Map.entry("partywall_link_status", "JJ"),
            Map.entry("partywall_link_message_data", "JJJ"),
            Map.entry("partywall_link_message_attempt", "JJ"),
            Map.entry("partywall_link_message_position", "JJ"),
            Map.entry("partywall_link_message_ack", "JJ"),
            Map.entry("partywall_link_message_reply", "JJJJJ"),
            Map.entry("partywall_link_message_free", "J"));
}
