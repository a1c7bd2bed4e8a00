// SPDX-License-Identifier: MIT OR Apache-2.0
// Sessions and streams: with a thread for each session, and a server of many streams in one loop.
#include "check.hpp"

#include <map>
#include <unistd.h>
#include <vector>

namespace pw = partywall;

struct sessions {
    pw::session_listener listener;
    pw::session client, server;

    explicit sessions(const std::string &address)
        : listener(pw::session_listener::bind(address)) {
        std::thread connecting([&] { client = pw::session::connect(address); });
        server = listener.accept(limit);
        connecting.join();
        CHECK(listener.address() == address);
    }
};

// Uses every function of a stream that sends or receives, and checks the stream's metadata and its
// end.
static void messages(sessions &ends) {
    auto here = ends.client.open("meta", limit);
    auto there = ends.server.accept(limit).value();
    CHECK(there.metadata().text() == "meta" && here.metadata().empty());
    THROWS(ends.server.accept(pw::no_wait), pw::errc::would_block);
    std::error_code code;
    CHECK(!ends.server.accept(std::chrono::microseconds(1), code) && code == pw::errc::timed_out);

    here.send("one");
    CHECK(there.recv_view(limit)->text() == "one");
    here.send_value(std::uint32_t(7), limit, code);
    CHECK(!code && pw::value_as<std::uint32_t>(there.recv(limit).value()) == 7);

    const std::string big(100000, 's');
    std::vector<char> copy(big.size());
    here.send(big);
    CHECK(there.recv_copy(copy.data(), 5, limit, code) == big.size());
    CHECK(code == pw::errc::buffer_too_short && code == std::errc::no_buffer_space);
    CHECK(there.recv_copy(copy.data(), copy.size(), pw::no_wait) == big.size());
    CHECK(std::string(copy.begin(), copy.end()) == big);
    THROWS(there.recv_view(pw::no_wait), pw::errc::empty);

    auto reserved = here.reserve(2000, limit);
    std::memset(reserved.data(), 'r', 2000);
    reserved.truncate(1500);
    THROWS(there.commit(reserved, pw::no_wait), pw::errc::foreign_reservation);
    CHECK(reserved);
    here.commit(reserved);
    CHECK(!reserved && there.recv(limit)->size() == 1500);

    here.finish();
    THROWS(here.send("x"), pw::errc::finished_here);
    CHECK(!there.recv(limit));
    there.recv_view(limit, code);
    CHECK(code == pw::errc::finished);
    there.finish(code);
    CHECK(!code && !here.recv_view(limit));
}

static void properties(sessions &ends) {
    const auto peer = ends.client.peer();
    CHECK(peer.has_credentials && peer.pid == getpid() && peer.is_trusted && peer.distrust == 0);
    CHECK(!ends.server.peer_text().empty() && !ends.server.transport_text().empty());
    const auto state = ends.client.transport();
    CHECK((state.kind == pw::transport::socket) == (state.reason != 0));
    CHECK(ends.client.sender_stats().bytes > 0);
    ends.client.wait_drained(limit);
    CHECK(ends.client.streams() == 0);
    THROWS(pw::session().peer(), pw::errc::argument);
}

// The codes with which one side ends a stream or session are in the exceptions of its peer.
static void codes(sessions &ends) {
    auto here = ends.client.open();
    auto there = ends.server.accept(limit).value();
    THROWS(here.reset(0xffffff00), pw::errc::argument);
    here.reset(77);
    try {
        there.recv(limit);
        CHECK(false);
    } catch (const pw::error &error) {
        CHECK(error.code() == pw::errc::stream_reset && error.application_code() == 77);
        CHECK(error.code() == std::errc::connection_reset);
    }
    here.stop(78);
    try {
        for (;;) there.send("x", limit);
    } catch (const pw::error &error) {
        CHECK(error.code() == pw::errc::stream_stopped && error.application_code() == 78);
    }
    const auto stopped = there.wait_stopped(limit);
    CHECK(stopped.code() == pw::errc::stream_stopped && stopped.application_code() == 78);
    std::error_code code;
    here.wait_stopped(pw::no_wait, code);
    CHECK(code == pw::errc::finished_here || !code);
    THROWS(pw::stream().wait_stopped(), pw::errc::argument);
    here = pw::stream();
    there = pw::stream();

    THROWS(ends.server.wait_closed(pw::no_wait), pw::errc::timed_out);
    THROWS(ends.server.wait_finished(pw::no_wait), pw::errc::timed_out);
    ends.server.wait_drained(limit);
    ends.server.go_away(5);
    ends.client.close(79, "over");
    ends.client.wait_finished(limit);
    ends.server.wait_finished(limit);
    const auto closed = ends.server.wait_closed(limit);
    CHECK(closed.code() == pw::errc::session_closed && closed.application_code() == 79);
    CHECK(std::string(closed.what()).find("over") != std::string::npos);
    CHECK(ends.client.wait_closed(limit, code).code() == pw::errc::session_closed_here && !code);
    CHECK(pw::session().wait_closed(limit, code).code() == code && code == pw::errc::argument);
    try {
        ends.server.open();
        CHECK(false);
    } catch (const pw::error &error) {
        CHECK(error.code() == pw::errc::session_closed && error.application_code() == 79);
        CHECK(std::string(error.what()).find("over") != std::string::npos);
    }
    CHECK(!THROWS(pw::session().open(), pw::errc::argument).empty());
}

// The client of a server that uses an event loop: opens `streams` streams and sends numbers on
// each. The server adds the index of the stream to each number, and sends the sum back.
static void open_many(const std::string &address, std::uint64_t streams) {
    auto session = pw::session::connect(address);
    std::vector<pw::stream> open;
    for (std::uint64_t number = 0; number < streams; number++) {
        open.push_back(session.open(pw::bytes_view(&number, sizeof number), limit));
    }
    for (std::uint64_t round = 0; round < 20; round++) {
        for (auto &stream : open) stream.send_value(round, limit);
        for (std::uint64_t number = 0; number < streams; number++) {
            const auto answer = open[number].recv(limit).value();
            CHECK(pw::value_as<std::uint64_t>(answer) == round + number);
        }
    }
}

static void serve_in_loop(const std::string &address) {
    constexpr std::uint64_t LISTENER = 1, SESSION = 2, FIRST = 100, STREAMS = 30;
    pw::loop loop;
    auto listener = pw::session_listener::bind(address, pw::config(), loop, LISTENER);
    std::thread client([&] { open_many(address, STREAMS); });
    pw::session session;
    std::map<std::uint64_t, pw::stream> streams;
    std::uint64_t next = FIRST, ended = 0;
    pw::event events[16];
    while (ended < STREAMS) {
        const std::size_t count = loop.wait(events, limit);
        CHECK(count > 0);
        for (std::size_t index = 0; index < count; index++) {
            std::error_code code;
            if (events[index].tag == LISTENER) {
                auto accepted = listener.accept(pw::no_wait, SESSION, code);
                if (accepted) session = std::move(accepted);
                CHECK(!code || code == pw::errc::timed_out);
            } else if (events[index].tag == SESSION) {
                while (auto stream = session.accept(pw::no_wait, next, code)) {
                    THROWS(stream.send("x", limit), pw::errc::argument);
                    streams[next++] = std::move(stream);
                }
                CHECK(code == pw::errc::would_block || code == pw::errc::finished ||
                      code == pw::errc::disconnected);
            } else if (auto found = streams.find(events[index].tag); found != streams.end()) {
                auto &stream = found->second;
                if (auto message = stream.recv(pw::no_wait, code)) {
                    const auto number = pw::value_as<std::uint64_t>(stream.metadata()).value();
                    stream.send_value(*pw::value_as<std::uint64_t>(message) + number, pw::no_wait);
                } else if (code != pw::errc::empty) {
                    CHECK(code == pw::errc::finished);
                    streams.erase(found);
                    ended++;
                }
            }
        }
    }
    client.join();
}

static void misuse(const std::string &directory) {
    std::error_code code;
    const std::string none = "unix:" + directory + "/none";
    CHECK(!pw::session::connect(none, pw::config(), code) && code == pw::errc::no_socket);
    CHECK(!pw::session_listener::bind("nowhere", pw::config(), code));
    CHECK(code == pw::errc::address_syntax && !code.message().empty());
    pw::loop loop;
    THROWS(pw::session::connect(none, pw::config(), loop, 1), pw::errc::no_socket);
}

int main(int, char **arguments) {
    const std::string directory = arguments[1];
    const std::string address = "unix:" + directory + "/app.sock";
    {
        sessions ends(address);
        messages(ends);
        properties(ends);
        codes(ends);
    }
    serve_in_loop(address);
    misuse(directory);
    return 0;
}
