// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * Settings of the protocol shmipc. Each method changes this object and returns it. A value that is
 * impossible is refused when the configuration is used.
 */
public final class ShmipcConfig {
    private final Map<String, Long> settings = new LinkedHashMap<>();
    private final Map<String, String> texts = new LinkedHashMap<>();
    private final List<Slices> slices = new ArrayList<>();

    private record Slices(int size, int percent) {}

    /** How a client makes the memory that it shares with its server. */
    public enum MemoryType {
        /** Memory without a name in the file system, a memfd. */
        MEMFD,
        /** Files, which servers open by their names. */
        FILE
    }

    /** Makes a configuration with the default settings. */
    public ShmipcConfig() {}

    /**
     * Sets how a client makes the memory that it shares with its server; the default is
     * {@link MemoryType#MEMFD}.
     */
    public ShmipcConfig memoryType(MemoryType type) {
        return set("mem_map_type", type.ordinal());
    }

    /** Sets the size of a client's buffer region; the default is 32 MiB. */
    public ShmipcConfig shareMemoryBufferCap(long bytes) {
        return set("share_memory_buffer_cap", bytes);
    }

    /**
     * Sets the beginning of the names of buffer regions; the default is {@code /dev/shm/shmipc}.
     */
    public ShmipcConfig shareMemoryPathPrefix(Path prefix) {
        return set("share_memory_path_prefix", prefix.toString());
    }

    /** Sets where a server opens files that clients name; the default is {@code /dev/shm}. */
    public ShmipcConfig directory(Path directory) {
        return set("directory", directory.toString());
    }

    /**
     * Adds a class of slices of {@code size} bytes, which get {@code percent} of the buffer region.
     * The first class that is added replaces the default classes. Together all added classes must
     * get 100 percent.
     */
    public ShmipcConfig addSlices(int size, int percent) {
        slices.add(new Slices(size, percent));
        return this;
    }

    /** Sets any setting of shmipc that is a number, by the key that {@code partywall.h} lists. */
    public ShmipcConfig set(String key, long value) {
        settings.put(key, value);
        return this;
    }

    /** Sets any setting of shmipc that is a text, by the key that {@code partywall.h} lists. */
    public ShmipcConfig set(String key, String value) {
        texts.put(key, value);
        return this;
    }

    NativeConfig toNative() throws PartywallException {
        NativeConfig config = NativeConfig.of("shmipc_config", settings);
        boolean isSet = false;
        try (Call call = new Call()) {
            for (Map.Entry<String, String> text : texts.entrySet()) {
                call.check("partywall_shmipc_config_set_text", config.handle(), call.text(text.getKey()),
                        call.text(text.getValue()));
            }
            slices.forEach(it -> Call.invoke(
                    "partywall_shmipc_config_add_slices", config.handle(), it.size, it.percent));
            isSet = true;
        } finally {
            if (!isSet) {
                config.close();
            }
        }
        return config;
    }
}
