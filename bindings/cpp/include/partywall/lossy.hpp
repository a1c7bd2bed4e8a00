// SPDX-License-Identifier: MIT OR Apache-2.0
// partywall/lossy.hpp: logs, traces and samples, which never wait for their receiver, for C++17 and
// later.
//
//   lossy_sender     any number of threads log records; without room, one is dropped and counted
//   lossy_receiver   receives them, and learns how many were lost before each
//
// The settings are keys of a config: on_full, on_full_block_ns, queue_records, queue_bytes and
// flush_on_drop_ns; partywall.h lists them. As in partywall.hpp, each operation has an overload
// that throws and one that takes a std::error_code.
#ifndef PARTYWALL_LOSSY_HPP
#define PARTYWALL_LOSSY_HPP

#include <partywall.hpp>

namespace partywall {

/// What became of a record.
enum class log_outcome : std::int32_t {
    sent = PARTYWALL_LOG_SENT,
    queued = PARTYWALL_LOG_QUEUED,
    dropped_full = PARTYWALL_LOG_DROPPED_FULL,
    dropped_too_long = PARTYWALL_LOG_DROPPED_TOO_LONG,
    dropped_closed = PARTYWALL_LOG_DROPPED_CLOSED,
};

using lossy_stats = partywall_lossy_stats; ///< Counters of a sender; partywall.h explains them.

/// Logs records over the sending direction of a channel. Destroying it sends what is queued, and
/// waits for that at most flush_on_drop_ns.
class lossy_sender : public detail::handle<partywall_lossy_sender, partywall_lossy_sender_free> {
public:
    lossy_sender() = default;
    /// Takes the sending direction of `from`, which is in no loop and keeps the other direction.
    explicit lossy_sender(channel &from, const config &with = {}) {
        detail::call(partywall_lossy_sender_new, from.get(), with.get(), out());
    }
    lossy_sender(channel &from, const config &with, error_code &code) noexcept {
        detail::call(code, partywall_lossy_sender_new, from.get(), with.get(), out());
    }

    /// Logs a record. It waits only if the setting on_full is PARTYWALL_ON_FULL_BLOCK.
    log_outcome log(bytes_view record) {
        std::int32_t outcome = PARTYWALL_LOG_DROPPED_CLOSED;
        run(partywall_lossy_log, record.data(), record.size(), &outcome);
        return static_cast<log_outcome>(outcome);
    }
    log_outcome log(bytes_view record, error_code &code) noexcept {
        std::int32_t outcome = PARTYWALL_LOG_DROPPED_CLOSED;
        run(code, partywall_lossy_log, record.data(), record.size(), &outcome);
        return static_cast<log_outcome>(outcome);
    }

    /// Logs an important record: waits for room under every policy, and sends it after the queued
    /// ones.
    log_outcome log_wait(bytes_view record, timeout time = forever) {
        std::int32_t outcome = PARTYWALL_LOG_DROPPED_CLOSED;
        run(partywall_lossy_log_wait, record.data(), record.size(), &outcome, time);
        return static_cast<log_outcome>(outcome);
    }
    log_outcome log_wait(bytes_view record, timeout time, error_code &code) noexcept {
        std::int32_t outcome = PARTYWALL_LOG_DROPPED_CLOSED;
        run(code, partywall_lossy_log_wait, record.data(), record.size(), &outcome, time);
        return static_cast<log_outcome>(outcome);
    }

    /// Sends the queued records and the count of losses. errc::full: with no_wait, records stay
    /// queued. errc::finished, errc::disconnected: the receiver is gone, and the queue is lost.
    void flush(timeout time = forever) { run(partywall_lossy_flush, time); }
    void flush(timeout time, error_code &code) noexcept { run(code, partywall_lossy_flush, time); }

    lossy_stats stats() const {
        lossy_stats found{};
        detail::check(partywall_lossy_sender_stats(get(), &found, sizeof found));
        return found;
    }
    /// Whether the receiver is gone, so that every record is dropped: connect anew.
    bool is_closed() const {
        std::int32_t result = 0;
        detail::check(partywall_lossy_sender_is_closed(get(), &result));
        return result != 0;
    }
};

/// A received record, and how many were lost before it. Its bytes are valid until the next
/// receiving call of its receiver.
struct record_view {
    bytes_view bytes;
    std::uint64_t lost_before = 0;
};

/// A received record of its own.
struct record {
    partywall::message message;
    std::uint64_t lost_before = 0;
};

/// How many records a receiver has received, and how many the sender has reported lost.
struct record_counts {
    std::uint64_t received = 0, lost = 0;
};

/// Receives records from the receiving direction of a channel. Destroying it ends that direction.
class lossy_receiver
    : public detail::handle<partywall_lossy_receiver, partywall_lossy_receiver_free> {
public:
    lossy_receiver() = default;
    /// Takes the receiving direction of `from`, which is in no loop and keeps the other direction.
    explicit lossy_receiver(channel &from) {
        detail::call(partywall_lossy_receiver_new, from.get(), out());
    }
    lossy_receiver(channel &from, error_code &code) noexcept {
        detail::call(code, partywall_lossy_receiver_new, from.get(), out());
    }

    /// Receives the next record without a copy; no value once the sender has ended.
    /// errc::not_a_record: the message counts as received, and the next one can be received.
    std::optional<record_view> recv_view(timeout time = forever) {
        const void *data = nullptr;
        std::size_t size = 0;
        std::uint64_t lost = 0;
        if (!detail::found(partywall_lossy_recv_view, get(), &data, &size, &lost, time)) {
            return std::nullopt;
        }
        return record_view{{data, size}, lost};
    }
    /// As above; the end of the sender is errc::finished.
    record_view recv_view(timeout time, error_code &code) noexcept {
        const void *data = nullptr;
        std::size_t size = 0;
        std::uint64_t lost = 0;
        run(code, partywall_lossy_recv_view, &data, &size, &lost, time);
        return {{data, size}, lost};
    }

    /// Receives the next record as an object of its own.
    std::optional<record> recv(timeout time = forever) {
        partywall_message *object = nullptr;
        std::uint64_t lost = 0;
        if (!detail::found(partywall_lossy_recv, get(), &object, &lost, time)) return std::nullopt;
        return record{message(object), lost};
    }
    record recv(timeout time, error_code &code) noexcept {
        partywall_message *object = nullptr;
        std::uint64_t lost = 0;
        run(code, partywall_lossy_recv, &object, &lost, time);
        return {code ? message() : message(object), lost};
    }

    record_counts counts() const {
        record_counts found;
        detail::check(partywall_lossy_receiver_counts(get(), &found.received, &found.lost));
        return found;
    }
};

} // namespace partywall

#endif
