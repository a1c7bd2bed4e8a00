# SPDX-License-Identifier: MIT OR Apache-2.0
"""What a person reads: the texts of errors, and objects in a log."""

import errno
import threading
from collections.abc import Callable
from pathlib import Path

import partywall
import pytest
from conftest import DEADLINE, make_pair
from partywall import calls, links, lossy, sessions, shmipc
from partywall import multiprocessing as objects


def text_of(kind: type[Exception], act: Callable[[], object]) -> str:
    """Returns the text of the exception that ``act`` raises."""
    with pytest.raises(kind) as raised:
        act()
    return str(raised.value)


def test_text_names_settings_as_python_does(address: str) -> None:
    client, server = make_pair(address, memory_max=1 << 20)
    texts = {
        "raise memory_max or message_max at the peer, and memory_max on this side": text_of(
            partywall.TooLarge, lambda: client.send(bytes(2 << 20))
        ),
        "ring_bytes is 5, but must be": text_of(
            partywall.ConfigError,
            lambda: partywall.connect(address, partywall.Config(ring_bytes=5)),
        ),
        "or say allow_remote=True": text_of(
            partywall.ConfigError, lambda: partywall.Listener("tcp:0.0.0.0:0")
        ),
        "queue_cap is 1000": text_of(
            partywall.ConfigError, lambda: shmipc.Shmipc(queue_cap=1000)
        ),
    }
    for says, text in texts.items():
        assert says in text and "::" not in text
    for channel in (client, server):
        channel.close()


def test_name_of_another_language_in_a_text_of_the_peer_stays(address: str) -> None:
    with sessions.Listener(address) as listener:
        opened: list[sessions.Session] = []
        opening = threading.Thread(target=lambda: opened.append(sessions.connect(address)))
        opening.start()
        accepted = listener.accept(DEADLINE)
        opening.join(DEADLINE)
    accepted.close(3, "std::bad_alloc")
    opened[0].wait_finished(DEADLINE)
    assert "std::bad_alloc" in str(opened[0].close_reason)
    assert "std::bad_alloc" in repr(opened[0]) and "over" in repr(opened[0])


def test_unknown_setting_says_where_the_known_ones_are() -> None:
    for name, make in (
        ("partywall.Config", partywall.Config),
        ("partywall.links.Config", links.Config),
        ("partywall.shmipc.Shmipc", shmipc.Shmipc),
    ):
        unknown: Callable[..., object] = make
        text = text_of(TypeError, lambda: unknown(ringbytes=1))
        assert "'ringbytes'" in text and f"help({name})" in text


def test_config_lists_its_values_and_a_wrong_type_names_its_setting() -> None:
    listed = repr(partywall.Config(memory_max=1 << 30))
    assert listed.startswith("<partywall.Config transport: Auto, ") and listed.endswith(">")
    assert "memory_max: 1073741824, message_max: 1073741824" in listed
    assert "handshake_timeout: 5s" in listed and "socket_mode: 0o600" in listed
    of_links = repr(links.Config(login=b"secret", slab_bytes=1 << 23))
    assert "slab_bytes: 8388608" in of_links and "secret" not in of_links
    for make, setting, value in (
        (partywall.Config, "memory_max", "much"),
        (partywall.Config, "allow_remote", 5),
        (links.Config, "retry", 5),
        (links.Config, "login", "text"),
    ):
        wrong: Callable[..., object] = make
        text = text_of(TypeError, lambda: wrong(**{setting: value}))
        assert text.startswith(f"{setting}: ")


def test_peer_that_hangs_up_may_be_of_another_kind(address: str) -> None:
    with partywall.Listener(address) as listener:
        accepting = threading.Thread(target=lambda: list(listener))
        accepting.start()
        link = links.Client("alice").connect(address, "bob", "orders")
        event = link.next_event(DEADLINE)
        assert event.kind == "refused" and "is it an end of a link" in event.text
        link.detach()
        listener.close()
        accepting.join(DEADLINE)
    with links.Server(address, "bob") as server:
        waiting = threading.Thread(target=lambda: list(server))
        waiting.start()
        for connect in (partywall.connect, sessions.connect):
            act: Callable[..., object] = connect
            text = text_of(partywall.HandshakeError, lambda: act(address))
            assert "is it a server of links?" in text and "connect_with_protocol" not in text
        server.close()
        waiting.join(DEADLINE)


def test_policy_of_records_says_what_it_takes(address: str) -> None:
    client, _server = make_pair(address)
    wrong: Callable[..., object] = lossy.Sender
    text = text_of(ValueError, lambda: wrong(client, on_full="never"))
    assert "'never'" in text and '"drop_newest", "drop_oldest", or seconds' in text
    client.send(b"the sender is not taken")


def test_missing_directory_and_wrong_file_are_standard_errors(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        partywall.Listener(tmp_path / "missing" / "socket")
    assert isinstance(missing.value, partywall.NoDirectoryError) and missing.value.code == 315
    assert "create it first" in str(missing.value)
    (tmp_path / "file").touch()
    with pytest.raises(partywall.ConnectError) as wrong:
        partywall.connect(tmp_path / "file")
    assert (wrong.value.code, wrong.value.errno) == (334, errno.ENOTSOCK)


def test_failed_call_says_the_text_of_its_handler(address: str) -> None:
    def fail(request: calls.Request) -> bytes:
        raise calls.Failure(7, bytes(request))

    with sessions.Listener(address) as listener:

        def serve() -> None:
            stream = listener.accept(DEADLINE).accept(DEADLINE)
            assert stream is not None
            calls.serve(stream, fail)

        serving = threading.Thread(target=serve)
        serving.start()
        with sessions.connect(address) as session, calls.Client(session.open()) as client:
            for detail, says in (
                (b"nothing to shout", "code 7: nothing to shout"),
                (b"", "code 7 (0 bytes of detail)"),
                (b"\x1b[2J", "code 7 (4 bytes of detail)"),
                (b"\xff", "code 7 (1 bytes of detail)"),
                (b"x" * 201, "code 7 (201 bytes of detail)"),
            ):
                text = text_of(partywall.CallFailed, lambda: client.call(detail, DEADLINE))
                assert says in text
        serving.join(DEADLINE)


def test_deadline_of_a_link_says_what_has_not_happened(address: str) -> None:
    link = links.Client("alice").connect(address, "bob", "orders")
    link.send(b"kept")
    attached = text_of(partywall.TimedOut, lambda: link.wait_attached(0.001))
    assert "not attached" in attached and "events() says why" in attached
    acked = text_of(partywall.TimedOut, lambda: link.wait_acked(0.001))
    assert f"keeps {link.unacked_bytes} bytes" in acked
    assert "the link is closed" in text_of(partywall.TimedOut, lambda: link.close(0.001))


def test_position_says_whether_a_message_was_sent_before_a_restart(
    address: str, tmp_path: Path
) -> None:
    client = links.Client("alice", tmp_path)
    link = client.connect(address, "bob", "orders")
    link.send(b"noted")
    noted = link.sent_position
    link.detach()
    link = client.connect(address, "bob", "orders")
    assert link.sent_position == noted
    link.send(b"not noted")
    link.detach()
    link = client.connect(address, "bob", "orders")
    assert link.sent_position != noted and link.sent_position.stream == noted.stream
    link.detach()


def test_close_while_a_thread_receives_says_how_it_ends(address: str) -> None:
    client, server = make_pair(address)
    received: list[partywall.Message | None] = []

    def receive() -> None:
        while not received:
            try:
                received.append(client.recv(DEADLINE))
            except partywall.BusyError:
                pass  # stats() of the other thread, without a GIL

    receiving = threading.Thread(target=receive)
    receiving.start()
    text = ""
    while receiving.is_alive() and not text:
        try:  # until the thread is in its call, there is nothing in the way but the end of sending
            client.stats()
        except partywall.BusyError:
            text = text_of(partywall.BusyError, client.close)
    assert "its sending has ended" in text
    assert server.recv(DEADLINE) is None
    server.finish()
    receiving.join(DEADLINE)
    assert received == [None]
    client.close()
    assert "closed" in repr(client)


def test_iteration_ends_when_another_thread_closes_the_listener(address: str) -> None:
    listener = objects.Listener(address)
    accepted: list[objects.Connection] = []
    ended = threading.Event()

    def accept() -> None:
        for connection in listener:
            accepted.append(connection)
        ended.set()

    accepting = threading.Thread(target=accept)
    accepting.start()
    with objects.Client(address) as connection:
        connection.send("hello")
        listener.close()
        assert ended.wait(DEADLINE)
        accepting.join(DEADLINE)
    assert len(accepted) <= 1


def test_iteration_of_a_closed_listener_ends_at_once(address: str) -> None:
    """The body of the loop may run while another thread closes the listener."""
    for make in (
        lambda: partywall.Listener(address),
        lambda: objects.Listener(address),
        lambda: sessions.Listener(address),
        lambda: links.Server(address, "bob"),
    ):
        listener = make()
        listener.close()
        accepted: list[object] = list(listener)
        assert accepted == []
        with pytest.raises(ValueError):
            listener.accept()


def test_objects_say_what_they_are_in_a_log(address: str) -> None:
    client, server = make_pair(address)
    client.send(bytes(48))
    assert server.recv(DEADLINE) == bytes(48)
    assert "with process" in repr(client) and "shared memory" in repr(client)
    sent, received = client.stats()[0], server.stats()[1]
    assert repr(sent).startswith("SenderStats(messages=1, bytes=48, ")
    assert repr(received).startswith("ReceiverStats(messages=1, bytes=48, ")
    for channel in (client, server):
        channel.close()
    assert repr(client).endswith(", closed>")
    with partywall.Listener(address) as listener:
        assert repr(listener) == f"<partywall.Listener at {address}>"
    assert repr(listener) == f"<partywall.Listener at {address}, closed>"

    with sessions.Listener(address) as listening:
        assert repr(listening) == f"<partywall.sessions.Listener at {address}>"
    with links.Server(address, "bob") as server_of_links:
        assert repr(server_of_links) == f"<partywall.links.Server at {address}>"
        link = links.Client("alice").connect(address, "bob", "orders")
        assert "Link orders of alice to bob, " in repr(link)
        assert repr(link.stats()).startswith("Stats(messages_sent=0, ")
        assert f"position={link.sent_position.position})" in repr(link.sent_position)
        link.detach()


GUIDE = Path(__file__).parent.parent.parent.parent / "docs" / "guide" / "src" / "python.md"


def test_guide_lists_every_exception() -> None:
    table = GUIDE.read_text().split("\n## Errors\n")[1]
    for name in partywall.__all__:
        exported = getattr(partywall, name)
        if isinstance(exported, type) and issubclass(exported, partywall.Error):
            assert exported is partywall.Error or f"`{name}`" in table, name
