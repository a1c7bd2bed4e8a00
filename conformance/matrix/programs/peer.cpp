// SPDX-License-Identifier: MIT OR Apache-2.0
// One end of a pair of programs in the matrix of languages, written in C++. The programs of all
// languages have the same command line and output, which conformance/matrix/README.md describes.
#include <partywall.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using words = std::vector<std::string>;
using bytes = std::vector<unsigned char>;

// The bit of a seed that distinguishes an answer from the message that it answers.
constexpr std::uint64_t answer_bit = std::uint64_t(1) << 63;
constexpr std::uint64_t step = 0x9e3779b97f4a7c15u;
constexpr std::uint64_t slab_bytes = 32 << 20;
// Number of messages that the client sends before it waits for the first answer, in the test that
// kills an end of the link. After that it sends one more for each answer.
constexpr std::uint64_t in_flight = 8;
// Maximum length in bytes of a message that the server of the error tests receives.
constexpr std::size_t message_max = 65536;
constexpr std::chrono::seconds limit{60};
// Characters that lengthen each printed line, so that about a thousand lines fill the pipe to the
// harness.
const std::string padding(48, '-');

void say(const std::string &line) { std::cout << line << std::endl; }

std::uint64_t mix(std::uint64_t word) {
    word = (word ^ word >> 30) * 0xbf58476d1ce4e5b9u;
    word = (word ^ word >> 27) * 0x94d049bb133111ebu;
    return word ^ word >> 31;
}

// Fills `target` from index `from` on with the pattern of a seed, as crates/testkit/src/pattern.rs
// defines it.
void fill(bytes &target, std::size_t from, std::uint64_t seed) {
    std::uint64_t word = mix(seed);
    for (std::size_t at = from; at < target.size(); at += 8, word += step) {
        for (std::size_t place = 0; place < 8 && at + place < target.size(); place++) {
            target[at + place] = static_cast<unsigned char>(word >> (8 * place));
        }
    }
}

bytes pattern(std::size_t size, std::uint64_t seed) {
    bytes made(size);
    fill(made, 0, seed);
    return made;
}

// Returns the payload of message `number` with `size` bytes, as crates/testkit/src/pattern.rs
// defines it.
bytes payload(std::uint64_t number, std::size_t size) {
    bytes made(size);
    for (std::size_t place = 0; place < 8; place++) {
        made[place] = static_cast<unsigned char>(number >> (8 * place));
    }
    fill(made, 8, number);
    return made;
}

bool equal(partywall::bytes_view found, const bytes &wanted) {
    return found.size() == wanted.size() &&
           (wanted.empty() || std::memcmp(found.data(), wanted.data(), wanted.size()) == 0);
}

// The number of messages that this end has received, and the sum of their bytes.
struct counters {
    std::uint64_t messages = 0;
    std::uint64_t size = 0;

    void check(partywall::bytes_view message, std::uint64_t seed) {
        if (!equal(message, pattern(message.size(), seed))) {
            throw std::runtime_error("a message is wrong");
        }
        messages++;
        size += message.size();
    }

    void check_answer(partywall::bytes_view answer, std::uint64_t seed, std::size_t wanted) {
        if (answer.size() != wanted) throw std::runtime_error("an answer has another size");
        check(answer, seed | answer_bit);
    }

    void report(const std::string &what) const {
        say(what + ' ' + std::to_string(messages) + ' ' + std::to_string(size));
    }
};

partywall::transport policy(const std::string &transport) {
    if (transport == "shared") return partywall::transport::shared_memory;
    return transport == "unix" ? partywall::transport::socket : partywall::transport::automatic;
}

partywall::config config(const std::string &transport) {
    partywall::config made;
    made.set(policy(transport));
    return made;
}

void serve_channels(const std::string &transport, const std::string &address) {
    auto listener = partywall::listener::bind(address, config(transport));
    say("ready");
    for (;;) {
        counters counted;
        auto channel = listener.accept();
        while (auto message = channel.recv_view()) {
            const auto seed = counted.messages;
            counted.check(*message, seed);
            channel.send(pattern(message->size(), seed | answer_bit));
            channel.flush();
        }
        channel = partywall::channel();
        counted.report("served");
    }
}

void run_channel(const std::string &transport, const std::string &address,
                 const std::vector<std::size_t> &sizes) {
    counters counted;
    {
        auto channel = partywall::channel::connect(address, config(transport));
        for (std::size_t number = 0; number < sizes.size(); number++) {
            channel.send(pattern(sizes[number], number));
            channel.flush();
            counted.check_answer(channel.recv_view().value(), number, sizes[number]);
        }
    }
    counted.report("done");
}

counters serve_stream(partywall::stream stream) {
    counters counted;
    if (stream.metadata().size() != 1) throw std::runtime_error("a stream without metadata");
    const auto first = std::to_integer<std::uint64_t>(stream.metadata()[0]) << 32;
    while (auto message = stream.recv_view()) {
        const auto seed = first | counted.messages;
        counted.check(*message, seed);
        stream.send(pattern(message->size(), seed | answer_bit));
    }
    stream.finish();
    return counted;
}

void serve_sessions(const std::string &transport, const std::string &address) {
    auto listener = partywall::session_listener::bind(address, config(transport));
    say("ready");
    for (;;) {
        auto session = listener.accept();
        std::vector<std::future<counters>> streams;
        while (auto stream = session.accept()) {
            streams.push_back(std::async(std::launch::async, serve_stream, std::move(*stream)));
        }
        counters total;
        for (auto &stream : streams) {
            const auto counted = stream.get();
            total.messages += counted.messages;
            total.size += counted.size;
        }
        total.report("served");
    }
}

// Sends messages of the given sizes on two streams, alternating, and checks the answers. Each
// stream was opened with its own number, 0 or 1, as its one byte of metadata.
void run_session(const std::string &transport, const std::string &address,
                 const std::vector<std::size_t> &sizes) {
    counters counted;
    auto session = partywall::session::connect(address, config(transport));
    std::vector<partywall::stream> streams;
    for (unsigned char first = 0; first < 2; first++) {
        streams.push_back(session.open(partywall::bytes_view(&first, 1)));
    }
    for (std::size_t number = 0; number < sizes.size(); number++) {
        for (std::uint64_t first = 0; first < 2; first++) {
            streams[first].send(pattern(sizes[number], first << 32 | number));
        }
        for (std::uint64_t first = 0; first < 2; first++) {
            counted.check_answer(streams[first].recv_view().value(), first << 32 | number,
                                 sizes[number]);
        }
    }
    for (auto &stream : streams) {
        stream.finish();
        if (stream.recv_view()) throw std::runtime_error("a message instead of the end");
    }
    streams.clear();
    session.close();
    session.wait_finished(limit);
    counted.report("done");
}

partywall::link_config link_config(const std::string &transport) {
    partywall::link_config made;
    made.set(policy(transport));
    made.slab_bytes(slab_bytes);
    made.allow_anonymous_tcp(transport == "tcp");
    return made;
}

partywall::link_server bind_links(const std::string &transport, const std::string &address,
                                  const std::string &directory) {
    auto server = partywall::link_server::bind(address, partywall::storage::directory(directory),
                                               "bob", link_config(transport));
    say("ready");
    return server;
}

partywall::link connect_link(const std::string &transport, const std::string &address,
                             const std::string &directory, const std::string &name) {
    partywall::link_client client(partywall::storage::directory(directory), "alice",
                                  link_config(transport));
    return client.connect(address, "bob", name);
}

void serve_links(const std::string &transport, const std::string &address,
                 const std::string &directory) {
    auto server = bind_links(transport, address, directory);
    for (;;) {
        counters counted;
        auto link = server.accept();
        while (auto message = link.recv()) {
            const auto seed = counted.messages;
            counted.check(*message, seed);
            message->reply(pattern(message->size(), seed | answer_bit));
        }
        link.close(limit);
        counted.report("served");
    }
}

void run_link(partywall::link link, const std::vector<std::size_t> &sizes) {
    counters counted;
    for (std::size_t number = 0; number < sizes.size(); number++) {
        link.send(pattern(sizes[number], number));
        auto answer = link.recv();
        counted.check_answer(answer.value(), number, sizes[number]);
        answer->ack();
    }
    link.close(limit);
    counted.report("done");
}

// The length in bytes of message `number` in the test that kills an end of the link.
std::size_t chain_size(std::uint64_t number) {
    return number % 64 == 63 ? 70000 : 8 + static_cast<std::size_t>(number % 50);
}

// Checks a received message in the test that kills an end of the link, and returns the message's
// number. Prints the line "got" before the caller acknowledges or answers the message, so that the
// harness learns of every receipt.
std::uint64_t number_of(const partywall::link_message &message, std::uint64_t mark) {
    std::uint64_t word = 0;
    for (std::size_t place = 0; place < 8 && message.size() >= 8; place++) {
        word |= std::to_integer<std::uint64_t>(message.bytes()[place]) << (8 * place);
    }
    const auto number = word & ~answer_bit;
    if ((word & answer_bit) != mark || !equal(message, payload(word, chain_size(number)))) {
        throw std::runtime_error("a message of a chain is wrong");
    }
    say("got " + std::to_string(number) + ' ' + std::to_string(message.attempt()) + ' ' + padding);
    return number;
}

void serve_chain(const std::string &transport, const std::string &address,
                 const std::string &directory) {
    auto server = bind_links(transport, address, directory);
    auto link = server.accept();
    while (auto message = link.recv()) {
        const auto number = number_of(*message, 0);
        message->reply(payload(number | answer_bit, chain_size(number)));
    }
    link.close(limit);
    say("finished");
}

void run_chain(partywall::link link, std::uint64_t count, bool is_new) {
    for (std::uint64_t number = 0; is_new && number < in_flight; number++) {
        link.send(payload(number, chain_size(number)));
    }
    std::uint64_t number = 0;
    do {
        auto message = link.recv();
        number = number_of(message.value(), answer_bit);
        const auto next = number + in_flight;
        if (next < count) message->reply(payload(next, chain_size(next)));
        else message->ack();
    } while (number + 1 < count);
    link.close(limit);
    say("finished");
}

// The server of the error tests: accepts channels and keeps them open without sending. A second
// listener admits only the user `user`.
void serve_errors(const std::string &transport, const std::string &address, std::uint32_t user) {
    auto plain = config(transport);
    plain.message_max(message_max);
    auto listener = partywall::listener::bind(address, plain);
    partywall::listener other;
    std::thread accepting;
    if (transport != "tcp") {
        auto strict = config(transport);
        strict.message_max(message_max).admit_user(user);
        other = partywall::listener::bind(address + ".strict", strict);
        accepting = std::thread([&other] {
            std::error_code code;
            other.accept(partywall::forever, code);
        });
    }
    say("ready");
    std::vector<partywall::channel> channels;
    for (;;) channels.push_back(listener.accept());
}

void cause(const std::string &name, const std::error_code &code) {
    say("cause " + name + ' ' + std::to_string(code.value()));
}

void run_errors(const std::string &transport, const std::string &address,
                const std::string &nobody, std::uint32_t user) {
    std::error_code code;
    const auto plain = config(transport);
    const auto connecting = [&code](const std::string &name, const std::string &to,
                                    const partywall::config &with) {
        partywall::channel::connect(to, with, code);
        cause(name, code);
    };
    connecting("address-syntax", "nowhere", plain);
    connecting("no-listener", nobody, plain);
    auto odd = config(transport);
    try {
        odd.ring_bytes(5000);
        connecting("setting", address, odd);
    } catch (const partywall::error &error) {
        cause("setting", error.code()); // some values are refused when they are set
    }
    if (transport != "tcp") {
        auto strict = config(transport);
        strict.admit_user(user);
        connecting("no-socket", nobody + ".none", plain);
        connecting("not-admitted", address, strict);
        connecting("refused", address + ".strict", plain);
    }
    auto channel = partywall::channel::connect(address, plain);
    channel.recv_view(std::chrono::milliseconds(20), code);
    cause("deadline", code);
    channel.send(bytes(message_max + 1), partywall::forever, code);
    cause("too-long", code);
    say("connected");
    channel.recv_view(partywall::forever, code);
    cause("gone", code);
}

std::vector<std::size_t> numbers(const std::string &list) {
    std::vector<std::size_t> all;
    std::istringstream text(list);
    for (std::string word; std::getline(text, word, ',');) all.push_back(std::stoull(word));
    return all;
}

std::uint32_t user_id(const std::string &word) {
    return static_cast<std::uint32_t>(std::stoul(word));
}

bool serve(const words &it) {
    std::thread([] {
        char byte = 0;
        while (read(STDIN_FILENO, &byte, 1) > 0) {}
        _exit(0);
    }).detach();
    if (it[1] == "channel") serve_channels(it[2], it[3]);
    else if (it[1] == "session") serve_sessions(it[2], it[3]);
    else if (it[1] == "link") serve_links(it[2], it[3], it[4]);
    else if (it[1] == "chain") serve_chain(it[2], it[3], it[4]);
    else if (it[1] == "errors") serve_errors(it[2], it[3], user_id(it[4]));
    else return false;
    return true;
}

bool run(const words &it) {
    if (it[1] == "channel") run_channel(it[2], it[3], numbers(it[4]));
    else if (it[1] == "session") run_session(it[2], it[3], numbers(it[4]));
    else if (it[1] == "link" && it.size() == 7) {
        run_link(connect_link(it[2], it[3], it[5], it[6]), numbers(it[4]));
    } else if (it[1] == "chain" && it.size() == 8) {
        run_chain(connect_link(it[2], it[3], it[5], it[6]), std::stoull(it[4]), it[7] == "new");
    } else if (it[1] == "errors" && it.size() == 6) {
        run_errors(it[2], it[3], it[4], user_id(it[5]));
    } else return false;
    return true;
}

bool perform(const words &it) {
    if (it.size() == 1 && it[0] == "features") {
        say("channel session link");
        return true;
    }
    if (it.size() == 5 && it[0] == "serve") return serve(it);
    return it.size() >= 5 && it[0] == "run" && run(it);
}

} // namespace

int main(int argc, char **argv) {
    try {
        if (perform(words(argv + 1, argv + argc))) return 0;
        say("failed: the arguments are not those of the matrix");
    } catch (const std::exception &error) {
        say(std::string("failed ") + error.what());
    }
    return 1;
}
