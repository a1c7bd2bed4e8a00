# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares the package with what Python has, and with iceoryx2, in one run: believe the ratios.

``pip install ./bindings/python -r bindings/python/bench/requirements.txt``, then
``python bindings/python/bench/ratios.py``, or with names of parts: ``loops trips streams objects``.
Each figure is the median of rounds in which both sides take turns; the last column is the bar of the
ratio. Without the package iceoryx2 its rows are left out, with a word.
"""

import asyncio
import ctypes
import multiprocessing
import os
import sys
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import partywall
import partywall.aio
import partywall.multiprocessing

ROUNDS = 7


def show(name: str, pairs: list[tuple[float, float]], bar: float | None) -> None:
    """Prints the medians of both sides in microseconds, their ratio, and its bar."""
    one = statistics.median(pair[0] for pair in pairs)
    other = statistics.median(pair[1] for pair in pairs)
    said = "" if bar is None else f"{bar:.2f}"
    print(
        f"{name:36} {one * 1e6:10.2f} {other * 1e6:10.2f} {one / other:8.3f} {said:>6}", flush=True
    )


def compare(
    name: str, ours: Callable[[], float], theirs: Callable[[], float], bar: float | None = None
) -> None:
    """Measures both sides in turn, and prints the medians."""
    show(name, [(ours(), theirs()) for _ in range(ROUNDS)], bar)


def timed(count: int, act: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        act()
    return (time.perf_counter() - begin) / count


def pair_in_process(address: str) -> tuple[partywall.Channel, partywall.Channel]:
    made: list[partywall.Channel] = []
    with partywall.Listener(address) as listener:
        thread = threading.Thread(target=lambda: made.append(partywall.connect(address)))
        thread.start()
        accepted = listener.accept()
        thread.join()
    return made[0], accepted


def loop_of_iceoryx2() -> Callable[[bytes], None] | None:
    """Returns the act of sending and receiving a message by iceoryx2, if the package is there."""
    try:
        import iceoryx2  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        print("iceoryx2 is left out: pip install -r bindings/python/bench/requirements.txt")
        return None
    iceoryx2.set_log_level(iceoryx2.LogLevel.Error)
    node = iceoryx2.NodeBuilder.new().create(iceoryx2.ServiceType.Ipc)
    builder = node.service_builder(iceoryx2.ServiceName.new(f"partywall bench {os.getpid()}"))
    service = builder.publish_subscribe(iceoryx2.Slice[ctypes.c_uint8]).open_or_create()
    publisher = service.publisher_builder().initial_max_slice_len(65536).create()
    subscriber = service.subscriber_builder().create()

    def act(payload: bytes) -> None:
        loaned = publisher.loan_slice_uninit(len(payload))
        ctypes.memmove(loaned.payload().as_ptr(), payload, len(payload))
        loaned.assume_init().send()
        received = subscriber.receive()
        ctypes.string_at(received.payload().as_ptr(), len(payload))

    return act


def loops(folder: str) -> None:
    """One thread holds both ends: the cost of the software alone."""
    client, server = pair_in_process(f"unix:{folder}/loop.sock")
    left, right = socket.socketpair()
    rival = loop_of_iceoryx2()
    for size, count in ((48, 20_000), (1024, 20_000), (65536, 2_000)):
        payload, buffer = bytes(size), bytearray(size)

        def ours(payload: bytes = payload) -> None:
            client.send(payload)
            server.recv_bytes()

        def theirs(payload: bytes = payload, buffer: bytearray = buffer) -> None:
            left.sendall(payload)
            right.recv_into(buffer)

        compare(
            f"loop, {size} B / socketpair",
            lambda count=count, ours=ours: timed(count, ours),  # type: ignore[misc]
            lambda count=count, theirs=theirs: timed(count, theirs),  # type: ignore[misc]
            0.2 if size == 48 else None,
        )
        if rival is None:
            continue
        compare(
            f"loop, {size} B / iceoryx2",
            lambda count=count, ours=ours: timed(count, ours),  # type: ignore[misc]
            lambda payload=payload: timed(2_000, lambda: rival(payload)),  # type: ignore[misc]
            0.1 if size == 48 else None,
        )


def echo_channel(address: str) -> None:
    with partywall.connect(address) as channel:
        for message in channel:
            channel.send(message)


def echo_socket(path: str) -> None:
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(path)
    while data := peer.recv(65536):
        peer.sendall(data)


def start(target: Callable[[str], None], argument: str) -> Any:
    process = multiprocessing.get_context("spawn").Process(target=target, args=(argument,))
    process.start()
    return process


def round_trips(folder: str) -> None:
    """Two processes, 48 bytes there and back."""
    address, path = f"unix:{folder}/trip.sock", f"{folder}/plain.sock"
    with partywall.Listener(address) as listener, socket.socket(socket.AF_UNIX) as plain:
        plain.bind(path)
        plain.listen()
        peers = [start(echo_channel, address), start(echo_socket, path)]
        channel, (connection, _) = listener.accept(), plain.accept()
        payload = bytes(48)

        def ours() -> None:
            channel.send(payload)
            channel.recv_bytes()

        def theirs() -> None:
            connection.sendall(payload)
            connection.recv(48)

        name = "round trip, 48 B / Unix socket"
        compare(name, lambda: timed(5000, ours), lambda: timed(5000, theirs), 0.5)
        channel.close()
        connection.close()
        for peer in peers:
            peer.join()


async def echo_stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def serve(address: str, path: str) -> None:
    ours = await partywall.aio.start_server(echo_stream, address)
    theirs = await asyncio.start_unix_server(echo_stream, path)
    await asyncio.gather(ours.serve_forever(), theirs.serve_forever())


def serve_streams(argument: str) -> None:
    address, path = argument.split(" ")
    asyncio.run(serve(address, path))


def streams(folder: str) -> None:
    """Two processes with asyncio, 48 bytes there and back."""
    address, path = f"unix:{folder}/aio.sock", f"{folder}/aio-plain.sock"
    peer = start(serve_streams, f"{address} {path}")
    while not (os.path.exists(f"{folder}/aio.sock") and os.path.exists(path)):
        time.sleep(0.01)

    async def trip(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int = 1000
    ) -> float:
        begin = time.perf_counter()
        for _ in range(count):
            writer.write(bytes(48))
            await reader.readexactly(48)
        return (time.perf_counter() - begin) / count

    async def main() -> None:
        pairs = []
        one = await partywall.aio.open_connection(address)
        other = await asyncio.open_unix_connection(path)
        for _ in range(ROUNDS):
            pairs.append((await trip(*one), await trip(*other)))
        show("asyncio, 48 B / its Unix streams", pairs, 0.9)

    asyncio.run(main())
    peer.terminate()
    peer.join()


def acknowledge(connection: Any) -> None:
    while True:
        try:
            connection.send(len(connection.recv()))
        except EOFError:
            return


def acknowledge_ours(address: str) -> None:
    acknowledge(partywall.multiprocessing.Client(address))


def objects(folder: str) -> None:
    """Two processes: an array of numpy there, its length back."""
    import numpy

    address = f"unix:{folder}/objects.sock"
    left, right = multiprocessing.Pipe()
    plain = multiprocessing.get_context("spawn").Process(target=acknowledge, args=(right,))
    plain.start()
    right.close()
    with partywall.multiprocessing.Listener(address) as listener:
        peer = start(acknowledge_ours, address)
        ours = listener.accept()
        for size, count in ((64 << 10, 300), (1 << 20, 100), (8 << 20, 20)):
            array = numpy.ones(size, dtype="uint8")

            def send(end: Any, array: Any = array) -> None:
                end.send(array)
                end.recv()

            compare(
                f"Connection, {size >> 10} KiB / Pipe",
                lambda count=count, send=send: timed(count, lambda: send(ours)),  # type: ignore[misc]
                lambda count=count, send=send: timed(count, lambda: send(left)),  # type: ignore[misc]
                0.2 if size == 1 << 20 else None,
            )
        ours.close()
        left.close()
        peer.join()
        plain.join()


if __name__ == "__main__":
    parts = {"loops": loops, "trips": round_trips, "streams": streams, "objects": objects}
    chosen = sys.argv[1:] or list(parts)
    print(f"{'median, in microseconds':36} {'ours':>10} {'theirs':>10} {'ratio':>8} {'bar':>6}")
    with tempfile.TemporaryDirectory() as directory:
        for part in chosen:
            parts[part](directory)
