// SPDX-License-Identifier: MIT OR Apache-2.0
// Tests of channels, sessions and streams with asio: messages, bytes, ends, cancellation,
// executors.
#include "check.hpp"

#include <partywall/asio.hpp>

#ifdef PARTYWALL_BOOST_ASIO
#include <boost/asio.hpp>
#else
#include <asio.hpp>
#endif

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

namespace pa = partywall::asio;
namespace net = pa::net;
using net::use_awaitable;
using pa::error_code;

static auto to(error_code &code) { return net::redirect_error(use_awaitable, code); }

static void rethrow(std::exception_ptr thrown) {
    if (thrown) std::rethrow_exception(thrown);
}

/// The contexts of a test. The context `there` runs in a thread of its own, because connecting
/// waits.
struct contexts {
    net::io_context here, there;

    template <class Coroutine> void serve(Coroutine coroutine) {
        net::co_spawn(there, std::move(coroutine), rethrow);
    }
    /// Runs both contexts until they have no more work. `client` may connect from the beginning.
    template <class Coroutine> void run(Coroutine client) {
        std::thread serving([&] { there.run(); });
        net::co_spawn(here, std::move(client), rethrow);
        here.run();
        serving.join();
    }
};

static std::string pattern(std::size_t size, std::size_t seed) {
    std::string text(size, '\0');
    for (std::size_t index = 0; index < size; index++) {
        text[index] = static_cast<char>((index * 31 + index / 251 + seed) % 256);
    }
    return text;
}

template <class Object> static net::awaitable<void> echo_messages(Object object) {
    for (;;) {
        error_code code;
        const auto request = co_await object.async_recv_view(to(code));
        if (code) {
            CHECK(code == net::error::eof);
            co_return;
        }
        co_await object.async_send(request, use_awaitable);
    }
}

template <class Object> static net::awaitable<void> ask(Object &object) {
    for (std::size_t size : {0, 1, 48, 1024, 65536, 200000}) {
        const auto sent = pattern(size, 1);
        co_await object.async_send(sent, use_awaitable);
        const auto answer = co_await object.async_recv(use_awaitable);
        CHECK(answer.text() == sent);
    }
}

// Over a channel, an echo server sends messages of every length back, and the end of the peer
// completes an operation that reads with net::error::eof.
static void channels(const std::string &where, const partywall::config &config) {
    contexts run;
    pa::listener listener(run.there, where, config); // a context stands for its executor
    const auto address = listener.address();
    CHECK(address.rfind(where.substr(0, where.rfind(':')), 0) == 0);
    run.serve([&]() -> net::awaitable<void> {
        co_await echo_messages(co_await listener.async_accept(use_awaitable));
    });
    run.run([&]() -> net::awaitable<void> {
        auto channel = pa::channel::connect(run.here, address, config);
        CHECK(channel.get_executor() == net::any_io_executor(run.here.get_executor()));
        co_await ask(channel);
        channel.close_write();
        error_code code;
        co_await channel.async_recv(to(code));
        CHECK(code == net::error::eof);
    });
}

// Of many streams of one session, one whose messages nobody reads holds up no other.
static void streams(const std::string &where, const partywall::config &config) {
    constexpr std::size_t STREAMS = 20;
    contexts run;
    pa::acceptor acceptor(run.there.get_executor(), where, config);
    const auto address = acceptor.address();
    run.serve([&]() -> net::awaitable<void> {
        auto unread = co_await acceptor.async_accept(use_awaitable);
        CHECK(unread.metadata().text() == "unread");
        for (std::size_t number = 0; number < STREAMS; number++) {
            auto stream = co_await acceptor.async_accept(use_awaitable);
            net::co_spawn(run.there, echo_messages(std::move(stream)), rethrow);
        }
        CHECK((co_await unread.async_recv(use_awaitable)).text() == "first");
    });
    run.run([&]() -> net::awaitable<void> {
        auto session = pa::session::connect(run.here.get_executor(), address, config);
        auto unread = co_await session.async_open("unread", use_awaitable);
        co_await unread.async_send("first", use_awaitable);
        std::vector<pa::stream> open;
        for (std::size_t number = 0; number < STREAMS; number++) {
            open.push_back(co_await session.async_open("echo", use_awaitable));
        }
        for (auto &stream : open) co_await ask(stream);
        for (auto &stream : open) stream.shutdown_send();
        for (auto &stream : open) {
            error_code code;
            co_await stream.async_recv(to(code));
            CHECK(code == net::error::eof);
        }
    });
}

// Used for bytes, a stream carries each byte in order, up to the end: when writes and reads have
// different sizes, when buffers are in pieces, and when both directions carry many bytes at once.
static void bytes(const std::string &where, const partywall::config &config) {
    constexpr std::size_t SIZE = 3 << 20;
    contexts run;
    pa::acceptor acceptor(run.there.get_executor(), where, config);
    const auto address = acceptor.address();
    run.serve([&]() -> net::awaitable<void> {
        auto stream = co_await acceptor.async_accept(use_awaitable);
        std::vector<char> buffer(10000);
        for (std::size_t total = 0;;) {
            error_code code;
            const auto count = co_await stream.async_read_some(net::buffer(buffer), to(code));
            if (code) {
                CHECK(code == net::error::eof && total == SIZE);
                co_return;
            }
            total += count;
            const auto first = count / 3;
            const std::array<net::const_buffer, 3> pieces = {
                net::buffer(buffer.data(), first), net::const_buffer(),
                net::buffer(buffer.data() + first, count - first)};
            CHECK(co_await net::async_write(stream, pieces, use_awaitable) == count);
        }
    });
    const auto sent = pattern(SIZE, 7);
    run.run([&]() -> net::awaitable<void> {
        auto stream = pa::stream::connect(run.here.get_executor(), address, config);
        bool has_written = false;
        const auto write = [&]() -> net::awaitable<void> {
            co_await net::async_write(stream, net::buffer(sent), use_awaitable);
            has_written = true;
        };
        net::co_spawn(run.here, write(), rethrow);
        std::string received(SIZE, '\0');
        co_await net::async_read(stream, net::buffer(received), use_awaitable);
        CHECK(received == sent && has_written);
        char none;
        CHECK(co_await stream.async_read_some(net::buffer(&none, 0), use_awaitable) == 0);
        stream.shutdown_send();
        error_code code;
        co_await stream.async_read_some(net::buffer(&none, 1), to(code));
        CHECK(code == net::error::eof);
        stream.close();
        co_await stream.async_read_some(net::buffer(&none, 1), to(code));
        CHECK(code == pa::make_error_code(partywall::errc::argument));
        CHECK(!code.message().empty() && code == std::errc::invalid_argument);
    });
}

// A stream that the peer resets completes operations with an error, not with net::error::eof.
static void resets(const std::string &address) {
    contexts run;
    pa::acceptor acceptor(net::make_strand(run.there), address);
    run.serve([&]() -> net::awaitable<void> {
        auto stream = co_await acceptor.async_accept(use_awaitable);
        auto other = co_await acceptor.async_accept(use_awaitable);
        error_code code;
        co_await stream.async_recv(to(code));
        CHECK(code == pa::make_error_code(partywall::errc::stream_reset));
        co_await other.async_send("seen", use_awaitable);
    });
    run.run([&]() -> net::awaitable<void> {
        auto session = pa::session::connect(run.here, address);
        auto stream = co_await session.async_open({}, use_awaitable);
        auto other = co_await session.async_open({}, use_awaitable);
        stream.reset(5);
        CHECK((co_await other.async_recv(use_awaitable)).text() == "seen");
    });
}

/// A channel whose two ends are in one context.
struct channel_pair {
    pa::channel client, server;

    channel_pair(net::io_context &io, const std::string &address) {
        auto listener = partywall::listener::bind(address);
        partywall::channel connected;
        std::thread connecting([&] { connected = partywall::channel::connect(address); });
        server = pa::channel(io.get_executor(), listener.accept(limit));
        connecting.join();
        client = pa::channel(io.get_executor(), std::move(connected));
    }
};

// Each way to cancel completes an operation once, with operation_aborted. The context then runs out
// of work.
static void cancellation(const std::string &address) {
    net::io_context io;
    channel_pair pair(io, address);
    int aborted = 0;
    const auto is_aborted = [&](error_code code, const partywall::message &message) {
        CHECK(code == net::error::operation_aborted && !message);
        aborted++;
    };
    pair.server.async_recv(is_aborted);
    bool is_busy = false;
    pair.server.async_recv([&](error_code code, const partywall::message &) {
        is_busy = code == pa::make_error_code(partywall::errc::busy);
    });
    CHECK(!is_busy); // no handler runs within the call
    net::post(io, [&] { pair.server.cancel(); });
    io.run();
    CHECK(is_busy && aborted == 1);

#if PARTYWALL_ASIO_VERSION >= 102000
    io.restart();
    net::cancellation_signal signal;
    pair.server.async_recv(net::bind_cancellation_slot(signal.slot(), is_aborted));
    net::steady_timer timer(io, std::chrono::milliseconds(1)); // long after the reactor waits
    pair.server.spin_budget(std::chrono::nanoseconds(0));
    timer.async_wait([&](error_code) { signal.emit(net::cancellation_type::terminal); });
    io.run();
    CHECK(aborted == 2);
#else
    aborted++;
#endif

    io.restart();
    pair.server.async_recv(is_aborted);
    net::post(io, [&] { pair.server = pa::channel(); });
    io.run();
    CHECK(aborted == 3);
#if PARTYWALL_ASIO_VERSION >= 102000
    // The signal still has the cancellation handler of a channel that is gone.
    signal.emit(net::cancellation_type::terminal);
#endif

    // A message that a cancelled operation has not received is received by the next operation.
    channel_pair next(io, address);
    std::error_code code;
    next.client.send("kept", code);
    CHECK(!code);
    io.restart();
    bool has_received = false;
    next.server.async_recv([&](error_code failed, partywall::message message) {
        CHECK(!failed && message.text() == "kept");
        has_received = true;
    });
    io.run();
    CHECK(has_received);
}

// An operation without room to send waits for room, also while this side reads no messages of the
// peer.
static void back_pressure(const std::string &address) {
    net::io_context io;
    channel_pair pair(io, address);
    const std::string big(1 << 20, 'b');
    std::size_t sent = 0, received = 0;
    constexpr std::size_t MESSAGES = 200;
    std::error_code code;
    pair.server.send("nobody reads this", code);
    pair.server.send("nor this", code);
    CHECK(!code);
    std::function<void()> send = [&] {
        pair.client.async_send(big, [&](error_code failed) {
            CHECK(!failed);
            if (++sent < MESSAGES) send();
        });
    };
    std::function<void()> receive = [&] {
        pair.server.async_recv([&](error_code failed, partywall::message message) {
            CHECK(!failed && message.size() == big.size());
            if (++received < MESSAGES) receive();
        });
    };
    send();
    io.run_for(std::chrono::milliseconds(20)); // until there is no room
    CHECK(sent < MESSAGES);
    receive();
    io.restart();
    io.run();
    CHECK(sent == MESSAGES && received == MESSAGES);
}

// Handlers run in their associated executor. An operation also accepts use_future, and a handler
// that can be moved but not copied.
static void executors_and_tokens(const std::string &address) {
    net::io_context io;
    net::thread_pool pool(1);
    channel_pair pair(io, address);
    std::thread::id of_pool;
    net::post(pool, [&] { of_pool = std::this_thread::get_id(); });
    std::thread::id of_handler;
    pair.server.async_recv(net::bind_executor(
        pool, [&, owned = std::make_unique<int>(1)](error_code code, partywall::message message) {
            CHECK(!code && message.text() == "x" && *owned == 1);
            of_handler = std::this_thread::get_id();
        }));
    pair.client.async_send("x", net::detached);
    io.run();
    pool.join();
    CHECK(of_handler == of_pool && of_pool != std::thread::id());

    io.restart();
    auto work = net::make_work_guard(io);
    std::thread running([&] { io.run(); });
    auto received = pair.server.async_recv(net::use_future);
    pair.client.async_send("future", net::use_future).get();
    CHECK(received.get().text() == "future");
    work.reset();
    running.join();
}

// Destroying a context destroys the coroutines that wait in it, with their objects.
static void abandoned(const std::string &address) {
    auto destroyed = std::make_shared<int>(0);
    {
        net::io_context io;
        channel_pair pair(io, address);
        const auto wait = [](pa::channel channel, std::shared_ptr<int>) -> net::awaitable<void> {
            co_await channel.async_recv(use_awaitable);
        };
        net::co_spawn(io, wait(std::move(pair.server), destroyed), net::detached);
        net::co_spawn(io, wait(std::move(pair.client), destroyed), net::detached);
        io.run_for(std::chrono::milliseconds(5));
        CHECK(destroyed.use_count() == 3);
    }
    CHECK(destroyed.use_count() == 1);
}

/// A channel over a socket whose end `here` is in a context. Calls of the end `there` block.
struct socket_pair {
    pa::channel here;
    partywall::channel there;

    socket_pair(net::io_context &io, const std::string &address) {
        partywall::config config;
        config.set(partywall::transport::socket);
        pair made(address, config);
        there = std::move(made.server);
        here = pa::channel(io.get_executor(), std::move(made.client));
    }

    std::size_t fill(const std::string &message) {
        std::error_code code;
        for (std::size_t sent = 0;; sent++) {
            here.send(message, code);
            if (!code) continue;
            CHECK(code == partywall::errc::full && sent > 0);
            return sent;
        }
    }
    /// Receives messages up to the end. Returns whether they were `count`, and the end in order.
    bool receive_all(const std::string &message, std::size_t count) {
        std::error_code code;
        while (const auto received = there.recv(limit, code)) {
            CHECK(received.text() == message);
            count--;
        }
        return count == 0 && code == partywall::errc::finished;
    }
};

/// Repeats a test of a peer that reads from an ended channel. `was_whole` says whether the peer got
/// everything. A channel waits at most a second for its peer, so a peer that gets less is right
/// only if the test was slower than that.
template <class Test> static void until_in_time(Test was_whole) {
    using clock = std::chrono::steady_clock;
    const auto last = clock::now() + limit;
    for (auto begun = clock::now(); !was_whole(); begun = clock::now()) {
        CHECK(clock::now() - begun > std::chrono::seconds(1) && clock::now() < last);
    }
}

// While the context runs, the rest of a message of which the socket took only a part is written:
// beside an operation that reads, without any operation, and after the operation of the message was
// cancelled.
static void rest_of_a_message(const std::string &address) {
    const auto big = pattern(4 << 20, 3);
    net::io_context io;
    socket_pair pair(io, address);
    const auto run = [&] {
        std::thread peer([&] {
            CHECK(pair.there.recv(limit)->text() == big);
            pair.there.send("all of it", limit);
        });
        io.restart();
        io.run();
        peer.join();
    };
    int answers = 0;
    const auto count = [&](error_code code, const partywall::message &answer) {
        CHECK(!code && answer.text() == "all of it");
        answers++;
    };
    std::error_code code;
    pair.here.async_recv(count);
    pair.here.send(big, code);
    CHECK(!code);
    run();
    CHECK(answers == 1);

    pair.here.send(big, code);
    CHECK(!code);
    run();
    bool is_sent = false;
    pair.here.async_send(big, [&](error_code failed) {
        CHECK(!failed); // the peer gets it
        is_sent = true;
    });
    pair.here.cancel();
    run();
    CHECK(is_sent);
    pair.here.async_recv(count);
    io.restart();
    io.run();
    pair.here.async_recv(count);
    io.restart();
    io.run();
    CHECK(answers == 3);
}

// Ending a channel whose socket is full holds up no other connection of the context. A peer that
// reads later gets every message and the end.
template <class End> static bool end_with_full_socket(const std::string &address, End end) {
    const auto message = pattern(64 << 10, 5);
    net::io_context io;
    socket_pair ended(io, address);
    channel_pair other(io, address);
    const auto sent = ended.fill(message);
    end(ended.here);
    std::thread peer;
    bool is_whole = false;
    other.client.async_recv([&](error_code code, const partywall::message &answer) {
        CHECK(!code && answer.text() == "answer");
        peer = std::thread([&] { is_whole = ended.receive_all(message, sent); });
    });
    other.server.async_recv([&](error_code code, const partywall::message &question) {
        CHECK(!code && question.text() == "question");
        other.server.async_send("answer", net::detached);
    });
    other.client.async_send("question", net::detached);
    io.run();
    peer.join();
    return is_whole;
}

// If the peer of an ended channel does not read, the last bytes are given up, and the context runs
// out of work.
static void end_without_a_reader(const std::string &address) {
    const auto message = pattern(64 << 10, 5);
    net::io_context io;
    socket_pair ended(io, address);
    auto left = ended.fill(message);
    ended.here = pa::channel();
    io.run();
    std::error_code code;
    while (ended.there.recv(limit, code)) {
        CHECK(left-- > 0);
    }
    CHECK(left > 0 && code && code != partywall::errc::timed_out);
}

// Destroying a context waits first until the peer has taken the last bytes of a channel that has
// ended.
static bool end_without_a_context(const std::string &address) {
    const auto message = pattern(64 << 10, 5);
    bool is_whole = false;
    std::thread peer;
    std::unique_ptr<socket_pair> ended;
    {
        net::io_context io;
        ended = std::make_unique<socket_pair>(io, address);
        const auto sent = ended->fill(message);
        ended->here = pa::channel();
        peer = std::thread([&, sent] { is_whole = ended->receive_all(message, sent); });
    }
    peer.join();
    return is_whole;
}

template <class Object> static net::awaitable<void> ask_and_end(Object object) {
    co_await ask(object);
}

// Two threads run one context, and at the same time a third thread asks for addresses and metadata.
static void two_threads(const std::string &address) {
    constexpr std::size_t CLIENTS = 4;
    net::io_context io(2);
    const auto executor = io.get_executor();
    pa::listener listener(executor, address);
    pa::acceptor acceptor(executor, address + ".streams");
    std::atomic<std::size_t> served{0};
    const auto serve_channels = [&]() -> net::awaitable<void> {
        for (std::size_t number = 0; number < CLIENTS; number++) {
            auto channel = co_await listener.async_accept(use_awaitable);
            net::co_spawn(io, echo_messages(std::move(channel)), rethrow);
            served++;
        }
    };
    const auto serve_streams = [&]() -> net::awaitable<void> {
        for (std::size_t number = 0; number < CLIENTS; number++) {
            auto stream = co_await acceptor.async_accept(use_awaitable);
            CHECK(stream.metadata().text() == "echo");
            net::co_spawn(io, echo_messages(std::move(stream)), rethrow);
            served++;
        }
    };
    net::co_spawn(io, serve_channels(), rethrow);
    net::co_spawn(io, serve_streams(), rethrow);
    std::thread threads[] = {std::thread([&] { io.run(); }), std::thread([&] { io.run(); })};
    auto session = pa::session::connect(executor, acceptor.address());
    for (std::size_t number = 0; number < CLIENTS; number++) {
        auto channel = pa::channel::connect(executor, listener.address());
        net::co_spawn(io, ask_and_end(std::move(channel)), rethrow);
        auto stream = session.async_open("echo", net::use_future).get();
        net::co_spawn(io, ask_and_end(std::move(stream)), rethrow);
    }
    session.close();
    for (auto &thread : threads) thread.join();
    CHECK(served == 2 * CLIENTS);
}

static bool refuses_loops = false;

static bool is_loop(int descriptor) {
    char target[64] = {};
    const auto name = "/proc/self/fd/" + std::to_string(descriptor);
    return ::readlink(name.c_str(), target, sizeof target - 1) > 0 &&
           std::string(target) == "anon_inode:[eventpoll]";
}

// Replaces epoll_ctl of the C library: while `refuses_loops` is set, watching an epoll descriptor
// fails with ENOSPC.
extern "C" int epoll_ctl(int set, int act, int descriptor, epoll_event *event) noexcept {
    if (refuses_loops && act == EPOLL_CTL_ADD && is_loop(descriptor)) {
        errno = ENOSPC;
        return -1;
    }
    return static_cast<int>(::syscall(SYS_epoll_ctl, set, act, descriptor, event));
}

// If the context cannot watch the loop of an accepted channel, async_accept gets the error, and no
// descriptor stays open.
static void unwatched_loop(const std::string &address) {
    const auto count_loops = [] {
        int count = 0;
        for (int descriptor = 0; descriptor < 256; descriptor++) count += is_loop(descriptor);
        return count;
    };
    net::io_context io;
    pa::listener listener(io.get_executor(), address);
    const auto before = count_loops();
    std::thread connecting([&] { (void)partywall::channel::connect(address); });
    bool is_called = false;
    listener.async_accept([&](error_code code, const pa::channel &channel) {
        CHECK(code == std::errc::no_space_on_device && !channel);
        is_called = true;
    });
    refuses_loops = true;
    io.run();
    refuses_loops = false;
    connecting.join();
    CHECK(is_called && count_loops() == before);
}

/// Checks that an operation of an empty object completes once with errc::argument, in `io` and not
/// within the call.
template <class Start> static void fails_in(net::io_context &io, Start start) {
    int calls = 0;
    const auto is_argument = [&](error_code code, const auto &...) {
        CHECK(code == pa::make_error_code(partywall::errc::argument));
        CHECK(io.get_executor().running_in_this_thread());
        calls++;
    };
    start(is_argument);
    CHECK(calls == 0);
    io.restart();
    io.run();
    CHECK(calls == 1);
}

/// Checks that each operation that channels and streams have in common fails for an object that was
/// moved from or closed.
template <class Object> static void messages_fail(net::io_context &io, Object &object) {
    CHECK(!object.is_open() && !object && object.get_executor() == io.get_executor());
    fails_in(io, [&](auto handler) { object.async_recv(handler); });
    fails_in(io, [&](auto handler) { object.async_recv_view(handler); });
    fails_in(io, [&](auto handler) { object.async_send("x", handler); });
    std::error_code code;
    object.send("x", code);
    CHECK(code == partywall::errc::argument);
    object.cancel();
    object.close();
    object.cancel();
}

static void channel_fails(net::io_context &io, pa::channel &channel) {
    messages_fail(io, channel);
    THROWS(channel.close_write(), partywall::errc::argument);
}

static void stream_fails(net::io_context &io, pa::stream &stream) {
    messages_fail(io, stream);
    char byte = 'x';
    fails_in(io, [&](auto handler) { stream.async_read_some(net::buffer(&byte, 1), handler); });
    fails_in(io, [&](auto handler) { stream.async_write_some(net::buffer(&byte, 1), handler); });
    THROWS(stream.shutdown_send(), partywall::errc::argument);
    THROWS(stream.reset(1), partywall::errc::argument);
    CHECK(stream.metadata().empty());
}

// An object that was moved from fails in every call, as a closed object does, and keeps its
// executor.
static void moved_and_closed(const std::string &address) {
    net::io_context io;
    const std::chrono::nanoseconds budget(0);
    channel_pair pair(io, address);
    CHECK(pair.client.is_open());
    auto channel = std::move(pair.client);
    CHECK(channel.is_open());
    channel_fails(io, pair.client);
    THROWS(pair.client.spin_budget(budget), partywall::errc::argument);
    channel.close();
    channel_fails(io, channel);

    pa::listener from(io.get_executor(), address + ".moved");
    const auto listener = std::move(from);
    CHECK(from.get_executor() == io.get_executor());
    fails_in(io, [&](auto handler) { from.async_accept(handler); });
    THROWS(from.address(), partywall::errc::argument);

    net::io_context there;
    pa::acceptor acceptor(there.get_executor(), address);
    auto work = net::make_work_guard(there);
    std::thread serving([&] { there.run(); });
    auto accepted = acceptor.async_accept(net::use_future);
    auto stream = pa::stream::connect(io.get_executor(), address);
    accepted.get();
    auto never = acceptor.async_accept(net::use_future); // for the session's handshake
    auto session = pa::session::connect(io.get_executor(), address);
    auto moved_acceptor = std::move(acceptor);
    moved_acceptor.close();
    work.reset();
    serving.join();
    auto moved_stream = std::move(stream);
    stream_fails(io, stream);
    THROWS(stream.spin_budget(budget), partywall::errc::argument);
    moved_stream.close();
    stream_fails(io, moved_stream);

    auto moved_session = std::move(session);
    fails_in(io, [&](auto handler) { session.async_open("", handler); });
    fails_in(io, [&](auto handler) { session.async_accept(handler); });
    THROWS(session.spin_budget(budget), partywall::errc::argument);
    CHECK(session.get_executor() == io.get_executor());
    session.close();
    fails_in(there, [&](auto handler) { acceptor.async_accept(handler); });
    THROWS(acceptor.address(), partywall::errc::argument);
    acceptor.close();
}

// An operation of an object made without arguments completes in the executor of its handler,
// because the object has none of its own.
static void made_empty() {
    net::io_context io;
    pa::stream stream;
    CHECK(!stream.is_open() && stream.get_executor() == net::system_executor());
    fails_in(io, [&](auto handler) { stream.async_recv(net::bind_executor(io, handler)); });
    stream.close();
    stream.cancel();
}

// Error numbers of the library compare equal with the error codes of handlers, whether these are of
// std or of Boost.
static void numbers() {
    using partywall::errc;
    const auto busy = pa::make_error_code(errc::busy);
    CHECK(busy == errc::busy && errc::busy == busy && busy != errc::full && errc::full != busy);
    CHECK(!(busy == errc::full) && !(busy != errc::busy) && !(errc::busy != busy));
    CHECK(busy == make_error_code(errc::busy) && make_error_code(errc::busy) == busy);
    CHECK(busy != make_error_code(errc::full) && make_error_code(errc::full) != busy);
    CHECK(!(busy != make_error_code(errc::busy)) && !(make_error_code(errc::full) == busy));
    CHECK(error_code() != errc::busy && error_code(net::error::eof) != errc::busy);
    CHECK(error_code(static_cast<int>(errc::busy), net::error::get_misc_category()) != errc::busy);
    const error_code made = errc::busy;
    CHECK(made == errc::busy && made != errc::full && made == make_error_code(errc::busy));
    const std::error_code plain = errc::busy;
    CHECK(plain == errc::busy && plain != errc::full && plain == make_error_code(errc::busy));
    CHECK(make_error_code(errc::busy) == plain && plain == std::errc::device_or_resource_busy);
    CHECK(make_error_code(errc::busy) == make_error_code(errc::busy));
    CHECK(make_error_code(errc::busy) == errc::busy);
}

int main(int, char **arguments) {
    ::alarm(120); // a handler that is never called must not stop the tests
    const std::string address = "unix:" + std::string(arguments[1]) + "/app.sock";
    for (const auto transport : {partywall::transport::automatic, partywall::transport::socket}) {
        partywall::config config;
        config.set(transport);
        channels(address, config);
        streams(address, config);
        bytes(address, config);
    }
    const std::string tcp = "tcp:127.0.0.1:0";
    channels(tcp, {});
    streams(tcp, {});
    bytes(tcp, {});
    resets(address);
    cancellation(address);
    back_pressure(address);
    executors_and_tokens(address);
    abandoned(address);
    rest_of_a_message(address);
    const auto end_by = [&](auto end) {
        until_in_time([&] { return end_with_full_socket(address, end); });
    };
    end_by([](pa::channel &channel) { channel = pa::channel(); });
    end_by([](pa::channel &channel) { channel.close(); });
    end_by([](pa::channel &channel) { channel.close_write(); });
    end_without_a_reader(address);
    until_in_time([&] { return end_without_a_context(address); });
    two_threads(address);
    unwatched_loop(address);
    moved_and_closed(address);
    made_empty();
    numbers();
    return 0;
}
