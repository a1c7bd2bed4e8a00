// SPDX-License-Identifier: MIT OR Apache-2.0
// partywall/calls.hpp: calls and answers over one stream of a session, for C++17 and later.
//
//   calls_client   makes calls; a `call` is a call that was sent, and waits for its answer
//   calls_server   receives requests, which are answered in any order
//
// Any number of threads may use one client or one server; neither has a thread of its own. Calls in
// flight end with their stream. As in partywall.hpp, each operation has an overload that throws and
// one that takes a std::error_code.
#ifndef PARTYWALL_CALLS_HPP
#define PARTYWALL_CALLS_HPP

#include <partywall.hpp>

namespace partywall {

/// The exception of the overloads that throw, if the handler of a call has failed.
/// application_code() is the code that the handler gave.
class call_error : public error {
public:
    call_error(error why, message detail)
        : error(std::move(why)), detail_(std::make_shared<message>(std::move(detail))) {}

    /// The detail that the handler gave, valid as long as the exception.
    bytes_view detail() const noexcept { return *detail_; }

private:
    std::shared_ptr<const message> detail_; // shared, so that copying the exception throws nothing
};

namespace detail {

/// Calls a function of the C interface that waits for the answer of a call, and returns the answer.
template <class Function, class... Before>
message answer_of(timeout time, Function *function, Before... before) {
    failure why;
    partywall_message *object = nullptr;
    const auto status = status_of(why.out(), function, before..., &object, time);
    if (status == PARTYWALL_OK) return message(object);
    if (status == PARTYWALL_CALL_FAILED) throw call_error(why.take(status), message(object));
    why.raise(status);
}

/// Calls a function of the C interface that waits for the answer of a call. After errc::call_failed
/// it returns the handler's detail, and writes the handler's code unless `failure_code` is null.
template <class Function, class... Before>
message answer_of(timeout time, error_code &code, std::uint32_t *failure_code, Function *function,
                  Before... before) noexcept {
    partywall_error *why = nullptr;
    partywall_message *object = nullptr;
    partywall_error **const place = failure_code == nullptr ? nullptr : &why;
    note(status_of(place, function, before..., &object, time), code);
    if (failure_code != nullptr) {
        *failure_code = partywall_error_application_code(why);
        partywall_error_free(why);
    }
    return object == nullptr ? message() : message(object);
}

} // namespace detail

/// A call that was sent. Destroying it cancels the call, if that has no answer yet.
class call : public detail::handle<partywall_call, partywall_call_free> {
public:
    /// Waits for the call's answer. errc::timed_out: the call is still in flight, unless its own
    /// timeout has passed.
    message wait(timeout time = forever) {
        return detail::answer_of(time, partywall_call_wait, get());
    }
    message wait(timeout time, error_code &code, std::uint32_t *failure_code = nullptr) noexcept {
        return detail::answer_of(time, code, failure_code, partywall_call_wait, get());
    }
};

/// A client of calls: makes calls over a stream. Destroying it, and its calls, ends the stream in
/// good order.
class calls_client
    : public detail::handle<partywall_calls_client, partywall_calls_client_free> {
public:
    calls_client() = default;
    /// Takes over `from`, a stream of a session that is in no loop. The setting in_flight_max of
    /// `with` bounds the calls that have no answer.
    explicit calls_client(stream &&from, const config &with = {}) {
        detail::call(partywall_calls_client_new, from.get(), with.get(), out());
        from.release(); // the call has freed it
    }
    calls_client(stream &&from, const config &with, error_code &code) noexcept {
        detail::call(code, partywall_calls_client_new, from.get(), with.get(), out());
        if (!code) from.release();
    }

    /// Makes a call, and waits for its answer. The timeout is sent to the server; errc::timed_out
    /// cancels the call. errc::call_failed: the handler has failed; call_error has its code and
    /// detail. errc::call_refused: the server has too many calls. errc::call_aborted: the server
    /// gave up the call.
    message call(bytes_view payload, timeout time = forever) {
        return detail::answer_of(time, partywall_calls_client_call, get(), payload.data(),
                                 payload.size());
    }
    /// Makes a call, waits for its answer, and sets `code` instead of throwing. After
    /// errc::call_failed it returns the handler's detail.
    message call(bytes_view payload, timeout time, error_code &code,
                 std::uint32_t *failure_code = nullptr) noexcept {
        return detail::answer_of(time, code, failure_code, partywall_calls_client_call, get(),
                                 payload.data(), payload.size());
    }

    /// Makes a call to which the server sends no answer. It returns when the stream has taken the
    /// call.
    void call_one_way(bytes_view payload, timeout time = forever) {
        run(partywall_calls_client_call_one_way, payload.data(), payload.size(), time);
    }
    void call_one_way(bytes_view payload, timeout time, error_code &code) noexcept {
        run(code, partywall_calls_client_call_one_way, payload.data(), payload.size(), time);
    }

    /// Sends a call without waiting for its answer. The timeout is that of the whole call, with its
    /// answer.
    partywall::call begin(bytes_view payload, timeout time = forever) {
        return make_within<partywall::call>(time, partywall_calls_client_begin, get(),
                                            payload.data(), payload.size());
    }
    partywall::call begin(bytes_view payload, timeout time, error_code &code) noexcept {
        return make_within<partywall::call>(time, code, partywall_calls_client_begin, get(),
                                            payload.data(), payload.size());
    }
};

/// The request of a call that a server has received. If it is destroyed without an answer, the
/// client's call fails with errc::call_aborted.
class request : public detail::received<partywall_request, partywall_request_free,
                                        partywall_request_data> {
public:
    request() = default;
    /// Takes over a request that a function of partywall.h has made.
    explicit request(partywall_request *object) noexcept : received(object) {}

    /// How long the client still waits for the answer; no value if the call has no timeout.
    std::optional<std::chrono::nanoseconds> time_left() const noexcept {
        std::int64_t ns = -1;
        partywall_request_time_left(get(), &ns);
        if (ns < 0) return std::nullopt;
        return std::chrono::nanoseconds(ns);
    }
    /// Whether the client expects no answer to the call.
    bool is_one_way() const noexcept {
        std::int32_t result = 0;
        partywall_request_is_one_way(get(), &result);
        return result != 0;
    }
    /// Whether nobody waits for the answer: the call was cancelled, its timeout has passed, or the
    /// client is gone.
    bool is_cancelled() const noexcept {
        std::int32_t result = 0;
        partywall_request_is_cancelled(get(), &result);
        return result != 0;
    }

    /// Sends the answer of the call. The object is empty then, even if that fails; only with an
    /// invalid timeout it keeps the request. The bytes of the answer must not be those of the
    /// request.
    void answer(bytes_view payload, timeout time = forever) {
        detail::call(partywall_request_answer, time.is_valid() ? release() : nullptr,
                     payload.data(), payload.size(), time);
    }
    void answer(bytes_view payload, timeout time, error_code &code) noexcept {
        detail::call(code, partywall_request_answer, time.is_valid() ? release() : nullptr,
                     payload.data(), payload.size(), time);
    }

    /// Makes the call fail with `number`, which is below 0xffffff00, and a detail. The object is
    /// empty then, as after answer().
    void fail(std::uint32_t number, bytes_view detail = {}, timeout time = forever) {
        detail::call(partywall_request_fail, time.is_valid() ? release() : nullptr, number,
                     detail.data(), detail.size(), time);
    }
    void fail(std::uint32_t number, bytes_view detail, timeout time, error_code &code) noexcept {
        detail::call(code, partywall_request_fail, time.is_valid() ? release() : nullptr, number,
                     detail.data(), detail.size(), time);
    }
};

/// A server of calls: receives calls over a stream. Its requests can still be answered when it is
/// gone.
class calls_server
    : public detail::handle<partywall_calls_server, partywall_calls_server_free> {
public:
    calls_server() = default;
    /// Takes over `from`, a stream of a session that is in no loop. The setting waiting_max of
    /// `with` bounds the calls that wait to be received; the server refuses further calls.
    explicit calls_server(stream &&from, const config &with = {}) {
        detail::call(partywall_calls_server_new, from.get(), with.get(), out());
        from.release(); // the call has freed it
    }
    calls_server(stream &&from, const config &with, error_code &code) noexcept {
        detail::call(code, partywall_calls_server_new, from.get(), with.get(), out());
        if (!code) from.release();
    }

    /// Returns the request of the client's next call; no value once the client has finished and
    /// every call is answered.
    std::optional<request> recv(timeout time = forever) {
        partywall_request *object = nullptr;
        if (!detail::found(partywall_calls_server_recv, get(), &object, time)) return std::nullopt;
        return request(object);
    }
    /// Returns the request of the client's next call. errc::finished: the client has finished and
    /// every call is answered.
    request recv(timeout time, error_code &code) noexcept {
        partywall_request *object = nullptr;
        detail::call(code, partywall_calls_server_recv, get(), &object, time);
        return code ? request() : request(object);
    }
};

} // namespace partywall

#endif
