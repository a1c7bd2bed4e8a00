// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

import java.util.Arrays;
import java.util.Objects;

/** Assertions of the tests, each of which throws an {@link AssertionError}. */
final class Check {
    private Check() {}

    interface Body {
        void run() throws Throwable;
    }

    static void that(boolean condition, String what) {
        if (!condition) {
            throw new AssertionError(what);
        }
    }

    static void equal(Object found, Object expected) {
        that(Objects.equals(found, expected), "found " + found + " instead of " + expected);
    }

    static void equal(byte[] found, byte[] expected) {
        that(Arrays.equals(found, expected),
                "found " + found.length + " bytes that are not the " + expected.length + " expected");
    }

    /** Returns the exception that {@code body} throws, which must be of the type {@code type}. */
    static <E extends Throwable> E thrown(Class<E> type, Body body) {
        try {
            body.run();
        } catch (Throwable failure) {
            if (type.isInstance(failure)) {
                return type.cast(failure);
            }
            throw new AssertionError("not the exception expected: " + failure, failure);
        }
        throw new AssertionError("no " + type.getSimpleName() + " was thrown");
    }

    static byte[] pattern(int length, int seed) {
        byte[] bytes = new byte[length];
        for (int index = 0; index < length; index++) {
            bytes[index] = (byte) (seed + index * 31 + (index >> 8));
        }
        return bytes;
    }
}
