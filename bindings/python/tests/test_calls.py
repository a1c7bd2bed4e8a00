# SPDX-License-Identifier: MIT OR Apache-2.0
"""Calls: answers in any order, failures, deadlines, limits and ends."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import partywall
import pytest
from conftest import DEADLINE
from partywall import calls
from test_sessions import accepted, session_pair

Serve = Callable[..., calls.Client]


@pytest.fixture
def serve(address: str) -> Iterator[Serve]:
    """Serves a handler in a thread, and returns its client."""
    made: list[threading.Thread] = []
    sessions: list[Any] = []

    def make(handler: Callable[[calls.Request], bytes | None], **limits: int) -> calls.Client:
        client, server = session_pair(address)
        sessions.extend((client, server))
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
    for session in sessions:
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
    assert accepted(server).recv(DEADLINE) is not None
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
