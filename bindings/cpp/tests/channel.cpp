// SPDX-License-Identifier: MIT OR Apache-2.0
// Every function of a channel, over shared memory and over a socket.
#include "check.hpp"

#include <array>
#include <cmath>
#include <unistd.h>
#include <vector>

namespace pw = partywall;

static void lengths(pair &ends) {
    for (std::size_t size : {0, 1, 48, 104, 105, 1024, 1025, 65536, 200000}) {
        const std::vector<unsigned char> sent(size, static_cast<unsigned char>(size % 251 + 1));
        const auto is_sent = [&](pw::bytes_view found) {
            return found.size() == size &&
                   (size == 0 || std::memcmp(found.data(), sent.data(), size) == 0);
        };
        ends.client.send(sent);
        CHECK(is_sent(ends.server.recv_view(limit).value()));

        ends.client.send(sent, limit);
        const pw::message message = ends.server.recv(limit).value();
        CHECK(is_sent(message) && message.bytes().size() == message.size());

        auto reserved = ends.client.reserve(size);
        CHECK(reserved && reserved.size() == size);
        if (size != 0) std::memcpy(reserved.data(), sent.data(), size);
        ends.client.commit(std::move(reserved));
        CHECK(!reserved);
        CHECK(is_sent(ends.server.recv_view(limit).value()));
        const pw::message kept = ends.server.keep();
        CHECK(is_sent(kept));
    }
}

static void properties(pair &ends) {
    const auto peer = ends.server.peer();
    CHECK(peer.has_credentials && peer.pid == getpid() && peer.uid == getuid());
    const auto state = ends.client.transport();
    CHECK(state.kind == pw::transport::shared_memory || state.kind == pw::transport::socket);
    CHECK((state.kind == pw::transport::socket) == (state.reason != 0));
    CHECK(!ends.client.peer_text().empty() && !ends.client.transport_text().empty());
    CHECK(ends.client.sender_stats().messages == ends.server.receiver_stats().messages);
    CHECK(ends.client.sender_stats().messages > 0);
    THROWS(pw::channel().receiver_stats(), pw::errc::argument);
    THROWS(pw::channel().transport_text(), pw::errc::argument);
}

struct quote {
    std::uint64_t number;
    double price;
};

static void values_and_texts(pair &ends) {
    ends.client.send_value(quote{7, 1.25});
    const auto bytes = ends.server.recv_view(limit).value();
    const quote *found = pw::view_as<quote>(bytes);
    CHECK(found != nullptr && found->number == 7 && found->price == 1.25);
    CHECK(pw::view_as<std::uint64_t>(bytes) == nullptr);
    CHECK(pw::value_as<quote>(bytes)->price == 1.25 && !pw::value_as<std::uint64_t>(bytes));

    ends.client.send("a literal");
    CHECK(ends.server.recv_view(limit)->text() == "a literal");
    ends.client.send(std::string("a string"));
    CHECK(ends.server.recv(limit)->text() == "a string");
    ends.client.send(std::string_view("a view"));
    CHECK(ends.server.recv_view(limit)->text() == "a view");
    ends.client.send(std::array<std::uint32_t, 3>{1, 2, 3});
    CHECK(ends.server.recv_view(limit)->size() == 12);
#ifdef __cpp_lib_span
    const std::array<std::byte, 2> two{};
    ends.client.send(std::span(two));
    std::span<const std::byte> spanned = ends.server.recv_view(limit).value();
    CHECK(spanned.size() == 2);
#endif
}

static void shortened_and_given_up(pair &ends) {
    { auto reserved = ends.client.reserve(100000); }
    auto reserved = ends.client.reserve(100000);
    std::memset(reserved.data(), 'x', reserved.size());
    reserved.truncate(3);
    auto moved = std::move(reserved);
    CHECK(!reserved && moved.size() == 3);
    std::error_code code = pw::errc::full;
    ends.client.commit(moved, pw::forever, code);
    CHECK(!code && !moved);
    CHECK(ends.server.recv_view(limit)->text() == "xxx");
}

// Committing the reservation of another channel fails, and the reservation stays the caller's.
// Messages and reservations that were moved from have no bytes, because their memory may be gone
// before they are.
static void moved(pair &ends) {
    ends.client.send("moved");
    pw::message message = ends.server.recv(limit).value();
    const pw::message taken = std::move(message);
    CHECK(taken.text() == "moved" && taken.size() == 5);
    CHECK(!message && message.size() == 0 && message.data() == nullptr);
    CHECK(message.bytes().empty() && message.text().empty());
    auto reserved = ends.client.reserve(100);
    auto filled = std::move(reserved);
    CHECK(filled.size() == 100 && filled.data() != nullptr);
    CHECK(!reserved && reserved.size() == 0 && reserved.data() == nullptr);
    THROWS(ends.client.commit(reserved), pw::errc::argument);
    reserved = std::move(filled);
    CHECK(reserved.size() == 100 && !filled && filled.size() == 0 && filled.data() == nullptr);
}

static void foreign(pair &ends) {
    auto reserved = ends.client.reserve(10);
    const auto text = THROWS(ends.server.commit(reserved), pw::errc::foreign_reservation);
    CHECK(!text.empty());
    CHECK(reserved);
    std::memset(reserved.data(), 'y', reserved.size());
    ends.client.commit(reserved);
    CHECK(ends.server.recv_view(limit)->size() == 10);
}

// A configuration is a value: a chain of setters makes a configuration, and a copy has settings of
// its own.
static void configurations(const std::string &address) {
    auto config = pw::config().memory_max(1 << 20).message_max(100);
    const pw::config copy = config;
    config.message_max(200);
    pair small(address + ".small", copy);
    THROWS(small.client.send(std::string(101, 'x')), pw::errc::message_too_long);
    small.client.send(std::string(100, 'x'));
    pw::config assigned;
    assigned = config;
    pair great(address + ".great", assigned);
    great.client.send(std::string(200, 'x'));
    const pw::config moved = std::move(config);
    THROWS(pw::config(config), pw::errc::argument);
    THROWS(pw::config().set("memory_mx", 1), pw::errc::argument);
}

// The std::error_code of a number that `errc` does not name also has a message that explains it.
static void messages_of_codes() {
    for (const int number : {1, 101, 303, 614, 905}) {
        const std::error_code code(number, pw::category());
        CHECK(code.message().size() > 10 && code.message() == partywall_status_text(number));
    }
    std::error_code code;
    pw::channel::connect("unix:/nonexistent/app.sock", pw::config(), code);
    CHECK(code == pw::errc::no_socket && code == std::errc::no_such_file_or_directory);
    CHECK(code.message() == "the path of the address does not exist");
    const auto text = THROWS(pw::channel().send("x"), pw::errc::argument);
    CHECK(text.find("moved from") != std::string::npos);
}

static void errors(pair &ends) {
    std::error_code code;
    ends.server.recv_view(pw::no_wait, code);
    CHECK(code == pw::errc::empty);
    CHECK(code == std::errc::operation_would_block);
    CHECK(code.category() == pw::category() && !code.message().empty());
    ends.server.recv(std::chrono::milliseconds(1), code);
    CHECK(code == pw::errc::timed_out && code == std::errc::timed_out);
    THROWS(ends.server.recv_view(pw::no_wait), pw::errc::empty);
    THROWS(ends.server.recv(std::chrono::microseconds(1)), pw::errc::timed_out);
    THROWS(ends.server.keep(), pw::errc::argument);
    THROWS(ends.client.send(std::string(1 << 20, 'z')), pw::errc::message_too_long);

    pw::channel moved = std::move(ends.client);
    THROWS(ends.client.send("moved"), pw::errc::argument);
    ends.client = std::move(moved);
    ends.client.send("here");
    CHECK(ends.server.recv_view(limit)->text() == "here");
}

// Each overload fails for a duration that is negative or not a number, and sends nothing.
static void timeouts(pair &ends) {
    using seconds = std::chrono::duration<double>;
    std::error_code code;
    for (const double time : {-1.0, -1e300, -HUGE_VAL, std::nan("")}) {
        CHECK(!pw::timeout(seconds(time)).is_valid());
        ends.client.send("never", seconds(time), code);
        CHECK(code == pw::errc::argument && code == std::errc::invalid_argument);
        THROWS(ends.client.send("never", seconds(time)), pw::errc::argument);
        THROWS(ends.server.recv(seconds(time)), pw::errc::argument);
        THROWS(pw::config().linger(seconds(time)), pw::errc::argument);
        auto reserved = ends.client.reserve(10);
        THROWS(ends.client.commit(reserved, seconds(time)), pw::errc::argument);
        CHECK(reserved);
    }
    ends.server.recv(pw::no_wait, code);
    CHECK(code == pw::errc::empty);
    for (const double time : {1e300, HUGE_VAL, 3.2e9}) {
        CHECK(pw::timeout(seconds(time)).count() == pw::forever.count());
    }
    CHECK(pw::timeout(std::chrono::hours::max()).count() == pw::forever.count());
    CHECK(pw::timeout(seconds(1e-12)).count() == 1 && pw::timeout(seconds(0)).count() == 0);
    CHECK(pw::timeout(std::chrono::milliseconds(3)).count() == 3000000);
    const auto now = std::chrono::steady_clock::now();
    CHECK(pw::timeout::until(now - limit).count() == 0);
    CHECK(pw::timeout::until(now + limit).count() > 0);
    ends.client.send("in time", pw::timeout::until(now + limit));
    char copy[7];
    CHECK(ends.server.recv_copy(copy, sizeof copy, limit) == sizeof copy);
    CHECK(std::memcmp(copy, "in time", sizeof copy) == 0);
}

static void end(pair &ends) {
    ends.client.flush(limit);
    ends.client.close_write();
    THROWS(ends.client.send("too late"), pw::errc::finished_here);
    CHECK(!ends.server.recv_view(limit));
    CHECK(!ends.server.recv(limit));
    std::error_code code;
    ends.server.recv(limit, code);
    CHECK(code == pw::errc::finished);
    ends.server.send("the answer still comes");
    CHECK(ends.client.recv_view(limit)->text() == "the answer still comes");
    ends.server = pw::channel();
    CHECK(!ends.client.recv_view(limit));
}

static void addresses(const std::string &directory) {
    CHECK(!THROWS(pw::channel::connect("nowhere"), pw::errc::address_syntax).empty());
    std::error_code code;
    const auto none = pw::channel::connect("unix:" + directory + "/none", pw::config(), code);
    CHECK(!none && code == pw::errc::no_socket && code == std::errc::no_such_file_or_directory);
    auto listener = pw::listener::bind("tcp:127.0.0.1:0");
    CHECK(listener.address().rfind("tcp:127.0.0.1:", 0) == 0);
    CHECK(listener.address() != "tcp:127.0.0.1:0");
    const std::string text = THROWS(pw::config().set("no such key", 1), pw::errc::argument);
    CHECK(text.find("no such key") != std::string::npos);
    THROWS(listener.accept(pw::no_wait), pw::errc::timed_out);
}

int main(int, char **arguments) {
    const std::string directory = arguments[1];
    for (const auto transport : {pw::transport::shared_memory, pw::transport::socket}) {
        pw::config config;
        config.set(transport).message_max(1 << 19).linger(std::chrono::seconds(1));
        pair ends("unix:" + directory + "/app.sock", config);
        lengths(ends);
        properties(ends);
        values_and_texts(ends);
        shortened_and_given_up(ends);
        moved(ends);
        foreign(ends);
        errors(ends);
        timeouts(ends);
        end(ends);
    }
    addresses(directory);
    configurations("unix:" + directory + "/configured.sock");
    messages_of_codes();
    return 0;
}
