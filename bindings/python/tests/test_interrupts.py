# SPDX-License-Identifier: MIT OR Apache-2.0
"""Ctrl-C in every call that waits: it ends the wait, which has never woken before."""

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import partywall
import pytest
from conftest import DEADLINE, interrupts_reach, wait_until_asleep
from partywall import links, sessions

PRELUDE = """
import asyncio, os, sys
import multiprocessing.connection
import partywall, partywall.aio
from partywall import calls, links, lossy, sessions
from partywall.multiprocessing import Connection, Listener
folder, name = sys.argv[1:]
unread, silent, nowhere, mine = (
    f"unix:{folder}/{it}.sock" for it in ("channels", "silent", "nowhere", name)
)
endless = partywall.Config(handshake_timeout=1000.0)

def channel(**settings):
    settings.setdefault("begin", "shm")
    return partywall.connect(unread, partywall.Config(memory_max=1 << 20, **settings))

def session(**settings):
    return sessions.connect(f"unix:{folder}/sessions.sock", partywall.Config(**settings))

def link(address=f"unix:{folder}/links.sock"):
    return links.Client(name).connect(address, "server", "link")

def for_ever(act):
    while True:
        act()

def fill(act):
    try:
        for_ever(act)
    except BlockingIOError:
        pass

async def read_stream():
    server = await partywall.aio.start_server(lambda *_: None, mine)
    reader, _ = await partywall.aio.open_connection(mine)
    ready()
    await reader.read()

async def serve():
    server = await partywall.aio.start_server(lambda *_: None, mine)
    ready()
    await server.serve_forever()

async def connect():
    ready()
    await partywall.aio.open_connection(silent, config=endless)

async def receive():
    it = partywall.aio.Link(link())
    ready()
    await it.recv()

def ready():
    print("ready", flush=True)

try:
"""

SMALL = "channel(ring_bytes=4096, inline_max=512)"

# The blocking calls that Ctrl-C has to interrupt, by name: the statement that prepares a call, and
# the call.
WAITING = {
    "channel_recv": ("it = channel()", "it.recv()"),
    "channel_recv_bytes": ("it = channel()", "it.recv_bytes(1000.0)"),
    "channel_next": ("it = channel()", "next(it)"),
    "channel_recv_over_a_socket": ("it = channel(transport='socket')", "it.recv()"),
    "channel_send": ("it = channel()", "for_ever(lambda: it.send(bytes(100_000)))"),
    "channel_send_over_a_socket": (
        "it = channel(transport='socket')",
        "for_ever(lambda: it.send(bytes(100_000)))",
    ),
    "channel_reserve": (
        "it, held = channel(), []",
        "for_ever(lambda: held.append(it.reserve(100_000)))",
    ),
    "channel_commit": (
        "it = channel(); last = it.reserve(100); fill(lambda: it.send(bytes(100), 0))",
        "last.commit()",
    ),
    "channel_flush": (
        "it = channel(transport='socket'); fill(lambda: it.send(bytes(100_000), 0))",
        "it.flush()",
    ),
    "channel_accept": ("it = partywall.Listener(mine)", "it.accept()"),
    "channel_connect": ("", "partywall.connect(silent, endless)"),
    "stream_recv": ("it = session().open()", "it.recv()"),
    "stream_send": ("it = session().open()", "for_ever(lambda: it.send(bytes(10_000)))"),
    "stream_reserve": (
        "it, held = session(begin='shm', memory_max=1 << 20).open(), []",
        "for_ever(lambda: held.append(it.reserve(100_000)))",
    ),
    "stream_file": ("it = session().open().makefile()", "it.read(1)"),
    "session_open": ("it, held = session(), []", "for_ever(lambda: held.append(it.open()))"),
    "session_accept": ("it = session()", "it.accept()"),
    "session_going_away": ("it = session()", "it.wait_going_away()"),
    "session_drained": ("it = session(); held = it.open()", "it.wait_drained()"),
    "session_finished": ("it = session()", "it.wait_finished()"),
    "session_listener": ("it = sessions.Listener(mine)", "it.accept()"),
    "session_connect": ("", "sessions.connect(silent, endless)"),
    "call": ("it = calls.Client(session().open())", "it.call(b'x')"),
    "call_with_deadline": ("it = calls.Client(session().open())", "it.call(b'x', 1000.0)"),
    "calls_serve": ("it = session().open()", "calls.serve(it, bytes)"),
    "link_recv": ("it = link()", "it.recv()"),
    "link_send": ("it = link()", "for_ever(lambda: it.send(bytes(100_000)))"),
    "link_send_batch": ("it = link()", "for_ever(lambda: it.send_batch([bytes(100_000)]))"),
    "link_acked": ("it = link(); it.send(b'x')", "it.wait_acked()"),
    "link_attached": ("it = link(nowhere)", "it.wait_attached()"),
    "link_event": ("it = link()", "for_ever(it.next_event)"),
    "link_close": ("it = link(nowhere); it.send(b'x')", "it.close(None)"),
    "link_accept": ("it = links.Server(mine, 'mine')", "it.accept()"),
    "lossy_log": (f"it = lossy.Sender({SMALL})", "for_ever(lambda: it.log(bytes(100), 1000.0))"),
    "lossy_policy": (f"it = lossy.Sender({SMALL}, 1000.0)", "for_ever(lambda: it.log(bytes(100)))"),
    "lossy_flush": (
        f"it = lossy.Sender({SMALL}, 'drop_oldest')\n"
        "    while it.log(bytes(100)) != 'queued': pass",
        "it.flush()",
    ),
    "lossy_recv": ("it = lossy.Receiver(channel())", "it.recv()"),
    "objects_recv": ("it = Connection(channel())", "it.recv()"),
    "objects_send": ("it = Connection(channel())", "for_ever(lambda: it.send(bytes(100_000)))"),
    "objects_poll": ("it = Connection(channel())", "it.poll(None)"),
    "objects_wait": ("it = Connection(channel())", "multiprocessing.connection.wait([it])"),
    "objects_accept": ("it = Listener(mine)", "it.accept()"),
    "asyncio_read": ("", "asyncio.run(read_stream())"),
    "asyncio_serve": ("", "asyncio.run(serve())"),
    "asyncio_connect": ("", "asyncio.run(connect())"),
    "asyncio_link": ("", "asyncio.run(receive())"),
}

Waiters = dict[str, tuple[subprocess.Popen[str], str, str]]


def program(name: str) -> str:
    before, call = WAITING[name]
    # The programs of asyncio print "ready" themselves, within a task.
    ready = "pass" if name.startswith("asyncio") else "ready()"
    return f"""{PRELUDE}
    {before}
    {ready}
    {call}
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def keep_all(accept: Callable[[], Any]) -> threading.Thread:
    """Accepts in a thread, and neither reads nor drops what has come."""
    kept: list[Any] = []

    def run() -> None:
        try:
            while True:
                kept.append(accept())
        except ValueError:
            pass  # the listener was closed

    thread = threading.Thread(target=run)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def waiters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Waiters]:
    """Starts all waiters, and looks how often each has woken within a second. What a waiter's call
    does at first, such as attaching its link, may take longer than a second on a busy machine."""
    folder = tmp_path_factory.mktemp("waiters")
    config = partywall.Config(memory_max=1 << 20, streams_max=100)
    listeners: list[Any] = [
        partywall.Listener(folder / "channels.sock", config),
        sessions.Listener(folder / "sessions.sock", config),
        links.Server(folder / "links.sock", "server"),
    ]
    accepting = [keep_all(listener.accept) for listener in listeners]
    processes: dict[str, subprocess.Popen[str]] = {}
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(folder / "silent.sock"))
        silent.listen()
        try:
            for name in WAITING:
                processes[name] = start(program(name), folder, name)
            for name, process in processes.items():
                assert process.stdout is not None
                if process.stdout.readline() != "ready\n":
                    raise AssertionError(f"{name}: {process.communicate(timeout=DEADLINE)[1]}")
            before, after = wait_until_asleep([process.pid for process in processes.values()])
            yield {
                name: (process, one, other)
                for (name, process), one, other in zip(
                    processes.items(), before, after, strict=True
                )
            }
        finally:
            for process in processes.values():
                process.kill()
                process.communicate(timeout=DEADLINE)
            for listener in listeners:
                listener.close()
            for thread in accepting:
                thread.join(DEADLINE)


def start(code: str, folder: Path, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder), name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("name", WAITING)
def test_interrupt_ends_a_waiting_call_that_never_woke(waiters: Waiters, name: str) -> None:
    process, before, after = waiters[name]
    assert after == before and after.startswith("S"), "an idle wait has woken"
    assert interrupts_reach(process.pid)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE)
    assert (output, process.returncode) == ("interrupted\n", 0), errors
