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
// Which asio: that of Boost if it is there, otherwise the one without Boost. ASIO_STANDALONE, which
// is asio's own macro, chooses the latter.
//
// Ends. The end of the peer's sending is net::error::eof. A cancelled operation, and one whose
// object was closed or destroyed, gets net::error::operation_aborted. Any other failure is a number
// of partywall::category().
//
// Rules are those of asio's sockets: at most one operation of each direction at a time, else
// errc::busy; buffers stay valid until the handler is called; handlers run in their associated
// executor, never within the call that starts the operation. Objects of one session, or one
// acceptor, may be used by different threads at the same time; one object may not.
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

// ---- Errors ------------------------------------------------------------------------------------

namespace detail {

#ifdef PARTYWALL_BOOST_ASIO
/// partywall::category() for Boost, whose versions before 1.77 do not convert a std::error_code.
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

/// Whether an attempt has found that it would have to wait.
inline bool has_to_wait(std::error_code code) noexcept {
    return code == errc::empty || code == errc::full || code == errc::would_block ||
           code == errc::timed_out;
}

} // namespace detail

/// The code of handlers that stands for `value`: `code == make_error_code(errc::disconnected)`.
inline error_code make_error_code(errc value) noexcept {
    return detail::code_of(partywall::make_error_code(value));
}

} // namespace asio

#ifdef PARTYWALL_BOOST_ASIO
// Boost's own comparison of a code of handlers with a std::error_code is false. These say whether the
// code stands for the number: `code == errc::full`, `code == make_error_code(errc::full)`.
template <class Code>
using if_boost_code = std::enable_if_t<std::is_same_v<Code, ::boost::system::error_code>, int>;

template <class Code, if_boost_code<Code> = 0>
bool operator==(const Code &code, const errc_code &number) noexcept {
    const auto value = static_cast<errc>(number.value());
    // A std::error_code from which a program has made one of Boost stays within it.
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

// ---- Operations and their reactor --------------------------------------------------------------

namespace detail {

enum direction { reading = 0, writing = 1 };

/// An operation that was started. Its reactor attempts it, and then completes it once.
class operation {
public:
    virtual ~operation() = default;
    /// Returns whether the operation is done, successfully or not.
    virtual bool attempt() = 0;
    virtual void fail(error_code code) = 0;
    /// Calls the handler, which may happen within this call if `is_in_handler`.
    virtual void complete(std::unique_ptr<operation> self, bool is_in_handler) = 0;

    std::uint64_t number = 0;
};

/// What an object of an operation attempts, with the value for the handler.
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

/// An object with operations, at most one of each direction.
class source {
public:
    virtual ~source() = default;
    /// Called for each event before the operations are attempted.
    virtual void prepare(std::uint64_t, std::uint32_t) noexcept {}
    /// Called for an event that no operation waits for. An override pauses the source, because the
    /// loop would otherwise report the same event in each turn.
    virtual void ignore() noexcept {}
    /// Writes what a socket has not taken yet of sent messages. Returns whether bytes are left.
    virtual bool flush() noexcept { return false; }

    std::unique_ptr<operation> pending[2];
};

/// The executor that an argument names: it is one, or belongs to an execution context such as
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

/// A loop below an executor: it attempts operations when the loop's descriptor is readable.
///
///   start ─▶ attempt ─┬─ done ─▶ post the handler
///                     └─ has to wait ─▶ look a few times ─▶ wait for the descriptor ─▶ turn
///
/// The lock is held in every call but handlers. While an operation is pending, either a wait for the
/// descriptor or a posted look is under way, which keeps the executor's context running. If that
/// context is destroyed, so are all operations.
///
/// Bytes that a socket has not taken yet have a wait, too, without an operation: those of a channel,
/// and those of directions that have ended. The wait keeps the reactor, whose objects may be gone.
class reactor : public std::enable_shared_from_this<reactor> {
public:
    explicit reactor(const net::any_io_executor &executor) : descriptor_(executor) {
        const int descriptor = ::fcntl(loop_.fd(), F_DUPFD_CLOEXEC, 0);
        if (descriptor < 0) throw std::system_error(errno, std::generic_category(), "dup");
        error_code code;
        descriptor_.assign(descriptor, code);
        if (!code) return;
        ::close(descriptor);
        // The exception of asio for Boost is no std::system_error.
        throw std::system_error(code.value(), std::generic_category(), "watching a loop");
    }

    net::any_io_executor executor() { return descriptor_.get_executor(); }
    partywall::loop &loop() noexcept { return loop_; }
    std::mutex &lock() noexcept { return lock_; }

    void spin_budget(std::chrono::nanoseconds budget) {
        const std::lock_guard guard(lock_);
        spin_budget_ = std::thread::hardware_concurrency() > 1 ? budget : budget.zero();
    }

    // The caller of these holds the lock.
    std::uint64_t add(source &object) {
        const auto tag = next_tag_++;
        sources_[tag] = &object;
        return tag;
    }
    void remove(std::uint64_t tag) { sources_.erase(tag); }
    /// Makes a look attempt to read from a channel before it asks the loop.
    void look_at(source *channel) { channel_ = channel; }
    /// Has the bytes written that the socket has not taken of a message that was sent just now.
    void finish_send() {
        if (channel_ == nullptr) return settle_later();
        flush();
        arm();
    }

    /// Turns the loop after a direction or a session has ended. The reactor stays until the loop has
    /// written the last bytes or given them up: of a channel after a second, of a session later.
    void drain(std::vector<std::unique_ptr<operation>> &done) {
        has_unsent_ = false;
        is_draining_ = true;
        // While an operation of a session is pending, its wait or look turns the loop.
        if (channel_ != nullptr || pending_ == 0) turn(done);
        arm();
    }

    /// Takes both operations of an object, which get operation_aborted.
    void abort(source &object, std::vector<std::unique_ptr<operation>> &aborted) {
        for (auto &place : object.pending) {
            if (place) take(place, net::error::operation_aborted, aborted);
        }
    }

    /// Attempts an operation, and keeps it if it has to wait. The caller keeps the object.
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
        // The handler comes first: mostly it starts an operation that waits.
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

    /// Turns the loop once if no operation waits for its descriptor, so that the loop writes what a
    /// call has begun. A channel needs no such turn before it ends.
    void settle() {
        if (channel_ != nullptr) return;
        std::vector<std::unique_ptr<operation>> none;
        if (pending_ != 0) return;
        turn(none);
        arm();
    }

    /// As settle(), unless an operation is pending by then.
    void settle_later() {
        if (channel_ != nullptr || pending_ != 0 || is_settling_) return;
        is_settling_ = true;
        net::post(executor(), wake(shared_from_this(), cause::settle));
    }

    static void complete_all(std::vector<std::unique_ptr<operation>> done, bool is_in_handler) {
        // A handler that throws must not keep others from being called.
        const bool is_alone = done.size() == 1;
        for (auto &one : done) complete(std::move(one), is_in_handler && is_alone);
    }

private:
    /// Why the reactor is woken.
    enum class cause { wait, look, settle };

    /// The handler of a wait, or one that was posted. If it is destroyed instead of called, its
    /// context is, too.
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

    /// Whether something has to wake the reactor.
    bool has_work() const noexcept { return pending_ != 0 || has_unsent_ || is_draining_; }

    /// Sees to it that something wakes the reactor if it has work, and that no wait keeps the
    /// context running otherwise.
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
            // A channel has its messages without a turn of the loop, which costs system calls.
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
                // If no message came within the budget, or other handlers used up the budget, the
                // next waits sleep without polling before.
                skips_ = is_in_time ? 0 : std::min(2 * skips_ + 1, SKIPS_MAX);
                skips_left_ = skips_;
            }
            if (is_look && done.empty()) wait();
            else arm();
        }
        complete_all(std::move(done), true);
    }

    /// Attempts to read from a channel for a few microseconds. Handlers that are ready run after it.
    void look(std::unique_ptr<operation> &place, int attempts,
              std::vector<std::unique_ptr<operation>> &done) {
        for (; attempts > 0 && place; attempts--) attempt(place, done);
    }

    void wait() {
        if (is_waiting_ || !has_work()) return;
        is_waiting_ = true;
        descriptor_.async_wait(descriptor_.wait_read, wake(shared_from_this(), cause::wait));
    }

    /// Lets the loop advance, and attempts the operations of objects with events.
    void turn(std::vector<std::unique_ptr<operation>> &done) {
        // A round without events leaves the descriptor not readable. So a second round follows one
        // with events: otherwise the executor would wake once more, for nothing.
        for (int round = 0; round < 2 && round_had_events(done); round++) {
        }
        // Only what ends has a timer.
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
            // The operation that reads is done, and the next one may not begin soon.
            if (read && !object.pending[reading] && !is_channel_with(done)) object.ignore();
            if (object.pending[writing] && (kinds & PARTYWALL_WRITABLE || end)) {
                attempt(object.pending[writing], done);
            }
            if (has_unsent_ && (kinds & PARTYWALL_WRITABLE || end)) flush();
        }
        return count != 0;
    }

    /// Whether the only source is a channel whose read is done: its next read follows at once, so
    /// pausing the channel would cost more than it saves.
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

    /// Destroys the operations of a context that is destroyed, as asio does with those of sockets.
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
    /// Whether the channel has bytes that its socket has not taken, and whether the loop has such
    /// bytes of directions that have ended.
    bool has_unsent_ = false, is_draining_ = false;
    /// Whether the context is destroyed: then freeing the loop waits for the last bytes.
    bool is_abandoned_ = false;
    std::chrono::nanoseconds spin_budget_ =
        std::chrono::microseconds(std::thread::hardware_concurrency() > 1 ? 50 : 0);
    std::chrono::steady_clock::time_point look_until_;
    /// Number of next waits that sleep without polling before.
    int skips_left_ = 0;
    /// The value of `skips_left_` after the last poll without a message; the next one doubles it.
    int skips_ = 0;
};

/// The state that an object shares with its operations, none if the object is empty. The executor
/// stays when the state is moved away, as that of a socket does.
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
    /// Throws errc::argument if there is no state.
    State *operator->() const {
        if (!state_) throw error(partywall::make_error_code(errc::argument), "");
        return state_.get();
    }
    State &operator*() const { return *operator->(); }

private:
    std::shared_ptr<State> state_;
    net::any_io_executor executor_;
};

/// Starts an operation of an object. `State` is a source with the member `reactor`.
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

/// The state of a channel or stream, which its operations share.
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

    /// Ends the object and its operations.
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
    /// For a stream, the source that accepts the other streams of its session; null for a channel.
    std::shared_ptr<source> owner;
    Object object;
    std::uint64_t tag = 0;
    /// The bytes of the last received message that read_some has not copied to its caller yet.
    bytes_view rest;
};

/// Sends one message. A socket may take a part of it now and the rest later.
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

/// What asynchronous channels and streams have in common.
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
    /// Whether the object is neither empty nor closed. The peer may have ended it all the same.
    bool is_open() const noexcept { return state_ && state_->tag != 0; }
    explicit operator bool() const noexcept { return is_open(); }

    /// Receives a message of its own: void(error_code, partywall::message).
    template <class Token> auto async_recv(Token &&token) {
        using signature = void(error_code, message);
        return initiate<message>(
            state_, reading,
            [state = state_.shared()](std::error_code &code) { return state->object.recv(no_wait, code); },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Receives a message without a copy: void(error_code, bytes_view). The bytes are valid until
    /// the next operation that receives begins, or the object is closed.
    template <class Token> auto async_recv_view(Token &&token) {
        using signature = void(error_code, bytes_view);
        return initiate<bytes_view>(
            state_, reading,
            [state = state_.shared()](std::error_code &code) {
                return state->object.recv_view(no_wait, code);
            },
            std::forward<Token>(token), static_cast<signature *>(nullptr));
    }

    /// Sends a copy of the bytes as one message: void(error_code). The bytes stay valid until the
    /// handler is called.
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

    /// Cancels both operations, which get net::error::operation_aborted. A message of which the
    /// socket has taken a part is sent all the same, and its operation succeeds.
    void cancel() {
        if (!state_) return;
        std::vector<std::unique_ptr<operation>> aborted;
        {
            const std::lock_guard guard(state_->reactor->lock());
            state_->reactor->abort(*state_, aborted);
        }
        reactor::complete_all(std::move(aborted), false);
    }

    /// Ends both directions, and cancels both operations. The peer receives every sent message. While
    /// the context runs, nothing waits for the peer, which has a second to read a channel's last
    /// bytes from its socket.
    void close() {
        if (state_) state_->close();
    }

    /// How long the object polls for a message before it sleeps: 50 µs by default, none on a single
    /// processor. After polls without a message it polls less often. Streams share the budget with
    /// their session or acceptor.
    void spin_budget(std::chrono::nanoseconds budget) { state_->reactor->spin_budget(budget); }

protected:
    explicit messages(std::shared_ptr<endpoint<Object>> state) : state_(std::move(state)) {}

    shared_state<endpoint<Object>> state_;
};

} // namespace detail

// ---- Channels ----------------------------------------------------------------------------------

/// A channel below an executor.
class channel : public detail::messages<partywall::channel> {
public:
    channel() = default;

    /// Takes over a channel that is in no loop.
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

    /// Ends the sending direction. The peer's answers are still received.
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

    /// Accepts the next channel: void(error_code, channel). A failed handshake is an error.
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

    /// Stops listening, and cancels the operation.
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

// ---- Streams -----------------------------------------------------------------------------------

class session;
class acceptor;

namespace detail {
class streams;
} // namespace detail

/// A stream of a session below an executor: messages, or bytes without bounds. As bytes it models
/// AsyncReadStream and AsyncWriteStream, so that asio::async_read, asio::async_write and Beast run
/// over it. Use it for either messages or bytes, not both in one direction.
class stream : public detail::messages<partywall::stream> {
public:
    stream() = default;

    /// Opens a session with the acceptor at `address`, and one stream. Waits for the handshake.
    static inline stream connect(const detail::executor_argument &executor,
                                 const std::string &address, const config &with = {},
                                 bytes_view metadata = {});

    /// The metadata with which the peer has opened the stream, valid as long as the stream.
    bytes_view metadata() const {
        if (!state_) return {};
        const std::lock_guard guard(state_->reactor->lock());
        return state_->object.metadata();
    }

    /// Reads what has arrived, at least one byte: void(error_code, std::size_t).
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

    /// Writes as many bytes as one message holds: void(error_code, std::size_t).
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

    /// Ends the sending direction in good order. The peer's bytes are still received.
    void shutdown_send() {
        const std::lock_guard guard(state_->reactor->lock());
        state_->object.finish();
        state_->reactor->settle();
    }

    /// Ends both directions at once: the peer gets errc::stream_reset or errc::stream_stopped.
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

    /// Four messages of this size and their headers fit the default window of a stream.
    static constexpr std::size_t WRITE_BYTES_MAX = (64 << 10) - 64;
    /// What a session with little memory carries, too.
    static constexpr std::size_t WRITE_BYTES_SMALL = 4 << 10;
};

namespace detail {

/// The streams that peers have opened, of one session or of all those of a listener. It lives as
/// long as one of its streams, because somebody has to refuse further ones.
class hub : public source {
public:
    explicit hub(std::shared_ptr<detail::reactor> below) : reactor(std::move(below)) {}
    ~hub() override {
        std::vector<std::unique_ptr<operation>> none; // each would keep the hub
        const std::lock_guard guard(reactor->lock());
        reactor->remove(tag_);
        for (auto &[tag, session] : sessions_) reactor->remove(tag);
        for (auto &stream : opened_) reactor->remove(stream->tag);
        // They end before the reactor turns the loop for the last time.
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

    /// Takes the sessions and streams that peers have opened, also while no accept waits for one.
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

    /// Returns the next stream that a peer has opened.
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

    /// Opens a stream of the one session.
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

    /// Ends accepting. Streams that were accepted or opened go on.
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
        // A handshake that failed is the peer's affair; the next one may succeed.
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
    /// Why the one session is over.
    std::error_code failure_;
    bool is_closed_ = false;
};

/// What sessions and acceptors have in common.
class streams {
public:
    using executor_type = net::any_io_executor;

    streams(streams &&) = default;
    streams &operator=(streams &&) = delete;
    ~streams() { close(); }

    executor_type get_executor() const noexcept { return hub_.executor(); }

    /// Accepts the next stream that a peer opens: void(error_code, stream).
    template <class Token> auto async_accept(Token &&token);

    /// Ends accepting, and cancels the operations. Streams that were accepted or opened go on.
    void close() {
        if (hub_) hub_->close();
    }

    /// As that of a channel, for all streams.
    void spin_budget(std::chrono::nanoseconds budget) { hub_->reactor->spin_budget(budget); }

protected:
    explicit streams(const executor_argument &executor)
        : hub_(std::make_shared<hub>(std::make_shared<reactor>(executor))) {}

    shared_state<hub> hub_;
};

} // namespace detail

/// A session below an executor, which opens and accepts streams.
class session : public detail::streams {
public:
    /// Opens a session with the listener at `address`. Waits for the handshake.
    static session connect(const detail::executor_argument &executor, const std::string &address,
                           const config &with = {}) {
        session made(executor);
        made.hub_->connect(address, with);
        return made;
    }

    /// Opens a stream: void(error_code, stream). The metadata stay valid until the handler runs.
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

/// Accepts the streams of every session that peers open at an address.
class acceptor : public detail::streams {
public:
    acceptor(const detail::executor_argument &executor, const std::string &address,
             const config &with = {})
        : streams(executor) {
        hub_->listen(address, with);
    }

    /// The bound address; for port 0 it has the port that the system chose.
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
