// SPDX-License-Identifier: MIT OR Apache-2.0
// Checks of the test programs: a check that fails prints its place, and ends the program.
#ifndef CHECK_HPP
#define CHECK_HPP

#include <partywall.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            std::fprintf(stderr, "%s:%d: %s is false\n", __FILE__, __LINE__, #condition);          \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

/// Checks that `expression` throws an error with the given number and returns its text.
#define THROWS(expression, number) thrown_by([&] { (void)(expression); }, number, __LINE__)

template <class Function>
std::string thrown_by(Function &&function, partywall::errc number, int line) {
    try {
        function();
    } catch (const partywall::error &error) {
        if (error.code() == number) return error.what();
        std::fprintf(stderr, "line %d: %s\n", line, error.what());
        std::exit(1);
    }
    std::fprintf(stderr, "line %d: nothing was thrown\n", line);
    std::exit(1);
}

/// Maximum time of a call that has to succeed: 30 s, enough for a slow machine.
inline constexpr std::chrono::seconds limit(30);

/// The two ends of one channel.
struct pair {
    partywall::listener listener;
    partywall::channel client, server;

    pair(const std::string &address, const partywall::config &config)
        : listener(partywall::listener::bind(address, config)) {
        std::thread connecting([&] { client = partywall::channel::connect(address, config); });
        server = listener.accept(limit);
        connecting.join();
    }
};

#endif
