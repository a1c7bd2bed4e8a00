// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.echo;

import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.Locale;

/** The measurement of one endpoint of the echo. The times of round trips are in nanoseconds. */
record Outcome(Endpoint endpoint, String transport, int size, long nanos, long[] roundTrips) {
    Outcome {
        roundTrips = roundTrips.clone();
        Arrays.sort(roundTrips);
    }

    String text() {
        return """
                %s
                  transport   %s
                  received    %d echoes of %d bytes, all verified
                  time        %s
                  rate        %s
                  round trip  p50 %s, p99 %s
                """.formatted(endpoint, transport, roundTrips.length, size, time(nanos), rate(),
                time(quantile(0.5)), time(quantile(0.99)));
    }

    /**
     * Returns a table of the endpoints, the fastest first, with the ratio of each time to that of
     * the fastest.
     */
    static String table(List<Outcome> outcomes) {
        List<Outcome> order = outcomes.stream().sorted(Comparator.comparingLong(Outcome::nanos)).toList();
        int width = order.stream().mapToInt(it -> it.endpoint.toString().length()).max().orElse(0);
        String row = "%-" + Math.max(width, 8) + "s  %14s  %10s  %10s  %9s%n";
        StringBuilder text = new StringBuilder(
                row.formatted("endpoint", "rate", "p50", "p99", "÷ fastest"));
        double fastest = order.getFirst().nanos;
        for (Outcome outcome : order) {
            text.append(row.formatted(outcome.endpoint, outcome.rate(), time(outcome.quantile(0.5)),
                    time(outcome.quantile(0.99)),
                    String.format(Locale.ROOT, "%.2f×", outcome.nanos / fastest)));
        }
        return text.toString();
    }

    private String rate() {
        return String.format(Locale.ROOT, "%.0f/s", roundTrips.length / Math.max(nanos / 1e9, 1e-9));
    }

    private long quantile(double quantile) {
        return roundTrips.length == 0 ? 0 : roundTrips[(int) ((roundTrips.length - 1) * quantile)];
    }

    private static String time(long nanos) {
        return nanos < 1_000_000
                ? String.format(Locale.ROOT, "%.1f µs", nanos / 1e3)
                : String.format(Locale.ROOT, "%.1f ms", nanos / 1e6);
    }
}
