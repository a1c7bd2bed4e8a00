// SPDX-License-Identifier: MIT OR Apache-2.0
// partywall.hpp: messages between two Linux processes through shared memory, for C++17 and later.
//
// This header wraps the C interface of partywall.h, which has the details of each call.
//
//   errc, category   the numbers of SPEC.md, section 17, comparable with std::errc
//   error            the exception; what() is the whole text of the library, with its advice
//   bytes_view       bytes to send or received ones; from and to std::span, texts and containers
//   channel          one pipe of messages in each direction: listener, message, reservation
//   stream           one of many pipes of a connection: session, session_listener
//   link             a stream that outlives processes: link_client, link_server, link_message
//   loop             one wait for many objects
//
// partywall/calls.hpp has calls over a stream, and partywall/lossy.hpp records that may be lost.
//
// An object owns the channel, stream and so on that it stands for. It is moved, not copied, and
// frees what it owns when it is destroyed; only configurations are copied. A moved-from object may
// only be destroyed or assigned to, and its calls fail with errc::argument. Each operation that can
// fail has two overloads: one throws partywall::error, the other takes a std::error_code as its last
// argument, throws nothing, and clears the code on success. Setters of configurations throw.
//
// Threads. One thread may send on a channel or stream while another receives from it. Any number
// may use a session, link, link_client, link_server or link_group. Every other object takes one
// call at a time. No object may be moved or destroyed while another thread uses it.
#ifndef PARTYWALL_HPP
#define PARTYWALL_HPP

#include <partywall.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#ifdef __cpp_lib_span
#include <span>
#endif

namespace partywall {

using std::error_code;

/// The numbers of failures that programs compare with; SPEC.md, section 17, lists all others. Each
/// number has a message(); what() of the exception `error` says more.
enum class errc : std::int32_t {
    forked = PARTYWALL_FORKED,
    system = PARTYWALL_SYSTEM,
    timed_out = PARTYWALL_TIMED_OUT,
    full = PARTYWALL_FULL,
    empty = PARTYWALL_EMPTY,
    would_block = PARTYWALL_WOULD_BLOCK,
    busy = PARTYWALL_BUSY,
    finished = PARTYWALL_FINISHED,
    disconnected = PARTYWALL_DISCONNECTED,
    message_too_long = PARTYWALL_MESSAGE_TOO_LONG,
    setting = PARTYWALL_SETTING,
    foreign_reservation = PARTYWALL_FOREIGN_RESERVATION,
    handshake_timed_out = 201,
    handshake_hang_up = 202,
    refused_by_peer = PARTYWALL_REFUSED_BY_THE_PEER,
    not_admitted = PARTYWALL_NOT_ADMITTED,
    address_syntax = PARTYWALL_ADDRESS_SYNTAX,
    not_loopback = 304,
    anonymous_clients = 305,
    address_in_use = PARTYWALL_ADDRESS_IN_USE,
    listening_denied = 314,
    no_directory = 315,
    connecting_timed_out = 331,
    no_socket = PARTYWALL_NO_SOCKET,
    no_listener = PARTYWALL_NO_LISTENER,
    connecting_denied = PARTYWALL_CONNECTING_DENIED,
    session_closed_here = 401,
    going_away = 403,
    no_streams = 404,
    metadata_too_long = 405,
    stream_stopped = PARTYWALL_STREAM_STOPPED,
    stream_reset = PARTYWALL_STREAM_RESET,
    finished_here = PARTYWALL_FINISHED_HERE,
    stopped_here = PARTYWALL_STOPPED_HERE,
    session_closed = PARTYWALL_SESSION_CLOSED_BY_THE_PEER,
    link_closed = 501,
    fenced = 502,
    quarantined = 503,
    acknowledged_before = 504,
    message_stale = 505,
    link_in_use = 507,
    too_many_links = 508,
    name_empty = 511,
    name_too_long = 512,
    directory_not_opened = 521,
    link_busy = PARTYWALL_LINK_BUSY,
    file_of_another_boot = 533,
    not_a_record = PARTYWALL_NOT_A_RECORD,
    call_failed = PARTYWALL_CALL_FAILED,
    call_refused = PARTYWALL_CALL_REFUSED,
    call_aborted = PARTYWALL_CALL_ABORTED,
    argument = PARTYWALL_ARGUMENT,
    handle = PARTYWALL_HANDLE,
    panic = PARTYWALL_PANIC,
    buffer_too_short = PARTYWALL_BUFFER_TOO_SHORT,
    handles_exhausted = PARTYWALL_HANDLES_EXHAUSTED,
};

namespace detail {

class category_type final : public std::error_category {
public:
    const char *name() const noexcept override { return "partywall"; }

    std::string message(int value) const override { return partywall_status_text(value); }

    std::error_condition default_error_condition(int value) const noexcept override {
        switch (static_cast<errc>(value)) {
        case errc::timed_out: return std::errc::timed_out;
        case errc::full:
        case errc::empty:
        case errc::would_block: return std::errc::operation_would_block;
        case errc::busy: return std::errc::device_or_resource_busy;
        case errc::stream_stopped: return std::errc::broken_pipe;
        case errc::stream_reset:
        case errc::disconnected: return std::errc::connection_reset;
        case errc::address_in_use: return std::errc::address_in_use;
        case errc::handshake_timed_out:
        case errc::connecting_timed_out: return std::errc::timed_out;
        case errc::listening_denied:
        case errc::connecting_denied: return std::errc::permission_denied;
        case errc::message_too_long: return std::errc::message_size;
        case errc::setting:
        case errc::argument: return std::errc::invalid_argument;
        case errc::no_socket: return std::errc::no_such_file_or_directory;
        case errc::no_listener: return std::errc::connection_refused;
        case errc::buffer_too_short: return std::errc::no_buffer_space;
        default: return std::error_condition(value, *this);
        }
    }
};

} // namespace detail

/// The category of every std::error_code of this library.
inline const std::error_category &category() noexcept {
    static const detail::category_type instance;
    return instance;
}

/// The std::error_code of a number; a type of its own, so that Boost's codes compare with it, too.
class errc_code : public std::error_code {
public:
    explicit errc_code(errc value) noexcept
        : std::error_code(static_cast<int>(value), partywall::category()) {}
};

inline errc_code make_error_code(errc value) noexcept { return errc_code(value); }

/// The exception of the overloads that throw: what() says what to do, code() has the number.
class error : public std::system_error {
public:
    error(std::error_code code, std::string text, std::uint32_t application_code = 0,
          int os_error = 0)
        : std::system_error(code),
          text_(std::make_shared<std::string>(text.empty() ? code.message() : std::move(text))),
          application_code_(application_code), os_error_(os_error) {}

    const char *what() const noexcept override { return text_->c_str(); }

    /// The code that the peer's application gave to end a stream or session, or 0.
    std::uint32_t application_code() const noexcept { return application_code_; }
    /// The errno of the system call that failed, or 0.
    int os_error() const noexcept { return os_error_; }

private:
    // The text is shared, so that copying the exception throws nothing.
    std::shared_ptr<const std::string> text_;
    std::uint32_t application_code_;
    int os_error_;
};

/// How long an operation waits: any std::chrono duration, `no_wait` or `forever`. A duration that
/// is negative or not a number makes the operation fail with errc::argument.
class timeout {
public:
    template <class Rep, class Period>
    constexpr timeout(std::chrono::duration<Rep, Period> time) noexcept
        : ns_(checked(std::chrono::duration<double, std::nano>(time).count())) {}

    /// A timeout that ends at the time point `when`; it is no_wait if `when` has passed.
    template <class Clock, class Duration>
    static timeout until(std::chrono::time_point<Clock, Duration> when) noexcept {
        const auto left = when - Clock::now();
        return left.count() > 0 ? timeout(left) : zero();
    }
    static constexpr timeout zero() noexcept { return timeout(std::int64_t(0)); }
    static constexpr timeout unlimited() noexcept { return timeout(std::int64_t(-1)); }

    constexpr bool is_valid() const noexcept { return ns_ >= -1; }
    /// The timeout in nanoseconds: -1 without a limit, less if the duration is not valid.
    constexpr std::int64_t count() const noexcept { return ns_; }

private:
    explicit constexpr timeout(std::int64_t ns) noexcept : ns_(ns) {}
    // More than a hundred years count as no limit, and a part of a nanosecond as a whole one.
    static constexpr std::int64_t checked(double ns) noexcept {
        if (!(ns >= 0)) return INT64_MIN; // also if it is not a number
        if (ns >= 3.2e18) return -1;
        return ns > 0 && ns < 1 ? 1 : static_cast<std::int64_t>(ns);
    }

    std::int64_t ns_;
};

inline constexpr timeout no_wait = timeout::zero();
inline constexpr timeout forever = timeout::unlimited();

namespace detail {

/// The place to which a function of the C interface writes its error object, if the call fails.
class failure {
public:
    failure() = default;
    failure(const failure &) = delete;
    failure &operator=(const failure &) = delete;

    partywall_error **out() noexcept { return &error_; }

    /// Returns the exception for `status`, and frees the error object of the C interface.
    error take(std::int32_t status) {
        const std::unique_ptr<partywall_error, decltype(&partywall_error_free)> owned(
            std::exchange(error_, nullptr), partywall_error_free);
        const error_code code(static_cast<int>(status), category());
        if (owned.get() == nullptr) return error(code, "");
        return error(code, partywall_error_message(owned.get()),
                     partywall_error_application_code(owned.get()),
                     partywall_error_errno(owned.get()));
    }
    /// Returns the exception for the error object of the C interface, and frees that object; no
    /// value if the call has made none.
    std::optional<error> take() {
        if (error_ == nullptr) return std::nullopt;
        return take(partywall_error_code(error_));
    }
    [[noreturn]] void raise(std::int32_t status) { throw take(status); }

private:
    partywall_error *error_ = nullptr;
};

constexpr bool is_valid(timeout time) noexcept { return time.is_valid(); }
template <class T> constexpr bool is_valid(const T &) noexcept { return true; }
constexpr std::int64_t plain(timeout time) noexcept { return time.count(); }
template <class T> constexpr T plain(T value) noexcept { return value; }

/// Calls a function of the C interface, whose last argument is the place for an error object.
template <class... Parameters, class... Arguments>
std::int32_t status_of(partywall_error **why, std::int32_t (*function)(Parameters...),
                       Arguments... arguments) noexcept {
    if (!(is_valid(arguments) && ...)) return PARTYWALL_ARGUMENT;
    return function(plain(arguments)..., why);
}

template <class Function, class... Arguments>
void call(Function *function, Arguments... arguments) {
    failure why;
    const std::int32_t status = status_of(why.out(), function, arguments...);
    if (status != PARTYWALL_OK) why.raise(status);
}

/// Calls a function of the C interface, and throws if it fails. Returns false after
/// PARTYWALL_FINISHED, when the function has written no result, and otherwise true.
template <class Function, class... Arguments>
bool found(Function *function, Arguments... arguments) {
    failure why;
    const std::int32_t status = status_of(why.out(), function, arguments...);
    if (status != PARTYWALL_OK && status != PARTYWALL_FINISHED) why.raise(status);
    return status == PARTYWALL_OK;
}

/// Throws the exception for a status that is not PARTYWALL_OK.
inline void check(std::int32_t status) {
    if (status != PARTYWALL_OK) failure().raise(status);
}

/// Sets `code` to the number of a status; clears it for PARTYWALL_OK.
inline std::int32_t note(std::int32_t status, error_code &code) noexcept {
    if (status == PARTYWALL_OK) code.clear();
    else code.assign(static_cast<int>(status), category());
    return status;
}

/// Calls a function of the C interface, and sets `code` to its status.
template <class Function, class... Arguments>
std::int32_t call(error_code &code, Function *function, Arguments... arguments) noexcept {
    return note(status_of(nullptr, function, arguments...), code);
}

/// Calls a function of the C interface that waits for an object's end; returns the end's reason.
template <class Function, class Object>
error reason_of(Function *function, Object *object, timeout time) {
    failure cause;
    std::int32_t reason = 0;
    call(function, object, &reason, cause.out(), time);
    return cause.take(reason);
}
template <class Function, class Object>
error reason_of(error_code &code, Function *function, Object *object, timeout time) {
    failure cause;
    std::int32_t reason = 0;
    const auto status = call(code, function, object, &reason, cause.out(), time);
    return cause.take(status == PARTYWALL_OK ? reason : status);
}

/// The base of all objects: each owns one object of the C interface, and frees it.
template <class T, std::int32_t (*Free)(T *)> class handle {
public:
    handle() = default;
    explicit handle(T *object) noexcept : object_(object) {}
    handle(handle &&other) noexcept : object_(other.release()) {}
    handle &operator=(handle &&other) noexcept {
        if (this != &other) *out() = other.release();
        return *this;
    }
    ~handle() { out(); }

    explicit operator bool() const noexcept { return object_ != nullptr; }
    T *get() const noexcept { return object_; }
    /// Gives up the object of the C interface, which the caller then has to free.
    T *release() noexcept { return std::exchange(object_, nullptr); }

protected:
    template <class U, std::int32_t (*F)(U *)> friend class handle;

    /// Frees the object of the C interface, and returns the place for another one.
    T **out() noexcept {
        if (object_ != nullptr) Free(std::exchange(object_, nullptr));
        return &object_;
    }

    /// Calls a function of the C interface with this object as its first argument.
    template <class Function, class... Arguments>
    void run(Function *function, Arguments... arguments) const {
        call(function, get(), arguments...);
    }
    template <class Function, class... Arguments>
    void run(error_code &code, Function *function, Arguments... arguments) const noexcept {
        call(code, function, get(), arguments...);
    }

    /// Calls a function of the C interface that makes an object, and returns the object. The place
    /// for its handle follows the arguments `before`.
    template <class Made, class Function, class... Before>
    static Made make(Function *function, Before... before) {
        Made made;
        call(function, before..., made.out());
        return made;
    }
    template <class Made, class Function, class... Before>
    static Made make(error_code &code, Function *function, Before... before) noexcept {
        Made made;
        call(code, function, before..., made.out());
        return made;
    }
    template <class Made, class Function, class... Before>
    static Made make_within(timeout time, Function *function, Before... before) {
        Made made;
        call(function, before..., made.out(), time);
        return made;
    }
    template <class Made, class Function, class... Before>
    static Made make_within(timeout time, error_code &code, Function *function,
                            Before... before) noexcept {
        Made made;
        call(code, function, before..., made.out(), time);
        return made;
    }

private:
    T *object_ = nullptr;
};

/// Returns a text that a function of the C interface copies into a buffer that grows with it.
template <class Function, class Object>
std::string text_of(Function *function, Object *object) {
    std::string text(128, '\0');
    for (;;) {
        std::size_t size = 0;
        failure why;
        const auto status = function(object, text.data(), text.size(), &size, why.out());
        text.resize(size);
        if (status == PARTYWALL_OK) return text;
        if (status != PARTYWALL_BUFFER_TOO_SHORT) why.raise(status);
    }
}

} // namespace detail

/// Bytes that another object owns: a message to send, or one that was received.
class bytes_view {
public:
    constexpr bytes_view() noexcept = default;
    bytes_view(const void *data, std::size_t size) noexcept
        : data_(static_cast<const std::byte *>(data)), size_(size) {}
    bytes_view(const char *text) noexcept : bytes_view(text, std::strlen(text)) {}

    /// A view of the elements of a string, std::vector, std::array, std::span or similar, whose
    /// type can be copied byte by byte.
    template <class Container, class Element = std::remove_pointer_t<
                                   decltype(std::declval<const Container &>().data())>,
              class = decltype(std::declval<const Container &>().size()),
              class = std::enable_if_t<std::is_trivially_copyable_v<std::remove_cv_t<Element>> &&
                                       !std::is_same_v<Container, bytes_view>>>
    bytes_view(const Container &container) noexcept
        : bytes_view(container.data(), container.size() * sizeof(Element)) {}

    const std::byte *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }
    const std::byte *begin() const noexcept { return data_; }
    const std::byte *end() const noexcept { return data_ + size_; }
    std::byte operator[](std::size_t index) const noexcept { return data_[index]; }

    /// The bytes as text. They are not checked.
    std::string_view text() const noexcept {
        return {reinterpret_cast<const char *>(data_), size_};
    }

#ifdef __cpp_lib_span
    operator std::span<const std::byte>() const noexcept { return {data_, size_}; }
#endif

private:
    const std::byte *data_ = nullptr;
    std::size_t size_ = 0;
};

/// Returns a pointer to the value that `bytes` holds, without a copy; nullptr if their size or
/// alignment is not that of `T`. The bytes of a short `message` may have any alignment. The peer
/// chooses the bytes, so `T` must have no pointers and accept every pattern of bits.
template <class T> const T *view_as(bytes_view bytes) noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "a view needs a type that is only its bytes");
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    if (bytes.size() != sizeof(T) || address % alignof(T) != 0) return nullptr;
    return reinterpret_cast<const T *>(bytes.data());
}

/// Returns a copy of the value that `bytes` holds, at any alignment; no value if their size is not
/// that of `T`. The peer chooses the bytes, so `T` must have no pointers and accept every pattern
/// of bits.
template <class T> std::optional<T> value_as(bytes_view bytes) noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "only a type that is its bytes can be received");
    if (bytes.size() != sizeof(T)) return std::nullopt;
    std::optional<T> value(std::in_place);
    std::memcpy(std::addressof(*value), bytes.data(), sizeof(T));
    return value;
}

enum class transport : std::uint64_t {
    automatic = PARTYWALL_TRANSPORT_AUTO,
    shared_memory = PARTYWALL_TRANSPORT_SHARED_MEMORY,
    socket = PARTYWALL_TRANSPORT_SOCKET,
    protocol = PARTYWALL_TRANSPORT_PROTOCOL, ///< Another protocol has its own; it is no setting.
};

enum class begin_on : std::uint64_t {
    automatic = PARTYWALL_BEGIN_AUTO,
    shared_memory = PARTYWALL_BEGIN_SHARED_MEMORY,
    socket = PARTYWALL_BEGIN_SOCKET,
};

enum class back_pressure : std::uint64_t {
    block = PARTYWALL_BACK_PRESSURE_BLOCK,
    error = PARTYWALL_BACK_PRESSURE_ERROR,
    overflow = PARTYWALL_BACK_PRESSURE_OVERFLOW,
};

enum class trust : std::uint64_t {
    automatic = PARTYWALL_TRUST_AUTO,
    own_user = PARTYWALL_TRUST_OWN_USER,
    trusted = PARTYWALL_TRUST_TRUSTED,
    untrusted = PARTYWALL_TRUST_UNTRUSTED,
};

enum class waiting : std::uint64_t {
    adaptive = PARTYWALL_WAIT_ADAPTIVE,
    spin = PARTYWALL_WAIT_SPIN,
    park = PARTYWALL_WAIT_PARK,
};

enum class delivery : std::uint64_t {
    at_least_once = PARTYWALL_DELIVERY_AT_LEAST_ONCE,
    at_most_once = PARTYWALL_DELIVERY_AT_MOST_ONCE,
};

enum class after_reboot : std::uint64_t {
    refuse = PARTYWALL_AFTER_REBOOT_REFUSE,
    adopt_proven = PARTYWALL_AFTER_REBOOT_ADOPT_PROVEN,
};

namespace detail {

/// The setters that the configurations of channels and sessions, and those of links, have in
/// common.
template <class Config, class Object, auto New, std::int32_t (*Free)(Object *), auto Set, auto Copy>
class settings : public handle<Object, Free> {
public:
    settings() { call(New, this->out()); }
    settings(const settings &other) : handle<Object, Free>() {
        call(Copy, other.get(), this->out());
    }
    settings(settings &&) noexcept = default;
    settings &operator=(const settings &other) { return *this = settings(other); }
    settings &operator=(settings &&) noexcept = default;

    Config &set(const char *key, std::uint64_t value) {
        call(Set, this->get(), key, value);
        return static_cast<Config &>(*this);
    }
    Config &set(const char *key, timeout time) {
        if (!time.is_valid()) throw error(make_error_code(errc::argument), "");
        return set(key, static_cast<std::uint64_t>(time.count())); // without a limit: the greatest
    }
    Config &set(partywall::transport value) { return set("transport", number(value)); }
    Config &set(partywall::waiting value) { return set("wait", number(value)); }
    Config &poll_period(timeout time) { return set("poll_period_ns", time); }
    Config &spin_budget(timeout time) { return set("spin_budget_ns", time); }
    Config &handshake_timeout(timeout time) { return set("handshake_timeout_ns", time); }
    Config &ring_bytes(std::uint64_t bytes) { return set("ring_bytes", bytes); }
    Config &socket_mode(std::uint64_t mode) { return set("socket_mode", mode); }
    Config &allow_remote(bool allows) { return set("allow_remote", allows ? 1 : 0); }

protected:
    template <class Value> static std::uint64_t number(Value value) noexcept {
        return static_cast<std::uint64_t>(value);
    }
};

} // namespace detail

/// Settings of channels and sessions, which can be copied; partywall.h lists the keys of set() and
/// their defaults.
class config : public detail::settings<config, partywall_config, partywall_config_new,
                                       partywall_config_free, partywall_config_set,
                                       partywall_config_copy> {
public:
    using settings::set;
    config &set(partywall::begin_on value) { return set("begin", number(value)); }
    config &set(partywall::back_pressure value) { return set("back_pressure", number(value)); }
    config &set(partywall::trust value) { return set("trust", number(value)); }
    config &memory_max(std::uint64_t bytes) { return set("memory_max", bytes); }
    config &message_max(std::uint64_t bytes) { return set("message_max", bytes); }
    config &stream_window(std::uint64_t bytes) { return set("stream_window", bytes); }
    config &streams_max(std::uint64_t count) { return set("streams_max", count); }
    config &linger(timeout time) { return set("linger_ns", time); }

    /// Makes a listener admit processes of a user, and refuse all processes that no such call
    /// admits.
    config &admit_user(std::uint32_t uid) {
        detail::check(partywall_config_admit_user(get(), uid));
        return *this;
    }
    /// Makes a listener admit processes of a primary group, and refuse all processes that no such
    /// call admits.
    config &admit_group(std::uint32_t gid) {
        detail::check(partywall_config_admit_group(get(), gid));
        return *this;
    }
};

/// What is known of the peer process, and the counters of each direction: structures of
/// partywall.h, which explains their members.
using peer_info = partywall_peer;
using sender_stats = partywall_sender_stats;
using receiver_stats = partywall_receiver_stats;

/// The transport that a connection has now, and the reason why memory is not shared.
struct transport_state {
    partywall::transport kind = transport::automatic;
    std::uint32_t reason = 0; ///< PARTYWALL_REASON_POLICY and so on, or 0.
};

namespace detail {

/// The properties of a connection: its peer, transport and counters. Base of channels and sessions.
template <class Self, class Calls> class connection {
public:
    peer_info peer() const {
        peer_info found{};
        check(Calls::peer(object(), &found, sizeof found));
        return found;
    }
    transport_state transport() const {
        std::int32_t kind = 0;
        transport_state found;
        check(Calls::transport(object(), &kind, &found.reason));
        found.kind = static_cast<partywall::transport>(kind);
        return found;
    }
    /// The counters of the direction in which this end sends. errc::busy: another thread is
    /// sending.
    partywall::sender_stats sender_stats() const {
        partywall::sender_stats found{};
        check(Calls::sender_stats(object(), &found, sizeof found));
        return found;
    }
    /// Descriptions of the peer and the transport for logs.
    std::string peer_text() const { return text_of(Calls::peer_text, object()); }
    std::string transport_text() const { return text_of(Calls::transport_text, object()); }

private:
    auto object() const noexcept { return static_cast<const Self *>(this)->get(); }
};

} // namespace detail

namespace detail {

/// A received object and its bytes: base of messages and requests. After an error, and once it was
/// moved from, the object converts to false and has no bytes.
template <class T, std::int32_t (*Free)(T *), auto Data> class received : public handle<T, Free> {
public:
    received() = default;

    bytes_view bytes() const noexcept { return this->get() != nullptr ? bytes_ : bytes_view(); }
    operator bytes_view() const noexcept { return bytes(); }
    const std::byte *data() const noexcept { return bytes().data(); }
    std::size_t size() const noexcept { return bytes().size(); }
    std::string_view text() const noexcept { return bytes().text(); }

protected:
    explicit received(T *object) noexcept : handle<T, Free>(object) {
        const void *data = nullptr;
        std::size_t size = 0;
        if (object != nullptr) Data(object, &data, &size);
        bytes_ = {data, size};
    }

private:
    bytes_view bytes_;
};

} // namespace detail

/// A received message that the program owns. It stays valid until it is destroyed, in any thread,
/// also after its channel or stream is gone. A long message lies in memory of its sender, which
/// gets the memory back then.
class message : public detail::received<partywall_message, partywall_message_free,
                                        partywall_message_data> {
public:
    message() = default;
    /// Takes over a message that a function of partywall.h has made.
    explicit message(partywall_message *object) noexcept : received(object) {}

    /// Whether the bytes lie in shared memory of their sender; false if they were copied.
    bool is_zero_copy() const noexcept {
        std::int32_t result = 0;
        partywall_message_is_zero_copy(get(), &result);
        return result != 0;
    }
};

namespace detail {
template <class Calls> class pipe;
} // namespace detail

/// Reserved memory for a message, which the program writes in place and then passes to commit().
/// Destroying it frees the memory without sending the message. It is empty, with no bytes, once the
/// message was sent or the object was moved from.
class reservation
    : public detail::handle<partywall_reservation, partywall_reservation_abort> {
public:
    std::byte *data() const noexcept { return *this ? data_ : nullptr; }
    std::size_t size() const noexcept { return *this ? size_ : 0; }
#ifdef __cpp_lib_span
    std::span<std::byte> bytes() const noexcept { return {data(), size()}; }
#endif

    /// Shortens the message to `size` bytes, if it is longer.
    void truncate(std::size_t size) noexcept {
        if (partywall_reservation_truncate(get(), size) == PARTYWALL_OK && size < size_) {
            size_ = size;
        }
    }

private:
    template <class Calls> friend class detail::pipe;
    std::byte *data_ = nullptr;
    std::size_t size_ = 0;
};

namespace detail {

struct channel_calls {
    using object = partywall_channel;
    static constexpr auto release = partywall_channel_free;
    static constexpr auto send = partywall_channel_send;
    static constexpr auto reserve = partywall_channel_reserve;
    static constexpr auto commit = partywall_channel_commit;
    static constexpr auto recv_view = partywall_channel_recv_view;
    static constexpr auto recv_copy = partywall_channel_recv_copy;
    static constexpr auto recv = partywall_channel_recv;
    static constexpr auto peer = partywall_channel_peer;
    static constexpr auto peer_text = partywall_channel_peer_text;
    static constexpr auto transport = partywall_channel_transport;
    static constexpr auto transport_text = partywall_channel_transport_text;
    static constexpr auto sender_stats = partywall_channel_sender_stats;
};

struct stream_calls {
    using object = partywall_stream;
    static constexpr auto release = partywall_stream_free;
    static constexpr auto send = partywall_stream_send;
    static constexpr auto reserve = partywall_stream_reserve;
    static constexpr auto commit = partywall_stream_commit;
    static constexpr auto recv_view = partywall_stream_recv_view;
    static constexpr auto recv_copy = partywall_stream_recv_copy;
    static constexpr auto recv = partywall_stream_recv;
};

struct session_calls {
    static constexpr auto peer = partywall_session_peer;
    static constexpr auto peer_text = partywall_session_peer_text;
    static constexpr auto transport = partywall_session_transport;
    static constexpr auto transport_text = partywall_session_transport_text;
    static constexpr auto sender_stats = partywall_session_sender_stats;
};

/// The operations that channels and streams have in common: messages in both directions.
template <class Calls> class pipe : public handle<typename Calls::object, Calls::release> {
public:
    using object = typename Calls::object;
    using handle<object, Calls::release>::get;

    /// Sends a copy of the bytes as one message.
    void send(bytes_view bytes, timeout time = forever) {
        call(Calls::send, get(), bytes.data(), bytes.size(), time);
    }
    void send(bytes_view bytes, timeout time, error_code &code) noexcept {
        call(code, Calls::send, get(), bytes.data(), bytes.size(), time);
    }

    /// Sends a copy of a value as one message. The type must be nothing but its bytes; the peer
    /// reads it with view_as.
    template <class T> void send_value(const T &value, timeout time = forever) {
        static_assert(std::is_trivially_copyable_v<T>, "only a type that is its bytes can be sent");
        send(bytes_view(std::addressof(value), sizeof value), time);
    }
    template <class T>
    void send_value(const T &value, timeout time, error_code &code) noexcept {
        static_assert(std::is_trivially_copyable_v<T>, "only a type that is its bytes can be sent");
        send(bytes_view(std::addressof(value), sizeof value), time, code);
    }

    /// Reserves memory for a message of `size` bytes.
    reservation reserve(std::size_t size, timeout time = forever) {
        reservation made;
        void *data = nullptr;
        call(Calls::reserve, get(), size, &data, made.out(), time);
        made.data_ = static_cast<std::byte *>(data);
        made.size_ = size;
        return made;
    }
    reservation reserve(std::size_t size, timeout time, error_code &code) noexcept {
        reservation made;
        void *data = nullptr;
        if (call(code, Calls::reserve, get(), size, &data, made.out(), time) == PARTYWALL_OK) {
            made.data_ = static_cast<std::byte *>(data);
            made.size_ = size;
        }
        return made;
    }

    /// Sends the message in `reserved`. If that fails and a later commit can succeed, as after
    /// errc::full, `reserved` keeps the memory; otherwise it is empty.
    void commit(reservation &reserved, timeout time = forever) {
        failure why;
        const auto status = commit_from(reserved, time, why.out());
        if (status != PARTYWALL_OK) why.raise(status);
    }
    void commit(reservation &&reserved, timeout time = forever) { commit(reserved, time); }
    void commit(reservation &reserved, timeout time, error_code &code) noexcept {
        note(commit_from(reserved, time, nullptr), code);
    }

    /// Receives the next message without a copy. The bytes are valid until the next receiving call,
    /// keep() included, or the end of this object. Returns no value once the peer has ended its
    /// sending and every message was received.
    std::optional<bytes_view> recv_view(timeout time = forever) {
        const void *data = nullptr;
        std::size_t size = 0;
        if (!found(Calls::recv_view, get(), &data, &size, time)) return std::nullopt;
        return bytes_view(data, size);
    }
    /// Receives the next message without a copy, and sets `code` instead of throwing. The end of
    /// the peer's sending is errc::finished.
    bytes_view recv_view(timeout time, error_code &code) noexcept {
        const void *data = nullptr;
        std::size_t size = 0;
        call(code, Calls::recv_view, get(), &data, &size, time);
        return {data, size};
    }

    /// Receives a copy of the next message, and returns its length; no value after the end of the
    /// peer's sending. After errc::buffer_too_short the next receiving call returns the same
    /// message.
    std::optional<std::size_t> recv_copy(void *buffer, std::size_t capacity,
                                         timeout time = forever) {
        std::size_t size = 0;
        if (!found(Calls::recv_copy, get(), buffer, capacity, &size, time)) return std::nullopt;
        return size;
    }
    /// Receives a copy of the next message, and sets `code` instead of throwing. Also returns the
    /// length of a message that is longer than the buffer.
    std::size_t recv_copy(void *buffer, std::size_t capacity, timeout time,
                          error_code &code) noexcept {
        std::size_t size = 0;
        call(code, Calls::recv_copy, get(), buffer, capacity, &size, time);
        return size;
    }

    /// Receives the next message as an object that the program owns; no value after the end of the
    /// peer's sending.
    std::optional<message> recv(timeout time = forever) {
        partywall_message *object = nullptr;
        if (!found(Calls::recv, get(), &object, time)) return std::nullopt;
        return message(object);
    }
    /// Receives the next message as an object that the program owns. The end of the peer's sending
    /// is errc::finished.
    message recv(timeout time, error_code &code) noexcept {
        partywall_message *object = nullptr;
        const auto status = call(code, Calls::recv, get(), &object, time);
        return status == PARTYWALL_OK ? message(object) : message();
    }

private:
    std::int32_t commit_from(reservation &reserved, timeout time, partywall_error **why) noexcept {
        const auto status = status_of(why, Calls::commit, get(), reserved.get(), time);
        switch (status) {
        case PARTYWALL_FULL:
        case PARTYWALL_FOREIGN_RESERVATION:
        case PARTYWALL_FINISHED_HERE:
        case PARTYWALL_ARGUMENT:
        case PARTYWALL_HANDLE:
        case PARTYWALL_BUSY: return status; // `reserved` keeps the memory
        case PARTYWALL_OK: reserved.release(); break;
        default: break;
        }
        reserved = reservation();
        return status;
    }
};

} // namespace detail

/// A channel: one pipe of messages in each direction, between two processes. Destroying a channel
/// ends both directions; the peer receives every sent message first.
class channel : public detail::pipe<detail::channel_calls>,
                public detail::connection<channel, detail::channel_calls> {
public:
    /// Opens a channel with the listener at `address`, such as "unix:/run/app.sock".
    static channel connect(const std::string &address, const config &with = {}) {
        return make<channel>(partywall_connect, address.c_str(), with.get());
    }
    static channel connect(const std::string &address, const config &with,
                           error_code &code) noexcept {
        return make<channel>(code, partywall_connect, address.c_str(), with.get());
    }

    /// Makes the message of the last view an object that the program owns. The view ends.
    message keep() {
        partywall_message *object = nullptr;
        detail::call(partywall_channel_keep, get(), &object);
        return message(object);
    }
    message keep(error_code &code) noexcept {
        partywall_message *object = nullptr;
        const auto status = detail::call(code, partywall_channel_keep, get(), &object);
        return status == PARTYWALL_OK ? message(object) : message();
    }

    /// Waits until the kernel has taken the bytes of all sent messages. Over shared memory the
    /// kernel gets no bytes, so the call returns at once.
    void flush(timeout time = forever) { run(partywall_channel_flush, time); }
    void flush(timeout time, error_code &code) noexcept {
        run(code, partywall_channel_flush, time);
    }

    /// Makes the event loop stop reporting the channel as readable until the next receiving call.
    void pause() { run(partywall_channel_pause); }
    void pause(error_code &code) noexcept { run(code, partywall_channel_pause); }

    /// Ends the channel's sending direction. The channel still receives the peer's messages.
    void close_write() { run(partywall_channel_close_write); }
    void close_write(error_code &code) noexcept { run(code, partywall_channel_close_write); }

    /// The counters of the direction in which this end receives. errc::busy: another thread is
    /// receiving.
    partywall::receiver_stats receiver_stats() const {
        partywall::receiver_stats found{};
        detail::check(partywall_channel_receiver_stats(get(), &found, sizeof found));
        return found;
    }
};

/// A listener: accepts channels at an address. Destroying it removes the socket file.
class listener : public detail::handle<partywall_listener, partywall_listener_free> {
public:
    static listener bind(const std::string &address, const config &with = {}) {
        return make<listener>(partywall_listener_bind, address.c_str(), with.get());
    }
    static listener bind(const std::string &address, const config &with,
                         error_code &code) noexcept {
        return make<listener>(code, partywall_listener_bind, address.c_str(), with.get());
    }

    /// Returns the next channel that a peer has opened. errc::timed_out: none was established in
    /// time.
    channel accept(timeout time = forever) {
        return make_within<channel>(time, partywall_listener_accept, get());
    }
    channel accept(timeout time, error_code &code) noexcept {
        return make_within<channel>(time, code, partywall_listener_accept, get());
    }

    /// Returns the address that the listener is bound to; for port 0 it has the port that the
    /// system chose.
    std::string address() const { return detail::text_of(partywall_listener_address, get()); }
};

/// An event: the tag of an object, and a set of PARTYWALL_READABLE, PARTYWALL_WRITABLE,
/// PARTYWALL_OPENED and PARTYWALL_ENDED. A loop may report an event although the object has
/// nothing.
using event = partywall_event;

/// A group of links. Links start no thread: whichever thread waits for a link, its client or its
/// server, drives the sockets and timers of their group. So one thread that polls a group, or waits
/// for a loop that has the group, serves all of its links.
class link_group : public detail::handle<partywall_link_group, partywall_link_group_free> {
public:
    link_group() { detail::call(partywall_link_group_new, out()); }

    /// Drives the links of the group until one has a message, has room, or has changed its state.
    /// Returns the number of such links, 0 if the timeout passes first. A later call counts the
    /// same link again only if it has unreceived messages.
    std::size_t poll(timeout time = forever) {
        std::size_t count = 0;
        detail::call(partywall_link_group_poll, get(), &count, time);
        return count;
    }
    std::size_t poll(timeout time, error_code &code) noexcept {
        std::size_t count = 0;
        detail::call(code, partywall_link_group_poll, get(), &count, time);
        return count;
    }
};

namespace detail {
inline auto adding(const channel &) noexcept { return partywall_loop_add_channel; }
inline auto adding(const listener &) noexcept { return partywall_loop_add_listener; }
inline auto adding(const link_group &) noexcept { return partywall_loop_add_links; }
} // namespace detail

/// An event loop: waits for many objects at once. Any other event loop can watch its descriptor:
/// when that is readable, call wait() with `no_wait`. The calls of objects in a loop take only
/// `no_wait`.
class loop : public detail::handle<partywall_loop, partywall_loop_free> {
public:
    loop() { detail::call(partywall_loop_new, out()); }

    /// Adds both directions of a channel, a listener, or a group of links to the loop, which
    /// reports `tag` for it. Sessions and their listeners are in a loop from the beginning.
    template <class Source> void add(Source &source, std::uint64_t tag) {
        run(detail::adding(source), source.get(), tag);
    }
    template <class Source>
    void add(Source &source, std::uint64_t tag, error_code &code) noexcept {
        run(code, detail::adding(source), source.get(), tag);
    }

    /// Waits until objects have events, writes at most `capacity` of the events, and returns their
    /// number; 0 if no object had an event in time.
    std::size_t wait(event *events, std::size_t capacity, timeout time = forever) {
        std::size_t count = 0;
        detail::call(partywall_loop_wait, get(), events, capacity, &count, time);
        return count;
    }
    std::size_t wait(event *events, std::size_t capacity, timeout time,
                     error_code &code) noexcept {
        std::size_t count = 0;
        detail::call(code, partywall_loop_wait, get(), events, capacity, &count, time);
        return count;
    }
    template <std::size_t Capacity>
    std::size_t wait(event (&events)[Capacity], timeout time = forever) {
        return wait(events, Capacity, time);
    }

    /// The loop's descriptor, with which another event loop waits for this loop. The caller neither
    /// reads nor closes it.
    int fd() const noexcept {
        std::int32_t descriptor = -1;
        partywall_loop_fd(get(), &descriptor);
        return descriptor;
    }

    /// How long until wait() has to be called although the loop's descriptor is not readable; no
    /// value if no timer is set. If another event loop watches the descriptor, it becomes readable
    /// for timers, too.
    std::optional<std::chrono::nanoseconds> next_timer() const noexcept {
        std::int64_t ns = -1;
        partywall_loop_next_timer(get(), &ns);
        if (ns < 0) return std::nullopt;
        return std::chrono::nanoseconds(ns);
    }
};

/// A stream of a session: messages in two directions. Destroying a stream finishes its sending and
/// stops its receiving. It keeps its session alive.
class stream : public detail::pipe<detail::stream_calls> {
public:
    /// The metadata that the peer sent when it opened the stream, valid as long as the stream.
    bytes_view metadata() const noexcept {
        const void *data = nullptr;
        std::size_t size = 0;
        partywall_stream_metadata(get(), &data, &size);
        return {data, size};
    }

    /// Makes the event loop stop reporting the stream as readable until the next receiving call.
    void pause() { run(partywall_stream_pause); }
    void pause(error_code &code) noexcept { run(code, partywall_stream_pause); }

    /// Ends the stream's sending direction: the peer receives every sent message, then the end.
    void finish() { run(partywall_stream_finish); }
    void finish(error_code &code) noexcept { run(code, partywall_stream_finish); }

    /// Ends the stream's sending direction at once: the peer's receiver gets errc::stream_reset and
    /// `number`, which is below 0xffffff00.
    void reset(std::uint32_t number) { run(partywall_stream_reset, number); }
    void reset(std::uint32_t number, error_code &code) noexcept {
        run(code, partywall_stream_reset, number);
    }

    /// Ends the stream's receiving direction: the peer's sender gets errc::stream_stopped and
    /// `number`, which is below 0xffffff00.
    void stop(std::uint32_t number) { run(partywall_stream_stop, number); }
    void stop(std::uint32_t number, error_code &code) noexcept {
        run(code, partywall_stream_stop, number);
    }

    /// Waits until the peer receives no more of the stream, and returns the reason:
    /// errc::stream_stopped with the peer's code, errc::disconnected and so on. During the wait
    /// nothing can be sent on the stream.
    error wait_stopped(timeout time = forever) {
        return detail::reason_of(partywall_stream_wait_stopped, get(), time);
    }
    error wait_stopped(timeout time, error_code &code) {
        return detail::reason_of(code, partywall_stream_wait_stopped, get(), time);
    }

private:
    friend class session;
};

/// A session: a connection that carries many streams. If it is in no loop, it has a thread of its
/// own, and its calls may wait. In a loop, its calls take only `no_wait`, and the loop reports the
/// tags of the session and of its streams. Destroying a session ends it in good order once its
/// streams are gone.
class session : public detail::handle<partywall_session, partywall_session_free>,
                public detail::connection<session, detail::session_calls> {
public:
    /// Opens a session with the listener at `address`. Waits for the handshake.
    static session connect(const std::string &address, const config &with = {}) {
        return make<session>(partywall_session_connect, address.c_str(), with.get(), nullptr,
                             std::uint64_t(0));
    }
    static session connect(const std::string &address, const config &with,
                           error_code &code) noexcept {
        return make<session>(code, partywall_session_connect, address.c_str(), with.get(), nullptr,
                             std::uint64_t(0));
    }
    /// Opens a session in a loop, with the listener at `address`. The loop reports `tag` with
    /// PARTYWALL_OPENED when the peer opens a stream. Waits for the handshake.
    static session connect(const std::string &address, const config &with, loop &in,
                           std::uint64_t tag) {
        return make<session>(partywall_session_connect, address.c_str(), with.get(), in.get(), tag);
    }
    static session connect(const std::string &address, const config &with, loop &in,
                           std::uint64_t tag, error_code &code) noexcept {
        return make<session>(code, partywall_session_connect, address.c_str(), with.get(), in.get(),
                             tag);
    }

    /// Opens a stream without a round trip, with metadata for the peer. In a loop the stream
    /// reports `tag`.
    stream open(bytes_view metadata = {}, timeout time = forever, std::uint64_t tag = 0) {
        return make_within<stream>(time, partywall_session_open, get(), metadata.data(),
                                   metadata.size(), tag);
    }
    stream open(bytes_view metadata, timeout time, std::uint64_t tag,
                error_code &code) noexcept {
        return make_within<stream>(time, code, partywall_session_open, get(), metadata.data(),
                                   metadata.size(), tag);
    }
    stream open(bytes_view metadata, timeout time, error_code &code) noexcept {
        return open(metadata, time, 0, code);
    }

    /// Returns the next stream that the peer has opened; no value once the session was closed. In a
    /// loop the stream reports `tag`.
    std::optional<stream> accept(timeout time = forever, std::uint64_t tag = 0) {
        stream made;
        if (!detail::found(partywall_session_accept, get(), tag, made.out(), time)) {
            return std::nullopt;
        }
        return made;
    }
    /// Returns the next stream that the peer has opened. The end of the session is errc::finished.
    stream accept(timeout time, std::uint64_t tag, error_code &code) noexcept {
        return make_within<stream>(time, code, partywall_session_accept, get(), tag);
    }
    stream accept(timeout time, error_code &code) noexcept { return accept(time, 0, code); }

    /// Asks the peer to open no more streams in the session, and sends it the application's code
    /// `number`.
    void go_away(std::uint32_t number = 0) { run(partywall_session_go_away, number); }
    void go_away(std::uint32_t number, error_code &code) noexcept {
        run(code, partywall_session_go_away, number);
    }

    /// Ends the session with all its streams. The peer receives the application's code `number`,
    /// which is below 0xffffff00, and the text `reason`.
    void close(std::uint32_t number = 0, const std::string &reason = "") {
        run(partywall_session_close, number, reason.c_str());
    }
    void close(std::uint32_t number, const std::string &reason, error_code &code) noexcept {
        run(code, partywall_session_close, number, reason.c_str());
    }

    /// Waits until every stream of the session has ended.
    void wait_drained(timeout time = forever) { run(partywall_session_wait_drained, time); }
    void wait_drained(timeout time, error_code &code) noexcept {
        run(code, partywall_session_wait_drained, time);
    }

    /// Waits until the session is over and all its bytes are written or given up, so that the
    /// process may exit.
    void wait_finished(timeout time = forever) { run(partywall_session_wait_finished, time); }
    void wait_finished(timeout time, error_code &code) noexcept {
        run(code, partywall_session_wait_finished, time);
    }

    /// Waits until the session is over, and returns the reason: errc::finished, errc::disconnected,
    /// or errc::session_closed with the peer's code and text.
    error wait_closed(timeout time = forever) {
        return detail::reason_of(partywall_session_wait_closed, get(), time);
    }
    error wait_closed(timeout time, error_code &code) {
        return detail::reason_of(code, partywall_session_wait_closed, get(), time);
    }

    /// Returns the number of streams of the session that have not ended.
    std::size_t streams() const {
        std::size_t count = 0;
        detail::check(partywall_session_streams(get(), &count));
        return count;
    }
};

/// A listener for sessions at an address. Destroying it removes the socket file.
class session_listener
    : public detail::handle<partywall_session_listener, partywall_session_listener_free> {
public:
    static session_listener bind(const std::string &address, const config &with = {}) {
        return make<session_listener>(partywall_session_listener_bind, address.c_str(), with.get(),
                                      nullptr, std::uint64_t(0));
    }
    static session_listener bind(const std::string &address, const config &with,
                                 error_code &code) noexcept {
        return make<session_listener>(code, partywall_session_listener_bind, address.c_str(),
                                      with.get(), nullptr, std::uint64_t(0));
    }
    /// Listens for sessions in a loop, which drives them and reports `tag` with PARTYWALL_OPENED
    /// for the listener.
    static session_listener bind(const std::string &address, const config &with, loop &in,
                                 std::uint64_t tag) {
        return make<session_listener>(partywall_session_listener_bind, address.c_str(), with.get(),
                                      in.get(), tag);
    }
    static session_listener bind(const std::string &address, const config &with, loop &in,
                                 std::uint64_t tag, error_code &code) noexcept {
        return make<session_listener>(code, partywall_session_listener_bind, address.c_str(),
                                      with.get(), in.get(), tag);
    }

    /// Returns the next session that a peer has opened, which reports `tag` in a loop.
    /// errc::timed_out: none was established in time.
    session accept(timeout time = forever, std::uint64_t tag = 0) {
        return make_within<session>(time, partywall_session_listener_accept, get(), tag);
    }
    session accept(timeout time, std::uint64_t tag, error_code &code) noexcept {
        return make_within<session>(time, code, partywall_session_listener_accept, get(), tag);
    }
    session accept(timeout time, error_code &code) noexcept { return accept(time, 0, code); }

    /// Returns the address that the listener is bound to; for port 0 it has the port that the
    /// system chose.
    std::string address() const {
        return detail::text_of(partywall_session_listener_address, get());
    }
};

/// Settings of links; partywall.h lists the keys of set() and their defaults.
class link_config
    : public detail::settings<link_config, partywall_link_config, partywall_link_config_new,
                              partywall_link_config_free, partywall_link_config_set,
                              partywall_link_config_copy> {
public:
    using settings::set;
    link_config &set(partywall::delivery value) { return set("delivery", number(value)); }
    link_config &set(partywall::after_reboot value) { return set("after_reboot", number(value)); }
    link_config &slab_bytes(std::uint64_t bytes) { return set("slab_bytes", bytes); }
    link_config &attempts_max(std::uint64_t count) { return set("attempts_max", count); }
    link_config &links_max(std::uint64_t count) { return set("links_max", count); }
    link_config &dead_after(timeout time) { return set("dead_after_ns", time); }
    link_config &allow_anonymous_tcp(bool allows) {
        return set("allow_anonymous_tcp", allows ? 1 : 0);
    }
    /// Puts the links of all clients and servers that are made with this configuration into a
    /// group.
    link_config &set(link_group &group) {
        detail::call(partywall_link_config_set_group, get(), group.get());
        return *this;
    }
};

/// The storage of one end of links: where it keeps messages until the peer has acknowledged them.
class storage {
public:
    /// Storage in files of a directory, which must belong to this user alone. The messages survive
    /// the process.
    static storage directory(std::string path) { return storage(std::move(path)); }
    /// Storage in memory of this process. The messages survive connections, not the process.
    static storage memory() { return storage({}); }

    const char *get() const noexcept { return path_ ? path_->c_str() : nullptr; }

private:
    explicit storage(std::optional<std::string> path) : path_(std::move(path)) {}

    std::optional<std::string> path_;
};

/// A received message of a link. If it is destroyed without ack() or reply(), it is delivered again
/// after rewind(), or to the next owner of this end.
class link_message : public detail::received<partywall_link_message, partywall_link_message_free,
                                             partywall_link_message_data> {
public:
    link_message() = default;

    /// The delivery count: 1, and one more for each earlier owner of this end that received the
    /// message and did not acknowledge it.
    std::uint32_t attempt() const noexcept {
        std::uint32_t number = 0;
        partywall_link_message_attempt(get(), &number);
        return number;
    }
    /// The position of the message in the peer's stream.
    std::uint64_t position() const noexcept {
        std::uint64_t number = 0;
        partywall_link_message_position(get(), &number);
        return number;
    }

    /// Acknowledges this message and all messages before it. The object is empty then, even if the
    /// call fails.
    void ack() { detail::call(partywall_link_message_ack, release()); }
    void ack(error_code &code) noexcept {
        detail::call(code, partywall_link_message_ack, release());
    }

    /// Sends an answer and acknowledges the message: both or neither. The object is empty then,
    /// even if the call fails. The bytes of the answer must not be those of this message.
    void reply(bytes_view answer, timeout time = forever) {
        // With an invalid timeout the function of the C interface gets null instead of the message,
        // so it fails without freeing the message, and this object keeps it.
        detail::call(partywall_link_message_reply, time.is_valid() ? release() : nullptr,
                     answer.data(), answer.size(), time);
    }
    void reply(bytes_view answer, timeout time, error_code &code) noexcept {
        detail::call(code, partywall_link_message_reply, time.is_valid() ? release() : nullptr,
                     answer.data(), answer.size(), time);
    }

private:
    friend class link;
    explicit link_message(partywall_link_message *object) noexcept : received(object) {}
};

enum class link_status : std::int32_t {
    detached = PARTYWALL_LINK_DETACHED,
    attaching = PARTYWALL_LINK_ATTACHING,
    attached = PARTYWALL_LINK_ATTACHED,
    fenced = PARTYWALL_LINK_FENCED,
    quarantined = PARTYWALL_LINK_QUARANTINED,
    closed = PARTYWALL_LINK_CLOSED,
};

/// An event of a link, such as a lost connection. Its kind is PARTYWALL_LINK_EVENT_ATTACHED and so
/// on; partywall.h explains its members.
using link_event = partywall_link_event;

/// One end of a link: two streams of messages that outlive connections and, if they are kept in
/// files, processes. Destroying the end of a client closes it without waiting. The end of a server
/// stays open until its server is destroyed. Both ends go on when they are opened again.
class link : public detail::handle<partywall_link, partywall_link_free> {
public:
    /// Sends a copy of the bytes, which the link keeps until the peer has acknowledged them.
    void send(bytes_view bytes, timeout time = forever) {
        run(partywall_link_send, bytes.data(), bytes.size(), time);
    }
    void send(bytes_view bytes, timeout time, error_code &code) noexcept {
        run(code, partywall_link_send, bytes.data(), bytes.size(), time);
    }
    /// Sends a copy of a value as one message of the link. The type must be nothing but its bytes;
    /// the peer reads it with view_as.
    template <class T> void send_value(const T &value, timeout time = forever) {
        static_assert(std::is_trivially_copyable_v<T>, "only a type that is its bytes can be sent");
        send(bytes_view(std::addressof(value), sizeof value), time);
    }

    /// Receives the next message of the link; no value once the peer has closed its end.
    std::optional<link_message> recv(timeout time = forever) {
        partywall_link_message *object = nullptr;
        if (!detail::found(partywall_link_recv, get(), &object, time)) return std::nullopt;
        return link_message(object);
    }
    /// Receives the next message of the link. errc::finished: the peer has closed its end.
    link_message recv(timeout time, error_code &code) noexcept {
        partywall_link_message *object = nullptr;
        const auto status = detail::call(code, partywall_link_recv, get(), &object, time);
        return status == PARTYWALL_OK ? link_message(object) : link_message();
    }

    /// The name of the link, and the name of the peer's end.
    std::string name() const { return detail::text_of(partywall_link_name, get()); }
    std::string peer_name() const { return detail::text_of(partywall_link_peer_name, get()); }

    /// Waits until a connection is attached to the link. After errc::timed_out next_event() says
    /// why no connection was.
    void wait_attached(timeout time = forever) { run(partywall_link_wait_attached, time); }
    void wait_attached(timeout time, error_code &code) noexcept {
        run(code, partywall_link_wait_attached, time);
    }

    /// Waits until every message that was sent on the link is with the kernel, or in shared memory
    /// that the peer reads.
    void wait_sent(timeout time = forever) { run(partywall_link_wait_sent, time); }
    void wait_sent(timeout time, error_code &code) noexcept {
        run(code, partywall_link_wait_sent, time);
    }

    /// Waits until the peer has acknowledged every message that was sent. A peer that is gone
    /// acknowledges nothing.
    void wait_acked(timeout time = forever) { run(partywall_link_wait_acked, time); }
    void wait_acked(timeout time, error_code &code) noexcept {
        run(code, partywall_link_wait_acked, time);
    }

    /// Makes the link deliver every received message again that was not acknowledged.
    void rewind() { run(partywall_link_rewind); }
    void rewind(error_code &code) noexcept { run(code, partywall_link_rewind); }

    /// Returns how many bytes of messages the link keeps because the peer has not acknowledged
    /// them.
    std::uint64_t unacked_bytes() const {
        std::uint64_t bytes = 0;
        detail::call(partywall_link_unacked_bytes, get(), &bytes);
        return bytes;
    }

    /// The id of the stream that this end of the link sends, and the position in it at which the
    /// next message will begin, or a lower position close to that. After a restart the id and the
    /// position are the same, unless a message was sent in between.
    std::pair<std::uint64_t, std::uint64_t> sent_position() const {
        std::pair<std::uint64_t, std::uint64_t> next;
        detail::call(partywall_link_sent_position, get(), &next.first, &next.second);
        return next;
    }

    link_status status() const noexcept {
        std::int32_t number = PARTYWALL_LINK_CLOSED;
        partywall_link_status(get(), &number);
        return static_cast<link_status>(number);
    }

    /// Closes this end of the link in good order: the peer receives every message, then the end.
    /// While the link has no connection, waits for one. After errc::timed_out both ends go on when
    /// they are opened again. The object is empty then, even if the call fails; only with an
    /// invalid timeout it keeps the link.
    void close(timeout time = forever) {
        detail::call(partywall_link_close, time.is_valid() ? release() : nullptr, time);
    }
    void close(timeout time, error_code &code) noexcept {
        detail::call(code, partywall_link_close, time.is_valid() ? release() : nullptr, time);
    }

    /// Takes the oldest event of the link, and waits if there is none. An event is a new
    /// connection, its end, or a failed attempt to connect.
    link_event next_event(timeout time = forever) {
        link_event event{};
        run(partywall_link_next_event, &event, sizeof event, time);
        return event;
    }
    link_event next_event(timeout time, error_code &code) noexcept {
        link_event event{};
        run(code, partywall_link_next_event, &event, sizeof event, time);
        return event;
    }

    /// A description of the link's state for logs.
    std::string status_text() const { return detail::text_of(partywall_link_status_text, get()); }
};

/// A client of links: opens links to servers.
class link_client : public detail::handle<partywall_link_client, partywall_link_client_free> {
public:
    link_client() = default;
    link_client(const storage &in, const std::string &name, const link_config &with = {}) {
        detail::call(partywall_link_client_new, in.get(), name.c_str(), with.get(), out());
    }
    link_client(const storage &in, const std::string &name, const link_config &with,
                error_code &code) noexcept {
        detail::call(code, partywall_link_client_new, in.get(), name.c_str(), with.get(), out());
    }

    /// Opens the link called `name` to the server called `server` at `address`. Does not wait for
    /// the server: the link keeps messages until the server is there.
    link connect(const std::string &address, const std::string &server, const std::string &name) {
        return make<link>(partywall_link_connect, get(), address.c_str(), server.c_str(),
                          name.c_str());
    }
    link connect(const std::string &address, const std::string &server, const std::string &name,
                 error_code &code) noexcept {
        return make<link>(code, partywall_link_connect, get(), address.c_str(), server.c_str(),
                          name.c_str());
    }
};

/// A server of links: accepts the links of clients at an address. Destroying it stops listening.
class link_server : public detail::handle<partywall_link_server, partywall_link_server_free> {
public:
    static link_server bind(const std::string &address, const storage &in, const std::string &name,
                            const link_config &with = {}) {
        return make<link_server>(partywall_link_server_bind, address.c_str(), in.get(),
                                 name.c_str(), with.get());
    }
    static link_server bind(const std::string &address, const storage &in, const std::string &name,
                            const link_config &with, error_code &code) noexcept {
        return make<link_server>(code, partywall_link_server_bind, address.c_str(), in.get(),
                                 name.c_str(), with.get());
    }

    /// Returns the next link that a client attaches. errc::timed_out: none came in time.
    link accept(timeout time = forever) {
        return make_within<link>(time, partywall_link_server_accept, get());
    }
    link accept(timeout time, error_code &code) noexcept {
        return make_within<link>(time, code, partywall_link_server_accept, get());
    }

    /// The reason for which the server refused a connection last; empty if it has refused none.
    std::string last_refusal() const {
        return detail::text_of(partywall_link_server_last_refusal, get());
    }
    /// Takes the error because of which the server could not open the last link of an admitted
    /// client; no value if there was none.
    std::optional<error> take_open_error() {
        detail::failure cause;
        detail::call(partywall_link_server_take_open_error, get(), cause.out());
        return cause.take();
    }
};

} // namespace partywall

template <> struct std::is_error_code_enum<partywall::errc> : std::true_type {};

#endif
