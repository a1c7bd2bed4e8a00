// SPDX-License-Identifier: MIT OR Apache-2.0
// The client and the server of a measurement, written in C++. The programs of all languages have
// the same command line, which bench/languages/README.md describes.
#include <partywall.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace {

using bytes = std::vector<unsigned char>;
// A task, as the client announces it to the server: the number of the task, the size of a message
// in bytes, the number of messages.
using words = std::uint64_t[3];

// Sends and receives the messages of a measurement over a channel.
struct over_channel {
    partywall::channel channel;

    void send(const void *data, std::size_t size) {
        channel.send(partywall::bytes_view(data, size));
    }
    // Receives the next message into `data`. Returns false once the peer has closed the channel.
    bool recv(void *data, std::size_t size) { return channel.recv_copy(data, size).has_value(); }
};

// Sends and receives the messages of a measurement over a Unix socket. Both sides know the length
// of each message.
struct over_socket {
    int descriptor;

    void send(const void *data, std::size_t size) {
        for (auto at = static_cast<const char *>(data); size > 0;) {
            const auto count = write(descriptor, at, size);
            if (count < 0) throw std::runtime_error("a message was not written");
            at += count;
            size -= static_cast<std::size_t>(count);
        }
    }
    bool recv(void *data, std::size_t size) {
        for (auto at = static_cast<char *>(data); size > 0;) {
            const auto count = read(descriptor, at, size);
            if (count <= 0) return false;
            at += count;
            size -= static_cast<std::size_t>(count);
        }
        return true;
    }
};

// Performs the server's part of each task that the client announces, until the client has closed.
template <class Carrier> void answer(Carrier &carrier) {
    words command;
    while (carrier.recv(command, sizeof command)) {
        bytes message(command[1]);
        for (std::uint64_t index = 0; index < command[2]; index++) {
            if (!carrier.recv(message.data(), message.size())) return;
            if (command[0] == 0) carrier.send(message.data(), message.size());
        }
        if (command[0] == 1) carrier.send(command, 8);
    }
}

sockaddr_un name_of(const std::string &path) {
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    path.copy(name.sun_path, sizeof name.sun_path - 1);
    return name;
}

void serve(const std::string &address, const std::string &path) {
    const auto name = name_of(path);
    const int sockets = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(sockets, reinterpret_cast<const sockaddr *>(&name), sizeof name) != 0 ||
        listen(sockets, 1) != 0) {
        throw std::runtime_error("cannot listen");
    }
    auto listener = partywall::listener::bind(address);
    std::cout << "ready" << std::endl;
    over_channel first{listener.accept()};
    over_socket second{accept(sockets, nullptr, nullptr)};
    std::thread(answer<over_socket>, std::ref(second)).detach();
    answer(first);
    std::cout.flush();
    _exit(0); // the thread that serves the socket may still wait for the client
}

// Performs the client's part of a task with `count` messages of `size` bytes, and returns its
// duration in nanoseconds.
template <class Carrier>
std::int64_t measure(Carrier &carrier, std::uint64_t task, std::uint64_t size,
                     std::uint64_t count) {
    const words command = {task, size, count};
    bytes message(size);
    bool is_alive = true;
    carrier.send(command, sizeof command);
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t index = 0; index < count && is_alive; index++) {
        carrier.send(message.data(), size);
        if (task == 0) is_alive = carrier.recv(message.data(), size);
    }
    if (task == 1) is_alive = carrier.recv(message.data(), 8);
    const auto elapsed = std::chrono::steady_clock::now() - start;
    if (!is_alive) throw std::runtime_error("the server has gone");
    return std::chrono::nanoseconds(elapsed).count();
}

void run(const std::string &address, const std::string &path) {
    const auto name = name_of(path);
    over_channel first{partywall::channel::connect(address)};
    over_socket second{socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    if (connect(second.descriptor, reinterpret_cast<const sockaddr *>(&name), sizeof name) != 0) {
        throw std::runtime_error("cannot connect");
    }
    std::cout << "ready" << std::endl;
    std::string carrier, task;
    std::uint64_t size = 0, count = 0;
    while (std::cin >> carrier >> task >> size >> count) {
        const std::uint64_t number = task == "way" ? 1 : 0;
        std::cout << (carrier == "ours" ? measure(first, number, size, count)
                                        : measure(second, number, size, count))
                  << std::endl;
    }
}

} // namespace

int main(int argc, char **argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    try {
        if (arguments.size() == 3 && arguments[0] == "serve") serve(arguments[1], arguments[2]);
        else if (arguments.size() == 3 && arguments[0] == "run") run(arguments[1], arguments[2]);
        else throw std::runtime_error("rate serve|run ADDRESS SOCKET");
    } catch (const std::exception &error) {
        std::cerr << "rate: " << error.what() << std::endl;
        return 1;
    }
    return 0;
}
