// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall;

/** Tests for how many waits a yield of the processor, in vain or long, suspends others. */
final class YieldsTest {
    private static final long SHORT = 1_000;
    private static final long LONG = 201_000;

    void yieldsInVainSuspendYieldsForLongerEachTime() {
        Yields yields = new Yields();
        for (int expected : new int[] {4, 8, 16, 32, 64, 128, 256, 256}) {
            yields.count(false, SHORT);
            Check.equal(waitsWithoutYield(yields), expected);
        }
        yields.count(true, SHORT);
        Check.equal(waitsWithoutYield(yields), 0);
    }

    void longYieldsSuspendYieldsForManyWaits() {
        for (boolean isFound : new boolean[] {false, true}) {
            Yields yields = new Yields();
            for (int expected : new int[] {1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 65_536}) {
                yields.count(isFound, LONG);
                Check.equal(waitsWithoutYield(yields), expected);
            }
            yields.count(false, SHORT);
            Check.equal(waitsWithoutYield(yields), 65_536);
        }
    }

    private static int waitsWithoutYield(Yields yields) {
        int waits = 0;
        while (!yields.isDue()) {
            waits++;
        }
        return waits;
    }
}
