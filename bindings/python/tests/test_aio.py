# SPDX-License-Identifier: MIT OR Apache-2.0
"""asyncio: streams, transports, servers, and aiohttp over them."""

import asyncio
import gc
import hashlib
import os
import socket
import threading
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

import partywall
import partywall.aio
import pytest
from conftest import DEADLINE
from partywall import calls, links
from test_sessions import session_pair

T = TypeVar("T")

TRANSPORTS = ["shm", "unix", "tcp"]

TOTAL = int(os.environ.get("PARTYWALL_TEST_BYTES", 64 << 20))
"""Bytes of the long transfer."""


def run(task: Awaitable[T]) -> T:
    return asyncio.run(asyncio.wait_for(task, 4 * DEADLINE))


def where(tmp_path: Path, transport: str) -> tuple[str, partywall.Config]:
    """Returns an address, and the config, of a transport."""
    address = "tcp:127.0.0.1:0" if transport == "tcp" else f"unix:{tmp_path}/aio.sock"
    return address, partywall.Config(transport="socket" if transport == "unix" else "auto")


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(100_000):
        writer.write(data)
        await writer.drain()
    writer.close()


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bytes_and_ends_pass_both_ways(tmp_path: Path, transport: str) -> None:
    address, config = where(tmp_path, transport)

    async def task() -> None:
        async with await partywall.aio.start_server(echo, address, config=config) as server:
            reader, writer = await partywall.aio.open_connection(server.address, config=config)
            for length in (1, 48, 70_000, 1_000_000):
                sent = os.urandom(length)
                writer.write(sent)
                assert await reader.readexactly(length) == sent
            assert writer.get_extra_info("peer").label
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()

    run(task())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_long_transfer_arrives_equal_under_back_pressure(tmp_path: Path, transport: str) -> None:
    address, config = where(tmp_path, transport)
    block = os.urandom(1 << 20)

    async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        digest, count = hashlib.blake2b(), 0
        while data := await reader.read(1 << 20):
            digest.update(data)
            count += len(data)
        writer.write(count.to_bytes(8, "little") + digest.digest())
        writer.close()

    async def task() -> None:
        async with await partywall.aio.start_server(sink, address, config=config) as server:
            reader, writer = await partywall.aio.open_connection(server.address, config=config)
            digest = hashlib.blake2b()
            for _ in range(TOTAL // len(block)):
                digest.update(block)
                writer.write(block)
                await writer.drain()
            writer.write_eof()
            assert await reader.read() == TOTAL.to_bytes(8, "little") + digest.digest()
            writer.close()

    run(task())


def test_paused_reader_holds_the_writer_without_turns_of_the_loop(tmp_path: Path) -> None:
    address, config = where(tmp_path, "shm")

    async def task() -> None:
        accepted: asyncio.Future[partywall.aio.Transport] = (
            asyncio.get_running_loop().create_future()
        )

        class Paused(asyncio.Protocol):
            received = 0

            def connection_made(self, transport: Any) -> None:
                transport.pause_reading()
                accepted.set_result(transport)

            def data_received(self, data: bytes) -> None:
                Paused.received += len(data)

        async with await partywall.aio.create_server(Paused, address, config) as server:
            _, writer = await partywall.aio.open_connection(server.address, config=config)
            transport = await accepted
            writer.write(bytes(4 << 20))
            for _ in range(100):
                await asyncio.sleep(0)
            assert Paused.received == 0
            assert writer.transport.get_write_buffer_size() > 0
            assert partywall.aio._reactor_of(asyncio.get_running_loop()).native.poll() == []
            transport.resume_reading()
            await writer.drain()
            writer.close()
            while Paused.received < 4 << 20:
                await asyncio.sleep(0)

    run(task())


def test_abort_and_refused_connections_raise(tmp_path: Path) -> None:
    address, config = where(tmp_path, "shm")

    async def abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.transport.abort()

    async def task() -> None:
        with pytest.raises(FileNotFoundError):
            await partywall.aio.open_connection(address)
        async with await partywall.aio.start_server(abort, address, config=config) as server:
            reader, writer = await partywall.aio.open_connection(server.address)
            writer.write(b"x")
            with pytest.raises(ConnectionError):
                await reader.read()
            writer.close()

    run(task())


def test_many_connections_share_one_loop(tmp_path: Path) -> None:
    address, config = where(tmp_path, "shm")

    async def one(server: partywall.aio.Server, number: int) -> None:
        reader, writer = await partywall.aio.open_connection(server.address)
        for turn in range(20):
            sent = f"{number} {turn}\n".encode()
            writer.write(sent)
            assert await reader.readline() == sent
        writer.close()
        await writer.wait_closed()

    async def task() -> None:
        async with await partywall.aio.start_server(echo, address, config=config) as server:
            await asyncio.gather(*(one(server, number) for number in range(30)))

    run(task())


def test_protocol_that_raises_stalls_no_other(tmp_path: Path) -> None:
    address, config = where(tmp_path, "shm")

    async def task() -> None:
        loop, reported = asyncio.get_running_loop(), list[str]()
        loop.set_exception_handler(lambda _, context: reported.append(context["message"]))

        class Raising(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                self.transport = transport

            def data_received(self, data: bytes) -> None:
                if data == b"raise":
                    raise RuntimeError("a protocol that fails")
                self.transport.write(data)

        async with await partywall.aio.create_server(Raising, address, config) as server:
            pairs = [await partywall.aio.open_connection(server.address) for _ in range(3)]
            # The events of all three connections come in the same round of the server's loop.
            for text, (_, writer) in zip((b"one", b"raise", b"two"), pairs, strict=True):
                writer.write(text)
            assert await pairs[0][0].readexactly(3) == b"one"
            assert await pairs[2][0].readexactly(3) == b"two"
            assert await pairs[1][0].read() == b""
            pairs[0][1].write(b"again")
            assert await pairs[0][0].readexactly(5) == b"again"
            for _, writer in pairs:
                writer.close()
        assert reported == ["the protocol failed to take data"]

    run(task())


def test_busy_connection_takes_one_turn_in_each_round(tmp_path: Path) -> None:
    """A stream of many short messages must not keep the loop from the others."""
    address, _ = where(tmp_path, "shm")
    config = partywall.Config(stream_window=8 << 20, begin="shm")
    messages = 2_000

    async def task() -> None:
        loop, rounds = asyncio.get_running_loop(), [0]
        done = loop.create_future()

        def count_rounds() -> None:
            rounds[0] += 1
            if not done.done():
                loop.call_soon(count_rounds)

        class Counting(asyncio.Protocol):
            received: dict[int, int] = {}
            total = 0

            def data_received(self, data: bytes) -> None:
                number = rounds[0]
                Counting.received[number] = Counting.received.get(number, 0) + 1
                Counting.total += len(data)
                if Counting.total == messages and not done.done():
                    done.set_result(None)

        async with await partywall.aio.create_server(Counting, address, config) as server:
            _, writer = await partywall.aio.open_connection(server.address, config=config)
            loop.call_soon(count_rounds)
            for _ in range(messages):
                writer.write(b"x")
            await done
            writer.close()
        # Where two rounds of the loop meet, the counter may count the messages of both as one
        # round.
        assert max(Counting.received.values()) <= 2 * partywall.aio._READS_MAX
        assert len(Counting.received) >= messages // (2 * partywall.aio._READS_MAX)

    run(task())


def test_aiohttp_server_and_client_run_unmodified(tmp_path: Path) -> None:
    aiohttp: Any = pytest.importorskip("aiohttp")
    web: Any = pytest.importorskip("aiohttp.web")

    address, config = where(tmp_path, "shm")

    class Connector(aiohttp.BaseConnector):  # type: ignore[misc]
        async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:
            _, protocol = await partywall.aio.create_connection(self._factory, address)
            return protocol

    async def answer(request: Any) -> Any:
        return web.Response(body=await request.read())

    async def task() -> None:
        app = web.Application(client_max_size=8 << 20)
        app.router.add_post("/", answer)
        runner = web.AppRunner(app)
        await runner.setup()
        server = await partywall.aio.create_server(runner.server, address, config)
        async with aiohttp.ClientSession(connector=Connector()) as session:
            for length in (0, 10, 3 << 20):
                sent = os.urandom(length)
                async with session.post("http://app/", data=sent) as response:
                    assert response.status == 200
                    assert await response.read() == sent
        server.close()
        await runner.cleanup()

    run(task())


def test_links_are_awaited_and_cancelled_without_loss(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/links.sock"

    async def task() -> None:
        server = links.Server(address, "bob")
        accepting = asyncio.create_task(partywall.aio.accept_link(server))
        client = links.Client("alice").connect(address, "bob", "orders")
        alice, bob = partywall.aio.Link(client), await accepting
        await alice.wait_attached()
        assert (await alice.next_event()).kind == "attached"
        # A call of `recv` that is cancelled leaves the message to the next call.
        for number in range(200):
            receiving = asyncio.create_task(bob.recv())
            await asyncio.sleep(0)
            await alice.send(b"%d" % number)
            for _ in range(number % 50):
                await asyncio.sleep(0)
            receiving.cancel()
            try:
                message = await receiving
            except asyncio.CancelledError:
                message = await bob.recv()
            assert message is not None and message == b"%d" % number
            await bob.reply(message, b"answer %d" % number)
            answer = await alice.recv()
            assert answer is not None and answer == b"answer %d" % number
            answer.ack()
        await alice.wait_acked()
        await alice.send(b"last")
        await alice.close()
        async for message in bob:
            assert message == b"last"
            message.ack()
        accepting = asyncio.create_task(partywall.aio.accept_link(server))
        await asyncio.sleep(0)
        server.close()
        with pytest.raises(ValueError):
            await accepting

    run(task())


def test_sender_without_room_is_awaited(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/links.sock"

    async def task() -> None:
        with links.Server(address, "bob") as server:
            client = links.Client("alice").connect(address, "bob", "orders")
            alice, bob = partywall.aio.Link(client), await partywall.aio.accept_link(server)

            async def send() -> None:
                for _ in range(100):
                    await alice.send(bytes(200_000))
                await alice.close()

            sending = asyncio.create_task(send())
            count = 0
            async for message in bob:
                message.ack()
                count += len(message)
            await sending
            assert count == 100 * 200_000

    run(task())


def test_calls_are_awaited_and_cancelled(address: str) -> None:
    client, server = session_pair(address)
    caller = partywall.aio.Calls(calls.Client(client.open()))
    goes_on = threading.Event()

    def handler(request: calls.Request) -> bytes:
        if request == b"slow":
            assert goes_on.wait(DEADLINE)
        return bytes(request).upper()

    def serve() -> None:
        try:
            stream = server.accept(DEADLINE)
            assert stream is not None
            calls.serve(stream, handler)
        except partywall.Error:
            pass  # the session was closed at the end of the test

    serving = threading.Thread(target=serve)
    serving.start()

    async def task() -> None:
        slow = asyncio.create_task(caller.call(b"slow"))
        answers = await asyncio.gather(*(caller.call(b"call %d" % it) for it in range(50)))
        assert [bytes(answer) for answer in answers] == [b"CALL %d" % it for it in range(50)]
        with pytest.raises(partywall.TimedOut):
            await caller.call(b"slow", 0.01)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow

    try:
        run(task())
    finally:
        goes_on.set()
        client.close()
        serving.join(DEADLINE)
    assert not serving.is_alive()


def test_loop_that_is_closed_gives_up_what_is_open(tmp_path: Path) -> None:
    address, config = where(tmp_path, "shm")
    ended = threading.Event()

    class Waiting(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            ended.set()

    async def leave_open() -> None:
        await partywall.aio.create_connection(asyncio.Protocol, address)
        await partywall.aio.create_server(asyncio.Protocol, address + "2")

    async def serve() -> None:
        async with await partywall.aio.create_server(Waiting, address, config):
            with pytest.warns(ResourceWarning, match="unclosed transport"):
                await asyncio.get_running_loop().run_in_executor(None, leave)
            while not ended.is_set():
                await asyncio.sleep(0.001)

    def leave() -> None:
        asyncio.run(leave_open())
        gc.collect()

    run(serve())
    assert not Path(f"{address}2".removeprefix("unix:")).exists()


def test_link_goes_on_in_another_loop(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/links.sock"
    server = links.Server(address, "bob")
    client = links.Client("alice").connect(address, "bob", "orders")
    bob = partywall.aio.Link(server.accept(DEADLINE))

    async def give_up() -> None:
        waiting = [asyncio.create_task(bob.recv()) for _ in range(2)]
        await asyncio.sleep(0.01)
        waiting[0].cancel()

    run(give_up())  # its loop ends while an operation is on its way
    client.send(b"of no loop")
    client.send(b"of the second loop")

    async def receive() -> list[bytes]:
        messages = [await bob.recv(), await bob.recv()]
        for message in messages:
            assert message is not None
            message.ack()
        return [bytes(message) for message in messages if message is not None]

    assert run(receive()) == [b"of no loop", b"of the second loop"]
    server.close()


def test_waiters_of_one_link_all_get_a_message(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/links.sock"

    async def task() -> None:
        with links.Server(address, "bob") as server:
            client = links.Client("alice").connect(address, "bob", "orders")
            bob = await partywall.aio.accept_link(server)
            waiting = [asyncio.create_task(bob.recv()) for _ in range(20)]
            await asyncio.sleep(0)
            for one in waiting[::3]:
                one.cancel()
            for number in range(20):
                client.send(b"%d" % number)
            messages = await asyncio.gather(*waiting, return_exceptions=True)
            found = [it for it in messages if isinstance(it, links.Message)]
            assert len(found) == 13
            found += [it for it in [await bob.recv() for _ in range(7)] if it is not None]
            assert sorted(int(bytes(message)) for message in found) == list(range(20))
            found[-1].ack()
            client.close()

    run(task())


def test_accept_that_is_cancelled_loses_no_link(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/links.sock"

    async def task() -> None:
        with links.Server(address, "bob") as server:
            names = [f"client {number}" for number in range(20)]
            opened = [links.Client(name).connect(address, "bob", "orders") for name in names]
            for link in opened:
                link.send(b"hello")
            found: set[str] = set()
            turn = 0
            while len(found) < len(names):
                accepting = asyncio.create_task(partywall.aio.accept_link(server))
                for _ in range(turn % 40):
                    await asyncio.sleep(0)
                turn += 1
                accepting.cancel()
                try:
                    found_link = await accepting
                except asyncio.CancelledError:
                    # The test waits for every third call of `accept_link`, not for all, so that the
                    # test ends on a slow machine.
                    if turn % 3:
                        continue
                    found_link = await partywall.aio.accept_link(server)
                found.add(found_link.link.key[1])
                message = await found_link.recv()
                assert message is not None
                message.ack()

    run(task())


def test_protocol_that_raises_when_it_is_paused_loses_no_byte(tmp_path: Path) -> None:
    address, config = where(tmp_path, "unix")

    async def task() -> None:
        loop, reported = asyncio.get_running_loop(), list[str]()
        loop.set_exception_handler(lambda _, context: reported.append(context["message"]))
        lost = loop.create_future()

        class Raising(asyncio.Protocol):
            def connection_made(self, transport: Any) -> None:
                transport.write(bytes(4 << 20))
                transport.close()

            def pause_writing(self) -> None:
                raise RuntimeError("cannot pause")

            def resume_writing(self) -> None:
                raise RuntimeError("cannot resume")

            def connection_lost(self, error: Exception | None) -> None:
                lost.set_result(error)

        async with await partywall.aio.create_server(Raising, address, config) as server:
            reader, writer = await partywall.aio.open_connection(server.address, config=config)
            assert len(await reader.read()) == 4 << 20
            assert await lost is None
            writer.close()
        assert reported == [
            "the protocol failed in pause_writing()",
            "the protocol failed in resume_writing()",
        ]

    run(task())


def test_connecting_is_given_up_with_its_task(tmp_path: Path) -> None:
    path = f"{tmp_path}/silent.sock"

    async def task() -> None:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(path)
            silent.listen()
            for _ in range(3):
                with pytest.raises(TimeoutError):
                    connecting = partywall.aio.open_connection(f"unix:{path}")
                    await asyncio.wait_for(connecting, 0.01)
        with pytest.raises(ConnectionRefusedError):
            await partywall.aio.open_connection(f"unix:{path}")

    run(task())
