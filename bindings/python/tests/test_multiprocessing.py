# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connections with the methods of multiprocessing."""

import multiprocessing
import multiprocessing.connection
import os
import pickle
import signal
import threading
from collections.abc import Iterator
from typing import Any

import partywall
import pytest
from conftest import DEADLINE, make_pair
from partywall.multiprocessing import Client, Connection, Listener

Ends = tuple[Connection, Connection]


@pytest.fixture(params=["auto", "socket"])
def ends(address: str, request: pytest.FixtureRequest) -> Iterator[Ends]:
    client, server = make_pair(address, request.param)
    pair = Connection(client), Connection(server)
    yield pair
    for end in pair:
        end.close()


def test_objects_come_back_equal(ends: Ends) -> None:
    client, server = ends
    for sent in (None, {"a": [1, (2, "three")]}, b"x" * 100_000, bytearray(50_000)):
        client.send(sent)
        assert server.recv() == sent


def test_large_arrays_are_read_where_they_were_written(address: str) -> None:
    numpy = pytest.importorskip("numpy")
    client, server = (Connection(channel) for channel in make_pair(address))
    sent = [numpy.arange(200_000.0), numpy.arange(3), numpy.ones((50, 1000))]
    client.send(sent)
    received = server.recv()
    assert all(numpy.array_equal(one, other) for one, other in zip(sent, received, strict=True))
    assert not received[0].flags.owndata and not received[0].flags.writeable
    for _ in range(20):
        client.send(sent[0])
        assert float(server.recv()[-1]) == 199_999.0


def test_part_of_an_object_is_followed_by_the_end(address: str) -> None:
    client, server = (Connection(channel) for channel in make_pair(address))
    with pytest.raises(partywall.TooLarge):
        client.send([pickle.PickleBuffer(bytearray(200 << 20)), "never sent"])
    with pytest.raises(EOFError):
        server.recv()
    with pytest.raises(ValueError):
        client.send("the rest of another object")


class Interrupted(Exception):
    """What the handler of a signal raises."""


def test_object_whose_receiver_is_interrupted_comes_whole_later(address: str) -> None:
    left, right = make_pair(address)
    client, server = Connection(left), Connection(right)
    parts = [bytearray([number]) * 50_000 for number in range(3)]
    kept: list[bytes] = []
    plain = make_pair(address + "2")
    Connection(plain[0]).send([pickle.PickleBuffer(part) for part in parts])
    for _ in range(4):
        kept.append(plain[1].recv_bytes(DEADLINE) or b"")

    def interrupt(_number: int, _frame: object) -> None:
        raise Interrupted

    former = signal.signal(signal.SIGUSR1, interrupt)
    main = threading.get_ident()

    def send_a_part() -> None:
        for part in kept[:2]:
            right.send(part)
        while client._part is None or len(client._part[1]) < 1:
            os.sched_yield()
        signal.pthread_kill(main, signal.SIGUSR1)

    sending = threading.Thread(target=send_a_part)
    try:
        with pytest.raises(Interrupted):
            sending.start()
            client.recv()
        sending.join(DEADLINE)
    finally:
        signal.signal(signal.SIGUSR1, former)
    with pytest.raises(OSError, match="in part"):
        client.recv_bytes()
    for part in kept[2:]:
        right.send(part)
    server.send("the next one")
    assert [bytes(part) for part in client.recv()] == [bytes(part) for part in parts]
    assert client.recv() == "the next one"


def test_buffers_may_exceed_the_memory_of_their_sender(address: str) -> None:
    client, server = (Connection(channel) for channel in make_pair(address))
    sent = [bytearray([number]) * (8 << 20) for number in range(12)]
    sending = threading.Thread(target=client.send, args=([pickle.PickleBuffer(it) for it in sent],))
    sending.start()
    received = server.recv()
    sending.join(DEADLINE)
    assert not sending.is_alive() and all(map(bytes.__eq__, map(bytes, received), map(bytes, sent)))


def test_bytes_are_sent_and_received_in_parts(ends: Ends) -> None:
    client, server = ends
    client.send_bytes(b"0123456789", 2, 5)
    assert server.recv_bytes() == b"23456"
    client.send_bytes(b"too long")
    with pytest.raises(OSError, match="bad message length"):
        server.recv_bytes(3)
    buffer = bytearray(8)
    client.send_bytes(b"abc")
    assert server.recv_bytes_into(buffer, 2) == 3
    assert buffer == b"\0\0abc\0\0\0"
    client.send_bytes(b"longer than the buffer")
    with pytest.raises(multiprocessing.BufferTooShort) as short:
        server.recv_bytes_into(buffer)
    assert short.value.args == (b"longer than the buffer",)
    for offset, size in ((-1, 1), (4, 1), (0, 4)):
        with pytest.raises(ValueError):
            client.send_bytes(b"abc", offset, size)


def test_poll_finds_messages_and_the_end(ends: Ends) -> None:
    client, server = ends
    assert not server.poll() and not server.poll(0.001)
    client.send("one")
    assert server.poll(DEADLINE) and server.poll()
    assert server.recv() == "one"
    client.close()
    assert client.closed and server.poll(DEADLINE)
    for _ in range(2):
        with pytest.raises(EOFError):
            server.recv()
    with pytest.raises(OSError, match="closed"):
        client.send(1)


def test_wait_of_multiprocessing_finds_the_ready_end(ends: Ends) -> None:
    client, server = ends
    wait: Any = multiprocessing.connection.wait
    assert wait([client, server], 0.001) == []
    client.send(1)
    client.send(2)
    for expected in (1, 2):
        assert wait([client, server], DEADLINE) == [server]
        assert server.recv() == expected
    assert wait([client, server], 0.001) == []
    later = threading.Thread(target=lambda: client.send("later"))
    later.start()
    assert wait([client, server], DEADLINE) == [server]
    assert server.poll() and wait([server], 0) == [server]
    assert server.recv() == "later"
    later.join(DEADLINE)


def answer(address: str) -> None:
    with Client(address) as connection:
        while True:
            try:
                connection.send(connection.recv())
            except EOFError:
                return


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_process_answers_until_the_end(address: str, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with Listener(address) as listener:
        child = context.Process(target=answer, args=(address,))
        child.start()
        with listener.accept() as connection:
            for sent in ([1, 2], "text", b"y" * 300_000):
                connection.send(sent)
                assert connection.recv() == sent
        child.join(DEADLINE)
        assert child.exitcode == 0
