# SPDX-License-Identifier: MIT OR Apache-2.0
"""Second processes: kill, fork, forkserver and spawn; and signals that end a wait."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import partywall
import pytest
from conftest import DEADLINE, make_pair

ECHO = """
import sys, partywall
with partywall.connect(sys.argv[1]) as channel:
    for message in channel:
        channel.send(message)
"""

def start(code: str, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, address], stdout=subprocess.PIPE, text=True
    )


def test_message_of_another_process_comes_back(address: str) -> None:
    with partywall.Listener(address) as listener:
        peer = start(ECHO, address)
        channel = listener.accept(DEADLINE)
        credentials = channel.peer.credentials
        assert credentials is not None and credentials.pid == peer.pid
        for length in (1, 1000, 1_000_000):
            channel.send(bytes(length))
            assert channel.recv_bytes(DEADLINE) == bytes(length)
        channel.close()
        assert peer.wait(DEADLINE) == 0


def test_messages_of_a_killed_process_arrive_before_its_end(address: str) -> None:
    code = ECHO.replace("    for message in channel:", "    channel.send(b'committed')\n    for message in channel:")
    with partywall.Listener(address) as listener:
        peer = start(code, address)
        channel = listener.accept(DEADLINE)
        assert channel.recv_bytes(DEADLINE) == b"committed"
        channel.send(b"again")
        assert channel.recv_bytes(DEADLINE) == b"again"
        peer.kill()
        with pytest.raises(ConnectionResetError) as error:
            channel.recv(DEADLINE)
        assert isinstance(error.value, partywall.Disconnected) and error.value.code == 10
        peer.wait(DEADLINE)


def test_handler_that_returns_lets_the_wait_go_on(address: str) -> None:
    client, server = make_pair(address, wait="park")
    seen: list[int] = []
    former = signal.signal(signal.SIGUSR1, lambda number, _frame: seen.append(number))
    main = threading.get_ident()

    def interrupt_then_send() -> None:
        signal.pthread_kill(main, signal.SIGUSR1)
        until = time.monotonic() + DEADLINE
        while not seen and time.monotonic() < until:
            os.sched_yield()
        server.send(b"after the signal")

    other = threading.Thread(target=interrupt_then_send)
    try:
        other.start()
        assert client.recv_bytes(DEADLINE) == b"after the signal"
        other.join(DEADLINE)
    finally:
        signal.signal(signal.SIGUSR1, former)
    assert seen == [signal.SIGUSR1]


def echo_in_child(address: str) -> None:
    with partywall.connect(address) as channel:
        for message in channel:
            channel.send(message)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_child_of_each_method_makes_a_channel_of_its_own(address: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with partywall.Listener(address) as listener:
        child = context.Process(target=echo_in_child, args=(address,))  # type: ignore[attr-defined]
        child.start()
        channel = listener.accept(DEADLINE)
        channel.send(bytes(50_000))
        assert channel.recv_bytes(DEADLINE) == bytes(50_000)
        channel.close()
        child.join(DEADLINE)
        assert child.exitcode == 0


def test_forked_child_cannot_use_the_channel_of_its_parent(address: str) -> None:
    client, server = make_pair(address)
    client.send(bytes(5000))
    message = server.recv(DEADLINE)
    assert message is not None
    reservation = client.reserve(10)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        result = b"nothing raised"
        try:
            for act in (lambda: client.send(b"x"), server.recv, lambda: memoryview(reservation)):
                try:
                    act()
                    break
                except partywall.ForkedError as error:
                    assert error.code == 1
            else:
                result = b"refused" if bytes(message) == bytes(5000) else b"changed"
        finally:
            os.write(write, result)
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"refused"
    os.waitpid(child, 0)
    reservation.abort()
    client.send(b"the parent goes on")
    assert server.recv_bytes(DEADLINE) == b"the parent goes on"
