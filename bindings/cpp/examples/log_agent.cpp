// SPDX-License-Identifier: MIT OR Apache-2.0
// A log agent: programs log without ever waiting, and the agent learns how many records were lost.
// `log_agent collect ADDRESS PROGRAMS` prints the records of so many programs;
// `log_agent log ADDRESS NAME RECORDS` logs so many.
#include <partywall.hpp>

#include <cstring>
#include <iostream>
#include <map>

/// What begins each record; its text follows.
struct head {
    std::uint64_t lost_before; ///< Records that were dropped since the one before.
};

/// Logs over a channel. A record that finds no room is dropped and counted.
class logger {
public:
    explicit logger(const std::string &address) : channel_(partywall::channel::connect(address)) {}

    void log(std::string_view text) {
        std::error_code code;
        write(text, partywall::no_wait, code);
        if (code) lost_++; // there is no room, or no agent any more
    }

    /// Tells the agent of records that were lost after the last one. The only call that waits.
    void finish() {
        std::error_code code;
        if (lost_ != 0) write("", std::chrono::seconds(10), code);
    }

private:
    void write(std::string_view text, partywall::timeout time, std::error_code &code) {
        const head begin = {lost_};
        auto record = channel_.reserve(sizeof begin + text.size(), time, code);
        if (code) return;
        std::memcpy(record.data(), &begin, sizeof begin);
        if (!text.empty()) std::memcpy(record.data() + sizeof begin, text.data(), text.size());
        channel_.commit(record, time, code);
        if (!code) lost_ = 0;
    }

    partywall::channel channel_;
    std::uint64_t lost_ = 0;
};

/// Prints every record that a program has sent. Returns false once the program has ended.
static bool print(partywall::channel &channel, std::string &name) {
    std::error_code code;
    for (;;) {
        const auto record = channel.recv_view(partywall::no_wait, code);
        if (code == partywall::errc::empty) return true; // the loop reports the next one
        if (code) return false;
        head begin;
        if (record.size() < sizeof begin) return false; // not a logger of ours
        std::memcpy(&begin, record.data(), sizeof begin);
        const auto text = record.text().substr(sizeof begin);
        if (name.empty()) { // the first record is the name of the program
            name = text;
            continue;
        }
        if (begin.lost_before != 0) std::cout << name << " lost " << begin.lost_before << '\n';
        if (!text.empty()) std::cout << name << ' ' << text << '\n';
    }
}

static void collect(const std::string &address, std::uint64_t programs) {
    struct program {
        partywall::channel channel;
        std::string name;
    };
    constexpr std::uint64_t LISTENER = 0;
    auto listener = partywall::listener::bind(address);
    partywall::loop loop; // one thread serves them all
    loop.add(listener, LISTENER);
    std::cout << "ready" << std::endl;
    std::map<std::uint64_t, program> open;
    std::uint64_t next = LISTENER + 1, ended = 0;
    partywall::event events[64];
    while (ended < programs) {
        const std::size_t count = loop.wait(events);
        for (std::size_t index = 0; index < count; index++) {
            if (events[index].tag == LISTENER) {
                std::error_code code;
                while (auto channel = listener.accept(partywall::no_wait, code)) {
                    loop.add(channel, next);
                    open[next++].channel = std::move(channel);
                }
            } else if (auto found = open.find(events[index].tag); found != open.end()) {
                if (!print(found->second.channel, found->second.name)) {
                    open.erase(found);
                    ended++;
                }
            }
        }
    }
}

int main(int count, char **arguments) {
    const std::string_view act = count > 1 ? arguments[1] : "";
    try {
        if (act == "collect" && count == 4) {
            collect(arguments[2], std::stoull(arguments[3]));
        } else if (act == "log" && count == 5) {
            logger logger(arguments[2]);
            logger.log(arguments[3]);
            const auto records = std::stoull(arguments[4]);
            for (std::uint64_t number = 0; number < records; number++) {
                logger.log("record " + std::to_string(number));
            }
            logger.finish();
        } else {
            throw std::invalid_argument(
                "usage: log_agent collect ADDRESS PROGRAMS | log ADDRESS NAME RECORDS");
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
