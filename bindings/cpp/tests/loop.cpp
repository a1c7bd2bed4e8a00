// SPDX-License-Identifier: MIT OR Apache-2.0
// One event loop serves a listener and its channels: alone, and with poll() on its descriptor.
#include "check.hpp"

#include <map>
#include <poll.h>

namespace pw = partywall;

int main(int, char **arguments) {
    const std::string address = "unix:" + std::string(arguments[1]) + "/app.sock";
    constexpr std::uint64_t CLIENTS = 5;
    auto listener = pw::listener::bind(address);
    pw::loop loop;
    loop.add(listener, 0);
    pw::event events[4];

    std::thread clients([&] {
        std::map<std::uint64_t, pw::channel> open;
        for (std::uint64_t number = 1; number <= CLIENTS; number++) {
            open[number] = pw::channel::connect(address);
            open[number].send_value(number);
        }
        for (auto &[number, channel] : open) {
            const auto answer = channel.recv(limit).value();
            CHECK(*pw::value_as<std::uint64_t>(answer) == number * 2);
        }
    });

    std::map<std::uint64_t, pw::channel> served;
    std::uint64_t ended = 0;
    while (ended < CLIENTS) {
        pollfd descriptor = {loop.fd(), POLLIN, 0};
        CHECK(poll(&descriptor, 1, 30000) == 1);
        const std::size_t count = loop.wait(events, pw::no_wait);
        for (std::size_t index = 0; index < count; index++) {
            std::error_code code;
            if (events[index].tag == 0) {
                while (auto channel = listener.accept(pw::no_wait, code)) {
                    const std::uint64_t tag = served.size() + 1;
                    loop.add(served[tag] = std::move(channel), tag);
                }
                CHECK(code == pw::errc::timed_out);
                continue;
            }
            auto found = served.find(events[index].tag);
            if (found == served.end() || !found->second) continue;
            auto &channel = found->second;
            while (auto message = channel.recv(pw::no_wait, code)) {
                channel.send_value(*pw::value_as<std::uint64_t>(message) * 2, pw::no_wait);
            }
            if (code == pw::errc::finished || code == pw::errc::disconnected) {
                channel = pw::channel();
                ended++;
            } else {
                CHECK(code == pw::errc::empty);
            }
        }
    }
    clients.join();
    return 0;
}
