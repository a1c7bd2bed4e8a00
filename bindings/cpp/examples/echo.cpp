// SPDX-License-Identifier: MIT OR Apache-2.0
// An echo over a channel. `echo serve ADDRESS` answers one client; `echo ADDRESS TEXT` asks.
#include <partywall.hpp>

#include <iostream>

int main(int count, char **arguments) {
    if (count != 3) {
        std::cerr << "usage: echo serve ADDRESS | echo ADDRESS TEXT\n";
        return 2;
    }
    try {
        if (std::string_view(arguments[1]) == "serve") {
            auto listener = partywall::listener::bind(arguments[2]);
            auto channel = listener.accept();
            while (auto request = channel.recv_view()) channel.send(*request);
            return 0;
        }
        auto channel = partywall::channel::connect(arguments[1]);
        channel.send(arguments[2]);
        auto answer = channel.recv_view(); // no value: the peer has ended
        if (!answer) return 1;
        std::cout << answer->text() << std::endl;
    } catch (const partywall::error &error) {
        std::cerr << error.what() << '\n'; // says what to do
        return 1;
    }
}
