# SPDX-License-Identifier: MIT OR Apache-2.0
"""Each example, as its documentation says how to run it."""

import subprocess
import sys
import threading
from pathlib import Path

import partywall
import pytest
from conftest import DEADLINE

EXAMPLES = Path(__file__).parent.parent / "examples"


def start(name: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-u", str(EXAMPLES / name), *arguments]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_socket(address: str) -> None:
    """Waits until a process listens at the address, which is a moment after its file exists."""
    listens, path = "00010000", address.removeprefix("unix:")
    quiet = threading.Event()
    for _ in range(int(DEADLINE / 0.01)):
        for line in Path("/proc/net/unix").read_text().splitlines():
            if line.endswith(f" {path}") and line.split()[3] == listens:
                return
        quiet.wait(0.01)
    raise AssertionError("the example has not listened")


README = Path(__file__).parent.parent.parent.parent / "README.md"


@pytest.mark.parametrize("answers", [True, False])
def test_sample_of_the_readme_prints_the_answer_or_ends(address: str, answers: bool) -> None:
    section = README.read_text().split("\n## Python\n")[1]
    sample = section.split("```python\n")[1].split("```")[0]
    assert '"unix:/run/app.sock"' in sample
    sample = sample.replace('"unix:/run/app.sock"', repr(address))
    with partywall.Listener(address) as listener:
        client = subprocess.Popen(
            [sys.executable, "-c", sample],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with listener.accept(DEADLINE) as channel:
            assert channel.recv_bytes(DEADLINE) == b"hello"
            if answers:
                channel.send(b"HELLO")
            channel.finish()
            output, errors = client.communicate(timeout=DEADLINE)
    assert (client.returncode, errors) == (0, "")
    assert output == ("b'HELLO'\n" if answers else "")


def test_echo_comes_back(address: str) -> None:
    server = start("echo.py", "serve", address)
    try:
        wait_for_socket(address)
        output, errors = start("echo.py", "send", address, "hello").communicate(timeout=DEADLINE)
        assert (output, errors) == ("hello\n", "")
    finally:
        server.kill()
        server.communicate(timeout=DEADLINE)


def test_link_survives_the_kill_of_its_receiver_and_of_its_sender(
    address: str, tmp_path: Path
) -> None:
    there, here = str(tmp_path / "there"), str(tmp_path / "here")
    # The sender is killed before there was any receiver. The link keeps its line.
    sender = start("link.py", "send", address, here)
    assert sender.stdin is not None
    sender.stdin.write("from the first sender\n")
    sender.stdin.flush()
    receiver = start("link.py", "recv", address, there)
    assert receiver.stdout is not None
    assert receiver.stdout.readline() == "from the first sender\n"
    for process in (sender, receiver):
        process.kill()
        process.communicate(timeout=DEADLINE)
    sender = start("link.py", "send", address, here)
    receiver = start("link.py", "recv", address, there)
    try:
        _, errors = sender.communicate("from the second sender\n", timeout=DEADLINE)
        assert (sender.returncode, errors) == (0, "")
        output, errors = receiver.communicate(timeout=DEADLINE)
        # A line may come again if its receiver was killed before it had acknowledged it.
        lines = output.splitlines()
        assert lines[-1] == "from the second sender" and len(lines) <= 2, errors
        assert receiver.returncode == 0
    finally:
        for process in (sender, receiver):
            process.kill()
            process.wait(DEADLINE)


def test_log_agent_receives_or_counts_every_line(address: str) -> None:
    agent = start("log_agent.py", "agent", address)
    try:
        wait_for_socket(address)
        app = start("log_agent.py", "app", address, "8000")
        output, errors = app.communicate(timeout=DEADLINE)
        assert app.returncode == 0, errors
        sent, dropped = int(output.split()[0]), int(output.split()[3])
        output, errors = agent.communicate(timeout=DEADLINE)
        assert sent + dropped == 8000
        assert output.endswith(f"{sent} records received, {dropped} lost\n"), errors
        assert output.count("thread ") == sent
    finally:
        agent.kill()
        agent.wait(DEADLINE)
