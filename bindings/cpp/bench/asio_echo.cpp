// SPDX-License-Identifier: MIT OR Apache-2.0
// Measures round trips between two processes that use asio: over asio's own Unix sockets, over a
// channel, and over a byte stream of a session. Prints the median of the rounds of each, and its
// ratio to the Unix socket.
//
//   asio_echo [BYTES [MESSAGES [ROUNDS]]]
//
// The rounds of the three transports alternate, so that other load of the machine disturbs all of
// them.
#include <partywall/asio.hpp>

#ifdef PARTYWALL_BOOST_ASIO
#include <boost/asio.hpp>
#else
#include <asio.hpp>
#endif

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pa = partywall::asio;
namespace net = pa::net;
using net::use_awaitable;
using unix_socket = net::local::stream_protocol;

static void rethrow(std::exception_ptr thrown) {
    if (thrown) std::rethrow_exception(thrown);
}

template <class Stream> static net::awaitable<void> echo_bytes(Stream stream, std::size_t size) {
    std::vector<char> buffer(size);
    for (;;) {
        pa::error_code code;
        co_await net::async_read(stream, net::buffer(buffer),
                                 net::redirect_error(use_awaitable, code));
        if (code) co_return;
        co_await net::async_write(stream, net::buffer(buffer), use_awaitable);
    }
}

static net::awaitable<void> echo_messages(pa::channel channel) {
    for (;;) {
        pa::error_code code;
        const auto request =
            co_await channel.async_recv_view(net::redirect_error(use_awaitable, code));
        if (code) co_return;
        co_await channel.async_send(request, use_awaitable);
    }
}

/// The addresses of the three servers, in one directory: of plain sockets, channels and byte
/// streams.
struct addresses {
    std::string socket, channel, stream;
    explicit addresses(const std::string &directory)
        : socket(directory + "/asio"), channel("unix:" + directory + "/channel"),
          stream("unix:" + directory + "/stream") {}
};

/// Serves one client over each transport. Writes a byte to `ready` when the servers listen.
static void serve(const addresses &at, std::size_t size, int ready) {
    net::io_context io(1);
    unix_socket::acceptor sockets(io, at.socket);
    pa::listener channels(io.get_executor(), at.channel);
    pa::acceptor streams(io.get_executor(), at.stream);
    const auto serve_all = [&]() -> net::awaitable<void> {
        net::co_spawn(io, echo_bytes(co_await sockets.async_accept(use_awaitable), size), rethrow);
        net::co_spawn(io, echo_messages(co_await channels.async_accept(use_awaitable)), rethrow);
        net::co_spawn(io, echo_bytes(co_await streams.async_accept(use_awaitable), size), rethrow);
    };
    net::co_spawn(io, serve_all(), rethrow);
    if (::write(ready, "r", 1) != 1) std::exit(1);
    io.run();
}

template <class Stream>
static net::awaitable<void> ask_bytes(Stream &stream, std::size_t size, std::size_t messages) {
    std::vector<char> sent(size, 'x'), received(size);
    for (std::size_t number = 0; number < messages; number++) {
        co_await net::async_write(stream, net::buffer(sent), use_awaitable);
        co_await net::async_read(stream, net::buffer(received), use_awaitable);
    }
}

static net::awaitable<void> ask_messages(pa::channel &channel, std::size_t size,
                                         std::size_t messages) {
    const std::vector<char> sent(size, 'x');
    for (std::size_t number = 0; number < messages; number++) {
        co_await channel.async_send(sent, use_awaitable);
        const auto answer = co_await channel.async_recv_view(use_awaitable);
        if (answer.size() != size) std::abort();
    }
}

/// Runs the client's coroutine, which makes round trips, and returns the microseconds of each.
template <class Coroutine>
static double timed(net::io_context &io, std::size_t messages, Coroutine ask) {
    const auto start = std::chrono::steady_clock::now();
    net::co_spawn(io, std::move(ask), rethrow);
    io.restart();
    io.run();
    const std::chrono::duration<double, std::micro> elapsed =
        std::chrono::steady_clock::now() - start;
    return elapsed.count() / static_cast<double>(messages);
}

static double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

static void measure(const addresses &at, std::size_t size, std::size_t messages, int rounds) {
    net::io_context io(1);
    unix_socket::socket socket(io);
    socket.connect(at.socket);
    auto channel = pa::channel::connect(io.get_executor(), at.channel);
    auto stream = pa::stream::connect(io.get_executor(), at.stream);
    std::vector<double> of_socket, of_channel, of_stream;
    for (int round = -1; round < rounds; round++) { // the first one only warms up
        const double times[] = {timed(io, messages, ask_bytes(socket, size, messages)),
                                timed(io, messages, ask_messages(channel, size, messages)),
                                timed(io, messages, ask_bytes(stream, size, messages))};
        if (round < 0) continue;
        of_socket.push_back(times[0]);
        of_channel.push_back(times[1]);
        of_stream.push_back(times[2]);
    }
    std::printf("%zu bytes, %zu round trips, median of %d rounds\n", size, messages, rounds);
    const auto print = [&](const char *name, const std::vector<double> &values) {
        const double ratio = median(values) / median(of_socket);
        std::printf("%-22s %8.2f us   %.2f\n", name, median(values), ratio);
    };
    print("asio's Unix socket", of_socket);
    print("channel", of_channel);
    print("byte stream", of_stream);
}

int main(int count, char **arguments) {
    const auto number = [&](int index, std::size_t otherwise) {
        return count > index ? std::strtoull(arguments[index], nullptr, 10) : otherwise;
    };
    const std::size_t size = number(1, 48), messages = number(2, 20000);
    const int rounds = static_cast<int>(number(3, 7));
    char directory[] = "/tmp/asio_echo.XXXXXX";
    int ready[2];
    if (::mkdtemp(directory) == nullptr || ::pipe(ready) != 0) return 1;
    const addresses at(directory);
    const pid_t server = ::fork();
    if (server == 0) {
        serve(at, size, ready[1]);
        return 0;
    }
    char listens = 0;
    ::close(ready[1]);
    if (server < 0 || ::read(ready[0], &listens, 1) != 1) return 1;
    measure(at, size, messages, rounds);
    int status = 0;
    ::waitpid(server, &status, 0);
    ::unlink(at.socket.c_str());
    ::rmdir(directory);
    return status;
}
