# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls: answers in any order, failures, deadlines, limits and ends."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import partywall
import pytest
from conftest import DEADLINE
from partywall import calls, sessions
from test_sessions import accepted, session_pair

Serve = Callable[..., calls.Client]


@pytest.fixture
def serve(address: str) -> Iterator[Serve]:
    """Serves a handler in a thread, and returns its client."""
    made: list[threading.Thread] = []
    opened_sessions: list[Any] = []

    def make(handler: Callable[[calls.Request], bytes | None], **limits: int) -> calls.Client:
        client, server = session_pair(address)
        opened_sessions.extend((client, server))
        opened = client.open(b"calls")

        def run() -> None:
            try:
                calls.serve(accepted(server), handler, **limits)
            except partywall.Error:
                pass  # the session was closed at the end of the test

        caller = calls.Client(opened)
        thread = threading.Thread(target=run)
        thread.start()
        made.append(thread)
        return caller

    yield make
    for session in opened_sessions:
        session.close()
    for thread in made:
        thread.join(DEADLINE)
        assert not thread.is_alive()


def test_second_call_is_answered_before_the_first(serve: Serve) -> None:
    goes_on = threading.Event()

    def handler(request: calls.Request) -> bytes:
        if request == b"first":
            assert goes_on.wait(DEADLINE)
        return bytes(request).upper()

    client = serve(handler)
    answers: list[bytes] = []
    calling = threading.Thread(
        target=lambda: answers.append(bytes(client.call(b"first", DEADLINE)))
    )
    calling.start()
    assert client.call(b"second", DEADLINE) == b"SECOND"
    assert answers == []
    goes_on.set()
    calling.join(DEADLINE)
    assert answers == [b"FIRST"]


def test_large_payloads_arrive_and_a_request_tells_its_kind(serve: Serve) -> None:
    seen: list[tuple[bool, bool]] = []

    def handler(request: calls.Request) -> bytes:
        left = request.seconds_left
        seen.append((request.is_one_way, left is not None and 0 < left <= DEADLINE))
        return bytes(memoryview(request))

    client = serve(handler)
    for length in (0, 1, 100_000, 1_000_000):
        assert client.call(b"q" * length) == b"q" * length
    client.call(b"", DEADLINE)
    client.call_one_way(b"no answer")
    client.call(b"behind it")
    until = time.monotonic() + DEADLINE
    while (True, False) not in seen and time.monotonic() < until:
        threading.Event().wait(0.001)
    assert (False, True) in seen and (False, False) in seen and (True, False) in seen


def test_failures_of_a_handler_have_a_code_and_detail(serve: Serve) -> None:
    hooked: list[Any] = []
    former = sys.unraisablehook
    sys.unraisablehook = lambda raised: hooked.append(raised.exc_type)

    def handler(request: calls.Request) -> bytes | None:
        match bytes(request):
            case b"fail":
                raise calls.Failure(7, "not today")
            case b"reserved":
                raise calls.Failure(0xFFFFFFFF, b"")
            case b"none":
                return None
            case _:
                raise KeyError(request)

    try:
        client = serve(handler)
        with pytest.raises(partywall.CallFailed) as failed:
            client.call(b"fail", DEADLINE)
        error = failed.value
        assert (error.code, error.failure_code, error.detail) == (711, 7, b"not today")
        for payload in (b"bug", b"reserved"):
            with pytest.raises(partywall.CallAborted) as aborted:
                client.call(payload, DEADLINE)
            assert aborted.value.code == 713
        assert client.call(b"none", DEADLINE) == b""
        assert hooked == [KeyError, ValueError]
    finally:
        sys.unraisablehook = former


def test_handler_learns_that_its_call_was_given_up(serve: Serve) -> None:
    seen: list[bool] = []
    begun, over = threading.Event(), threading.Event()

    def handler(request: calls.Request) -> bytes:
        begun.set()
        until = time.monotonic() + DEADLINE
        while not request.is_cancelled and time.monotonic() < until:
            threading.Event().wait(0.001)
        seen.append(request.is_cancelled)
        over.set()
        return b""

    client = serve(handler)
    until = time.monotonic() + DEADLINE
    # A call that its server receives too late is given up before its handler begins.
    while not begun.is_set() and time.monotonic() < until:
        with pytest.raises(partywall.TimedOut):
            client.call(b"given up", 0.2)
    assert over.wait(DEADLINE)
    assert all(seen)


def test_deadline_passes_and_a_full_server_refuses(serve: Serve) -> None:
    goes_on, begun = threading.Event(), threading.Event()

    def handler(request: calls.Request) -> bytes:
        begun.set()
        assert goes_on.wait(DEADLINE)
        return bytes(request)

    client = serve(handler, running_max=1, waiting_max=1)
    try:
        with pytest.raises(partywall.TimedOut) as timed_out:
            client.call(b"slow", 0.05)
        assert timed_out.value.code == 4
        with pytest.raises(partywall.TimedOut):
            client.call(b"at once", 0)
        outcomes: list[object] = []

        def call() -> None:
            try:
                outcomes.append(bytes(client.call(b"x", DEADLINE)))
            except partywall.CallRefused as refused:
                outcomes.append(refused.code)
                goes_on.set()

        threads = [threading.Thread(target=call) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        assert 712 in outcomes and b"x" in outcomes
    finally:
        goes_on.set()


def served(session: Any) -> tuple[threading.Thread, list[object]]:
    """Serves the next stream of a session in a thread. Its end is in the list: None is a return."""
    ends: list[object] = []

    def run() -> None:
        try:
            calls.serve(accepted(session), lambda request: bytes(request).upper())
            ends.append(None)
        except partywall.Error as error:
            ends.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, ends


@pytest.mark.parametrize("end", ["client", "block", "session", "both", "gone"])
def test_serve_returns_when_the_client_ends(address: str, end: str) -> None:
    client, server = session_pair(address)
    serving, ends = served(server)
    caller = calls.Client(client.open())
    assert caller.call(b"x", DEADLINE) == b"X"
    match end:
        case "client":
            caller.close()
            caller.close()
        case "block":
            with caller as same:
                assert same.call(b"y", DEADLINE) == b"Y"
        case "session":
            client.close()
        case "both":
            with client, caller:
                pass
        case "gone":
            del client, caller
    serving.join(DEADLINE)
    assert ends == [None]
    if end in ("client", "block"):
        for act in (lambda: caller.call(b"z"), lambda: caller.call_one_way(b"z")):
            with pytest.raises(ValueError, match="closed"):
                act()


def test_serve_fails_when_the_session_is_closed_with_a_code(address: str) -> None:
    client, server = session_pair(address)
    serving, ends = served(server)
    caller = calls.Client(client.open())
    assert caller.call(b"x", DEADLINE) == b"X"
    client.close(5, "enough")
    serving.join(DEADLINE)
    assert len(ends) == 1 and isinstance(ends[0], partywall.SessionClosed)


CALLER = """
import sys
from partywall import calls, sessions
session = sessions.connect(sys.argv[1])
client = calls.Client(session.open())
assert client.call(b"x") == b"X"
print("called", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("is_killed", [False, True])
def test_serve_returns_when_the_process_of_the_client_exits(
    address: str, is_killed: bool
) -> None:
    with sessions.Listener(address) as listener:
        peer = subprocess.Popen(
            [sys.executable, "-c", CALLER, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        session = listener.accept(DEADLINE)
    serving, ends = served(session)
    assert peer.stdout is not None and peer.stdout.readline() == "called\n"
    if is_killed:
        peer.kill()
    peer.communicate("\n", DEADLINE)
    serving.join(DEADLINE)
    if is_killed:
        assert len(ends) == 1 and isinstance(ends[0], partywall.Disconnected)
    else:
        assert peer.returncode == 0 and ends == [None]


def test_call_of_another_thread_is_answered_after_close(serve: Serve) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def handler(request: calls.Request) -> bytes:
        begun.set()
        assert goes_on.wait(DEADLINE)
        return bytes(request).upper()

    client = serve(handler)
    answers: list[bytes] = []
    calling = threading.Thread(target=lambda: answers.append(bytes(client.call(b"x", DEADLINE))))
    calling.start()
    assert begun.wait(DEADLINE)
    client.close()
    goes_on.set()
    calling.join(DEADLINE)
    assert answers == [b"X"]


def test_end_of_the_session_fails_calls_in_flight(address: str) -> None:
    client, server = session_pair(address)
    caller = calls.Client(client.open())
    failures: list[BaseException] = []

    def call() -> None:
        try:
            caller.call(b"never answered")
        except BaseException as error:
            failures.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    stream = accepted(server)  # kept: a stream that is dropped ends, and the calls with it
    assert stream.recv(DEADLINE) is not None
    assert caller.lost is None
    server.close()
    calling.join(DEADLINE)
    assert len(failures) == 1 and isinstance(failures[0], ConnectionError)
    assert isinstance(caller.lost, partywall.Error)


def test_used_stream_carries_no_calls(address: str) -> None:
    client, _server = session_pair(address)
    stream = client.open()
    stream.send(b"used")
    with pytest.raises(ValueError):
        calls.Client(stream)
    taken = client.open()
    calls.Client(taken)
    with pytest.raises(ValueError):
        taken.send(b"x")
    with pytest.raises(TypeError):
        calls.serve(client.open(), "no handler")  # type: ignore[arg-type]
