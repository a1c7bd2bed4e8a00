// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls and answers over a stream. `calls serve ADDRESS` adds up the numbers of one client;
// `calls ADDRESS NUMBER...` prints the sum after each, with all calls in flight at once.
#include <partywall/calls.hpp>

#include <iostream>
#include <vector>

static void serve(const std::string &address) {
    auto listener = partywall::session_listener::bind(address);
    auto session = listener.accept();
    auto stream = session.accept(); // no value: the client has left
    if (!stream) return;
    partywall::calls_server server(std::move(*stream));
    std::int64_t sum = 0;
    while (auto request = server.recv()) {
        if (auto number = partywall::value_as<std::int64_t>(*request)) {
            sum += *number;
            request->answer({&sum, sizeof sum});
        } else {
            request->fail(1, "this is no number");
        }
    }
}

static void ask(const std::string &address, const std::vector<std::int64_t> &numbers) {
    auto session = partywall::session::connect(address);
    partywall::calls_client client(session.open("calls"));
    std::vector<partywall::call> calls;
    for (const auto number : numbers) {
        calls.push_back(client.begin({&number, sizeof number}, std::chrono::seconds(30)));
    }
    for (auto &call : calls) {
        std::cout << partywall::value_as<std::int64_t>(call.wait()).value() << '\n';
    }
}

int main(int count, char **arguments) {
    try {
        if (count == 3 && std::string_view(arguments[1]) == "serve") {
            serve(arguments[2]);
        } else if (count >= 3) {
            std::vector<std::int64_t> numbers;
            for (int index = 2; index < count; index++) {
                numbers.push_back(std::stoll(arguments[index]));
            }
            ask(arguments[1], numbers);
        } else {
            throw std::invalid_argument("usage: calls serve ADDRESS | calls ADDRESS NUMBER...");
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n'; // says what to do
        return 1;
    }
}
