# SPDX-License-Identifier: MIT OR Apache-2.0
"""One end of a pair of programs in the matrix of languages, written in Python.

``conformance/matrix/README.md`` has the command line and the output, which are those of each
language.
"""

import functools
import os
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import partywall
from partywall import links, sessions

ANSWER = 1 << 63
"""The bit of a seed that distinguishes an answer from the message that it answers."""
SLAB_BYTES = 32 << 20
"""Size in bytes of the memory in which a link keeps its long messages."""
IN_FLIGHT = 8
"""Number of messages of a chain that the client has sent and that are not answered yet."""
PADDING = "-" * 48
"""Characters that lengthen each line: about a thousand lines fill the pipe to the harness."""
MESSAGE_MAX = 65536
"""Maximum length in bytes of a message that the server of the error tests receives."""
LIMIT = 60.0
"""Maximum time in seconds that closing a link may take."""
MASK = (1 << 64) - 1
STEP = 0x9E3779B97F4A7C15


def say(*words: object) -> None:
    print(*words, flush=True)


def mix(word: int) -> int:
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) & MASK
    return word ^ word >> 31


@functools.lru_cache(maxsize=32)
def pattern(size: int, seed: int) -> bytes:
    """Returns the pattern of a seed, as crates/testkit/src/pattern.rs defines it."""
    count = (size + 7) // 8
    first = mix(seed)
    words = ((first + index * STEP) & MASK for index in range(count))
    return struct.pack(f"<{count}Q", *words)[:size]


def payload(number: int, size: int) -> bytes:
    """Returns the payload of message ``number``, as in crates/testkit/src/pattern.rs."""
    return struct.pack("<Q", number) + pattern(size - 8, number)


class Counters:
    """The number of messages that this end has received, and the sum of their bytes."""

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0

    def check(self, message: bytes, seed: int) -> None:
        """Checks that a received message is the pattern of ``seed``, and counts it."""
        if message != pattern(len(message), seed):
            raise ValueError(f"message {seed:x} of {len(message)} bytes is wrong")
        self.messages += 1
        self.bytes += len(message)

    def check_answer(self, answer: bytes | None, seed: int, size: int) -> None:
        """Checks the answer to the message with this seed and ``size``, and counts it."""
        if answer is None:
            raise ValueError("the end instead of an answer")
        if len(answer) != size:
            raise ValueError(f"{len(answer)} bytes answer {size}")
        self.check(answer, seed | ANSWER)

    def report(self, what: str) -> None:
        say(what, self.messages, self.bytes)


def config(transport: str, **settings: Any) -> partywall.Config:
    policy = {"shared": "shm", "unix": "socket", "tcp": "auto"}[transport]
    return partywall.Config(transport=policy, **settings)


def serve_channels(transport: str, address: str) -> None:
    with partywall.Listener(address, config(transport)) as listener:
        say("ready")
        for channel in listener:
            counters = Counters()
            with channel:
                while (message := channel.recv_bytes()) is not None:
                    seed = counters.messages
                    counters.check(message, seed)
                    channel.send(pattern(len(message), seed | ANSWER))
                    channel.flush()
            counters.report("served")


def run_channel(transport: str, address: str, sizes: list[int]) -> None:
    counters = Counters()
    with partywall.connect(address, config(transport)) as channel:
        for seed, size in enumerate(sizes):
            channel.send(pattern(size, seed))
            channel.flush()
            counters.check_answer(channel.recv_bytes(), seed, size)
    counters.report("done")


def serve_sessions(transport: str, address: str) -> None:
    with sessions.Listener(address, config(transport)) as listener:
        say("ready")
        for session in listener:
            serve_session(session)


def serve_session(session: sessions.Session) -> None:
    ended: list[Counters] = []
    threads = []
    for stream in session:
        thread = threading.Thread(target=serve_stream, args=(stream, ended))
        thread.start()
        threads.append(thread)
    for thread in threads:
        thread.join()
    if len(ended) != len(threads):
        raise ValueError("a stream has failed")
    total = Counters()
    total.messages = sum(counters.messages for counters in ended)
    total.bytes = sum(counters.bytes for counters in ended)
    total.report("served")


def serve_stream(stream: sessions.Stream, ended: list[Counters]) -> None:
    counters = Counters()
    first = stream.metadata[0] << 32
    with stream:
        while (message := stream.recv_bytes()) is not None:
            seed = first | counters.messages
            counters.check(message, seed)
            stream.send(pattern(len(message), seed | ANSWER))
        stream.finish()
    ended.append(counters)


def run_session(transport: str, address: str, sizes: list[int]) -> None:
    """Sends messages on two streams, alternating, and checks the answers.

    The metadata of a stream is its number in one byte.
    """
    counters = Counters()
    session = sessions.connect(address, config(transport))
    streams = [session.open(bytes([number])) for number in range(2)]
    for number, size in enumerate(sizes):
        for first, stream in enumerate(streams):
            stream.send(pattern(size, first << 32 | number))
        for first, stream in enumerate(streams):
            counters.check_answer(stream.recv_bytes(), first << 32 | number, size)
    for stream in streams:
        stream.finish()
        if stream.recv_bytes() is not None:
            raise ValueError("a message instead of the end")
        stream.close()
    session.close()
    session.wait_finished()
    counters.report("done")


def link_config(transport: str) -> links.Config:
    policy = {"shared": "shm", "unix": "socket", "tcp": "auto"}[transport]
    return links.Config(
        transport=policy, slab_bytes=SLAB_BYTES, allow_anonymous_tcp=transport == "tcp"
    )


def bind_links(transport: str, address: str, directory: str) -> links.Server:
    server = links.Server(address, "bob", directory, config=link_config(transport))
    say("ready")
    return server


def connect_link(transport: str, address: str, directory: str, name: str) -> links.Link:
    client = links.Client("alice", directory, config=link_config(transport))
    return client.connect(address, "bob", name)


def serve_links(transport: str, address: str, directory: str) -> None:
    for link in bind_links(transport, address, directory):
        counters = Counters()
        for message in link:
            seed = counters.messages
            counters.check(bytes(message), seed)
            message.reply(pattern(len(message), seed | ANSWER))
        link.close(LIMIT)
        counters.report("served")


def run_link(
    transport: str, address: str, sizes: list[int], directory: str, name: str
) -> None:
    counters = Counters()
    link = connect_link(transport, address, directory, name)
    for seed, size in enumerate(sizes):
        link.send(pattern(size, seed))
        answer = link.recv()
        counters.check_answer(None if answer is None else bytes(answer), seed, size)
        if answer is not None:
            answer.ack()
    link.close(LIMIT)
    counters.report("done")


def chain_size(number: int) -> int:
    """Returns the length in bytes of message ``number`` of a chain."""
    return 70_000 if number % 64 == 63 else 8 + number % 50


def next_of_chain(link: links.Link, mark: int) -> tuple[links.Message, int] | None:
    """Receives and checks the next message of a chain, the exchange with a kill.

    Says so before anything else happens to it.
    """
    message = link.recv()
    if message is None:
        return None
    content = bytes(message)
    word = int.from_bytes(content[:8], "little")
    number = word & ~ANSWER
    if word & ANSWER != mark or content != payload(word, chain_size(number)):
        raise ValueError(f"a message of {len(content)} bytes is wrong")
    say("got", number, message.attempt, PADDING)
    return message, number


def serve_chain(transport: str, address: str, directory: str) -> None:
    server = bind_links(transport, address, directory)
    link = server.accept()
    while (found := next_of_chain(link, 0)) is not None:
        message, number = found
        message.reply(payload(number | ANSWER, chain_size(number)))
    link.close(LIMIT)
    server.close()
    say("finished")


def run_chain(link: links.Link, count: int, is_new: bool) -> None:
    for number in range(IN_FLIGHT if is_new else 0):
        link.send(payload(number, chain_size(number)))
    number = -1
    while number + 1 < count:
        found = next_of_chain(link, ANSWER)
        if found is None:
            raise ValueError("the end instead of an answer")
        message, number = found
        following = number + IN_FLIGHT
        if following < count:
            message.reply(payload(following, chain_size(following)))
        else:
            message.ack()
    link.close(LIMIT)
    say("finished")


def serve_errors(transport: str, address: str, user: int) -> None:
    """Accepts channels and keeps them open without sending.

    A second listener admits another user alone.
    """
    listener = partywall.Listener(address, config(transport, message_max=MESSAGE_MAX))
    if transport != "tcp":
        strict = config(transport, message_max=MESSAGE_MAX, admit_users=[user])
        other = partywall.Listener(f"{address}.strict", strict)
        threading.Thread(target=other.accept, daemon=True).start()
    say("ready")
    channels = []
    while True:
        channels.append(listener.accept())


def run_errors(transport: str, address: str, nobody: str, user: int) -> None:
    def connecting(to: str, **settings: Any) -> Callable[[], object]:
        return lambda: partywall.connect(to, config(transport, **settings))

    cause("address-syntax", connecting("nowhere"))
    cause("no-listener", connecting(nobody))
    cause("setting", connecting(address, ring_bytes=5000))
    if transport != "tcp":
        cause("no-socket", connecting(f"{nobody}.none"))
        cause("not-admitted", connecting(address, admit_users=[user]))
        cause("refused", connecting(f"{address}.strict"))
    channel = partywall.connect(address, config(transport))
    cause("deadline", lambda: channel.recv(timeout=0.02))
    cause("too-long", lambda: channel.send(bytes(MESSAGE_MAX + 1)))
    say("connected")
    cause("gone", channel.recv)


def cause(name: str, act: Callable[[], object]) -> None:
    """Prints the name of a cause and the number of the error, or 0 without an error."""
    try:
        act()
    except partywall.Error as error:
        say("cause", name, error.code)
    else:
        say("cause", name, 0)


def end_with_input() -> None:
    """Reads standard input, which the harness closes, and then ends the process."""
    while os.read(0, 4096):
        pass
    os._exit(0)


def numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


def main(words: list[str]) -> None:
    if words[:1] == ["serve"]:
        threading.Thread(target=end_with_input, daemon=True).start()
    match words:
        case ["features"]:
            say("channel session link")
        case ["serve", "channel", transport, address, _]:
            serve_channels(transport, address)
        case ["serve", "session", transport, address, _]:
            serve_sessions(transport, address)
        case ["serve", "link", transport, address, directory]:
            serve_links(transport, address, directory)
        case ["serve", "chain", transport, address, directory]:
            serve_chain(transport, address, directory)
        case ["serve", "errors", transport, address, user]:
            serve_errors(transport, address, int(user))
        case ["run", "channel", transport, address, sizes]:
            run_channel(transport, address, numbers(sizes))
        case ["run", "session", transport, address, sizes]:
            run_session(transport, address, numbers(sizes))
        case ["run", "link", transport, address, sizes, directory, name]:
            run_link(transport, address, numbers(sizes), directory, name)
        case ["run", "chain", transport, address, count, directory, name, begin]:
            link = connect_link(transport, address, directory, name)
            run_chain(link, int(count), begin == "new")
        case ["run", "errors", transport, address, nobody, user]:
            run_errors(transport, address, nobody, int(user))
        case _:
            raise ValueError("the arguments are not those of the matrix")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Exception as error:  # every error is printed, so that the harness can show it
        say("failed", repr(error))
        sys.exit(1)
