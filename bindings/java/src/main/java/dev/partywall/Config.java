// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Settings of channels and sessions. Each method changes this object and returns it. A method that
 * takes a configuration copies it. An impossible value is refused when the configuration is used.
 */
public final class Config {
    private final Map<String, Long> settings = new LinkedHashMap<>();
    private final List<Integer> users = new ArrayList<>();
    private final List<Integer> groups = new ArrayList<>();

    /** Which transports a connection may use. */
    public enum Transport {
        /** Shared memory where possible, otherwise a socket. */
        AUTO,
        /** Shared memory alone. */
        SHARED_MEMORY,
        /** The socket alone. */
        SOCKET
    }

    /** On which transport a connection begins. */
    public enum Begin {
        /** In shared memory. */
        SHARED_MEMORY,
        /** On the socket; the connection moves to shared memory once that pays. */
        SOCKET,
        /** Sessions begin on the socket, channels in shared memory. */
        AUTO
    }

    /** What happens to a message for which the ring or the memory has no room. */
    public enum BackPressure {
        /** The sender waits for room. */
        BLOCK,
        /** Sending fails with {@link PartywallException#FULL}. */
        ERROR,
        /** A long message without room elsewhere goes through the ring, in fragments. */
        OVERFLOW
    }

    /** Which peers are trusted not to change the bytes of messages that they have sent. */
    public enum Trust {
        /** Peers are trusted that certainly run as the same user in the same namespaces. */
        AUTO,
        /**
         * Peers are trusted that run as this process's user, also in other pid and user namespaces,
         * such as containers.
         */
        OWN_USER,
        /** Every admitted peer is trusted. */
        TRUSTED,
        /** None. */
        UNTRUSTED
    }

    /** How a platform thread waits for a message or for room on a channel. */
    public enum Wait {
        /** The thread polls for the spin budget while that pays, then it parks. */
        ADAPTIVE,
        /** The thread polls, and never parks. */
        SPIN,
        /** The thread parks at once. */
        PARK
    }

    /** Makes a configuration with the default settings. */
    public Config() {}

    Config copy() {
        Config copy = new Config();
        copy.settings.putAll(settings);
        copy.users.addAll(users);
        copy.groups.addAll(groups);
        return copy;
    }

    /** Sets the transports that a connection may use; the default is {@link Transport#AUTO}. */
    public Config transport(Transport transport) {
        return set("transport", transport.ordinal());
    }

    /** Sets the transport on which a connection begins; the default is {@link Begin#AUTO}. */
    public Config begin(Begin begin) {
        return set("begin", begin.ordinal());
    }

    /**
     * Sets what happens to a message for which there is no room; the default is
     * {@link BackPressure#BLOCK}.
     */
    public Config backPressure(BackPressure policy) {
        return set("back_pressure", policy.ordinal());
    }

    /** Sets which peers are trusted; the default is {@link Trust#AUTO}. */
    public Config trust(Trust trust) {
        return set("trust", trust.ordinal());
    }

    /** Sets how a platform thread waits on a channel; the default is {@link Wait#ADAPTIVE}. */
    public Config waiting(Wait wait) {
        return set("wait", wait.ordinal());
    }

    /** Sets for how long a waiting thread polls at most before it parks; the default is 50 µs. */
    public Config spinBudget(Duration budget) {
        return set("spin_budget_ns", nanos(budget));
    }

    /** Sets the longest time of a handshake; the default is 5 s. */
    public Config handshakeTimeout(Duration timeout) {
        return set("handshake_timeout_ns", nanos(timeout));
    }

    /** Sets how many handshakes a listener performs at once; the default is 64. */
    public Config handshakesMax(int count) {
        return set("handshakes_max", count);
    }

    /**
     * Sets how many connections may wait in the kernel until a listener accepts them; the default
     * is 128.
     */
    public Config backlog(int count) {
        return set("backlog", count);
    }

    /** Sets the size of the ring, a power of two; the default is 64 KiB. */
    public Config ringBytes(long bytes) {
        return set("ring_bytes", bytes);
    }

    /** Sets the maximum of the memory for messages that this side sends; the default is 64 MiB. */
    public Config memoryMax(long bytes) {
        return set("memory_max", bytes);
    }

    /** Sets the maximum length of a message; the default is the value of {@link #memoryMax}. */
    public Config messageMax(long bytes) {
        return set("message_max", bytes);
    }

    /**
     * Sets the maximum length of a message that is copied into the ring; the default is 1024 bytes.
     * Longer messages lie in other shared memory.
     */
    public Config inlineMax(int bytes) {
        return set("inline_max", bytes);
    }

    /** Sets how many unread bytes a stream's receiver may have; the default is 256 KiB. */
    public Config streamWindow(long bytes) {
        return set("stream_window", bytes);
    }

    /** Sets how many streams the peer may have open; the default is 1024. */
    public Config streamsMax(int count) {
        return set("streams_max", count);
    }

    /** Sets the permissions of the socket file; the default is 0600. */
    public Config socketMode(int mode) {
        return set("socket_mode", mode);
    }

    /** Sets whether TCP addresses of other hosts are allowed; the default is false. */
    public Config allowRemote(boolean isAllowed) {
        return set("allow_remote", isAllowed ? 1 : 0);
    }

    /**
     * Sets any setting by the key that {@code partywall.h} lists, such as {@code linger_ns}. An
     * unknown key is refused when the configuration is used.
     */
    public Config set(String key, long value) {
        settings.put(key, value);
        return this;
    }

    /**
     * Makes a listener admit processes of a user, and refuse all processes that no such call
     * admits.
     */
    public Config admitUser(int uid) {
        users.add(uid);
        return this;
    }

    /**
     * Makes a listener admit processes of a primary group, and refuse all processes that no such
     * call admits.
     */
    public Config admitGroup(int gid) {
        groups.add(gid);
        return this;
    }

    boolean failsWhenFull() {
        return settings.getOrDefault("back_pressure", 0L) == BackPressure.ERROR.ordinal();
    }

    boolean parksAtOnce() {
        return settings.getOrDefault("wait", 0L) == Wait.PARK.ordinal();
    }

    boolean spins() {
        return settings.getOrDefault("wait", 0L) == Wait.SPIN.ordinal();
    }

    NativeConfig toNative() throws PartywallException {
        NativeConfig config = NativeConfig.of("config", settings);
        users.forEach(uid -> Call.invoke("partywall_config_admit_user", config.handle(), uid));
        groups.forEach(gid -> Call.invoke("partywall_config_admit_group", config.handle(), gid));
        return config;
    }

    static long nanos(Duration duration) {
        if (duration.isNegative()) {
            throw new IllegalArgumentException("the time is negative: " + duration);
        }
        return duration.toNanos();
    }
}
