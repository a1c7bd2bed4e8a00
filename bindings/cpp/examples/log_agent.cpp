// SPDX-License-Identifier: MIT OR Apache-2.0
// A log agent: programs log without ever waiting, and the agent learns how many records were lost.
// `log_agent collect ADDRESS PROGRAMS` prints the records of PROGRAMS programs;
// `log_agent log ADDRESS NAME RECORDS` logs RECORDS records.
#include <partywall/lossy.hpp>

#include <iostream>
#include <mutex>
#include <thread>
#include <vector>

static void log(const std::string &address, const std::string &name, std::uint64_t records) {
    partywall::config config;
    config.set("flush_on_drop_ns", std::chrono::seconds(10));
    auto channel = partywall::channel::connect(address);
    partywall::lossy_sender log(channel, config); // any number of threads may call it
    log.log_wait(name);                           // waits for room; no other call does
    for (std::uint64_t number = 0; number < records; number++) {
        log.log("record " + std::to_string(number)); // dropped and counted if there is no room
    }
    // Destroying the sender sends the records in its queue, and the count of lost records.
}

/// Prints every record that a program has sent, and before each how many records were lost.
static void print(partywall::channel channel, std::mutex &output) {
    try {
        partywall::lossy_receiver records(channel);
        const auto name = records.recv(); // the first record is the name of the program
        if (!name) return;
        std::uint64_t lost = 0;
        const auto report = [&](std::uint64_t count) {
            if (count != 0) std::cout << name->message.text() << " lost " << count << '\n';
            lost += count;
        };
        while (const auto record = records.recv_view()) {
            const std::lock_guard guard(output);
            report(record->lost_before);
            std::cout << name->message.text() << ' ' << record->bytes.text() << '\n';
        }
        const std::lock_guard guard(output);
        report(records.counts().lost - lost); // after the last record
    } catch (const partywall::error &error) {
        std::cerr << error.what() << '\n'; // the program was killed; the others go on
    }
}

static void collect(const std::string &address, std::uint64_t programs) {
    auto listener = partywall::listener::bind(address);
    std::cout << "ready" << std::endl;
    std::mutex output;
    std::vector<std::thread> threads;
    for (std::uint64_t number = 0; number < programs; number++) {
        threads.emplace_back(print, listener.accept(), std::ref(output));
    }
    for (auto &thread : threads) thread.join();
}

int main(int count, char **arguments) {
    const std::string_view act = count > 1 ? arguments[1] : "";
    try {
        if (act == "collect" && count == 4) {
            collect(arguments[2], std::stoull(arguments[3]));
        } else if (act == "log" && count == 5) {
            log(arguments[2], arguments[3], std::stoull(arguments[4]));
        } else {
            throw std::invalid_argument(
                "usage: log_agent collect ADDRESS PROGRAMS | log ADDRESS NAME RECORDS");
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
