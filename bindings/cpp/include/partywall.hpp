// SPDX-License-Identifier: MIT OR Apache-2.0
// partywall.hpp: messages between two Linux processes through shared memory, for C++17 and later.
//
// This header wraps the C interface of partywall.h, which has the details of each call.
//
//   error_code     errc, category(): the numbers of SPEC.md, section 17, comparable with std::errc
//   error          the exception; what() is the whole text of the library, with its advice
//   bytes_view     what is sent and received: from and to std::span, std::string_view, containers
//   config, listener, channel, message, reservation, loop
//
// Objects own what they name: they are moved, not copied, and free it when they are destroyed. A
// moved-from object may only be destroyed or assigned to. Each operation that can fail has two
// overloads: one throws partywall::error, the other takes a std::error_code as its last argument,
// throws nothing, and clears the code on success.
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

// ---- Errors ------------------------------------------------------------------------------------

/// Numbers of causes that programs compare with; SPEC.md, section 17, lists all others.
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
    no_socket = 332,
    no_listener = 333,
    finished_here = PARTYWALL_FINISHED_HERE,
    stopped_here = PARTYWALL_STOPPED_HERE,
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

    std::string message(int value) const override {
        switch (static_cast<errc>(value)) {
        case errc::forked: return "the object belongs to the parent process";
        case errc::system: return "a system call failed";
        case errc::timed_out: return "the deadline passed";
        case errc::full: return "there is no room for the message now";
        case errc::empty: return "there is no message now";
        case errc::would_block: return "the operation would have to wait";
        case errc::busy: return "another thread uses the object";
        case errc::finished: return "the peer has ended its direction";
        case errc::disconnected: return "the peer died or hung up";
        case errc::message_too_long: return "the message is too long for this connection";
        case errc::setting: return "a setting is impossible";
        case errc::foreign_reservation: return "the memory was reserved on another channel";
        case errc::no_socket: return "the path of the address does not exist";
        case errc::no_listener: return "no process listens at the address";
        case errc::finished_here: return "this side has ended its sending";
        case errc::stopped_here: return "this side has ended its receiving";
        case errc::argument: return "an argument is null or out of range";
        case errc::handle: return "the object was freed or moved from";
        case errc::panic: return "a defect of the library; the object cannot be used any more";
        case errc::buffer_too_short: return "the buffer is shorter than the message";
        case errc::handles_exhausted: return "too many objects";
        }
        return "error " + std::to_string(value) + " of SPEC.md, section 17";
    }

    std::error_condition default_error_condition(int value) const noexcept override {
        switch (static_cast<errc>(value)) {
        case errc::timed_out: return std::errc::timed_out;
        case errc::full:
        case errc::empty:
        case errc::would_block: return std::errc::operation_would_block;
        case errc::busy: return std::errc::device_or_resource_busy;
        case errc::disconnected: return std::errc::connection_reset;
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

inline std::error_code make_error_code(errc value) noexcept {
    return {static_cast<int>(value), category()};
}

/// What the throwing overloads throw. what() says what to do; code() has the number of the cause.
class error : public std::system_error {
public:
    error(std::error_code code, std::string text)
        : std::system_error(code),
          text_(std::make_shared<std::string>(text.empty() ? code.message() : std::move(text))) {}

    const char *what() const noexcept override { return text_->c_str(); }

private:
    // Shared, so that copying the exception throws nothing.
    std::shared_ptr<const std::string> text_;
};

namespace detail {

/// The error object of one call of the C interface.
class failure {
public:
    failure() = default;
    failure(const failure &) = delete;
    failure &operator=(const failure &) = delete;
    ~failure() { partywall_error_free(error_); }

    partywall_error **out() noexcept { return &error_; }

    [[noreturn]] void raise(std::int32_t status) const {
        const char *text = error_ != nullptr ? partywall_error_message(error_) : "";
        throw error({static_cast<int>(status), category()}, text);
    }

private:
    partywall_error *error_ = nullptr;
};

/// Calls `function`, which takes the place for an error object, and throws if it fails.
template <class Function> void check(Function &&function) {
    failure why;
    const std::int32_t status = function(why.out());
    if (status != PARTYWALL_OK) why.raise(status);
}

inline void note(std::int32_t status, std::error_code &code) noexcept {
    if (status == PARTYWALL_OK) code.clear();
    else code.assign(static_cast<int>(status), category());
}

/// The one owner of an object of the C interface.
template <class T, std::int32_t (*Free)(T *)> class owner {
public:
    owner() = default;
    explicit owner(T *object) noexcept : object_(object) {}
    owner(owner &&other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    owner &operator=(owner &&other) noexcept {
        if (this != &other) {
            reset();
            object_ = std::exchange(other.object_, nullptr);
        }
        return *this;
    }
    ~owner() { reset(); }

    T *get() const noexcept { return object_; }
    T **out() noexcept {
        reset();
        return &object_;
    }
    void forget() noexcept { object_ = nullptr; }
    void reset() noexcept {
        if (object_ != nullptr) Free(std::exchange(object_, nullptr));
    }

private:
    T *object_ = nullptr;
};

} // namespace detail

// ---- Bytes and timeouts ------------------------------------------------------------------------

/// Bytes that belong to somebody else: a message to send, or one that was received.
class bytes_view {
public:
    constexpr bytes_view() noexcept = default;
    bytes_view(const void *data, std::size_t size) noexcept
        : data_(static_cast<const std::byte *>(data)), size_(size) {}
    bytes_view(const char *text) noexcept : bytes_view(text, std::strlen(text)) {}

    /// Views the elements of a string, std::vector, std::array, std::span or similar, of a type
    /// that can be copied byte by byte.
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

    /// The bytes as text, whatever they are.
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

/// Returns the value in `bytes`, in place; nullptr if its size or alignment is not that of `T`. The
/// bytes of a short message that is an object of its own may have any alignment. The peer decides
/// what the bytes are, so `T` must have no pointers and accept every pattern of bits.
template <class T> const T *view_as(bytes_view bytes) noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "a view needs a type that is only its bytes");
    const auto address = reinterpret_cast<std::uintptr_t>(bytes.data());
    if (bytes.size() != sizeof(T) || address % alignof(T) != 0) return nullptr;
    return reinterpret_cast<const T *>(bytes.data());
}

/// Returns a copy of the value in `bytes`, of any alignment; no value if its size is not that of
/// `T`. The peer decides what the bytes are, as for view_as.
template <class T> std::optional<T> value_as(bytes_view bytes) noexcept {
    static_assert(std::is_trivially_copyable_v<T>, "only a type that is its bytes can be received");
    if (bytes.size() != sizeof(T)) return std::nullopt;
    std::optional<T> value(std::in_place);
    std::memcpy(std::addressof(*value), bytes.data(), sizeof(T));
    return value;
}

/// How long an operation waits: any std::chrono duration, `no_wait` or `forever`.
class timeout {
public:
    template <class Rep, class Period>
    constexpr timeout(std::chrono::duration<Rep, Period> time) noexcept
        : ns_(bounded(std::chrono::duration<double, std::nano>(time).count())) {}

    constexpr std::int64_t count() const noexcept { return ns_; }

    static constexpr timeout at_most(std::int64_t ns) noexcept { return timeout(ns); }

private:
    explicit constexpr timeout(std::int64_t ns) noexcept : ns_(ns) {}
    // A time that has passed does not wait, and one of more than a hundred years has no limit.
    static constexpr std::int64_t bounded(double ns) noexcept {
        return ns <= 0 ? 0 : ns >= 3.2e18 ? -1 : static_cast<std::int64_t>(ns);
    }

    std::int64_t ns_;
};

inline constexpr timeout no_wait = timeout::at_most(0);
inline constexpr timeout forever = timeout::at_most(-1);

// ---- Configurations ----------------------------------------------------------------------------

enum class transport : std::uint64_t {
    automatic = PARTYWALL_TRANSPORT_AUTO,
    shared_memory = PARTYWALL_TRANSPORT_SHARED_MEMORY,
    socket = PARTYWALL_TRANSPORT_SOCKET,
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

/// Settings of connections; partywall.h lists the keys of set() and their defaults. The setters
/// return the configuration, and throw.
class config {
public:
    config() {
        detail::check([&](partywall_error **why) { return partywall_config_new(own_.out(), why); });
    }

    config &set(const char *key, std::uint64_t value) {
        detail::check([&](partywall_error **why) {
            return partywall_config_set(own_.get(), key, value, why);
        });
        return *this;
    }

    config &set(partywall::transport value) { return set("transport", number(value)); }
    config &set(partywall::back_pressure value) { return set("back_pressure", number(value)); }
    config &set(partywall::trust value) { return set("trust", number(value)); }
    config &set(partywall::waiting value) { return set("wait", number(value)); }
    config &spin_budget(timeout time) { return set("spin_budget_ns", nanoseconds(time)); }
    config &handshake_timeout(timeout time) {
        return set("handshake_timeout_ns", nanoseconds(time));
    }
    config &linger(timeout time) { return set("linger_ns", nanoseconds(time)); }
    config &memory_max(std::uint64_t bytes) { return set("memory_max", bytes); }
    config &message_max(std::uint64_t bytes) { return set("message_max", bytes); }

    partywall_config *get() const noexcept { return own_.get(); }

private:
    template <class Value> static std::uint64_t number(Value value) noexcept {
        return static_cast<std::uint64_t>(value);
    }
    static std::uint64_t nanoseconds(timeout time) noexcept {
        return time.count() < 0 ? UINT64_MAX : static_cast<std::uint64_t>(time.count());
    }

    detail::owner<partywall_config, partywall_config_free> own_;
};

// ---- Messages and reservations -----------------------------------------------------------------

/// A received message of its own: it stays valid until it is destroyed, in any thread, also after
/// its channel is gone. It may lie in memory of its sender, which has that memory back then.
class message {
public:
    message() = default;

    /// Whether there is a message; false after an error, and once it was moved away.
    explicit operator bool() const noexcept { return own_.get() != nullptr; }
    bytes_view bytes() const noexcept { return bytes_; }
    operator bytes_view() const noexcept { return bytes_; }
    const std::byte *data() const noexcept { return bytes_.data(); }
    std::size_t size() const noexcept { return bytes_.size(); }
    std::string_view text() const noexcept { return bytes_.text(); }

    /// Whether the bytes lie in memory of their sender; false if they were copied.
    bool is_zero_copy() const noexcept {
        std::int32_t result = 0;
        partywall_message_is_zero_copy(own_.get(), &result);
        return result != 0;
    }

private:
    friend class channel;
    explicit message(partywall_message *object) noexcept : own_(object) {
        const void *data = nullptr;
        std::size_t size = 0;
        partywall_message_data(object, &data, &size);
        bytes_ = {data, size};
    }

    detail::owner<partywall_message, partywall_message_free> own_;
    bytes_view bytes_;
};

/// Memory for a message, which is written in place and then given to channel::commit. Destroying it
/// gives the memory back without sending the message.
class reservation {
public:
    reservation() = default;

    std::byte *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    explicit operator bool() const noexcept { return own_.get() != nullptr; }
#ifdef __cpp_lib_span
    std::span<std::byte> bytes() const noexcept { return {data_, size_}; }
#endif

    /// Shortens the message to `size` bytes, if it is longer.
    void truncate(std::size_t size) noexcept {
        if (partywall_reservation_truncate(own_.get(), size) == PARTYWALL_OK && size < size_) {
            size_ = size;
        }
    }

private:
    friend class channel;

    detail::owner<partywall_reservation, partywall_reservation_abort> own_;
    std::byte *data_ = nullptr;
    std::size_t size_ = 0;
};

// ---- Channels ----------------------------------------------------------------------------------

/// Both directions of a connection between two processes. One thread may send while another
/// receives. Destroying a channel ends both directions; the peer receives every sent message first.
class channel {
public:
    channel() = default;

    /// Opens a channel with the listener at `address`, such as "unix:/run/app.sock".
    static channel connect(const std::string &address) { return connect_with(address, nullptr); }
    static channel connect(const std::string &address, const config &with) {
        return connect_with(address, with.get());
    }
    static channel connect(const std::string &address, const config &with,
                           std::error_code &code) noexcept {
        channel made;
        const auto status =
            partywall_connect(address.c_str(), with.get(), made.own_.out(), nullptr);
        detail::note(status, code);
        return made;
    }

    explicit operator bool() const noexcept { return own_.get() != nullptr; }
    partywall_channel *get() const noexcept { return own_.get(); }

    /// Sends a copy of the bytes.
    void send(bytes_view bytes, timeout time = forever) {
        detail::check([&](partywall_error **why) {
            return partywall_channel_send(own_.get(), bytes.data(), bytes.size(), time.count(),
                                          why);
        });
    }
    void send(bytes_view bytes, timeout time, std::error_code &code) noexcept {
        const auto sent =
            partywall_channel_send(own_.get(), bytes.data(), bytes.size(), time.count(), nullptr);
        detail::note(sent, code);
    }

    /// Sends the bytes of a value that is nothing but its bytes; the peer reads it with view_as.
    template <class T> void send_value(const T &value, timeout time = forever) {
        static_assert(std::is_trivially_copyable_v<T>, "only a type that is its bytes can be sent");
        send(bytes_view(&value, sizeof value), time);
    }

    /// Reserves memory for a message of `size` bytes.
    reservation reserve(std::size_t size, timeout time = forever) {
        reservation made;
        detail::check([&](partywall_error **why) { return reserve_into(made, size, time, why); });
        return made;
    }
    reservation reserve(std::size_t size, timeout time, std::error_code &code) noexcept {
        reservation made;
        detail::note(reserve_into(made, size, time, nullptr), code);
        return made;
    }

    /// Sends the message in `reserved`. If it fails and the message could still be sent later, as
    /// after errc::full, `reserved` keeps the memory; otherwise it is empty.
    void commit(reservation &reserved, timeout time = forever) {
        detail::check([&](partywall_error **why) { return commit_from(reserved, time, why); });
    }
    void commit(reservation &&reserved, timeout time = forever) { commit(reserved, time); }
    void commit(reservation &reserved, timeout time, std::error_code &code) noexcept {
        detail::note(commit_from(reserved, time, nullptr), code);
    }

    /// Receives the next message without a copy. The bytes are valid until the next receiving call,
    /// keep() included, or the end of the channel. Returns no value once the peer has ended its
    /// sending and every message was received.
    std::optional<bytes_view> recv_view(timeout time = forever) {
        detail::failure why;
        bytes_view bytes;
        return found(view_into(bytes, time, why.out()), why) ? std::optional(bytes) : std::nullopt;
    }
    /// As above; the end of the peer's sending is errc::finished.
    bytes_view recv_view(timeout time, std::error_code &code) noexcept {
        bytes_view bytes;
        detail::note(view_into(bytes, time, nullptr), code);
        return bytes;
    }

    /// Receives the next message as an object of its own.
    std::optional<message> recv(timeout time = forever) {
        detail::failure why;
        partywall_message *object = nullptr;
        const auto status = partywall_channel_recv(own_.get(), &object, time.count(), why.out());
        return found(status, why) ? std::optional(message(object)) : std::nullopt;
    }
    /// As above; the end of the peer's sending is errc::finished.
    message recv(timeout time, std::error_code &code) noexcept {
        partywall_message *object = nullptr;
        const auto status = partywall_channel_recv(own_.get(), &object, time.count(), nullptr);
        detail::note(status, code);
        return status == PARTYWALL_OK ? message(object) : message();
    }

    /// Makes the message of the last view an object of its own. The view ends.
    message keep() {
        partywall_message *object = nullptr;
        detail::check([&](partywall_error **why) {
            return partywall_channel_keep(own_.get(), &object, why);
        });
        return message(object);
    }

    /// Waits until the kernel has taken the bytes of all sent messages. Shared memory has none.
    void flush(timeout time = forever) {
        detail::check([&](partywall_error **why) {
            return partywall_channel_flush(own_.get(), time.count(), why);
        });
    }

    /// Ends the sending direction. The peer's answers are still received.
    void close_write() {
        detail::check([&](partywall_error **why) {
            return partywall_channel_close_write(own_.get(), why);
        });
    }

private:
    friend class listener;

    static channel connect_with(const std::string &address, partywall_config *with) {
        channel made;
        detail::check([&](partywall_error **why) {
            return partywall_connect(address.c_str(), with, made.own_.out(), why);
        });
        return made;
    }

    static bool found(std::int32_t status, const detail::failure &why) {
        if (status != PARTYWALL_OK && status != PARTYWALL_FINISHED) why.raise(status);
        return status == PARTYWALL_OK;
    }

    std::int32_t reserve_into(reservation &made, std::size_t size, timeout time,
                              partywall_error **why) noexcept {
        void *data = nullptr;
        const auto status = partywall_channel_reserve(own_.get(), size, &data, made.own_.out(),
                                                      time.count(), why);
        if (status == PARTYWALL_OK) {
            made.data_ = static_cast<std::byte *>(data);
            made.size_ = size;
        }
        return status;
    }

    std::int32_t commit_from(reservation &reserved, timeout time, partywall_error **why) noexcept {
        const auto status =
            partywall_channel_commit(own_.get(), reserved.own_.get(), time.count(), why);
        switch (status) {
        case PARTYWALL_FULL:
        case PARTYWALL_FOREIGN_RESERVATION:
        case PARTYWALL_FINISHED_HERE:
        case PARTYWALL_ARGUMENT:
        case PARTYWALL_HANDLE:
        case PARTYWALL_BUSY: return status; // `reserved` keeps the memory
        case PARTYWALL_OK: reserved.own_.forget(); break;
        default: break;
        }
        reserved = reservation();
        return status;
    }

    std::int32_t view_into(bytes_view &bytes, timeout time, partywall_error **why) noexcept {
        const void *data = nullptr;
        std::size_t size = 0;
        const auto status =
            partywall_channel_recv_view(own_.get(), &data, &size, time.count(), why);
        if (status == PARTYWALL_OK) bytes = {data, size};
        return status;
    }

    detail::owner<partywall_channel, partywall_channel_free> own_;
};

// ---- Listeners ---------------------------------------------------------------------------------

/// Accepts channels at an address. Destroying it removes the socket file.
class listener {
public:
    listener() = default;

    static listener bind(const std::string &address) { return bind_with(address, nullptr); }
    static listener bind(const std::string &address, const config &with) {
        return bind_with(address, with.get());
    }

    /// Returns the next channel.
    channel accept(timeout time = forever) {
        channel made;
        detail::check([&](partywall_error **why) {
            return partywall_listener_accept(own_.get(), made.own_.out(), time.count(), why);
        });
        return made;
    }
    channel accept(timeout time, std::error_code &code) noexcept {
        channel made;
        const auto status =
            partywall_listener_accept(own_.get(), made.own_.out(), time.count(), nullptr);
        detail::note(status, code);
        return made;
    }

    /// Returns the bound address; for port 0 it has the port that the system chose.
    std::string address() const {
        std::string text(128, '\0');
        for (;;) {
            std::size_t size = 0;
            detail::failure why;
            const auto status = partywall_listener_address(own_.get(), text.data(), text.size(),
                                                           &size, why.out());
            text.resize(size);
            if (status == PARTYWALL_OK) return text;
            if (status != PARTYWALL_BUFFER_TOO_SHORT) why.raise(status);
        }
    }

    explicit operator bool() const noexcept { return own_.get() != nullptr; }
    partywall_listener *get() const noexcept { return own_.get(); }

private:
    static listener bind_with(const std::string &address, partywall_config *with) {
        listener made;
        detail::check([&](partywall_error **why) {
            return partywall_listener_bind(address.c_str(), with, made.own_.out(), why);
        });
        return made;
    }

    detail::owner<partywall_listener, partywall_listener_free> own_;
};

// ---- The event loop ----------------------------------------------------------------------------

/// An event: the tag of an object, and a set of PARTYWALL_READABLE, PARTYWALL_WRITABLE,
/// PARTYWALL_OPENED and PARTYWALL_ENDED. An event may come needlessly.
using event = partywall_event;

/// Waits for many objects at once. Its descriptor fits into any other event loop: when it is
/// readable, call wait() with `no_wait`.
class loop {
public:
    loop() {
        detail::check([&](partywall_error **why) { return partywall_loop_new(own_.out(), why); });
    }

    /// Adds both directions of a channel. From then on its calls take only `no_wait`.
    void add(channel &source, std::uint64_t tag) {
        detail::check([&](partywall_error **why) {
            return partywall_loop_add_channel(own_.get(), source.get(), tag, why);
        });
    }
    /// Adds a listener. From then on its calls take only `no_wait`.
    void add(listener &source, std::uint64_t tag) {
        detail::check([&](partywall_error **why) {
            return partywall_loop_add_listener(own_.get(), source.get(), tag, why);
        });
    }

    /// Waits until objects have events, writes at most `capacity` of them, and returns their
    /// number; 0 if there were none in time.
    std::size_t wait(event *events, std::size_t capacity, timeout time = forever) {
        std::size_t count = 0;
        detail::check([&](partywall_error **why) {
            return partywall_loop_wait(own_.get(), events, capacity, &count, time.count(), why);
        });
        return count;
    }
    template <std::size_t Capacity>
    std::size_t wait(event (&events)[Capacity], timeout time = forever) {
        return wait(events, Capacity, time);
    }

    /// The descriptor for another event loop; it is neither read nor closed by the caller.
    int fd() const noexcept {
        std::int32_t descriptor = -1;
        partywall_loop_fd(own_.get(), &descriptor);
        return descriptor;
    }

    partywall_loop *get() const noexcept { return own_.get(); }

private:
    detail::owner<partywall_loop, partywall_loop_free> own_;
};

} // namespace partywall

template <> struct std::is_error_code_enum<partywall::errc> : std::true_type {};

#endif
