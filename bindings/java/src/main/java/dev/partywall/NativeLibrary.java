// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.lang.foreign.Arena;
import java.lang.foreign.SymbolLookup;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

/**
 * Loads the native library: the file that the property {@code partywall.library} names, or the one
 * in the jar. The latter is copied to a directory of this user alone, loaded, and deleted again.
 */
final class NativeLibrary {
    private NativeLibrary() {}

    /** Loads the native library for the whole life of the process. */
    static SymbolLookup load() {
        String path = System.getProperty(PROPERTY);
        if (path != null) {
            return opened(Path.of(path), "");
        }
        String name = "/native/linux-" + System.getProperty("os.arch") + "/libpartywall.so";
        try (InputStream library = NativeLibrary.class.getResourceAsStream(name)) {
            if (library == null) {
                throw new UnsatisfiedLinkError("the jar has no " + name + ": set -D" + PROPERTY
                        + "=/path/to/libpartywall.so");
            }
            return copied(library);
        } catch (IOException failure) {
            throw new UncheckedIOException("the native library cannot be copied out of the jar: set -D"
                    + PROPERTY + "=/path/to/libpartywall.so", failure);
        }
    }

    private static SymbolLookup copied(InputStream library) throws IOException {
        var ownerOnly = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"));
        Path directory = Files.createTempDirectory("partywall-", ownerOnly);
        Path file = directory.resolve("libpartywall.so");
        try {
            Files.copy(library, file);
            return opened(file, ": if its file system forbids to execute files, set -Djava.io.tmpdir, or -D"
                    + PROPERTY);
        } finally {
            // The native library stays mapped after its file is deleted.
            Files.deleteIfExists(file);
            Files.deleteIfExists(directory);
        }
    }

    private static SymbolLookup opened(Path file, String advice) {
        try {
            return SymbolLookup.libraryLookup(file, Arena.global());
        } catch (IllegalArgumentException failure) {
            throw (UnsatisfiedLinkError) new UnsatisfiedLinkError(
                    "the native library cannot be loaded from " + file + advice).initCause(failure);
        }
    }

    private static final String PROPERTY = "partywall.library";
}
