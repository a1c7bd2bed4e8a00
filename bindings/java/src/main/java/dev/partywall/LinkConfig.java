// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.time.Duration;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Settings of links. Each method changes this object and returns it. A value that is impossible is
 * refused when the configuration is used.
 */
public final class LinkConfig {
    private final Map<String, Long> settings = new LinkedHashMap<>();

    /** How often a message may be delivered after a crash. */
    public enum Delivery {
        /** A message that was not acknowledged is delivered again. */
        AT_LEAST_ONCE,
        /** A message that was delivered is never delivered again. */
        AT_MOST_ONCE
    }

    /** What happens to the file that a link had before the machine was rebooted. */
    public enum AfterReboot {
        /** The file is refused unless the link was closed and the file is whole. */
        REFUSE,
        /** The link goes on with those messages and positions of the file that are provable. */
        ADOPT_PROVEN
    }

    /** Makes a configuration with the default settings. */
    public LinkConfig() {}

    /** Sets the size of the ring, a power of two; the default is 1 MiB. */
    public LinkConfig ringBytes(long bytes) {
        return set("ring_bytes", bytes);
    }

    /** Sets the memory for long messages; the default is 4 MiB. */
    public LinkConfig slabBytes(long bytes) {
        return set("slab_bytes", bytes);
    }

    /** Sets the allowed transports; the default is {@link Config.Transport#AUTO}. */
    public LinkConfig transport(Config.Transport transport) {
        return set("transport", transport.ordinal());
    }

    /**
     * Sets how often a message may be delivered after a crash; the default is
     * {@link Delivery#AT_LEAST_ONCE}.
     */
    public LinkConfig delivery(Delivery delivery) {
        return set("delivery", delivery.ordinal());
    }

    /**
     * Sets what happens to a link's file after a reboot; the default is {@link AfterReboot#REFUSE}.
     */
    public LinkConfig afterReboot(AfterReboot choice) {
        return set("after_reboot", choice.ordinal());
    }

    /** Sets after how many deliveries without an acknowledgement a message counts as poison. */
    public LinkConfig attemptsMax(int count) {
        return set("attempts_max", count);
    }

    /** Sets the time after which a TCP connection counts as dead if the peer sends nothing. */
    public LinkConfig deadAfter(Duration time) {
        return set("dead_after_ns", Config.nanos(time));
    }

    /**
     * Sets any setting by the key that {@code partywall.h} lists. An unknown key is refused when
     * the configuration is used.
     */
    public LinkConfig set(String key, long value) {
        settings.put(key, value);
        return this;
    }

    /**
     * Returns the settings as an object of the native library, with the group of links that the
     * process's driver thread drives.
     */
    NativeConfig toNative(LinkDriver driver) throws PartywallException {
        NativeConfig config = NativeConfig.of("link_config", settings);
        boolean isSet = false;
        try (Call call = new Call()) {
            call.check("partywall_link_config_set_group", config.handle(), driver.group());
            isSet = true;
        } finally {
            if (!isSet) {
                config.close();
            }
        }
        return config;
    }
}
