// SPDX-License-Identifier: MIT OR Apache-2.0
package dev.partywall.echo;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;

/**
 * An echo server and its client, which can also talk to those of the command {@code partywall
 * echo}.
 *
 * <pre>
 *   serve --listen ADDRESS...                        sends every message back
 *   run --connect ADDRESS... [--count N] [--size N]  sends messages, verifies the echoes, compares
 * </pre>
 *
 * {@code run} compares the addresses by the time that the echoes took over each. An address that
 * begins with {@code plain:} is a plain socket, on which a message is a line.
 */
public final class Main {
    private Main() {}

    /** Runs the command, serve or run, that the arguments name. */
    public static void main(String[] arguments) throws Exception {
        try {
            run(List.of(arguments));
        } catch (IllegalArgumentException mistake) {
            System.err.println(mistake.getMessage());
            System.err.println(USAGE);
            System.exit(2);
        } catch (IOException failure) {
            System.err.println("partywall-echo: " + failure.getMessage());
            System.exit(1);
        }
    }

    private static void run(List<String> arguments) throws Exception {
        Options options = Options.parse(arguments);
        if (options.command().equals("serve")) {
            List<Thread> servers = new ArrayList<>();
            for (Endpoint endpoint : options.endpoints()) {
                servers.add(Server.start(endpoint));
            }
            for (Thread server : servers) {
                server.join();
            }
            return;
        }
        List<Outcome> outcomes = new ArrayList<>();
        for (Endpoint endpoint : options.endpoints()) {
            Outcome outcome = Client.measure(endpoint, options.count(), options.size());
            System.out.println(outcome.text());
            outcomes.add(outcome);
        }
        if (outcomes.size() > 1) {
            System.out.print(Outcome.table(outcomes));
        }
    }

    private record Options(String command, List<Endpoint> endpoints, int count, int size) {
        static Options parse(List<String> arguments) {
            String command = arguments.isEmpty() ? "" : arguments.getFirst();
            String addresses = switch (command) {
                case "serve" -> "--listen";
                case "run" -> "--connect";
                default -> throw new IllegalArgumentException("the first argument is serve or run");
            };
            List<Endpoint> endpoints = new ArrayList<>();
            int count = 10_000;
            int size = 64;
            String flag = "";
            for (String argument : arguments.subList(1, arguments.size())) {
                if (argument.startsWith("--")) {
                    flag = argument;
                } else if (flag.equals(addresses)) {
                    endpoints.add(Endpoint.parse(argument));
                } else if (flag.equals("--count")) {
                    count = number(argument);
                } else if (flag.equals("--size")) {
                    size = number(argument);
                } else {
                    throw new IllegalArgumentException("not understood: " + flag + " " + argument);
                }
            }
            if (endpoints.isEmpty()) {
                throw new IllegalArgumentException(addresses + " needs an address");
            }
            return new Options(command, endpoints, count, size);
        }

        private static int number(String text) {
            int number = Integer.parseInt(text);
            if (number < 0) {
                throw new IllegalArgumentException("a number is negative: " + text);
            }
            return number;
        }
    }

    private static final String USAGE = """
            serve --listen ADDRESS...
            run --connect ADDRESS... [--count N] [--size N]
            ADDRESS is unix:/path, unix:@name or tcp:host:port; with plain: before it, lines over a socket""";
}
