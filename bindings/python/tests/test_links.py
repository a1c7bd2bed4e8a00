# SPDX-License-Identifier: MIT OR Apache-2.0
"""Links: acknowledgements, ends, files, and processes that are killed."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import partywall
import pytest
from conftest import DEADLINE
from partywall import links

LinkPair = tuple[links.Server, links.Link, links.Link]


def link_pair(address: str, directory: Path | None = None) -> LinkPair:
    """Makes a server `bob`, the link of its client `alice`, and the end of the server."""
    server = links.Server(address, "bob", directory)
    client = links.Client("alice", directory).connect(server.address, "bob", "orders")
    client.wait_attached(DEADLINE)
    return server, client, server.accept(DEADLINE)


def received(link: links.Link) -> links.Message:
    message = link.recv(DEADLINE)
    assert message is not None
    return message


def test_messages_are_kept_until_they_are_acknowledged(address: str, tmp_path: Path) -> None:
    server, alice, bob = link_pair(address, tmp_path)
    assert alice.key == ("alice", "bob", "orders") and alice.status.kind == "attached"
    alice.send(b"one")
    alice.send_batch([b"two", bytearray(100_000)])
    assert alice.unacked_bytes > 0
    messages = [received(bob) for _ in range(3)]
    assert [len(message) for message in messages] == [3, 3, 100_000]
    assert messages[0] == b"one" and memoryview(messages[1]).readonly
    assert messages[0].position < messages[1].position < messages[2].position
    assert (messages[0].attempt, messages[0].is_poison) == (1, False)
    bob.rewind()
    again = [received(bob) for _ in range(3)]
    assert bytes(again[1]) == b"two"
    again[2].ack()
    alice.wait_acked(DEADLINE)
    assert alice.unacked_bytes == 0
    with pytest.raises(ValueError):
        again[2].ack()
    with pytest.raises(partywall.LinkError):
        again[0].ack()
    alice.close()
    assert bob.recv(DEADLINE) is None
    server.close()


def test_reply_acknowledges_and_a_token_does_later(address: str) -> None:
    server, alice, bob = link_pair(address)
    alice.send(b"question")
    received(bob).reply(b"answer")
    alice.wait_acked(DEADLINE)
    answer = received(alice)
    token = answer.token
    assert answer == b"answer" and len(token) == 24
    alice.ack_to(token)
    bob.wait_acked(DEADLINE)
    with pytest.raises(ValueError):
        alice.ack_to(b"short")
    assert alice.acked_position is not None and alice.sent_position.position > 0
    assert alice.stats().messages_sent == 1 and alice.stats().messages_received == 1
    server.close()


def test_deadlines_and_closed_links_are_errors(address: str) -> None:
    server, alice, _bob = link_pair(address)
    with pytest.raises(partywall.TimedOut):
        alice.recv(0.001)
    with pytest.raises(partywall.WouldBlock):
        alice.recv(0)
    with pytest.raises((partywall.WouldBlock, partywall.TimedOut)):
        while True:
            alice.send(bytes(100_000), 0)
    with pytest.raises(partywall.TooLarge):
        alice.send(bytes(64 << 20))
    server.close(0.1)
    alice.close(0.1) if alice.unacked_bytes == 0 else alice.detach()
    with pytest.raises(partywall.LinkError) as closed:
        alice.send(b"x")
    assert closed.value.code == 501
    alice.close()
    with pytest.raises(ValueError):
        server.accept()


def test_link_without_a_peer_keeps_messages_and_reports_why(address: str) -> None:
    alice = links.Client("alice").connect(address, "bob", "orders")
    alice.send(b"before bob is there")
    assert alice.status.kind in ("detached", "attaching")
    event = alice.next_event(DEADLINE)
    assert event.kind == "refused" and str(event)
    with pytest.raises(partywall.TimedOut):
        alice.wait_attached(0.001)
    with links.Server(address, "bob") as server:
        bob = server.accept(DEADLINE)
        message = received(bob)
        assert message == b"before bob is there"
        message.ack()
        alice.wait_acked(DEADLINE)
        assert "attached" in [event.kind for event in alice.events()]
        alice.close()


def test_epoch_drops_and_reports_messages(address: str) -> None:
    server, alice, bob = link_pair(address)
    alice.send(b"never received")
    alice.begin_epoch(7)
    alice.send(b"of the new epoch")
    while (message := received(bob)) != b"of the new epoch":
        pass
    message.ack()
    alice.wait_acked(DEADLINE)  # by then both ends are in the new epoch
    reports = alice.reports()
    assert alice.epoch == bob.epoch == 7 and reports and not reports[0].is_receiving and str(reports[0])
    alice.acknowledge_reports(reports)
    assert alice.reports() == []
    server.close()


def test_login_is_judged_by_the_server(address: str) -> None:
    seen: list[tuple[str, bytes]] = []

    def judge(request: links.LoginRequest) -> bytes | str:
        seen.append((request.client, request.login))
        return b"welcome" if request.login == b"secret" else "who are you?"

    config = links.Config(on_login=judge)
    with links.Server("tcp:127.0.0.1:0", "bob", config=config) as server:
        wrong = links.Client("mallory").connect(server.address, "bob", "orders")
        assert "who are you?" in str(wrong.next_event(DEADLINE))
        right = links.Client("alice", config=links.Config(login=b"secret"))
        link = right.connect(server.address, "bob", "orders")
        link.wait_attached(DEADLINE)
        assert link.login_reply == b"welcome"
        assert server.refused >= 1 and server.last_refusal
        wrong.detach()
        link.close()
    assert ("mallory", b"") in seen and ("alice", b"secret") in seen


def test_rule_of_admission_runs_while_links_are_used(address: str) -> None:
    config = links.Config(admit=lambda who: who.uid == os.geteuid())
    with links.Server(address, "bob", config=config) as server:
        opened = [
            links.Client(f"client {number}").connect(address, "bob", "orders")
            for number in range(10)
        ]
        for link in opened:
            link.send(b"hello")
        for _ in opened:
            received(server.accept(DEADLINE)).ack()
        for link in opened:
            link.wait_acked(DEADLINE)
            link.close()


def test_wrong_settings_directories_and_owners_are_refused(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        links.Config(after_reboot="perhaps")  # type: ignore[arg-type]
    for setting, value, takes in (
        ("delivery", "nope", '"at_least_once" or "at_most_once"'),
        ("ring_bytes", -1, "from 0 to"),
        ("peer_max", (-1, 0), "from 0 to"),
        ("retry", (0.1, -1.0), "seconds"),
    ):
        with pytest.raises(partywall.ConfigError) as error:
            links.Config(**{setting: value})  # type: ignore[arg-type]
        assert error.value.code == 13
        assert setting in str(error.value) and takes in str(error.value)
    with pytest.raises(TypeError):
        links.Config(no_such_setting=1)  # type: ignore[call-arg]
    with pytest.raises(partywall.ConfigError):
        links.Client("", tmp_path)
    with pytest.raises(partywall.LinkFileError):
        links.Client("alice", tmp_path / "none")
    with pytest.raises(partywall.ConfigError):
        links.Server("tcp:127.0.0.1:0", "bob")
    client = links.Client("alice", tmp_path)
    link = client.connect(address, "bob", "orders")
    with pytest.raises(partywall.LinkBusy):
        client.connect(address, "bob", "orders")
    link.detach()


def test_close_that_times_out_closes_the_link_and_keeps_its_messages(
    address: str, tmp_path: Path
) -> None:
    client = links.Client("alice", tmp_path)
    link = client.connect(address, "bob", "orders")
    link.send(b"kept")
    with pytest.raises(partywall.TimedOut):
        link.close(0.05)
    assert link.status.kind == "closed"
    with pytest.raises(partywall.LinkError):
        link.send(b"after the close")
    with links.Server(address, "bob") as server:
        again = client.connect(address, "bob", "orders")
        message = received(server.accept(DEADLINE))
        assert message == b"kept"
        message.ack()
        again.close(DEADLINE)


def test_group_closes_its_links(address: str, tmp_path: Path) -> None:
    group = links.Group()
    client = links.Client("alice", tmp_path, group=group)
    opened = [client.connect(address, "bob", str(number)) for number in range(3)]
    group.close()
    assert [link.status.kind for link in opened] == ["closed"] * 3


def test_close_of_a_server_ends_its_accept(address: str) -> None:
    server = links.Server(address, "bob")
    ended: list[object] = []
    looping = threading.Thread(target=lambda: ended.append(list(server)))
    looping.start()
    server.close()
    looping.join(DEADLINE)
    assert ended == [[]]


# The program of a consumer: appends each message to a file in one write, then acknowledges it.
CONSUMER = """
import sys
import partywall
from partywall import links
address, directory, path = sys.argv[1:]
with links.Server(address, "bob", directory) as server:
    link = server.open("alice", "orders")
    print("open", flush=True)
    with open(path, "ab", buffering=0) as file:
        for message in link:
            file.write(bytes(message))
            try:
                message.ack()
            except partywall.LinkError as error:
                assert error.code == 505, error  # the sender died just now: it comes again
"""

# The program of a producer: goes on after the last message that its link has kept. It ends once it
# has sent enough messages and the file `over` exists.
PRODUCER = """
import os
import sys
from partywall import links
address, directory, path, enough, over = sys.argv[1:]
link = links.Client("alice", directory).connect(address, "bob", "orders")
with open(path, "a+b", buffering=0) as file:
    file.seek(0)
    written = [line.split() for line in file.read().splitlines()]
    number = 0
    if written:
        number, stream, position = map(int, written[-1])
        at = link.sent_position
        number += at.stream == stream and at.position > position
    print(link.incarnation, flush=True)
    while number < int(enough) or not os.path.exists(over):
        at = link.sent_position
        file.write(b"%d %d %d\\n" % (number, at.stream, at.position))
        link.send(b"%d\\n" % number)
        number += 1
link.wait_acked()
link.close()
"""


def spawn(code: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_link_survives_kills_of_either_side(address: str, tmp_path: Path) -> None:
    enough = 20_000
    output, journal, over = tmp_path / "output", tmp_path / "journal", tmp_path / "over"
    for name in ("a", "b"):
        (tmp_path / name).mkdir(mode=0o700)
    consumer_of = (address, str(tmp_path / "b"), str(output))
    producer_of = (address, str(tmp_path / "a"), str(journal), str(enough), str(over))
    consumer, producer = spawn(CONSUMER, *consumer_of), spawn(PRODUCER, *producer_of)
    try:
        for kill in range(8):
            # A process is killed once both processes have begun and 2000 more bytes are in the
            # file.
            process = (consumer, producer)[kill % 2]
            assert process.stdout is not None and process.stdout.readline()
            wait_for_size(output, (kill + 1) * 2_000)
            process.kill()
            process.wait(DEADLINE)
            if kill % 2 == 0:
                consumer = spawn(CONSUMER, *consumer_of)
            else:
                producer = spawn(PRODUCER, *producer_of)
        over.touch()
        assert producer.wait(4 * DEADLINE) == 0
        assert consumer.wait(DEADLINE) == 0
    finally:
        for process in (consumer, producer):
            process.kill()
            process.wait(DEADLINE)
    numbers = [int(line) for line in output.read_bytes().splitlines()]
    # A consumer that is killed between its write of a number and its acknowledgement receives the
    # message again.
    repeats = [now for before, now in zip(numbers, numbers[1:], strict=False) if now == before]
    assert len(repeats) <= 4
    total = int(journal.read_bytes().splitlines()[-1].split()[0]) + 1
    assert total >= enough
    assert sorted(set(numbers)) == list(range(total))
    assert all(now in (before, before + 1) for before, now in zip(numbers, numbers[1:], strict=False))


def wait_for_size(path: Path, size: int) -> None:
    """Waits until a file has so many bytes."""
    quiet = threading.Event()
    for _ in range(int(DEADLINE / 0.005)):
        if path.exists() and path.stat().st_size >= size:
            return
        quiet.wait(0.005)
    raise AssertionError(f"{path} has never had {size} bytes")
