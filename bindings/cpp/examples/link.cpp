// SPDX-License-Identifier: MIT OR Apache-2.0
// A link that survives kill -9 of either side: lines of alice's standard input reach bob once each.
// `link recv DIRECTORY ADDRESS` or `link send DIRECTORY ADDRESS`, each with a directory of its own.
#include <partywall.hpp>

#include <iostream>

static void send_lines(const std::string &directory, const std::string &address) {
    partywall::link_client alice(partywall::storage::directory(directory), "alice");
    auto link = alice.connect(address, "bob", "lines"); // does not wait for bob
    for (std::string line; std::getline(std::cin, line);) {
        link.send(line + '\n'); // kept in the file from here on
        // A link advances only while a thread waits for it. This thread waits for input next, so it
        // first waits until the peer has acknowledged the message.
        link.wait_acked();
    }
    link.close(); // bob receives the end
}

static void print_lines(const std::string &directory, const std::string &address) {
    const auto files = partywall::storage::directory(directory);
    auto bob = partywall::link_server::bind(address, files, "bob");
    auto link = bob.accept();
    while (auto line = link.recv()) {
        std::cout << line->text() << std::flush; // a line is printed before it is acknowledged
        line->ack();                             // it never comes again
    }
}

int main(int count, char **arguments) {
    const std::string_view act = count == 4 ? arguments[1] : "";
    try {
        if (act == "send") send_lines(arguments[2], arguments[3]);
        else if (act == "recv") print_lines(arguments[2], arguments[3]);
        else throw std::invalid_argument("usage: link send|recv DIRECTORY ADDRESS");
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
