# SPDX-License-Identifier: MIT OR Apache-2.0
"""What outlives what: cycles of references, forked children, descriptors, the interpreter's exit."""

import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import partywall
import pytest
from conftest import DEADLINE, make_pair
from partywall import calls, links, lossy, sessions
from partywall._native import EventLoop
from test_links import link_pair, received
from test_sessions import accepted, session_pair


class App:
    """An application whose listener calls it back: a cycle through the native module."""

    def __init__(self, make: Callable[[Any], Any]) -> None:
        self.listener = make(self)

    def judge(self, _who: object) -> bool:
        return True

    def report(self, _text: str) -> None:
        pass


CYCLES: dict[str, Callable[[str, Any], Any]] = {
    "config": lambda _, app: partywall.Config(admit=app.judge, on_refused=app.report),
    "channels": lambda where, app: partywall.Listener(where, partywall.Config(admit=app.judge)),
    "sessions": lambda where, app: sessions.Listener(where, partywall.Config(admit=app.judge)),
    "asyncio": lambda where, app: EventLoop().bind(
        where, 1, partywall.Config(admit=app.judge)
    ),
    "link_config": lambda _, app: links.Config(admit=app.judge),
    "links": lambda where, app: links.Server(where, "bob", config=links.Config(on_login=app.judge)),
}


@pytest.mark.parametrize("kind", CYCLES)
def test_listener_in_a_cycle_with_its_rule_is_collected(address: str, kind: str) -> None:
    app = App(lambda it: CYCLES[kind](address, it))
    gone = weakref.ref(app)
    gc.collect()
    assert gone() is not None, "a living object must stay"
    del app
    gc.collect()
    assert gone() is None
    assert not Path(address.removeprefix("unix:")).exists()


def test_rule_of_a_config_that_nobody_holds_is_still_asked(address: str) -> None:
    asked: list[int] = []

    def judge(who: partywall.Credentials) -> bool:
        asked.append(who.pid)
        return True

    listener = sessions.Listener(address, partywall.Config(admit=judge))
    gc.collect()
    made: list[sessions.Session] = []
    client = threading.Thread(
        target=lambda: made.append(sessions.connect(address, partywall.Config(admit=judge)))
    )
    client.start()
    listener.accept(DEADLINE)
    client.join(DEADLINE)
    assert asked == [os.getpid()] * 2 and made
    listener.close()


def test_interrupt_in_a_rule_ends_the_accept(address: str) -> None:
    def judge(_who: partywall.Credentials) -> bool:
        raise KeyboardInterrupt

    config = partywall.Config(admit=judge)
    for make, connect in (
        (partywall.Listener, partywall.connect),
        (sessions.Listener, sessions.connect),
    ):
        def connect_in_vain(connect: Any = connect) -> None:
            with pytest.raises(partywall.HandshakeError):
                connect(address)

        with make(address, config) as listener:
            client = threading.Thread(target=connect_in_vain)
            client.start()
            with pytest.raises(KeyboardInterrupt):
                listener.accept(DEADLINE)
            client.join(DEADLINE)


@pytest.mark.parametrize("make", [partywall.Config, links.Config])
def test_rule_and_numbers_exclude_each_other(make: Any) -> None:
    for key in ("admit_users", "admit_groups"):
        with pytest.raises(TypeError, match="cannot be combined"):
            make(admit=lambda who: True, **{key: [0]})
    with pytest.raises(TypeError, match="callable"):
        make(admit="root")


def run_in_child(act: Callable[[], None]) -> int:
    """Runs `act` in a forked child, and returns its exit status: 0 if nothing was raised."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_forked_child_that_drops_everything_changes_nothing(address: str, tmp_path: Path) -> None:
    client, server = make_pair(address + "1")
    client.send(bytes(range(200)) * 500)
    message = server.recv(DEADLINE)
    assert message is not None and message.is_zero_copy
    reservation = client.reserve(1000)
    held: dict[str, Any] = {
        "message": message,
        "reservation": reservation,
        "channels": (client, server),
        "listener": partywall.Listener(address + "2"),
        "sessions": session_pair(address + "3"),
        "session_listener": sessions.Listener(address + "4"),
        "links": link_pair(address + "5", tmp_path),
        "lossy": lossy.Sender(make_pair(address + "6")[0]),
        "loop": EventLoop(),
    }
    held["stream"] = held["sessions"][0].open()
    held["other_stream"] = accepted_after(held["stream"], held["sessions"][1])
    held["event_listener"] = held["loop"].bind(address + "7", 1)
    del message, client, server, reservation

    def drop_all() -> None:
        held["links"][1].key
        for close in ("listener", "session_listener", "event_listener"):
            held[close].close()
        held.clear()
        gc.collect()

    assert run_in_child(drop_all) == 0
    for number in (2, 4, 5, 7):
        assert Path(f"{address}{number}".removeprefix("unix:")).exists()
    client, server = held["channels"]
    for filling in range(50):
        client.send(bytes([filling]) * 100_000)
        received_message = server.recv(DEADLINE)
        assert received_message is not None
        received_message.release()
    assert bytes(held["message"]) == bytes(range(200)) * 500
    memoryview(held["reservation"])[:] = b"r" * 1000
    held["reservation"].commit()
    assert server.recv_bytes(DEADLINE) == b"r" * 1000
    held["stream"].send(b"after the fork")
    assert held["other_stream"].recv_bytes(DEADLINE) == b"after the fork"
    _, alice, bob = held["links"]
    alice.send(b"after the fork")
    received(bob).ack()
    alice.wait_acked(DEADLINE)


def accepted_after(stream: sessions.Stream, session: sessions.Session) -> sessions.Stream:
    stream.send(b"open")
    other = accepted(session)
    assert other.recv_bytes(DEADLINE) == b"open"
    return other


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_child_of_multiprocessing_writes_what_its_sessions_have_sent(
    address: str, method: str
) -> None:
    import multiprocessing

    context: Any = multiprocessing.get_context(method)
    with sessions.Listener(address) as listener:
        child = context.Process(target=send_and_return, args=(address,))
        child.start()
        stream = accepted(listener.accept(DEADLINE))
        # The child process has sent everything and returned from its function before the parent
        # reads.
        child.join(DEADLINE)
        assert child.exitcode == 0
        assert sum(len(message) for message in stream) == 20 * 10_000


def send_and_return(address: str) -> None:
    stream = sessions.connect(address, partywall.Config(transport="socket")).open()
    for _ in range(20):
        stream.send(bytes(10_000), DEADLINE)


def test_views_outlive_their_channel_and_its_peer(address: str) -> None:
    code = """
import sys, partywall
channel = partywall.connect(sys.argv[1], partywall.Config(begin="shm"))
channel.send(b"v" * 100_000)
channel.recv()
"""
    with partywall.Listener(address) as listener:
        peer = subprocess.Popen([sys.executable, "-c", code, address])
        channel = listener.accept(DEADLINE)
    message = channel.recv(DEADLINE)
    assert message is not None
    view, reservation = memoryview(message), channel.reserve(100_000)
    place = memoryview(reservation)
    peer.kill()
    peer.wait(DEADLINE)
    channel.close()
    del channel, message
    gc.collect()
    place[:] = view
    assert bytes(place) == b"v" * 100_000
    with pytest.raises(BufferError):
        reservation.commit()
    place.release()
    with pytest.raises(ValueError):
        reservation.commit()
    reservation.abort()


def test_buffer_that_is_being_sent_cannot_be_resized(address: str) -> None:
    client, server = make_pair(address, memory_max=1 << 20)
    payload = bytearray(300_000)

    def send() -> None:
        for _ in range(8):
            client.send(payload, DEADLINE)

    sending = threading.Thread(target=send)
    sending.start()
    until = time.monotonic() + DEADLINE
    refused = False
    while not refused and time.monotonic() < until:
        try:
            payload.append(0)
            payload.pop()
        except BufferError:
            refused = True
    assert refused
    for _ in range(8):
        assert server.recv(DEADLINE) is not None
    sending.join(DEADLINE)
    assert not sending.is_alive()
    payload.append(0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_objects_that_cannot_be_made_leave_no_descriptor(address: str, tmp_path: Path) -> None:
    session_pair(address)  # the runtime keeps its descriptors
    taken = partywall.Listener(address + "1")
    file = tmp_path / "file"
    file.write_text("no socket")

    def fail_all() -> None:
        for act in (
            lambda: partywall.connect(address + "none"),
            lambda: sessions.connect(address + "none"),
            lambda: partywall.connect("tcp:127.0.0.1:1"),
            lambda: partywall.Listener(address + "1"),
            lambda: sessions.Listener(address + "1"),
            lambda: partywall.Listener(file),
            lambda: links.Server(address + "1", "bob"),
            lambda: links.Server("tcp:127.0.0.1:0", "bob"),
            lambda: links.Client("alice", tmp_path / "none"),
            lambda: EventLoop().bind(address + "1", 1),
        ):
            with pytest.raises(OSError):
                act()

    def settled(most: int) -> bool:
        # The thread of a failed connect, and a group of links, end a moment after the call returns.
        until = time.monotonic() + DEADLINE
        while descriptors() > most and time.monotonic() < until:
            gc.collect()
            os.sched_yield()
        return descriptors() <= most

    fail_all()
    assert settled(before := descriptors())
    for _ in range(20):
        fail_all()
    assert settled(before)
    taken.close()


DAEMONS = """
import sys, threading, partywall
from partywall import links, sessions
address = sys.argv[1]
channel = partywall.connect(address, partywall.Config(begin="shm"))
session = sessions.connect(address + "s")
stream = session.open()
link = links.Client("alice").connect(address + "l", "bob", "orders")
def run(act):
    def loop():
        while True:
            act()
    threading.Thread(target=loop, daemon=True).start()
for act in (channel.recv, session.accept, stream.recv, link.recv, link.next_event):
    run(act)
run(lambda: link.wait_acked())
stream.send(b"ready")
channel.send(b"ready")
"""


def test_interpreter_exits_while_threads_wait(address: str) -> None:
    for _ in range(5):
        with (
            partywall.Listener(address) as listener,
            sessions.Listener(address + "s") as session_listener,
            links.Server(address + "l", "bob"),
        ):
            peer = subprocess.Popen(
                [sys.executable, "-c", DAEMONS, address], stderr=subprocess.PIPE, text=True
            )
            channel = listener.accept(DEADLINE)
            session = session_listener.accept(DEADLINE)
            stream = accepted(session)
            assert channel.recv_bytes(DEADLINE) == b"ready"
            # Messages wake the threads of the other process again and again while its interpreter
            # exits.
            try:
                while peer.poll() is None:
                    channel.send(b"wake up", DEADLINE)
                    stream.send(b"wake up", DEADLINE)
            except ConnectionError:
                pass
            peer.communicate(timeout=DEADLINE)
            assert peer.returncode == 0


def test_errors_are_pickled_and_objects_refuse(address: str) -> None:
    client, server = make_pair(address)
    with pytest.raises(partywall.TimedOut) as timed_out:
        client.recv(0.001)
    opened, other = session_pair(address)
    stream = opened.open()
    stream.send(b"x")
    accepted(other).reset(7)
    with pytest.raises(partywall.StreamReset) as reset:
        stream.recv(DEADLINE)
    assert (reset.value.application_code, timed_out.value.application_code) == (7, 0)
    for error in (timed_out.value, reset.value):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
        assert (again.code, again.errno) == (error.code, error.errno)
        assert again.application_code == error.application_code
    failure = pickle.loads(pickle.dumps(calls.Failure(3, "why")))
    assert (failure.failure_code, failure.detail) == (3, b"why")
    server.send(b"message")
    for refused in (client, client.recv(DEADLINE), client.reserve(1), opened, stream):
        with pytest.raises(TypeError):
            pickle.dumps(refused)
