// SPDX-License-Identifier: MIT OR Apache-2.0
// The example of the library tcpshm, over a link: a client sends messages of four types, a server
// sends each back, and the client checks every answer. Kill either process at any time and start it
// again: no message is lost, and none is answered twice.
//
// `tcpshm_echo serve DIRECTORY ADDRESS` serves for ever;
// `tcpshm_echo connect DIRECTORY ADDRESS MESSAGES` ends after so many messages.
//
//   name in tcpshm                in this program
//   Alloc, Push                   link::send_value
//   Front, Pop                    link::recv, link_message::ack
//   Pop, then Push an answer      link_message::reply: both or neither
//   PollTcp, PollShm              link_group::poll
//   OnClientMsg, OnServerMsg      on_client_message, on_server_message
//   OnNewConnection               link_server::accept
//   OnSystemError, OnDisconnected an exception; a link that is cut connects again by itself
#include <partywall.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <vector>

/// A message with its type in a header, as tcpshm's messages have it. For Partywall a message is
/// only bytes, so the application chooses what it sends.
template <std::size_t Numbers, std::uint64_t Type> struct message_of {
    static constexpr std::uint64_t number = Type;
    std::uint64_t type = Type;
    std::array<std::uint64_t, Numbers> values = {};
};
using message1 = message_of<1, 1>;
using message2 = message_of<2, 2>;
using message3 = message_of<4, 3>;
using message4 = message_of<8, 4>;

/// Calls `handler` with a received message, as the type that its header names. Returns false if the
/// message has none of the types.
template <class Handler, class... Messages>
static bool dispatch(partywall::bytes_view bytes, Handler &&handler) {
    const auto is_it = [&](auto *none) {
        using message = std::remove_pointer_t<decltype(none)>;
        const auto found = partywall::value_as<message>(bytes);
        if (!found || found->type != message::number) return false;
        handler(*found);
        return true;
    };
    return (is_it(static_cast<Messages *>(nullptr)) || ...);
}
template <class Handler> static bool dispatch_any(partywall::bytes_view bytes, Handler &&handler) {
    return dispatch<Handler, message1, message2, message3, message4>(
        bytes, std::forward<Handler>(handler));
}

class server {
public:
    server(const std::string &directory, const std::string &address) {
        partywall::link_config config;
        config.set(group_);
        server_ = partywall::link_server::bind(
            address, partywall::storage::directory(directory), "server", config);
    }

    /// Serves what has come from all clients, as PollCtl, PollTcp and PollShm of tcpshm do. Any
    /// thread may call it.
    void poll() {
        group_.poll();
        std::error_code code;
        while (auto link = server_.accept(partywall::no_wait, code)) {
            links_.push_back(std::move(link));
        }
        for (auto &link : links_) {
            while (auto message = link.recv(partywall::no_wait, code)) on_client_message(message);
        }
    }

private:
    void on_client_message(partywall::link_message &message) {
        const auto answered =
            dispatch_any(message, [&](const auto &request) { message.reply(echo(request)); });
        if (!answered) message.ack(); // not a message of ours
    }
    template <class Message> static partywall::bytes_view echo(const Message &request) {
        return {&request, sizeof request};
    }

    partywall::link_group group_;
    partywall::link_server server_;
    std::vector<partywall::link> links_;
};

class client {
public:
    client(const std::string &directory, const std::string &address, std::uint64_t messages)
        : client_(partywall::storage::directory(directory), "client"),
          link_(client_.connect(address, "server", "echo")), messages_(messages) {}

    void run() {
        while (received_ < messages_) {
            // At most 100 messages are sent and not answered.
            while (sent_ < messages_ && sent_ < received_ + 100) send_next();
            auto answer = link_.recv();
            if (!answer) throw std::runtime_error("the server has closed the link");
            on_server_message(*answer);
            answer->ack();
        }
        link_.close();
    }

private:
    void send_next() {
        switch (sent_ % 4) {
        case 0: return send(message1());
        case 1: return send(message2());
        case 2: return send(message3());
        default: return send(message4());
        }
    }
    template <class Message> void send(Message message) {
        for (auto &value : message.values) value = sent_;
        link_.send_value(message);
        sent_++;
    }

    void on_server_message(const partywall::link_message &answer) {
        const bool is_ours = dispatch_any(answer, [&](const auto &message) {
            if (message.type != received_ % 4 + 1) throw std::runtime_error("an answer is missing");
            for (const auto value : message.values) {
                if (value != received_) throw std::runtime_error("an answer is wrong");
            }
        });
        if (!is_ours) throw std::runtime_error("this is no answer");
        received_++;
        if (received_ % std::max<std::uint64_t>(messages_ / 2, 1) == 0) std::cout << received_ << " answers" << std::endl;
    }

    partywall::link_client client_;
    partywall::link link_;
    std::uint64_t messages_, sent_ = 0, received_ = 0;
};

int main(int count, char **arguments) {
    const std::string_view act = count > 1 ? arguments[1] : "";
    try {
        if (act == "serve" && count == 4) {
            for (server server(arguments[2], arguments[3]);;) server.poll();
        } else if (act == "connect" && count == 5) {
            client(arguments[2], arguments[3], std::stoull(arguments[4])).run();
        } else {
            throw std::invalid_argument(
                "usage: tcpshm_echo serve DIRECTORY ADDRESS | connect DIRECTORY ADDRESS MESSAGES");
        }
    } catch (const std::exception &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
}
