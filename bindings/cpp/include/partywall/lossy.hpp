// SPDX-License-Identifier: MIT OR Apache-2.0
// partywall/lossy.hpp: senders and receivers of records that may be lost, such as logs, traces and
// samples, for C++17 and later. A sender never waits for its receiver unless a setting says so.
//
//   lossy_sender     logs records of any number of threads; drops and counts a record without room
//   lossy_receiver   receives records, and learns how many were lost before each
//
// The settings are keys of a config: on_full, on_full_block_ns, queue_records, queue_bytes and
// flush_on_drop_ns; partywall.h lists them. As in partywall.hpp, each operation has an overload
// that throws and one that takes a std::error_code.
#ifndef PARTYWALL_LOSSY_HPP
#define PARTYWALL_LOSSY_HPP

#include <partywall.hpp>

namespace partywall {

/// What became of a record that was logged.
enum class log_outcome : std::int32_t {
    sent = PARTYWALL_LOG_SENT,
    queued = PARTYWALL_LOG_QUEUED,
    dropped_full = PARTYWALL_LOG_DROPPED_FULL,
    dropped_too_long = PARTYWALL_LOG_DROPPED_TOO_LONG,
    dropped_closed = PARTYWALL_LOG_DROPPED_CLOSED,
};

using lossy_stats = partywall_lossy_stats; ///< Counters of a sender; partywall.h explains them.

/// Logs records that may be lost over the sending direction of a channel. Destroying it sends the
/// records in its queue, and waits for that at most flush_on_drop_ns.
class lossy_sender : public detail::handle<partywall_lossy_sender, partywall_lossy_sender_free> {
public:
    lossy_sender() = default;
    /// Takes the sending direction of `from`, a channel in no loop, which keeps its receiving
    /// direction.
    explicit lossy_sender(channel &from, const config &with = {}) {
        detail::call(partywall_lossy_sender_new, from.get(), with.get(), out());
    }
    lossy_sender(channel &from, const config &with, error_code &code) noexcept {
        detail::call(code, partywall_lossy_sender_new, from.get(), with.get(), out());
    }

    /// Logs a record, and returns what became of it. Waits only if the setting on_full is
    /// PARTYWALL_ON_FULL_BLOCK.
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

    /// Logs an important record: waits for room under every policy, and sends the record after
    /// those in the queue.
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

    /// Sends the records in the queue and the count of lost records. errc::full: with no_wait,
    /// records stay in the queue. errc::finished, errc::disconnected: the receiver is gone, and the
    /// records in the queue are lost.
    void flush(timeout time = forever) { run(partywall_lossy_flush, time); }
    void flush(timeout time, error_code &code) noexcept { run(code, partywall_lossy_flush, time); }

    lossy_stats stats() const {
        lossy_stats found{};
        detail::check(partywall_lossy_sender_stats(get(), &found, sizeof found));
        return found;
    }
    /// Whether the receiver is gone, so that the sender drops every record. If so, connect anew.
    bool is_closed() const {
        std::int32_t result = 0;
        detail::check(partywall_lossy_sender_is_closed(get(), &result));
        return result != 0;
    }
};

/// A view of a received record, and how many records were lost before it. The bytes are valid until
/// the next receiving call of the receiver.
struct record_view {
    bytes_view bytes;
    std::uint64_t lost_before = 0;
};

/// A received record that the program owns, and how many records were lost before it.
struct record {
    partywall::message message;
    std::uint64_t lost_before = 0;
};

/// How many records a receiver has received, and how many the sender has reported as lost.
struct record_counts {
    std::uint64_t received = 0, lost = 0;
};

/// Receives records that may be lost from the receiving direction of a channel. Destroying it ends
/// that direction.
class lossy_receiver
    : public detail::handle<partywall_lossy_receiver, partywall_lossy_receiver_free> {
public:
    lossy_receiver() = default;
    /// Takes the receiving direction of `from`, a channel in no loop, which keeps its sending
    /// direction.
    explicit lossy_receiver(channel &from) {
        detail::call(partywall_lossy_receiver_new, from.get(), out());
    }
    lossy_receiver(channel &from, error_code &code) noexcept {
        detail::call(code, partywall_lossy_receiver_new, from.get(), out());
    }

    /// Receives the next record without a copy; no value once the sender has ended.
    /// errc::not_a_record: the peer sent a message that is no record. It counts as received, and
    /// the next call receives what follows.
    std::optional<record_view> recv_view(timeout time = forever) {
        const void *data = nullptr;
        std::size_t size = 0;
        std::uint64_t lost = 0;
        if (!detail::found(partywall_lossy_recv_view, get(), &data, &size, &lost, time)) {
            return std::nullopt;
        }
        return record_view{{data, size}, lost};
    }
    /// Receives the next record without a copy. errc::finished: the sender has ended.
    record_view recv_view(timeout time, error_code &code) noexcept {
        const void *data = nullptr;
        std::size_t size = 0;
        std::uint64_t lost = 0;
        run(code, partywall_lossy_recv_view, &data, &size, &lost, time);
        return {{data, size}, lost};
    }

    /// Receives the next record as an object that the program owns; no value once the sender has
    /// ended.
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
