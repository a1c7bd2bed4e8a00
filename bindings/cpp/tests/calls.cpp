// SPDX-License-Identifier: MIT OR Apache-2.0
// Calls over a stream: answers in any order, failures of handlers, cancelling, refusals, and ends.
#include "check.hpp"

#include <partywall/calls.hpp>

#include <vector>

namespace pw = partywall;

struct ends {
    pw::session_listener listener;
    pw::session here, there;
    pw::calls_client client;
    pw::calls_server server;

    explicit ends(const std::string &address, const pw::config &config = {})
        : listener(pw::session_listener::bind(address)) {
        std::thread connecting([&] { here = pw::session::connect(address); });
        there = listener.accept(limit);
        connecting.join();
        auto stream = here.open("calls", limit);
        client = pw::calls_client(std::move(stream), config);
        CHECK(!stream && client);
        server = pw::calls_server(there.accept(limit).value(), config);
    }
};

// A thread of the server: answers calls with their payload and one more byte, until the client has
// finished.
static void serve(pw::calls_server &server) {
    while (auto request = server.recv(limit)) {
        CHECK(request->is_one_way() == !request->time_left());
        if (request->text() == "fail") {
            request->fail(7, "why", limit);
        } else if (request->text() == "reserved") {
            THROWS(request->fail(0xffffff00), pw::errc::argument);
        } else if (request->text() == "drop") {
            *request = pw::request();
        } else {
            request->answer(std::string(request->text()) + "!", limit);
        }
        CHECK(!*request && request->size() == 0);
    }
}

static void answered(const std::string &address) {
    ends ends(address);
    std::thread serving([&] { serve(ends.server); });
    std::vector<std::thread> calling;
    for (int thread = 0; thread < 4; thread++) {
        calling.emplace_back([&] {
            for (std::size_t size : {1, 48, 5000, 100000}) {
                const auto answer = ends.client.call(std::string(size, 'c'), limit);
                CHECK(answer && answer.size() == size + 1);
            }
        });
    }
    for (auto &thread : calling) thread.join();

    try {
        ends.client.call("fail", limit);
        CHECK(false);
    } catch (const pw::call_error &error) {
        const auto copy = error;
        CHECK(copy.code() == pw::errc::call_failed && copy.application_code() == 7);
        CHECK(copy.detail().text() == "why");
    }
    std::error_code code;
    std::uint32_t number = 0;
    CHECK(ends.client.call("fail", limit, code, &number).text() == "why");
    CHECK(code == pw::errc::call_failed && number == 7);
    CHECK(ends.client.call("x", limit, code, &number).text() == "x!" && !code && number == 0);
    CHECK(ends.client.call("fail", limit, code).text() == "why" && code == pw::errc::call_failed);
    THROWS(ends.client.call("drop", limit), pw::errc::call_aborted);
    THROWS(ends.client.call("reserved", limit), pw::errc::call_aborted);
    THROWS(ends.client.call("x", std::chrono::seconds(-1)), pw::errc::argument);
    ends.client.call_one_way("one way", limit);
    ends.client.call_one_way("one way", limit, code);
    CHECK(!code);

    // With two calls in flight, the client waits for the answer of the second call first.
    auto first = ends.client.begin("1", limit);
    auto second = ends.client.begin("22", limit, code);
    CHECK(!code && second.wait(limit).text() == "22!");
    THROWS(second.wait(limit), pw::errc::argument);
    CHECK(first.wait(limit, code, &number).text() == "1!" && !code);
    ends.client = pw::calls_client();
    first = pw::call();
    second = pw::call();
    serving.join();
}

static void given_up(const std::string &address) {
    pw::config config;
    config.set("in_flight_max", 1).set("waiting_max", 1);
    ends ends(address, config);
    std::error_code code;
    CHECK(!ends.server.recv(pw::no_wait, code) && code == pw::errc::empty);
    THROWS(ends.server.recv(std::chrono::microseconds(1)), pw::errc::timed_out);
    auto call = ends.client.begin("x", limit);
    THROWS(ends.client.begin("y", std::chrono::microseconds(1)), pw::errc::timed_out);
    CHECK(!call.wait(std::chrono::microseconds(1), code) && code == pw::errc::timed_out);
    auto request = ends.server.recv(limit, code);
    CHECK(!code && request.text() == "x" && !request.is_cancelled());
    CHECK(request.time_left() && *request.time_left() <= limit);
    request.answer("a negative timeout", std::chrono::seconds(-1), code);
    CHECK(code == pw::errc::argument && request);
    call = pw::call(); // cancels it
    while (!request.is_cancelled()) std::this_thread::yield();
    request.answer("nobody", limit, code);
    CHECK(!code && !request);
    ends.there.close(5, "over");
    // The client waits until its session has received the close of its peer. A call before that
    // could fail with another code.
    CHECK(ends.here.wait_closed(limit).code() == pw::errc::session_closed);
    try {
        ends.client.call("z", limit);
        CHECK(false);
    } catch (const pw::error &error) {
        CHECK(error.code() == pw::errc::session_closed && error.application_code() == 5);
    }
}

static void misuse(const std::string &address) {
    std::error_code code;
    THROWS(pw::calls_client(pw::stream()), pw::errc::argument);
    CHECK(!pw::calls_server(pw::stream(), pw::config(), code) && code == pw::errc::argument);
    THROWS(pw::calls_client().call("x"), pw::errc::argument);
    THROWS(pw::calls_server().recv(), pw::errc::argument);
    THROWS(pw::request().answer("x"), pw::errc::argument);
    THROWS(pw::call().wait(), pw::errc::argument);

    // calls_client refuses a stream that is in a loop, and the stream stays with its owner.
    pw::loop loop;
    auto listener = pw::session_listener::bind(address);
    pw::session here;
    std::thread connecting([&] { here = pw::session::connect(address, pw::config(), loop, 1); });
    auto there = listener.accept(limit);
    connecting.join();
    auto stream = here.open("", pw::no_wait, 2);
    THROWS(pw::calls_client(std::move(stream)), pw::errc::argument);
    CHECK(stream);
}

int main(int, char **arguments) {
    const std::string address = "unix:" + std::string(arguments[1]) + "/app.sock";
    answered(address);
    given_up(address);
    misuse(address);
    return 0;
}
