// SPDX-License-Identifier: MIT OR Apache-2.0
// Records that may be lost: sender and receiver agree on how many were lost, and learn of each
// other's end.
#include "check.hpp"

#include <partywall/lossy.hpp>

namespace pw = partywall;

// Logs more records than there is room for. The bytes of each record are its number.
static std::uint64_t log_until_full(pw::lossy_sender &sender) {
    std::uint64_t number = 0;
    while (sender.stats().dropped_full == 0) {
        const auto outcome = sender.log(pw::bytes_view(&number, sizeof number));
        CHECK(outcome == pw::log_outcome::sent || outcome == pw::log_outcome::queued ||
              outcome == pw::log_outcome::dropped_full);
        number++;
    }
    return number;
}

static void losses(const std::string &address, int policy) {
    pw::config config;
    config.set("on_full", static_cast<std::uint64_t>(policy)).set("queue_records", 50);
    config.set("flush_on_drop_ns", limit);
    pair ends(address, config);
    pw::lossy_sender sender(ends.client, config);
    pw::lossy_receiver receiver(ends.server);
    THROWS(ends.client.send("x", pw::no_wait), pw::errc::finished_here);
    THROWS(pw::lossy_sender(ends.client), pw::errc::argument);
    std::error_code code;
    CHECK(!pw::lossy_receiver(ends.server, code) && code == pw::errc::argument);
    THROWS(receiver.recv_view(pw::no_wait), pw::errc::empty);
    const auto logged = log_until_full(sender);
    const auto stats = sender.stats();
    CHECK(stats.sent + stats.queued + stats.dropped_full == logged);
    sender.flush(pw::no_wait, code);
    CHECK(stats.queued == 0 ? !code : code == pw::errc::full);

    // Destroying the sender sends the records in its queue, while this thread receives them.
    std::thread ending([&] { sender = pw::lossy_sender(); });
    std::uint64_t received = 0, lost = 0;
    const auto count = [&](pw::bytes_view bytes, std::uint64_t lost_before) {
        lost += lost_before;
        CHECK(pw::value_as<std::uint64_t>(bytes) == received + lost);
        received++;
    };
    for (bool is_over = false; !is_over;) {
        if (received % 2 == 0) {
            const auto record = receiver.recv_view(limit, code);
            CHECK(!code || code == pw::errc::finished);
            is_over = code == pw::errc::finished;
            if (!code) count(record.bytes, record.lost_before);
        } else if (const auto record = receiver.recv(limit)) {
            count(record->message, record->lost_before);
        } else {
            is_over = true;
        }
    }
    ending.join();
    const auto counts = receiver.counts();
    CHECK(counts.received == received && counts.lost == stats.dropped_full);
    CHECK(received + counts.lost == logged);
    CHECK(receiver.recv(pw::no_wait, code).message.size() == 0 && code);
}

static void ends_of_both(const std::string &address) {
    pw::config config;
    config.message_max(50000);
    pair ends(address, config);
    pw::lossy_receiver receiver(ends.server);
    ends.client.send("no record");
    THROWS(receiver.recv(limit), pw::errc::not_a_record);
    pw::lossy_sender sender(ends.client);
    CHECK(sender.log(std::string(100000, 'l')) == pw::log_outcome::dropped_too_long);
    CHECK(sender.log_wait("important", limit) == pw::log_outcome::sent && !sender.is_closed());
    CHECK(receiver.recv_view(limit)->bytes.text() == "important");
    receiver = pw::lossy_receiver();
    std::error_code code;
    while (sender.log("x", code) == pw::log_outcome::sent) CHECK(!code);
    CHECK(sender.is_closed() && sender.stats().dropped_closed == 1);
    THROWS(sender.flush(), pw::errc::finished);
    CHECK(sender.log_wait("x", limit, code) == pw::log_outcome::dropped_closed);
}

static void misuse() {
    std::error_code code;
    pw::channel none;
    CHECK(!pw::lossy_sender(none, pw::config(), code) && code == pw::errc::argument);
    THROWS(pw::lossy_receiver(none), pw::errc::argument);
    THROWS(pw::lossy_sender().log("x"), pw::errc::argument);
    THROWS(pw::lossy_sender().stats(), pw::errc::argument);
    THROWS(pw::lossy_receiver().counts(), pw::errc::argument);
}

int main(int, char **arguments) {
    const std::string address = "unix:" + std::string(arguments[1]) + "/app.sock";
    losses(address, PARTYWALL_ON_FULL_DROP_NEWEST);
    losses(address, PARTYWALL_ON_FULL_DROP_OLDEST);
    ends_of_both(address);
    misuse();
    return 0;
}
