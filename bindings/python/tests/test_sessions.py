# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sessions and streams: messages, ends, deadlines, files, second processes and signals."""

import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import partywall
import pytest
from conftest import DEADLINE
from partywall import multiprocessing, sessions

SessionPair = tuple[sessions.Session, sessions.Session]

MakePair = Callable[..., SessionPair]


@pytest.fixture(params=["shm", "unix", "tcp"])
def pair_of(request: pytest.FixtureRequest, address: str) -> Iterator[MakePair]:
    """Makes a pair of sessions with the given settings, over each transport."""
    made: list[SessionPair] = []

    def make(**settings: object) -> SessionPair:
        settings.setdefault("begin", "shm")
        where = "tcp:127.0.0.1:0" if request.param == "tcp" else address
        if request.param == "unix":
            settings["transport"] = "socket"
        pair = session_pair(where, **settings)
        assert pair[0].is_shared_memory == (request.param == "shm")
        made.append(pair)
        return pair

    yield make
    for pair in made:
        for session in pair:
            session.close()


def session_pair(address: str, **settings: object) -> SessionPair:
    config = partywall.Config(**settings)  # type: ignore[arg-type]
    connected: list[sessions.Session] = []
    with sessions.Listener(address, config) as listener:
        target = listener.address
        client = threading.Thread(target=lambda: connected.append(sessions.connect(target, config)))
        client.start()
        accepted = listener.accept(DEADLINE)
        client.join(DEADLINE)
    return connected[0], accepted


def accepted(session: sessions.Session) -> sessions.Stream:
    stream = session.accept(DEADLINE)
    assert stream is not None
    return stream


def test_messages_of_many_streams_come_back(pair_of: MakePair) -> None:
    client, server = pair_of()

    def echo() -> None:
        for stream in server:
            threading.Thread(target=echo_stream, args=(stream,)).start()

    def echo_stream(stream: sessions.Stream) -> None:
        with stream:
            for message in stream:
                stream.send(message, DEADLINE)

    serving = threading.Thread(target=echo)
    serving.start()
    streams = [client.open(f"stream {number}".encode()) for number in range(20)]
    for length in (0, 1, 1000, 100_000):
        for number, stream in enumerate(streams):
            stream.send(bytes([number]) * length, DEADLINE)
        for number, stream in enumerate(streams):
            assert stream.recv_bytes(DEADLINE) == bytes([number]) * length
    assert client.streams == 20 and client.stats().messages >= 80
    for stream in streams:
        stream.finish()
        assert stream.recv(DEADLINE) is None
    client.close()
    serving.join(DEADLINE)
    assert not serving.is_alive()


def test_metadata_peer_and_ping_are_known(pair_of: MakePair) -> None:
    client, server = pair_of()
    opened = client.open(b"what it is for")
    other = accepted(server)
    assert (opened.metadata, other.metadata) == (b"", b"what it is for")
    assert opened.number == other.number
    assert client.ping(DEADLINE) > 0
    assert client.peer.label and other.peer.label and other.transport


def test_direction_ends_by_itself(pair_of: MakePair) -> None:
    client, server = pair_of()
    stream = client.open()
    stream.send(b"last")
    stream.finish()
    other = accepted(server)
    assert [bytes(message) for message in other] == [b"last"]
    other.send(b"the other direction goes on")
    assert stream.recv_bytes(DEADLINE) == b"the other direction goes on"
    for act in (lambda: stream.send(b"after the end"), lambda: stream.reserve(10)):
        with pytest.raises(partywall.SendingEnded, match="still receives") as ended:
            act()
        assert ended.value.code == 408 and isinstance(ended.value, ValueError)
    other.close()
    assert stream.recv(DEADLINE) is None


def test_reset_and_stop_fail_the_calls_of_the_peer(pair_of: MakePair) -> None:
    client, server = pair_of()
    stream = client.open()
    stream.send(b"x")
    other = accepted(server)
    other.stop(7)
    with pytest.raises(partywall.StreamStopped, match="0x7") as stopped:
        while True:
            stream.send(bytes(10_000), DEADLINE)
    assert stopped.value.code == 406 and isinstance(stopped.value, BrokenPipeError)
    stream = client.open()
    stream.send(b"y")
    other = accepted(server)
    stream.reset(8)
    with pytest.raises(partywall.StreamReset, match="0x8") as reset:
        while True:
            other.recv(DEADLINE)
    assert reset.value.code == 407 and isinstance(reset.value, ConnectionResetError)
    with pytest.raises(ValueError):
        client.open().reset(0xFFFFFF01)


def test_block_that_raises_resets_its_stream(address: str) -> None:
    client, server = session_pair(address)
    with pytest.raises(KeyError):
        with client.open() as stream:
            stream.send(b"half of it")
            raise KeyError
    other = accepted(server)
    with pytest.raises(partywall.StreamReset):
        while True:
            assert other.recv(DEADLINE) is not None


def test_deadlines_and_the_end_of_room_are_errors_of_the_library(pair_of: MakePair) -> None:
    client, server = pair_of()
    stream = client.open()
    with pytest.raises(TimeoutError) as timed_out:
        stream.recv(0.001)
    assert isinstance(timed_out.value, partywall.TimedOut) and timed_out.value.code == 4
    with pytest.raises(partywall.WouldBlock):
        stream.recv(0)
    with pytest.raises(partywall.WouldBlock):
        client.accept(0)
    with pytest.raises(BlockingIOError):
        while True:
            stream.send(bytes(50_000), 0)
    with pytest.raises(partywall.TimedOut):
        stream.send(bytes(200_000), 0.001)
    other = accepted(server)
    waiting = threading.Thread(target=lambda: stream.send(b"after all", DEADLINE))
    waiting.start()
    while (message := other.recv(DEADLINE)) is not None and message != b"after all":
        assert len(message) == 50_000
    waiting.join(DEADLINE)
    assert not waiting.is_alive()


def test_closed_session_fails_with_code_and_reason(pair_of: MakePair) -> None:
    client, server = pair_of()
    stream = client.open()
    stream.send(b"x")
    other = accepted(server)
    assert client.close_reason is None
    client.close(5, "enough")
    assert server.accept(DEADLINE) is None
    with pytest.raises(partywall.SessionClosed, match="enough") as closed:
        while other.recv(DEADLINE) is not None:
            pass
    assert closed.value.code == 411
    assert isinstance(client.close_reason, partywall.SessionClosed)
    with pytest.raises(partywall.SessionClosed):
        client.open()
    client.wait_finished(DEADLINE)


def test_session_that_goes_away_takes_no_more_streams(address: str) -> None:
    client, server = session_pair(address)
    server.go_away(3)
    assert client.wait_going_away(DEADLINE) == 3
    with pytest.raises(partywall.GoingAway):
        client.open()
    client.wait_drained(DEADLINE)


def test_reservation_of_a_stream_is_written_in_place(pair_of: MakePair) -> None:
    client, server = pair_of()
    stream = client.open()
    with stream.reserve(100_000, DEADLINE) as reservation:
        view = memoryview(reservation)
        view[:] = b"z" * 100_000
        with pytest.raises(BufferError):
            reservation.commit()
        view.release()
    assert accepted(server).recv_bytes(DEADLINE) == b"z" * 100_000


def test_stream_is_a_file(pair_of: MakePair) -> None:
    client, server = pair_of()
    sent = os.urandom(300_000)
    files = client.open().makefile(DEADLINE)
    assert isinstance(files, io.RawIOBase) and files.readable() and files.writable()

    def send() -> None:
        writer = io.BufferedWriter(files)
        writer.write(b"a line\n" + sent)
        writer.detach()  # it would close the stream at its end
        files.stream.finish()

    sending = threading.Thread(target=send)
    sending.start()
    reader = io.BufferedReader(accepted(server).makefile(DEADLINE))
    assert reader.readline() == b"a line\n"
    assert reader.read() == sent
    sending.join(DEADLINE)
    reader.close()
    buffer = bytearray(10)
    assert files.readinto(buffer) == 0
    files.close()
    with pytest.raises(ValueError):
        files.write(b"x")


def test_file_of_a_stream_has_a_deadline(address: str) -> None:
    client, _server = session_pair(address)
    with pytest.raises(TimeoutError):
        client.open().makefile(0.001).read(1)


def test_close_of_a_listener_ends_its_accept(address: str) -> None:
    for listener in (sessions.Listener(address), partywall.Listener(address + "2")):
        ended: list[object] = []

        def loop(it: Any = listener, ended: list[object] = ended) -> None:
            while not ended:
                try:
                    ended.append(list(it))
                except partywall.BusyError:
                    pass  # the other thread was in `accept` at that moment

        looping = threading.Thread(target=loop)
        looping.start()
        assert listener.address.startswith("unix:")
        wait_until_it_waits(listener)
        assert listener.address.startswith("unix:") and listener.refused == 0
        listener.close()
        looping.join(DEADLINE)
        assert ended == [[]]
        with pytest.raises(ValueError):
            listener.accept()
        assert not os.path.exists(listener.address.removeprefix("unix:"))


@pytest.mark.parametrize(
    "make", [sessions.Listener, partywall.Listener, multiprocessing.Listener]
)
def test_address_is_free_when_close_returns(address: str, make: Callable[[str], Any]) -> None:
    for _ in range(50):
        listener = make(address)
        begun, ended = threading.Event(), threading.Event()

        def accept(it: Any = listener, begun: Any = begun, ended: Any = ended) -> None:
            begun.set()
            with pytest.raises(ValueError):
                it.accept()
            ended.set()

        accepting = threading.Thread(target=accept)
        accepting.start()
        assert begun.wait(DEADLINE)
        os.sched_yield()
        listener.close()
        assert not os.path.exists(address.removeprefix("unix:"))
        make(address).close()
        accepting.join(DEADLINE)
        assert ended.is_set()


@pytest.mark.parametrize("module", [sessions, partywall])
def test_rule_of_admission_may_close_its_listener(address: str, module: Any) -> None:
    closed: list[bool] = []
    refused: list[partywall.Error] = []
    listener: Any

    def judge(_who: partywall.Credentials) -> bool:
        listener.close()
        closed.append(True)
        return False

    def connect_in_vain() -> None:
        with pytest.raises(partywall.HandshakeError) as error:
            module.connect(address)
        refused.append(error.value)

    listener = module.Listener(address, partywall.Config(admit=judge))
    client = threading.Thread(target=connect_in_vain)
    client.start()
    with pytest.raises(ValueError):
        listener.accept(DEADLINE)
    client.join(DEADLINE)
    assert closed == [True] and len(refused) == 1
    assert not os.path.exists(address.removeprefix("unix:"))


def wait_until_it_waits(listener: sessions.Listener | partywall.Listener) -> None:
    """Waits until another thread is in `accept`, as far as that can be seen."""
    if isinstance(listener, sessions.Listener):
        return
    for _ in range(1_000_000):
        try:
            listener.accept(0)
        except partywall.BusyError:
            return
        except partywall.TimedOut:
            os.sched_yield()
    raise AssertionError("no thread accepts")


def test_rule_of_admission_runs_while_other_threads_use_the_listener(address: str) -> None:
    listener: sessions.Listener

    def judge(_who: partywall.Credentials) -> bool:
        return listener.address != ""

    listener = sessions.Listener(address, partywall.Config(admit=judge))
    with listener:
        connected: list[sessions.Session] = []
        client = threading.Thread(target=lambda: connected.append(sessions.connect(address)))
        client.start()
        session = listener.accept(DEADLINE)
        client.join(DEADLINE)
    assert session.peer.credentials is not None and connected


ECHO = """
import sys
from partywall import sessions
with sessions.connect(sys.argv[1]) as session, session.open(b"echo") as stream:
    for message in stream:
        stream.send(message)
"""

def start(code: str, address: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, address], stdout=subprocess.PIPE, text=True
    )


def test_stream_of_another_process_comes_back_and_its_death_is_an_error(address: str) -> None:
    with sessions.Listener(address) as listener:
        peer = start(ECHO, address)
        session = listener.accept(DEADLINE)
    stream = accepted(session)
    for length in (1, 1000, 1_000_000):
        stream.send(bytes(length), DEADLINE)
        assert stream.recv_bytes(DEADLINE) == bytes(length)
    peer.kill()
    with pytest.raises(ConnectionResetError) as died:
        stream.recv(DEADLINE)
    assert isinstance(died.value, partywall.Disconnected) and died.value.code == 10
    with pytest.raises(partywall.Disconnected):
        session.accept(DEADLINE)
    peer.wait(DEADLINE)


def test_sent_messages_survive_the_exit_of_their_process(address: str) -> None:
    code = """
import sys
from partywall import sessions
session = sessions.connect(sys.argv[1])
stream = session.open()
stream.send(bytes(100_000))
"""
    with sessions.Listener(address) as listener:
        peer = start(code, address)
        session = listener.accept(DEADLINE)
        stream = accepted(session)
        assert stream.recv_bytes(DEADLINE) == bytes(100_000)
        assert peer.wait(DEADLINE) == 0


def test_forked_child_makes_sessions_of_its_own(address: str) -> None:
    client, server = session_pair(address + "1")
    stream = client.open()
    stream.send(b"before the fork")
    other = accepted(server)
    with sessions.Listener(address) as listener:
        child = os.fork()
        if child == 0:
            try:
                for act in (lambda: stream.send(b"x"), client.open, lambda: other.recv(0)):
                    try:
                        act()
                        os._exit(1)
                    except partywall.ForkedError:
                        pass
                with sessions.connect(address) as session, session.open() as mine:
                    mine.send(b"from the child")
                os._exit(0)
            finally:
                os._exit(2)
        session = listener.accept(DEADLINE)
        assert accepted(session).recv_bytes(DEADLINE) == b"from the child"
    assert os.waitpid(child, 0)[1] == 0
    assert other.recv_bytes(DEADLINE) == b"before the fork"
    stream.send(b"the parent goes on")
    assert other.recv_bytes(DEADLINE) == b"the parent goes on"
