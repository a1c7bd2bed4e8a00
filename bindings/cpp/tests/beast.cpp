// SPDX-License-Identifier: MIT OR Apache-2.0
// HTTP of Boost.Beast over streams of a session: a server answers requests with their own bodies,
// of several lengths.
#include "check.hpp"

#include <partywall/asio.hpp>

#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include <unistd.h>

namespace beast = boost::beast;
namespace http = beast::http;
namespace net = boost::asio;
namespace pa = partywall::asio;
using net::use_awaitable;

static void rethrow(std::exception_ptr thrown) {
    if (thrown) std::rethrow_exception(thrown);
}

static net::awaitable<void> serve(pa::stream stream) {
    for (beast::flat_buffer buffer;;) {
        http::request<http::string_body> request;
        boost::system::error_code code;
        co_await http::async_read(stream, buffer, request,
                                  net::redirect_error(use_awaitable, code));
        if (code == http::error::end_of_stream) co_return;
        CHECK(!code);
        http::response<http::string_body> response(http::status::ok, request.version());
        response.keep_alive(request.keep_alive());
        response.set("target", request.target());
        response.body() = std::move(request.body());
        response.prepare_payload();
        co_await http::async_write(stream, response, use_awaitable);
    }
}

static net::awaitable<void> ask(pa::stream stream, char name) {
    beast::flat_buffer buffer;
    for (std::size_t size : {0, 1, 1000, 70000, 1000, 300000, 5}) {
        http::request<http::string_body> request(http::verb::post, std::string("/") + name, 11);
        request.set(http::field::host, "partywall");
        request.body() = std::string(size, name);
        request.prepare_payload();
        co_await http::async_write(stream, request, use_awaitable);
        http::response<http::string_body> response;
        co_await http::async_read(stream, buffer, response, use_awaitable);
        CHECK(response.result() == http::status::ok && response.body() == request.body());
        CHECK(response["target"] == request.target());
    }
    stream.shutdown_send();
    boost::system::error_code code;
    http::response<http::string_body> none;
    co_await http::async_read(stream, buffer, none, net::redirect_error(use_awaitable, code));
    CHECK(code == http::error::end_of_stream);
}

int main(int, char **arguments) {
    ::alarm(120); // a handler that is never called must not stop the tests
    constexpr int STREAMS = 5;
    const std::string address = "unix:" + std::string(arguments[1]) + "/http.sock";
    net::io_context here, there;
    pa::acceptor acceptor(there.get_executor(), address);
    const auto accept = [&]() -> net::awaitable<void> {
        for (int number = 0; number < STREAMS; number++) {
            auto stream = co_await acceptor.async_accept(use_awaitable);
            net::co_spawn(there, serve(std::move(stream)), rethrow);
        }
    };
    net::co_spawn(there, accept(), rethrow);
    std::thread serving([&] { there.run(); });
    for (int number = 0; number < STREAMS; number++) {
        auto stream = pa::stream::connect(here.get_executor(), address);
        net::co_spawn(here, ask(std::move(stream), static_cast<char>('a' + number)), rethrow);
    }
    here.run();
    serving.join();
    return 0;
}
