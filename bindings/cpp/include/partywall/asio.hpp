// SPDX-License-Identifier: MIT OR Apache-2.0
// partywall/asio.hpp: channels, sessions and streams as asynchronous operations of Boost.Asio or of
// asio alone, for every completion token: callbacks, use_future, use_awaitable, deferred.
//
//   channel    async_recv, async_recv_view, async_send
//   listener   async_accept of channels
//   stream     the same as a channel, and async_read_some, async_write_some: an AsyncReadStream and
//              AsyncWriteStream, over which Beast runs
//   acceptor   async_accept of streams
//   session    async_open and async_accept, for many streams over one connection
//
// Which asio: that of Boost if its headers are there, otherwise asio without Boost. The macro
// ASIO_STANDALONE of asio chooses asio without Boost.
//
// Ends. The end of the peer's sending is net::error::eof. A cancelled operation, and one whose
// object was closed or destroyed, gets net::error::operation_aborted. Any other failure is a number
// of partywall::category().
//
// The rules are those of asio's sockets: at most one operation of each direction at a time, else
// errc::busy; the caller keeps buffers valid until the handler is called; handlers run in their
// associated executor, never within the call that starts the operation. Objects of one session, or
// one acceptor, may be used by different threads at the same time; one object may not.
//
// Empty objects, which were moved from or made without arguments, fail in every call with
// errc::argument: an operation completes with it, send sets its code to it, other calls throw it.
// Only close and cancel do nothing, and metadata are empty. An object keeps its executor when it is
// moved from or closed; one made without arguments has that of the system.
#ifndef PARTYWALL_ASIO_HPP
#define PARTYWALL_ASIO_HPP

#include <partywall.hpp>

#if !defined(ASIO_STANDALONE) && __has_include(<boost/asio/any_io_executor.hpp>)
#define PARTYWALL_BOOST_ASIO 1
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/asio/version.hpp>
#define PARTYWALL_ASIO_VERSION BOOST_ASIO_VERSION
#if PARTYWALL_ASIO_VERSION >= 102000
#include <boost/asio/associated_cancellation_slot.hpp>
#endif
#else
#include <asio/any_io_executor.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/buffer.hpp>
#include <asio/dispatch.hpp>
#include <asio/error.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/system_executor.hpp>
#include <asio/version.hpp>
#define PARTYWALL_ASIO_VERSION ASIO_VERSION
#if PARTYWALL_ASIO_VERSION >= 102000
#include <asio/associated_cancellation_slot.hpp>
#endif
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <thread>
#include <unistd.h>
#include <vector>

namespace partywall {
namespace asio {

#ifdef PARTYWALL_BOOST_ASIO
namespace net = ::boost::asio;
using error_code = ::boost::system::error_code;
#else
namespace net = ::asio;
using error_code = std::error_code;
#endif

namespace detail {

#ifdef PARTYWALL_BOOST_ASIO
/// The category of this library's error codes as a category of Boost, because versions of Boost
/// before 1.77 do not convert a std::error_code.
class category_type final : public ::boost::system::error_category {
public:
    const char *name() const noexcept override { return "partywall"; }
    std::string message(int value) const override { return partywall::category().message(value); }
    ::boost::system::error_condition default_error_condition(int value) const noexcept override {
        const auto condition = partywall::category().default_error_condition(value);
        if (condition.category() != std::generic_category()) return {value, *this};
        return {condition.value(), ::boost::system::generic_category()};
    }
};
inline const ::boost::system::error_category &category() noexcept {
    static const category_type instance;
    return instance;
}
#else
inline const std::error_category &category() noexcept { return partywall::category(); }
#endif

inline error_code code_of(std::error_code code) noexcept {
    if (!code) return {};
    if (code == errc::finished) return net::error::eof;
    if (code.category() == partywall::category()) return {code.value(), category()};
#ifdef PARTYWALL_BOOST_ASIO
    return {code.value(), ::boost::system::generic_category()};
#else
    return code;
#endif
}

inline bool has_to_wait(std::error_code code) noexcept {
    return code == errc::empty || code == errc::full || code == errc::would_block ||
           code == errc::timed_out;
}

} // namespace detail

/// The error code that handlers get for `value`, to compare with: `code ==
/// make_error_code(errc::disconnected)`.
inline error_code make_error_code(errc value) noexcept {
    return detail::code_of(partywall::make_error_code(value));
}

} // namespace asio

#ifdef PARTYWALL_BOOST_ASIO
// Comparisons of a handler's error code with a number: `code == errc::full`, `code ==
// make_error_code(errc::full)`. Boost's own comparison with a std::error_code is always false.
template <class Code>
using if_boost_code = std::enable_if_t<std::is_same_v<Code, ::boost::system::error_code>, int>;

template <class Code, if_boost_code<Code> = 0>
bool operator==(const Code &code, const errc_code &number) noexcept {
    const auto value = static_cast<errc>(number.value());
    // If a program has made this code of Boost from a std::error_code, the code of Boost still
    // contains that std::error_code.
    const std::error_code within = code;
    return code == asio::make_error_code(value) || within == number;
}
template <class Code, if_boost_code<Code> = 0>
bool operator==(const errc_code &number, const Code &code) noexcept {
    return code == number;
}
template <class Code, if_boost_code<Code> = 0>
bool operator!=(const Code &code, const errc_code &number) noexcept {
    return !(code == number);
}
template <class Code, if_boost_code<Code> = 0>
bool operator!=(const errc_code &number, const Code &code) noexcept {
    return !(code == number);
}
#endif

namespace asio {

namespace detail {

enum direction { reading = 0, writing = 1 };

/// An operation that was started. The reactor of its object attempts it, and completes it once.
class operation {
public:
    virtual ~operation() = default;
    /// Attempts the operation. Returns whether it is done, successfully or not.
    virtual bool attempt() = 0;
    virtual void fail(error_code code) = 0;
    /// Calls the operation's handler. If `is_in_handler`, the handler may run within this call.
    virtual void complete(std::unique_ptr<operation> self, bool is_in_handler) = 0;

    std::uint64_t number = 0;
};

/// The result of an attempt: an error code, and the value for the handler.
template <class Value> struct outcome {
    error_code code;
    Value value;
};
template <> struct outcome<void> {
    error_code code;
};

template <class Attempt, class = void> struct is_taken {
    static bool by(const Attempt &) { return false; }
};
template <class Attempt>
struct is_taken<Attempt, std::void_t<decltype(std::declval<const Attempt &>().is_taken())>> {
    static bool by(const Attempt &attempt) { return attempt.is_taken(); }
};

template <class Handler, class Attempt, class Value> class operation_of final : public operation {
public:
    operation_of(Handler handler, Attempt attempt, const net::any_io_executor &executor)
        : work_(net::get_associated_executor(handler, executor)), handler_(std::move(handler)),
          attempt_(std::move(attempt)) {}

    bool attempt() override {
        std::error_code code;
        if constexpr (std::is_void_v<Value>) attempt_(code);
        else outcome_.value = attempt_(code);
        outcome_.code = code_of(code);
        return !has_to_wait(code);
    }

    void fail(error_code code) override {
        outcome_.code = is_taken<Attempt>::by(attempt_) ? error_code() : code;
    }

    void complete(std::unique_ptr<operation> self, bool is_in_handler) override {
        auto work = std::move(work_);
        auto call = [handler = std::move(handler_), outcome = std::move(outcome_)]() mutable {
            if constexpr (std::is_void_v<Value>) std::move(handler)(outcome.code);
            else std::move(handler)(outcome.code, std::move(outcome.value));
        };
        self.reset(); // before the handler, which may start the next operation
        if (is_in_handler) net::dispatch(work.get_executor(), std::move(call));
        else net::post(work.get_executor(), std::move(call));
    }

private:
    using executor = net::associated_executor_t<Handler, net::any_io_executor>;

    net::executor_work_guard<executor> work_;
    Handler handler_;
    Attempt attempt_;
    outcome<Value> outcome_ = {};
};

/// An object of the reactor that has operations, at most one in each direction: a channel,
/// listener, session or stream.
class source {
public:
    virtual ~source() = default;
    /// The reactor calls this for each event of the object, before it attempts the object's
    /// operations.
    virtual void prepare(std::uint64_t, std::uint32_t) noexcept {}
    /// The reactor calls this for an event of the object for which no operation waits. An override
    /// makes the loop stop its reports of the object, because otherwise the loop would report the
    /// same event in each of its turns.
    virtual void ignore() noexcept {}
    /// Writes the bytes of sent messages that the socket has not taken yet. Returns whether bytes
    /// are left.
    virtual bool flush() noexcept { return false; }

    std::unique_ptr<operation> pending[2];
};

/// The executor of an argument: either the argument itself, or that of an execution context such as
/// io_context.
class executor_argument {
    template <class T>
    static constexpr bool is_context = std::is_base_of_v<net::execution_context, std::decay_t<T>>;

public:
    template <class T,
              class = std::enable_if_t<
                  !std::is_same_v<std::decay_t<T>, executor_argument> &&
                  (is_context<T> || std::is_convertible_v<T, net::any_io_executor>)>>
    executor_argument(T &&of) : executor_(executor_of(of)) {}

    operator const net::any_io_executor &() const noexcept { return executor_; }

private:
    template <class T> static net::any_io_executor executor_of(T &of) {
        if constexpr (is_context<T>) return of.get_executor();
        else return of;
    }

    net::any_io_executor executor_;
};

/// The library's event loop below an executor of asio: when the loop's descriptor is readable, it
/// attempts the pending operations of its objects.
///
///   start ─▶ attempt ─┬─ done ─▶ post the handler
///                     └─ has to wait ─▶ look a few times ─▶ wait for the descriptor ─▶ turn
///
/// A look is an attempt without waiting, which is posted to the executor. A turn handles the events
/// of the loop. The reactor's lock is held in every call but handlers. While an operation is
/// pending, either a wait for the descriptor or a posted look keeps the executor's context running.
/// If that context is destroyed, so are all operations.
///
/// The reactor also waits, without an operation, until a socket has taken the last bytes of a
/// channel's message or of a direction that has ended. That wait keeps the reactor alive, although
/// its objects may be gone.
class reactor : public std::enable_shared_from_this<reactor> {
public:
    explicit reactor(const net::any_io_executor &executor) : descriptor_(executor) {
        const int descriptor = ::fcntl(loop_.fd(), F_DUPFD_CLOEXEC, 0);
        if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "dup");
        error_code code;
        descriptor_.assign(descriptor, code);
        if (!code) return;
        ::close(descriptor);
        // The exception that Boost's asio throws is no std::system_error, so this function throws a
        // std::system_error itself.
        throw std::system_error(code.value(), std::generic_category(), "watching a loop");
    }

    net::any_io_executor executor() { return descriptor_.get_executor(); }
    partywall::loop &loop() noexcept { return loop_; }
    std::mutex &lock() noexcept { return lock_; }

    void spin_budget(std::chrono::nanoseconds budget) {
        const std::lock_guard guard(lock_);
        spin_budget_ = std::thread::hardware_concurrency() > 1 ? budget : budget.zero();
    }

    // The caller of add() and of the functions after it holds the reactor's lock.
    std::uint64_t add(source &object) {
        const auto tag = next_tag_++;
        sources_[tag] = &object;
        return tag;
    }
    void remove(std::uint64_t tag) { sources_.erase(tag); }
    /// Makes each posted attempt read from `channel` before it asks the loop for events.
    void look_at(source *channel) { channel_ = channel; }
    /// Makes the reactor write the rest of the message that was sent last, if the socket has taken
    /// only a part of it.
    void finish_send() {
        if (channel_ == nullptr) return settle_later();
        flush();
        arm();
    }

    /// Handles events of the loop after a direction or a session has ended. The reactor stays alive
    /// until the loop has written the last bytes or given them up: those of a channel after a
    /// second, those of a session later.
    void drain(std::vector<std::unique_ptr<operation>> &done) {
        has_unsent_ = false;
        is_draining_ = true;
        // While an operation of a session is pending, its posted attempt, or its wait for the
        // descriptor, handles the events of the loop.
        if (channel_ != nullptr || pending_ == 0) turn(done);
        arm();
    }

    /// Takes the pending operations of both directions out of an object, to complete them with
    /// operation_aborted.
    void abort(source &object, std::vector<std::unique_ptr<operation>> &aborted) {
        for (auto &place : object.pending) {
            if (place) take(place, net::error::operation_aborted, aborted);
        }
    }

    /// Attempts an operation, and keeps it if it has to wait. The caller keeps the object alive.
    void start(source &object, direction way, std::unique_ptr<operation> started) {
        {
            const std::lock_guard guard(lock_);
            auto &place = object.pending[way];
            if (place) {
                started->fail(code_of(partywall::make_error_code(errc::busy)));
            } else if (!started->attempt()) {
                place = std::move(started);
                pending_++;
                arm();
                return;
            }
        }
        complete(std::move(started), false);
        // The handler is posted before settle(), which handles the events of the loop. A handler
        // mostly starts an operation that waits, whose wait handles the events instead.
        const std::lock_guard guard(lock_);
        settle_later();
    }

    void cancel(source &object, direction way, std::uint64_t number) {
        std::vector<std::unique_ptr<operation>> aborted;
        {
            const std::lock_guard guard(lock_);
            auto &place = object.pending[way];
            if (place && place->number == number) {
                take(place, net::error::operation_aborted, aborted);
            }
        }
        complete_all(std::move(aborted), false);
    }

    /// Handles the events of the loop once, so that the loop writes what a call has queued. Does
    /// nothing while an operation waits for the loop's descriptor, and for a channel, for which the
    /// loop has nothing to write before the channel ends.
    void settle() {
        if (channel_ != nullptr) return;
        std::vector<std::unique_ptr<operation>> none;
        if (pending_ != 0) return;
        turn(none);
        arm();
    }

    /// Posts a call of settle(), which handles the events of the loop once. The call does nothing
    /// if an operation is pending by then.
    void settle_later() {
        if (channel_ != nullptr || pending_ != 0 || is_settling_) return;
        is_settling_ = true;
        net::post(executor(), wake(shared_from_this(), cause::settle));
    }

    static void complete_all(std::vector<std::unique_ptr<operation>> done, bool is_in_handler) {
        // If a handler throws, the others must still be called, so each of several handlers is
        // posted.
        const bool is_alone = done.size() == 1;
        for (auto &one : done) complete(std::move(one), is_in_handler && is_alone);
    }

private:
    /// Why the reactor is woken: the loop's descriptor is readable, or an attempt or a call of
    /// settle() was posted.
    enum class cause { wait, look, settle };

    /// The handler with which the executor wakes the reactor. If the handler is destroyed without a
    /// call, the executor's context is being destroyed, and the reactor is abandoned.
    class wake {
    public:
        wake(std::shared_ptr<reactor> reactor, cause why)
            : reactor_(std::move(reactor)), why_(why) {}
        wake(wake &&) = default;
        wake &operator=(wake &&) = delete;
        ~wake() {
            if (reactor_) reactor_->abandon();
        }
        void operator()() { std::exchange(reactor_, nullptr)->woken(why_); }
        void operator()(error_code) { (*this)(); }

    private:
        std::shared_ptr<reactor> reactor_;
        cause why_;
    };

    static void complete(std::unique_ptr<operation> done, bool is_in_handler) {
        auto &operation = *done;
        operation.complete(std::move(done), is_in_handler);
    }

    void take(std::unique_ptr<operation> &place, error_code code,
              std::vector<std::unique_ptr<operation>> &taken) {
        place->fail(code);
        taken.push_back(std::move(place));
        pending_--;
        flush(); // a message that was taken is sent whole
        if (!has_work()) arm();
    }

    void flush() {
        has_unsent_ = channel_ != nullptr && !is_abandoned_ && channel_->flush();
    }

    /// Whether the reactor has work left that it continues only when something wakes it: a pending
    /// operation, unsent bytes, or the end of a direction.
    bool has_work() const noexcept { return pending_ != 0 || has_unsent_ || is_draining_; }

    /// If the reactor has work, makes sure that something wakes it: a wait for the loop's
    /// descriptor, or a posted attempt. If the reactor has no work, ends the wait, which would keep
    /// the executor's context running.
    void arm() {
        if (!has_work() && is_waiting_) descriptor_.cancel();
        if (is_waiting_ || is_looking_ || !has_work()) return;
        if (pending_ != 0 && spin_budget_ > spin_budget_.zero() && skips_left_ == 0) {
            is_looking_ = true;
            look_until_ = std::chrono::steady_clock::now() + spin_budget_;
            net::post(executor(), wake(shared_from_this(), cause::look));
            return;
        }
        if (skips_left_ != 0) skips_left_--;
        wait();
    }

    void woken(cause why) {
        const bool is_look = why == cause::look;
        std::vector<std::unique_ptr<operation>> done;
        {
            const std::lock_guard guard(lock_);
            if (why == cause::settle) {
                is_settling_ = false;
                return settle();
            }
            (is_look ? is_looking_ : is_waiting_) = false;
            // A channel's messages can be received without handling the events of the loop, and
            // handling them costs system calls.
            const bool is_direct = channel_ != nullptr && !channel_->pending[writing] &&
                                   !has_unsent_ && !is_draining_;
            if (is_direct) look(channel_->pending[reading], is_look ? LOOKS_MAX : 1, done);
            if (!is_direct || (!is_look && done.empty())) turn(done);
            if (is_look && pending_ + done.size() != 0) {
                const bool is_in_time = std::chrono::steady_clock::now() < look_until_;
                if (done.empty() && is_in_time) {
                    is_looking_ = true;
                    net::post(executor(), wake(shared_from_this(), cause::look));
                    return;
                }
                // If no message came within the spin budget, or other handlers used up the budget,
                // the next waits do not poll before they sleep.
                skips_ = is_in_time ? 0 : std::min(2 * skips_ + 1, SKIPS_MAX);
                skips_left_ = skips_;
            }
            if (is_look && done.empty()) wait();
            else arm();
        }
        complete_all(std::move(done), true);
    }

    /// Attempts to read from a channel for a few microseconds. Handlers that are ready run after
    /// that.
    void look(std::unique_ptr<operation> &place, int attempts,
              std::vector<std::unique_ptr<operation>> &done) {
        for (; attempts > 0 && place; attempts--) attempt(place, done);
    }

    void wait() {
        if (is_waiting_ || !has_work()) return;
        is_waiting_ = true;
        descriptor_.async_wait(descriptor_.wait_read, wake(shared_from_this(), cause::wait));
    }

    /// Handles the events of the loop, and attempts the operations of the objects that have events.
    void turn(std::vector<std::unique_ptr<operation>> &done) {
        // The loop's descriptor stays readable until a poll of the loop finds no events. So the
        // loop is asked a second time if it had events the first time; otherwise the executor would
        // wake once more, for nothing.
        for (int round = 0; round < 2 && round_had_events(done); round++) {
        }
        // Only a direction or session that is ending has a timer, so without a timer none is
        // ending.
        is_draining_ = is_draining_ && !is_abandoned_ && loop_.next_timer();
    }

    bool round_had_events(std::vector<std::unique_ptr<operation>> &done) {
        event events[32];
        std::error_code code;
        const auto count = loop_.wait(events, std::size(events), no_wait, code);
        if (code) {
            is_draining_ = false;
            for (auto &[tag, object] : sources_) fail(*object, code_of(code), done);
            has_unsent_ = false;
        }
        for (std::size_t index = 0; index < count; index++) {
            const auto found = sources_.find(events[index].tag);
            if (found == sources_.end()) continue;
            auto &object = *found->second; // which may remove the tag
            object.prepare(events[index].tag, events[index].kinds);
            const auto kinds = events[index].kinds;
            const auto end = kinds & PARTYWALL_ENDED;
            const auto read = kinds & (PARTYWALL_READABLE | PARTYWALL_OPENED);
            if (object.pending[reading] && (read | end)) attempt(object.pending[reading], done);
            // The object has a message but no operation reads it: its last operation is done, and
            // the next may not begin soon.
            if (read && !object.pending[reading] && !is_channel_with(done)) object.ignore();
            if (object.pending[writing] && (kinds & PARTYWALL_WRITABLE || end)) {
                attempt(object.pending[writing], done);
            }
            if (has_unsent_ && (kinds & PARTYWALL_WRITABLE || end)) flush();
        }
        return count != 0;
    }

    /// Whether the reactor's only object is a channel whose read is done. Its next read follows at
    /// once, so pausing the channel would cost more than it saves.
    bool is_channel_with(const std::vector<std::unique_ptr<operation>> &done) const {
        return channel_ != nullptr && !done.empty();
    }

    void attempt(std::unique_ptr<operation> &place,
                 std::vector<std::unique_ptr<operation>> &done) {
        if (!place->attempt()) return;
        done.push_back(std::move(place));
        pending_--;
    }

    void fail(source &object, error_code code, std::vector<std::unique_ptr<operation>> &done) {
        for (auto &place : object.pending) {
            if (place) take(place, code, done);
        }
    }

    /// Destroys all pending operations, because the executor's context is destroyed. asio does the
    /// same with the operations of sockets.
    void abandon() {
        std::vector<std::unique_ptr<operation>> destroyed;
        const std::lock_guard guard(lock_);
        is_waiting_ = is_looking_ = is_settling_ = false;
        for (auto &[tag, object] : sources_) {
            for (auto &place : object->pending) {
                if (place) destroyed.push_back(std::move(place));
            }
        }
        pending_ = 0;
        has_unsent_ = is_draining_ = false;
        is_abandoned_ = true;
    }

    static constexpr int SKIPS_MAX = 63, LOOKS_MAX = 16;

    partywall::loop loop_;
    net::posix::stream_descriptor descriptor_;
    std::mutex lock_;
    std::map<std::uint64_t, source *> sources_;
    source *channel_ = nullptr;
    std::uint64_t next_tag_ = 1;
    std::size_t pending_ = 0;
    bool is_waiting_ = false, is_looking_ = false, is_settling_ = false;
    /// has_unsent_: the channel has bytes that its socket has not taken. is_draining_: the loop has
    /// such bytes of directions that have ended.
    bool has_unsent_ = false, is_draining_ = false;
    /// Whether the executor's context is destroyed. If so, freeing the loop waits for the last
    /// bytes.
    bool is_abandoned_ = false;
    std::chrono::nanoseconds spin_budget_ =
        std::chrono::microseconds(std::thread::hardware_concurrency() > 1 ? 50 : 0);
    std::chrono::steady_clock::time_point look_until_;
    /// Number of the next waits that sleep at once, without polling first.
    int skips_left_ = 0;
    /// The value that `skips_left_` got after the last poll without a message. The next such poll
    /// doubles it.
    int skips_ = 0;
};

/// A pointer to the state that an object shares with its operations; null if the object is empty.
/// The object keeps its executor when the state is moved away, as a socket of asio does.
template <class State> class shared_state {
public:
    shared_state() = default;
    explicit shared_state(std::shared_ptr<State> state) : state_(std::move(state)) {
        if (state_) executor_ = state_->reactor->executor();
    }
    shared_state(shared_state &&other) noexcept
        : state_(std::move(other.state_)), executor_(other.executor_) {}
    shared_state &operator=(shared_state &&other) noexcept {
        state_ = std::move(other.state_);
        executor_ = other.executor_;
        return *this;
    }

    net::any_io_executor executor() const noexcept {
        return executor_ ? executor_ : net::any_io_executor(net::system_executor());
    }
    const std::shared_ptr<State> &shared() const noexcept { return state_; }
    explicit operator bool() const noexcept { return state_ != nullptr; }
    /// Returns the state that the object shares with its operations, or throws errc::argument if
    /// the object is empty.
    State *operator->() const {
        if (!state_) throw error(partywall::make_error_code(errc::argument), "");
        return state_.get();
    }
    State &operator*() const { return *operator->(); }

private:
    std::shared_ptr<State> state_;
    net::any_io_executor executor_;
};

/// Starts an operation of a channel, listener, session or stream. `State` is the class of what that
/// object shares with its operations; it has a member `reactor`, which attempts them.
template <class Value, class State, class Attempt, class Token, class Signature>
auto initiate(const shared_state<State> &object, direction way, Attempt attempt, Token &&token,
              Signature *) {
    return net::async_initiate<Token, Signature>(
        [way](auto handler, std::shared_ptr<State> state, Attempt attempt,
              const net::any_io_executor &of_empty) {
            using made = operation_of<decltype(handler), Attempt, Value>;
            if (!state) {
                auto failed =
                    std::make_unique<made>(std::move(handler), std::move(attempt), of_empty);
                failed->fail(code_of(partywall::make_error_code(errc::argument)));
                auto &operation = *failed;
                operation.complete(std::move(failed), false);
                return;
            }
            static std::atomic<std::uint64_t> numbers{1};
            const auto number = numbers.fetch_add(1, std::memory_order_relaxed);
            auto &reactor = *state->reactor;
#if PARTYWALL_ASIO_VERSION >= 102000
            auto slot = net::get_associated_cancellation_slot(handler);
            if (slot.is_connected()) {
                slot.assign([weak = std::weak_ptr<State>(state), way,
                             number](net::cancellation_type type) {
                    const auto state = weak.lock();
                    if (state && type != net::cancellation_type::none) {
                        state->reactor->cancel(*state, way, number);
                    }
                });
            }
#endif
            auto &object = *state;
            auto operation = std::make_unique<made>(std::move(handler), std::move(attempt),
                                                    reactor.executor());
            operation->number = number;
            reactor.start(object, way, std::move(operation));
        },
        token, object.shared(), std::move(attempt),
        object ? net::any_io_executor() : object.executor());
}

/// The state that a channel or stream shares with its pending operations.
template <class Object> class endpoint : public source {
public:
    explicit endpoint(std::shared_ptr<detail::reactor> below) : reactor(std::move(below)) {}

    void ignore() noexcept override {
        std::error_code code;
        object.pause(code);
    }

    bool flush() noexcept override {
        std::error_code code;
        if constexpr (std::is_same_v<Object, partywall::channel>) object.flush(no_wait, code);
        return has_to_wait(code);
    }

    void close() {
        std::vector<std::unique_ptr<operation>> aborted;
        {
            const std::lock_guard guard(reactor->lock());
            if (tag == 0) return;
            reactor->abort(*this, aborted);
            reactor->remove(std::exchange(tag, 0));
            rest = {};
            object = Object();
            reactor->drain(aborted);
            reactor->look_at(nullptr);
        }
        reactor::complete_all(std::move(aborted), false);
    }

    const std::shared_ptr<detail::reactor> reactor;
    /// The object that accepts the further streams of a stream's session, kept alive by the stream;
    /// null for a channel.
    std::shared_ptr<source> owner;
    Object object;
    std::uint64_t tag = 0;
    /// The bytes of the last received message that async_read_some has not copied to its caller
    /// yet.
    bytes_view rest;
};

/// The attempt to send one message. A socket may take a part of the message now and the rest later.
template <class Object> class sending {
public:
    sending(std::shared_ptr<endpoint<Object>> state, bytes_view bytes)
        : state_(std::move(state)), bytes_(bytes) {}

    void operator()(std::error_code &code) {
        auto &object = state_->object;
        if (!is_taken_) object.send(bytes_, no_wait, code);
        is_taken_ = is_taken_ || !code;
        if constexpr (std::is_same_v<Object, partywall::channel>) {
            if (is_taken_) object.flush(no_wait, code);
        }
    }
    bool is_taken() const noexcept { return is_taken_; }

private:
    std::shared_ptr<endpoint<Object>> state_;
    bytes_view bytes_;
    bool is_taken_ = false;
};

/// The operations that asynchronous channels and streams have in common.
template <class Object> class messages {
public:
    using executor_type = net::any_io_executor;

    messages() = default;
    messages(messages &&) = default;
    messages &operator=(messages &&other) {
        if (this != &other) {
            close();
            state_ = std::move(other.state_);
        }
        return *this;
    }
    ~messages() { close(); }

    executor_type get_executor() const noexcept { return state_.executor(); }
    /// Whether the object has a channel or stream that this side has not closed. It is true also
    /// after the peer has ended the connection.
    bool is_open() const noexcept { return state_ && state_->tag != 0; }
    explicit operator bool() const noexcept { return is_open(); }

    /// Receives a message as an object that the program owns: void(error_code, partywall::message).
    template <class Token> auto async_recv(Token &&token) {
        using signature = void(error_code, message);
        return initiate<message>(
            state_, reading,
            [state = state_.shared()](std::error_code &code) { return state->object.recv(no_wait, code); },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Receives a message without a copy: void(error_code, bytes_view). The bytes are valid until
    /// the next receiving operation begins, or the object is closed.
    template <class Token> auto async_recv_view(Token &&token) {
        using signature = void(error_code, bytes_view);
        return initiate<bytes_view>(
            state_, reading,
            [state = state_.shared()](std::error_code &code) {
                return state->object.recv_view(no_wait, code);
            },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Sends a copy of the bytes as one message: void(error_code). The caller keeps the bytes valid
    /// until the handler is called.
    template <class Token> auto async_send(bytes_view bytes, Token &&token) {
        using signature = void(error_code);
        return initiate<void>(state_, writing, sending<Object>(state_.shared(), bytes),
                              std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Sends the bytes as one message if there is room now; otherwise `code` is errc::full.
    void send(bytes_view bytes, std::error_code &code) {
        if (!state_) {
            code = partywall::make_error_code(errc::argument);
            return;
        }
        const std::lock_guard guard(state_->reactor->lock());
        state_->object.send(bytes, no_wait, code);
        if (!code) state_->reactor->finish_send();
    }

    /// Cancels the operations of both directions, which get net::error::operation_aborted. If the
    /// socket has taken a part of a message, the message is sent all the same, and its operation
    /// succeeds.
    void cancel() {
        if (!state_) return;
        std::vector<std::unique_ptr<operation>> aborted;
        {
            const std::lock_guard guard(state_->reactor->lock());
            state_->reactor->abort(*state_, aborted);
        }
        reactor::complete_all(std::move(aborted), false);
    }

    /// Ends both directions, and cancels their operations. The peer receives every sent message.
    /// While the executor's context runs, no call waits for the peer. The peer has a second to read
    /// a channel's last bytes from its socket.
    void close() {
        if (state_) state_->close();
    }

    /// Sets how long the object polls for a message before it sleeps: by default 50 µs, or 0 on a
    /// machine with one processor. After polls without a message it polls less often. All streams
    /// of a session or acceptor share one budget.
    void spin_budget(std::chrono::nanoseconds budget) { state_->reactor->spin_budget(budget); }

protected:
    explicit messages(std::shared_ptr<endpoint<Object>> state) : state_(std::move(state)) {}

    shared_state<endpoint<Object>> state_;
};

} // namespace detail

/// A channel whose operations are asynchronous, below an executor of asio.
class channel : public detail::messages<partywall::channel> {
public:
    channel() = default;

    /// Takes over a channel of partywall.hpp that is in no loop.
    channel(const detail::executor_argument &executor, partywall::channel open)
        : messages(std::make_shared<state>(std::make_shared<detail::reactor>(executor))) {
        state_->reactor->look_at(&*state_);
        state_->tag = state_->reactor->add(*state_);
        state_->object = std::move(open);
        state_->reactor->loop().add(state_->object, state_->tag);
    }

    /// Opens a channel with the listener at `address`. Waits for the handshake.
    static channel connect(const detail::executor_argument &executor, const std::string &address,
                           const config &with = {}) {
        return {executor, partywall::channel::connect(address, with)};
    }

    /// Ends the channel's sending direction. The channel still receives the peer's messages.
    void close_write() {
        std::vector<std::unique_ptr<detail::operation>> done;
        {
            const std::lock_guard guard(state_->reactor->lock());
            state_->object.close_write();
            state_->reactor->drain(done);
        }
        detail::reactor::complete_all(std::move(done), false);
    }

private:
    using state = detail::endpoint<partywall::channel>;
};

/// Accepts channels.
class listener {
public:
    using executor_type = net::any_io_executor;

    listener(const detail::executor_argument &executor, const std::string &address,
             const config &with = {})
        : state_(std::make_shared<state>(std::make_shared<detail::reactor>(executor))) {
        state_->object = partywall::listener::bind(address, with);
        state_->tag = state_->reactor->add(*state_);
        state_->reactor->loop().add(state_->object, state_->tag);
    }
    listener(listener &&) = default;
    listener &operator=(listener &&) = delete;
    ~listener() { close(); }

    executor_type get_executor() const noexcept { return state_.executor(); }
    std::string address() const {
        const std::lock_guard guard(state_->reactor->lock());
        return state_->object.address();
    }

    /// Accepts the next channel: void(error_code, channel). If a handshake fails, the operation
    /// completes with its error.
    template <class Token> auto async_accept(Token &&token) {
        using signature = void(error_code, channel);
        return detail::initiate<channel>(
            state_, detail::reading,
            [state = state_.shared()](std::error_code &code) {
                auto accepted = state->object.accept(no_wait, code);
                if (!accepted) return channel();
                try {
                    return channel(state->reactor->executor(), std::move(accepted));
                } catch (const std::system_error &error) {
                    code = error.code();
                    return channel();
                }
            },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Stops listening, and cancels the pending async_accept.
    void close() {
        if (!state_) return;
        std::vector<std::unique_ptr<detail::operation>> aborted;
        {
            const std::lock_guard guard(state_->reactor->lock());
            state_->reactor->abort(*state_, aborted);
            state_->reactor->remove(state_->tag);
            state_->object = partywall::listener();
        }
        detail::reactor::complete_all(std::move(aborted), false);
    }

private:
    struct state : detail::source {
        explicit state(std::shared_ptr<detail::reactor> below) : reactor(std::move(below)) {}
        const std::shared_ptr<detail::reactor> reactor;
        partywall::listener object;
        std::uint64_t tag = 0;
    };

    detail::shared_state<state> state_;
};

class session;
class acceptor;

namespace detail {
class streams;
} // namespace detail

/// A stream of a session whose operations are asynchronous, below an executor of asio: messages, or
/// bytes without the boundaries of messages. As bytes it models AsyncReadStream and
/// AsyncWriteStream, so that asio::async_read, asio::async_write and Beast run over it. Use each
/// direction for messages or for bytes, not for both.
class stream : public detail::messages<partywall::stream> {
public:
    stream() = default;

    /// Opens a session with the acceptor at `address`, and one stream in it. Waits for the
    /// handshake.
    static inline stream connect(const detail::executor_argument &executor,
                                 const std::string &address, const config &with = {},
                                 bytes_view metadata = {});

    /// The metadata that the peer sent when it opened the stream, valid as long as the stream.
    bytes_view metadata() const {
        if (!state_) return {};
        const std::lock_guard guard(state_->reactor->lock());
        return state_->object.metadata();
    }

    /// Reads the bytes that have arrived, at least one: void(error_code, std::size_t).
    template <class Buffers, class Token>
    auto async_read_some(const Buffers &buffers, Token &&token) {
        using signature = void(error_code, std::size_t);
        return detail::initiate<std::size_t>(
            state_, detail::reading,
            [state = state_.shared(), buffers](std::error_code &code) {
                return read_some(*state, buffers, code);
            },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Writes as many of the bytes as one message holds: void(error_code, std::size_t).
    template <class Buffers, class Token>
    auto async_write_some(const Buffers &buffers, Token &&token) {
        using signature = void(error_code, std::size_t);
        return detail::initiate<std::size_t>(
            state_, detail::writing,
            [state = state_.shared(), buffers](std::error_code &code) {
                return write_some(*state, buffers, code);
            },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Ends the stream's sending direction in good order. The stream still receives the peer's
    /// bytes.
    void shutdown_send() {
        const std::lock_guard guard(state_->reactor->lock());
        state_->object.finish();
        state_->reactor->settle();
    }

    /// Ends both directions of the stream at once: the peer gets errc::stream_reset or
    /// errc::stream_stopped.
    void reset(std::uint32_t number) {
        const std::lock_guard guard(state_->reactor->lock());
        state_->object.reset(number);
        state_->object.stop(number);
        state_->reactor->settle();
    }

private:
    friend class session;
    friend class acceptor;
    using state = detail::endpoint<partywall::stream>;
    friend class detail::streams;
    stream(std::shared_ptr<state> made, std::shared_ptr<detail::source> owner)
        : messages(std::move(made)) {
        if (state_) state_->owner = std::move(owner);
    }

    template <class Buffers>
    static std::size_t read_some(state &from, const Buffers &buffers, std::error_code &code) {
        if (net::buffer_size(buffers) == 0) return 0;
        while (from.rest.empty()) { // a message may be empty
            from.rest = from.object.recv_view(no_wait, code);
            if (code) {
                from.rest = {};
                return 0;
            }
        }
        const auto count =
            net::buffer_copy(buffers, net::buffer(from.rest.data(), from.rest.size()));
        from.rest = {from.rest.data() + count, from.rest.size() - count};
        return count;
    }

    template <class Buffers>
    static std::size_t write_some(state &to, const Buffers &buffers, std::error_code &code) {
        const auto size = std::min(net::buffer_size(buffers), WRITE_BYTES_MAX);
        if (size == 0) return 0;
        const auto written = write(to, buffers, size, code);
        if (code != errc::message_too_long || size <= WRITE_BYTES_SMALL) return written;
        return write(to, buffers, WRITE_BYTES_SMALL, code);
    }

    template <class Buffers>
    static std::size_t write(state &to, const Buffers &buffers, std::size_t size,
                             std::error_code &code) {
        const net::const_buffer first = *net::buffer_sequence_begin(buffers);
        if (first.size() >= size) {
            to.object.send({first.data(), size}, no_wait, code);
        } else {
            auto reserved = to.object.reserve(size, no_wait, code);
            if (code) return 0;
            net::buffer_copy(net::buffer(reserved.data(), size), buffers);
            to.object.commit(reserved, no_wait, code); // without room the copy is made again later
        }
        return code ? 0 : size;
    }

    /// Maximum length in bytes of a message of async_write_some: four such messages and their
    /// headers fit the default window of a stream.
    static constexpr std::size_t WRITE_BYTES_MAX = (64 << 10) - 64;
    /// Maximum length in bytes of a message after the session has refused a longer one: a session
    /// with little memory carries messages of this length, too.
    static constexpr std::size_t WRITE_BYTES_SMALL = 4 << 10;
};

namespace detail {

/// Accepts the streams that peers open, of one session or of all sessions of a listener. It lives
/// as long as any of its streams, because further streams have to be refused as long as their
/// session lives.
class hub : public source {
public:
    explicit hub(std::shared_ptr<detail::reactor> below) : reactor(std::move(below)) {}
    ~hub() override {
        std::vector<std::unique_ptr<operation>> none; // each would keep the hub
        const std::lock_guard guard(reactor->lock());
        reactor->remove(tag_);
        for (auto &[tag, session] : sessions_) reactor->remove(tag);
        for (auto &stream : opened_) reactor->remove(stream->tag);
        // The streams and sessions end before the reactor handles the loop's events for the last
        // time.
        opened_.clear();
        sessions_.clear();
        listener_ = session_listener();
        reactor->drain(none);
    }

    void listen(const std::string &address, const config &with) {
        tag_ = reactor->add(*this);
        listener_ = session_listener::bind(address, with, reactor->loop(), tag_);
    }
    void connect(const std::string &address, const config &with) {
        const auto tag = reactor->add(*this);
        auto &session = sessions_[tag];
        session = partywall::session::connect(address, with, reactor->loop(), tag);
    }

    std::string address() const { return listener_.address(); }

    /// Takes the sessions and streams that peers have opened, even while no async_accept is
    /// pending.
    void prepare(std::uint64_t tag, std::uint32_t) noexcept override {
        std::error_code code;
        if (tag == tag_) return accept_sessions();
        const auto found = sessions_.find(tag);
        if (found == sessions_.end()) return;
        for (;;) {
            auto made = std::make_shared<endpoint<partywall::stream>>(reactor);
            made->tag = reactor->add(*made);
            made->object = found->second.accept(no_wait, made->tag, code);
            if (code || is_closed_) reactor->remove(made->tag);
            if (code) break;
            if (!is_closed_) opened_.push_back(std::move(made));
        }
        if (has_to_wait(code)) return;
        if (!listener_) failure_ = code;
        reactor->remove(tag);
        sessions_.erase(found);
    }

    std::shared_ptr<endpoint<partywall::stream>> accept(std::error_code &code) {
        code = is_closed_ ? partywall::make_error_code(errc::session_closed_here) : failure_;
        if (opened_.empty()) {
            if (!code) code = partywall::make_error_code(errc::would_block);
            return nullptr;
        }
        code.clear();
        auto first = std::move(opened_.front());
        opened_.pop_front();
        return first;
    }

    /// Opens a stream of the session, for an object that has one session and no listener.
    std::shared_ptr<endpoint<partywall::stream>> open(bytes_view metadata, std::error_code &code) {
        if (is_closed_ || sessions_.empty()) {
            code = failure_ ? failure_ : partywall::make_error_code(errc::session_closed_here);
            return nullptr;
        }
        auto made = std::make_shared<endpoint<partywall::stream>>(reactor);
        made->tag = reactor->add(*made);
        made->object = sessions_.begin()->second.open(metadata, no_wait, made->tag, code);
        if (made->object) return made;
        reactor->remove(made->tag);
        return nullptr;
    }

    /// Stops accepting. Streams that were accepted or opened go on.
    void close() {
        std::vector<std::unique_ptr<operation>> aborted;
        std::deque<std::shared_ptr<endpoint<partywall::stream>>> opened;
        {
            const std::lock_guard guard(reactor->lock());
            is_closed_ = true;
            reactor->abort(*this, aborted);
            listener_ = session_listener();
            std::error_code code;
            for (auto &[tag, session] : sessions_) session.go_away(0, code);
            opened.swap(opened_);
            reactor->settle();
        }
        for (auto &stream : opened) stream->close();
        reactor::complete_all(std::move(aborted), false);
    }

    const std::shared_ptr<detail::reactor> reactor;

private:
    void accept_sessions() noexcept {
        std::error_code code;
        // A failed handshake concerns only its peer, so the loop goes on and attempts to accept the
        // next session.
        for (int attempts = 0; attempts < 64 && !has_to_wait(code); attempts++) {
            const auto tag = reactor->add(*this);
            auto accepted = listener_.accept(no_wait, tag, code);
            if (accepted) sessions_[tag] = std::move(accepted);
            else reactor->remove(tag);
        }
    }

    std::uint64_t tag_ = 0;
    session_listener listener_;
    std::map<std::uint64_t, partywall::session> sessions_;
    std::deque<std::shared_ptr<endpoint<partywall::stream>>> opened_;
    /// Why the only session of a client is over; without meaning in a server, which has many.
    std::error_code failure_;
    bool is_closed_ = false;
};

/// The operations that sessions and acceptors have in common.
class streams {
public:
    using executor_type = net::any_io_executor;

    streams(streams &&) = default;
    streams &operator=(streams &&) = delete;
    ~streams() { close(); }

    executor_type get_executor() const noexcept { return hub_.executor(); }

    /// Accepts the next stream that a peer opens: void(error_code, stream).
    template <class Token> auto async_accept(Token &&token);

    /// Stops accepting, and cancels the operations. Streams that were accepted or opened go on.
    void close() {
        if (hub_) hub_->close();
    }

    /// Sets how long the session or acceptor polls before it sleeps, for all its streams together:
    /// by default 50 µs, or 0 on a machine with one processor.
    void spin_budget(std::chrono::nanoseconds budget) { hub_->reactor->spin_budget(budget); }

protected:
    explicit streams(const executor_argument &executor)
        : hub_(std::make_shared<hub>(std::make_shared<reactor>(executor))) {}

    shared_state<hub> hub_;
};

} // namespace detail

/// A session whose operations are asynchronous, below an executor of asio. It opens and accepts
/// streams.
class session : public detail::streams {
public:
    /// Opens a session with the listener at `address`. Waits for the handshake.
    static session connect(const detail::executor_argument &executor, const std::string &address,
                           const config &with = {}) {
        session made(executor);
        made.hub_->connect(address, with);
        return made;
    }

    /// Opens a stream: void(error_code, stream). The caller keeps the metadata valid until the
    /// handler runs.
    template <class Token> auto async_open(bytes_view metadata, Token &&token) {
        using signature = void(error_code, stream);
        return detail::initiate<stream>(
            hub_, detail::writing,
            [hub = hub_.shared(), metadata](std::error_code &code) {
                return stream(hub->open(metadata, code), hub);
            },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

private:
    using streams::streams;
};

/// A listener that accepts the streams of every session that peers open at an address.
class acceptor : public detail::streams {
public:
    acceptor(const detail::executor_argument &executor, const std::string &address,
             const config &with = {})
        : streams(executor) {
        hub_->listen(address, with);
    }

    /// The address that the acceptor is bound to; for port 0 it has the port that the system chose.
    std::string address() const {
        const std::lock_guard guard(hub_->reactor->lock());
        return hub_->address();
    }
};

template <class Token> auto detail::streams::async_accept(Token &&token) {
    using signature = void(error_code, stream);
    return initiate<stream>(
        hub_, reading,
        [hub = hub_.shared()](std::error_code &code) { return stream(hub->accept(code), hub); },
        std::forward<Token>(token), static_cast<signature *>(nullptr));
}

inline stream stream::connect(const detail::executor_argument &executor, const std::string &address,
                              const config &with, bytes_view metadata) {
    const auto hub =
        std::make_shared<detail::hub>(std::make_shared<detail::reactor>(executor));
    hub->connect(address, with);
    std::error_code code;
    auto made = [&] {
        const std::lock_guard guard(hub->reactor->lock());
        return stream(hub->open(metadata, code), hub);
    }();
    if (code) throw error(code, "");
    hub->close();
    return made;
}

} // namespace asio
} // namespace partywall

#endif
