# SPDX-License-Identifier: MIT OR Apache-2.0
"""Pairs of channels over each transport."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import partywall
import pytest

DEADLINE = 30.0
"""Seconds after which a test fails that waits for an event."""

# A shell's background jobs ignore Ctrl-C, and processes inherit that. The processes of the tests
# must not ignore it, because some tests wait for the interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

Pair = tuple[partywall.Channel, partywall.Channel]


def make_pair(address: str, transport: str = "auto", **settings: object) -> Pair:
    """Connects two channels of this process: the connecting one, and the accepted one."""
    settings.setdefault("begin", "shm")  # these tests are about the transport they name
    config = partywall.Config(transport=transport, **settings)  # type: ignore[arg-type]
    connected: list[partywall.Channel] = []
    with partywall.Listener(address, config) as listener:
        target = listener.address
        client = threading.Thread(
            target=lambda: connected.append(partywall.connect(target, config))
        )
        client.start()
        accepted = listener.accept(DEADLINE)
        client.join(DEADLINE)
    return connected[0], accepted


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"unix:{tmp_path}/test.sock"


@pytest.fixture(params=["shm", "unix", "tcp"])
def pair_of(request: pytest.FixtureRequest, address: str) -> Iterator[Callable[..., Pair]]:
    """Makes a pair with the given settings, over shared memory, a Unix socket and TCP."""
    made: list[Pair] = []

    def make(**settings: object) -> Pair:
        where = "tcp:127.0.0.1:0" if request.param == "tcp" else address
        transport = "socket" if request.param == "unix" else "auto"
        pair = make_pair(where, transport, **settings)
        assert pair[0].is_shared_memory == (request.param == "shm")
        made.append(pair)
        return pair

    yield make
    for pair in made:
        for channel in pair:
            channel.close()


def state_of(process: int) -> str:
    """Returns the state of a process and the number of times that it has given up a processor."""
    status = Path(f"/proc/{process}/status").read_text()
    fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
    return f"{fields['State'][0]} {fields['voluntary_ctxt_switches'].strip()}"


def wait_until_asleep(processes: list[int]) -> tuple[list[str], list[str]]:
    """Looks at the processes every second until all sleep and have not run between two looks.
    Returns these two looks. After DEADLINE it returns the last two, whatever they show: a process
    that wakes at least once a second is then still awake, or has run."""
    until = time.monotonic() + DEADLINE
    before = [state_of(process) for process in processes]
    quiet = threading.Event()
    while True:
        quiet.wait(1.0)
        now = [state_of(process) for process in processes]
        are_asleep = now == before and all(state.startswith("S") for state in now)
        if are_asleep or time.monotonic() > until:
            return before, now
        before = now


def interrupts_reach(process: int) -> bool:
    """Whether the process has a handler for SIGINT, instead of ignoring it."""
    status = Path(f"/proc/{process}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt:"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)
