# SPDX-License-Identifier: MIT OR Apache-2.0
"""The protocol shmipc, in both roles."""

import asyncio
import os
import threading
from pathlib import Path

import partywall
import partywall.aio
import pytest
from conftest import DEADLINE
from partywall import sessions
from partywall.shmipc import Shmipc


def echo_all(session: sessions.Session) -> None:
    for stream in session:
        with stream:
            for message in stream:
                stream.send(message, DEADLINE)


@pytest.mark.parametrize("kind", ["memfd", "file", "own"])
def test_listener_serves_clients_of_both_protocols(address: str, tmp_path: Path, kind: str) -> None:
    prefix = f"{tmp_path}/shmipc"
    server = Shmipc(directory=tmp_path)
    client = Shmipc(
        queue_cap=1024,
        share_memory_buffer_cap=4 << 20,
        buffer_slice_sizes=[(4096, 50), (65536, 50)],
        share_memory_path_prefix=prefix,
        mem_map_type="file" if kind == "file" else "memfd",
    )
    with sessions.Listener(address, shmipc=server) as listener:
        accepted: list[sessions.Session] = []

        def serve() -> None:
            accepted.append(listener.accept(DEADLINE))
            echo_all(accepted[0])

        serving = threading.Thread(target=serve)
        serving.start()
        session = sessions.connect(address, shmipc=None if kind == "own" else client)
        with session, session.open() as stream:
            assert ("shmipc" in session.transport) == (kind != "own")
            for length in (1, 5000, 300_000):
                sent = os.urandom(length)
                stream.send(sent, DEADLINE)
                received = b""
                while len(received) < length:
                    part = stream.recv_bytes(DEADLINE)
                    assert part
                    received += part
                assert received == sent
        serving.join(DEADLINE)
        assert not serving.is_alive()


def test_streams_of_asyncio_connect_with_shmipc(address: str) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def main() -> None:
        async with await partywall.aio.start_server(echo, address, shmipc=Shmipc()) as server:
            for shmipc in (Shmipc(), None):
                reader, writer = await partywall.aio.open_connection(
                    server.address, shmipc=shmipc
                )
                transport = writer.get_extra_info("transport")
                assert ("shmipc" in transport) == (shmipc is not None)
                sent = os.urandom(200_000)
                writer.write(sent)
                assert await reader.readexactly(len(sent)) == sent
                writer.close()
                await writer.wait_closed()

    asyncio.run(asyncio.wait_for(main(), DEADLINE))


def test_settings_and_hot_restarts_of_shmipc_are_checked() -> None:
    for setting, value, code in (
        ("queue_cap", 17, 13),
        ("queue_cap", 1 << 40, 13),
        ("mem_map_type", "none", 13),
        ("buffer_slice_sizes", [(4096, 40)], 801),
        ("share_memory_path_prefix", "", 802),
    ):
        with pytest.raises(partywall.ConfigError) as error:
            Shmipc(**{setting: value})  # type: ignore[arg-type]
        assert error.value.code == code
    with pytest.raises(TypeError):
        Shmipc(no_such_setting=1)  # type: ignore[call-arg]
    shmipc = Shmipc()
    states: list[str] = [shmipc.hot_restart_state]
    with pytest.raises(ValueError):
        shmipc.hot_restart(0)
    shmipc.hot_restart(7)
    states.append(shmipc.hot_restart_state)
    assert states == ["never", "done"]  # nobody has to move
    with pytest.raises(partywall.Error) as repeated:
        shmipc.hot_restart(7)
    assert repeated.value.code == 813
