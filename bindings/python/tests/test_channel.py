# SPDX-License-Identifier: MIT OR Apache-2.0
"""Channels: messages, their memory, ends, errors and settings."""

import array
import gc
import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path

import partywall
import pytest
from conftest import DEADLINE, Pair, make_pair

MakePair = Callable[..., Pair]


def received(channel: partywall.Channel) -> partywall.Message:
    message = channel.recv(DEADLINE)
    assert message is not None
    return message


@pytest.mark.parametrize("length", [0, 1, 48, 104, 105, 1024, 1025, 65536, 3 << 20])
def test_message_of_any_length_arrives_whole(pair_of: MakePair, length: int) -> None:
    client, server = pair_of()
    sent = random.Random(length).randbytes(length)
    echo = threading.Thread(target=lambda: server.send(received(server), DEADLINE))
    echo.start()
    client.send(sent, DEADLINE)
    answer = received(client)
    echo.join(DEADLINE)
    assert len(answer) == length
    assert answer == sent
    assert bytes(answer) == sent == answer.tobytes()


def test_any_contiguous_buffer_is_sent(pair_of: MakePair) -> None:
    client, server = pair_of()
    for payload in (b"ab", bytearray(b"ab"), memoryview(b"xaby")[1:3], array.array("H", [0x6261])):
        client.send(payload)
        assert server.recv_bytes(DEADLINE) == b"ab"
    with pytest.raises((BufferError, TypeError)):
        client.send(memoryview(b"abcd")[::2])
    with pytest.raises(TypeError):
        client.send("text")  # type: ignore[arg-type]


def test_end_of_peer_is_none_and_then_sending_fails(pair_of: MakePair) -> None:
    client, server = pair_of()
    client.send(b"last")
    client.finish()
    assert list(map(bytes, server)) == [b"last"]
    server.send(b"the other direction goes on")
    assert client.recv_bytes(DEADLINE) == b"the other direction goes on"
    client.close()
    until = time.monotonic() + DEADLINE
    with pytest.raises((partywall.Closed, partywall.Disconnected)) as error:
        while time.monotonic() < until:
            server.send(b"nobody receives")
    assert isinstance(error.value, ConnectionError)
    assert error.value.code in (9, 10)


def test_deadline_is_a_timeout_error_with_the_number(pair_of: MakePair) -> None:
    client, _server = pair_of()
    with pytest.raises(TimeoutError) as timed_out:
        client.recv(timeout=0.001)
    assert isinstance(timed_out.value, partywall.TimedOut)
    assert timed_out.value.code == 4
    with pytest.raises(BlockingIOError) as empty:
        client.recv(timeout=0)
    assert isinstance(empty.value, partywall.WouldBlock)
    assert empty.value.code == 6
    with pytest.raises(ValueError):
        client.recv(timeout=-1)


def test_sender_without_room_waits_until_the_receiver_reads(pair_of: MakePair) -> None:
    client, server = pair_of(memory_max=1 << 20)
    block = bytes(256 << 10)
    with pytest.raises((partywall.TimedOut, partywall.WouldBlock)):
        while True:
            client.send(block, timeout=0)
    failures: list[BaseException] = []

    def send_more() -> None:
        try:
            for _ in range(20):
                client.send(block, DEADLINE)
            client.finish()
        except BaseException as error:
            failures.append(error)

    sender = threading.Thread(target=send_more)
    sender.start()
    lengths = {len(message) for message in server}
    sender.join(DEADLINE)
    assert failures == []
    assert lengths == {256 << 10}


def test_error_policy_never_waits(address: str) -> None:
    client, _server = make_pair(address, back_pressure="error", memory_max=1 << 20)
    with pytest.raises(partywall.WouldBlock) as error:
        while True:
            client.send(bytes(100_000), DEADLINE)
    assert error.value.code == 5


def test_view_keeps_its_message(address: str) -> None:
    client, server = make_pair(address)
    client.send(bytes(range(256)) * 400)
    message = received(server)
    assert message.is_zero_copy
    view = memoryview(message)
    assert view.readonly
    with pytest.raises(BufferError):
        message.release()
    del message
    gc.collect()
    for filling in range(50):
        client.send(bytes([filling]) * 102_400)
        received(server).release()
    assert bytes(view[:256]) == bytes(range(256))


def test_released_message_gives_its_memory_back(address: str) -> None:
    client, server = make_pair(address)
    client.send(bytes(100_000))
    with received(server) as message:
        assert len(memoryview(message)) == 100_000
    for act in (lambda: memoryview(message), lambda: len(message), lambda: bytes(message)):
        with pytest.raises(ValueError):
            act()
    assert client.stats()[0].blocks_in_flight <= 1
    client.send(bytes(100_000))
    assert client.stats()[0].messages == 2


def test_numpy_reads_without_a_copy(address: str) -> None:
    numpy = pytest.importorskip("numpy")
    client, server = make_pair(address)
    client.send(numpy.arange(100_000, dtype="float64"))
    values = numpy.frombuffer(received(server), dtype="float64")
    gc.collect()
    assert not values.flags.owndata and not values.flags.writeable
    assert float(values.sum()) == sum(range(100_000))
    with client.reserve(values.nbytes) as reservation:
        numpy.frombuffer(reservation, dtype="float64")[:] = values * 2
    assert numpy.array_equal(numpy.frombuffer(received(server), dtype="float64"), values * 2)


def test_commit_is_refused_while_a_view_exists(pair_of: MakePair) -> None:
    client, server = pair_of()
    reservation = client.reserve(100_000, DEADLINE)
    view = memoryview(reservation)
    view[:5] = b"hello"
    for refused in (reservation.commit, reservation.abort, lambda: reservation.truncate(5)):
        with pytest.raises(BufferError):
            refused()
    view.release()
    reservation.truncate(5)
    with pytest.raises(ValueError):
        reservation.truncate(6)
    reservation.commit(DEADLINE)
    assert server.recv_bytes(DEADLINE) == b"hello"
    for late in (reservation.commit, lambda: memoryview(reservation)):
        with pytest.raises(ValueError):
            late()


def test_block_that_raises_sends_nothing(address: str) -> None:
    client, server = make_pair(address)
    with pytest.raises(KeyError):
        with client.reserve(10):
            raise KeyError
    with client.reserve(2) as reservation:
        memoryview(reservation)[:] = b"ok"
    assert server.recv_bytes(DEADLINE) == b"ok"


def test_reservation_of_a_closed_channel_fails(address: str) -> None:
    client, _server = make_pair(address)
    reservation = client.reserve(10)
    client.close()
    with pytest.raises(ValueError):
        reservation.commit()


def test_message_beyond_the_limit_names_the_setting(address: str) -> None:
    client, _server = make_pair(address, memory_max=1 << 20)
    with pytest.raises(partywall.TooLarge, match="memory_max") as error:
        client.send(bytes(8 << 20))
    assert error.value.code == 11


def test_second_thread_in_a_direction_is_refused(address: str) -> None:
    client, server = make_pair(address, wait="park")
    waiting = threading.Thread(target=lambda: client.recv(DEADLINE))
    waiting.start()
    until = time.monotonic() + DEADLINE
    with pytest.raises(partywall.BusyError) as error:
        while time.monotonic() < until:
            try:
                client.recv(timeout=0)
            except partywall.WouldBlock:
                continue
    assert error.value.code == 8
    server.send(b"ends the wait")
    waiting.join(DEADLINE)
    assert not waiting.is_alive()


def test_addresses_fail_with_their_own_exceptions(tmp_path: Path) -> None:
    with pytest.raises(partywall.ConfigError) as syntax:
        partywall.connect("no address")
    assert syntax.value.code == 301
    with pytest.raises(FileNotFoundError) as missing:
        partywall.connect(f"unix:{tmp_path}/none.sock")
    assert isinstance(missing.value, partywall.NoSocketError)
    assert missing.value.code == 332
    with partywall.Listener(tmp_path / "used.sock"):
        with pytest.raises(OSError) as used:
            partywall.Listener(tmp_path / "used.sock")
        assert isinstance(used.value, partywall.Error) and used.value.code == 311
    with pytest.raises(partywall.ConfigError):
        partywall.Listener("tcp:0.0.0.0:0")


def test_impossible_settings_are_refused(address: str) -> None:
    for wrong in ({"wait": "soon"}, {"transport": "post"}, {"linger": -1.0}):
        with pytest.raises(ValueError):
            partywall.Config(**wrong)
    with pytest.raises(TypeError):
        partywall.Config(no_such_setting=1)  # type: ignore[call-arg]
    with pytest.raises(partywall.ConfigError) as error:
        partywall.Listener(address, partywall.Config(ring_bytes=5000))
    assert error.value.code == 13


@pytest.mark.parametrize(
    ("setting", "value", "takes"),
    [
        ("wait", "nope", '"adaptive", "spin", "park", or the seconds'),
        ("wait", -1.0, '"adaptive", "spin", "park", or the seconds'),
        ("trust", "nope", '"auto", "own_user", "trusted" or "untrusted"'),
        ("begin", "nope", '"auto", "shm" or "socket"'),
        ("memory_max", -1, "from 0 to 18446744073709551615"),
        ("backlog", 1 << 40, "from 0 to"),
        ("streams_max", 1 << 70, "from 0 to 4294967295"),
        ("admit_users", [-1], "from 0 to 4294967295"),
        ("linger", -1.0, "seconds"),
        ("linger", 1e300, "seconds"),
        ("handshake_timeout", float("nan"), "seconds"),
        ("spin_budget", 2.0, "at most 1 second"),
    ],
)
def test_impossible_setting_is_named_with_what_it_takes(
    setting: str, value: object, takes: str
) -> None:
    with pytest.raises(partywall.ConfigError) as error:
        partywall.Config(**{setting: value})  # type: ignore[arg-type]
    assert isinstance(error.value, ValueError) and error.value.code == 13
    text = str(error.value)
    assert setting in text and repr(value) in text and takes in text


def test_setting_of_another_type_is_a_type_error() -> None:
    for setting, value in (("memory_max", "much"), ("trust", 5), ("wait", None), ("linger", "x")):
        with pytest.raises(TypeError):
            partywall.Config(**{setting: value})  # type: ignore[arg-type]


def test_finished_side_says_that_it_still_receives(pair_of: MakePair) -> None:
    client, server = pair_of()
    reservation = client.reserve(10)
    client.finish()
    for act in (
        lambda: client.send(b"x"),
        lambda: client.reserve(10),
        lambda: client.flush(),
        lambda: reservation.commit(),
    ):
        with pytest.raises(partywall.SendingEnded, match="still receives") as ended:
            act()
        assert ended.value.code == 408 and isinstance(ended.value, ValueError)
    server.send(b"the other direction goes on")
    assert client.recv_bytes(DEADLINE) == b"the other direction goes on"
    client.close()
    with pytest.raises(ValueError, match="closed") as closed:
        client.send(b"x")
    assert not isinstance(closed.value, partywall.Error)


def test_rule_of_admission_sees_and_refuses_the_peer(address: str) -> None:
    seen: list[int] = []
    reasons: list[str] = []

    def judge(who: partywall.Credentials) -> bool | str:
        seen.append(who.pid)
        return "not today" if len(seen) == 1 else True

    config = partywall.Config(admit=judge, on_refused=reasons.append)
    connected: list[partywall.Channel] = []

    def connect_twice() -> None:
        try:
            partywall.connect(address)
        except partywall.HandshakeError as error:
            reasons.append(str(error))
        connected.append(partywall.connect(address))

    with partywall.Listener(address, config) as listener:
        client = threading.Thread(target=connect_twice)
        client.start()
        channel = listener.accept(DEADLINE)
        client.join(DEADLINE)
        assert listener.refused == 1
    assert len(reasons) == 2 and all("not today" in reason for reason in reasons)
    assert seen == [os.getpid()] * 2
    credentials = channel.peer.credentials
    assert credentials is not None and credentials.uid == os.geteuid()


def test_trust_follows_the_setting(address: str) -> None:
    client, _server = make_pair(address, trust="untrusted")
    assert not client.peer.is_trusted and client.peer.distrust


def test_accept_has_a_deadline(address: str) -> None:
    with partywall.Listener(address) as listener:
        with pytest.raises(partywall.TimedOut):
            listener.accept(timeout=0.001)
    with pytest.raises(ValueError):
        listener.accept()


def test_spin_budget_that_would_hold_a_thread_is_an_error(address: str) -> None:
    for wrong in (1e300, float("inf")):
        with pytest.raises(partywall.ConfigError, match="spin_budget"):
            partywall.Config(spin_budget=wrong)
    for wrong in (-1.0, float("nan"), 1.001, 1000.0 * 365 * 24 * 3600):
        with pytest.raises(ValueError):
            partywall.Config(spin_budget=wrong)
    client, _server = make_pair(address, spin_budget=0.001)
    with pytest.raises(partywall.TimedOut):
        client.recv(0.002)


@pytest.mark.parametrize("act", ["drop", "close"])
def test_end_of_a_channel_does_not_hold_the_gil(address: str, act: str) -> None:
    """The end waits until the peer reads, which a thread of this process does. The end waits a
    second at most, so the test is repeated if that thread was slower."""
    until = time.monotonic() + DEADLINE
    begun = time.monotonic()
    while not reads_during_the_end(address, act):
        assert time.monotonic() - begun > 1.0 and time.monotonic() < until
        begun = time.monotonic()


def reads_during_the_end(address: str, act: str) -> bool:
    """Ends a channel whose socket is full. Returns whether its peer gets all messages."""
    client, server = make_pair(address, "socket")
    sent = 0
    with pytest.raises(partywall.WouldBlock):
        while True:
            client.send(bytes(100_000), timeout=0)
            sent += 1
    begins = threading.Event()
    received: list[int] = []

    def read() -> None:
        assert begins.wait(DEADLINE)
        try:
            received.extend(len(message) for message in server)
        except partywall.Disconnected:
            pass  # the end has given up the rest

    reading = threading.Thread(target=read)
    reading.start()
    begins.set()
    if act == "close":
        client.close()
    else:
        del client
    reading.join(DEADLINE)
    assert not reading.is_alive()
    return received == [100_000] * sent


def test_views_dropped_at_random_neither_grow_nor_fault(address: str) -> None:
    client, server = make_pair(address, wait="adaptive")
    rng = random.Random(24)
    held: list[memoryview] = []
    threshold = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for number in range(20_000):
            length = rng.choice((8, 100, 2_000, 30_000))
            client.send(number.to_bytes(8, "little") * (length // 8))
            view = memoryview(received(server))
            held.append(view)
            if len(held) > 50:
                old = held.pop(rng.randrange(len(held)))
                assert bytes(old[:8]) == bytes(old[-8:])
    finally:
        gc.set_threshold(*threshold)
    assert client.stats()[0].memory_bytes <= 64 << 20
