// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.util.Map;

/** A configuration object of the native library. It exists for the time of one call. */
record NativeConfig(String kind, long handle) implements AutoCloseable {
    /**
     * Makes a configuration object with the given settings. {@code kind} is the word in
     * the names of its native functions: {@code config} for channels and sessions,
     * another word for links.
     */
    static NativeConfig of(String kind, Map<String, Long> settings) throws PartywallException {
        try (Call call = new Call()) {
            call.check("partywall_" + kind + "_new", call.result());
            NativeConfig config = new NativeConfig(kind, call.resultLong());
            boolean isSet = false;
            try {
                for (Map.Entry<String, Long> setting : settings.entrySet()) {
                    call.check("partywall_" + kind + "_set", config.handle, call.text(setting.getKey()),
                            setting.getValue());
                }
                isSet = true;
            } finally {
                if (!isSet) {
                    config.close();
                }
            }
            return config;
        }
    }

    @Override
    public void close() {
        Call.invoke("partywall_" + kind + "_free", handle);
    }
}
