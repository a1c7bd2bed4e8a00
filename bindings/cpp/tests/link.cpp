// SPDX-License-Identifier: MIT OR Apache-2.0
// Links: kept messages, acknowledgements, answers, what comes again, and a group in a loop.
#include "check.hpp"

#include <atomic>
#include <sys/stat.h>

namespace pw = partywall;

static pw::link_message expect(pw::link &link, std::uint32_t wanted) {
    auto message = link.recv(limit).value();
    CHECK(message && pw::value_as<std::uint32_t>(message) == wanted);
    CHECK(message.size() == message.bytes().size());
    return message;
}

// The server's end of a link is opened twice: messages that it did not acknowledge the first time
// come again.
static void restart(const std::string &directory, const std::string &address) {
    const auto alice = pw::storage::directory(directory + "/alice");
    const auto bob = pw::storage::directory(directory + "/bob");
    pw::link_config config;
    config = pw::link_config().ring_bytes(1 << 16).slab_bytes(1 << 20).attempts_max(9);
    pw::link_client client(alice, "alice", config);
    auto here = client.connect(address, "bob", "orders");
    CHECK(here.status() != pw::link_status::attached && here.status() != pw::link_status::closed);
    const auto before = here.sent_position();
    for (std::uint32_t number = 0; number < 5; number++) here.send_value(number, limit);
    CHECK(here.unacked_bytes() > 0);
    CHECK(here.sent_position().first == before.first && here.sent_position() > before);
    std::error_code code;
    here.wait_sent(std::chrono::milliseconds(1), code);
    CHECK(code == pw::errc::timed_out);
    const auto refused = here.next_event(limit);
    CHECK(refused.kind == PARTYWALL_LINK_EVENT_REFUSED && refused.text[0] != 0);
    CHECK(!here.status_text().empty());
    here.wait_acked(std::chrono::milliseconds(1), code);
    CHECK(code == pw::errc::timed_out);
    std::atomic<bool> is_acked{false};
    std::thread driving([&] {
        here.wait_acked(limit);
        is_acked = true;
    });

    {
        auto server = pw::link_server::bind(address, bob, "bob", config);
        auto there = server.accept(limit);
        there.wait_attached(limit);
        CHECK(there.name() == "orders" && there.peer_name() == "alice");
        CHECK(here.name() == "orders" && here.peer_name() == "bob");
        const auto attached = there.next_event(limit, code);
        CHECK(!code && attached.kind == PARTYWALL_LINK_EVENT_ATTACHED && !attached.is_resumed);
        THROWS(there.next_event(pw::no_wait), pw::errc::empty);
        CHECK(server.last_refusal().empty() && !server.take_open_error());
        auto first = expect(there, 0);
        CHECK(first.attempt() == 1);
        auto second = expect(there, 1);
        CHECK(second.position() > first.position());
        second.ack();
        CHECK(!second);
        first.ack(code);
        CHECK(code == pw::errc::acknowledged_before && !first);
        expect(there, 2);
        there.rewind();
        expect(there, 2);
    }
    auto server = pw::link_server::bind(address, bob, "bob", config);
    auto there = server.accept(limit);
    auto again = expect(there, 2);
    CHECK(again.attempt() > 1);
    again.reply("a negative timeout", std::chrono::seconds(-1), code);
    CHECK(code == pw::errc::argument && again);
    again.reply("got", limit);
    CHECK(!again);
    expect(there, 3).ack();
    expect(there, 4).ack();
    // The link advances while a thread waits for it in any call.
    do {
        there.recv(std::chrono::milliseconds(1), code);
        CHECK(code == pw::errc::timed_out);
    } while (!is_acked);
    driving.join();
    auto answer = here.recv(limit).value();
    CHECK(answer.text() == "got");
    answer.ack();
    THROWS(here.recv(pw::no_wait), pw::errc::empty);
    here.close(std::chrono::seconds(-1), code);
    CHECK(code == pw::errc::argument && here);
    std::thread closing([&] { here.close(limit); });
    CHECK(!there.recv(limit));
    closing.join();
    CHECK(!here);
    there.close(limit);
}

// An event loop drives both ends of a link over a socket. Without the loop neither end would
// advance, because no thread waits for them.
static void in_loop(const std::string &address) {
    pw::loop loop;
    pw::link_group group;
    loop.add(group, 9);
    std::error_code code;
    loop.add(group, 9, code);
    CHECK(code == pw::errc::argument);
    pw::link_config config;
    config.set(pw::transport::socket).set(group).set(pw::delivery::at_least_once);
    auto server = pw::link_server::bind(address, pw::storage::memory(), "bob", config);
    pw::link_client client(pw::storage::memory(), "alice", config);
    auto here = client.connect(address, "bob", "numbers");
    for (std::uint32_t number = 0; number < 10; number++) here.send_value(number, limit);
    pw::link there;
    std::uint32_t next = 0;
    pw::event events[1];
    while (next < 10) {
        CHECK(loop.wait(events, limit) == 1 && events[0].tag == 9);
        if (!there) there = server.accept(pw::no_wait, code);
        while (auto message = there.recv(pw::no_wait, code)) {
            CHECK(pw::value_as<std::uint32_t>(message) == next);
            message.ack();
            next++;
        }
    }
    group.poll(pw::no_wait);
}

static void misuse(const std::string &directory, const std::string &address) {
    std::error_code code;
    pw::link_client unnamed(pw::storage::memory(), "", pw::link_config(), code);
    CHECK(!unnamed && code == pw::errc::name_empty);
    THROWS(pw::link_client(pw::storage::directory(directory + "/none"), "alice")
               .connect(address, "bob", "orders"),
           pw::errc::directory_not_opened);
    THROWS(pw::link().send("x"), pw::errc::argument);
    THROWS(pw::link_message().ack(), pw::errc::argument);
    THROWS(pw::link().next_event(), pw::errc::argument);
    THROWS(pw::link().status_text(), pw::errc::argument);
    THROWS(pw::link_server().last_refusal(), pw::errc::argument);
    THROWS(pw::link().name(), pw::errc::argument);
    THROWS(pw::link().sent_position(), pw::errc::argument);
    THROWS(pw::link().wait_sent(), pw::errc::argument);
    THROWS(pw::link_config().set("no such key", 1), pw::errc::argument);
    THROWS(pw::link_config().dead_after(std::chrono::seconds(-1)), pw::errc::argument);
}

int main(int, char **arguments) {
    const std::string directory = arguments[1];
    const std::string address = "unix:" + directory + "/link.sock";
    CHECK(mkdir((directory + "/alice").c_str(), 0700) == 0);
    CHECK(mkdir((directory + "/bob").c_str(), 0700) == 0);
    restart(directory, address);
    in_loop(address);
    misuse(directory, address);
    return 0;
}
