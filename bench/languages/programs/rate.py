# SPDX-License-Identifier: MIT OR Apache-2.0
"""The client and the server of a measurement, written in Python.

``bench/languages/README.md`` has the command line, which is that of each language.
"""

import os
import socket
import struct
import sys
import threading
import time
from typing import Protocol

import partywall

COMMAND = struct.Struct("<QQQ")
WAY = 1
"""The number of the task in which messages go only from client to server."""


class Carrier(Protocol):
    """Sends and receives messages over a socket; both sides know their lengths."""

    def send(self, message: bytes) -> object: ...
    def recv(self, size: int) -> bytes | bytearray | None: ...


class OverChannel:
    def __init__(self, channel: partywall.Channel) -> None:
        self.send = channel.send
        self.channel = channel

    def recv(self, _size: int) -> bytes | None:
        return self.channel.recv_bytes()


class OverSocket:
    def __init__(self, connection: socket.socket) -> None:
        self.send = connection.sendall
        self.connection = connection

    def recv(self, size: int) -> bytes | bytearray | None:
        message = self.connection.recv(size)
        if len(message) == size:
            return message
        if not message:
            return None
        whole = bytearray(size)
        place = memoryview(whole)
        place[: len(message)] = message
        have = len(message)
        while have < size:
            count = self.connection.recv_into(place[have:])
            if count == 0:
                return None
            have += count
        return whole


def serve(address: str, path: str) -> None:
    channels = partywall.Listener(address)
    sockets = socket.socket(socket.AF_UNIX)
    sockets.bind(path)
    sockets.listen()
    print("ready", flush=True)
    first = OverChannel(channels.accept())
    second = OverSocket(sockets.accept()[0])
    threading.Thread(target=answer, args=(second,), daemon=True).start()
    answer(first)


def answer(carrier: Carrier) -> None:
    """Performs the server's part of each task that the client announces."""
    send, recv = carrier.send, carrier.recv
    while (command := recv(COMMAND.size)) is not None:
        task, size, count = COMMAND.unpack(command)
        if task == WAY:
            for _ in range(count):
                recv(size)
            send(bytes(8))
        else:
            for _ in range(count):
                send(recv(size))  # type: ignore[arg-type]


def run(address: str, path: str) -> None:
    channel = partywall.connect(address)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    carriers: dict[str, Carrier] = {"ours": OverChannel(channel), "socket": OverSocket(connection)}
    print("ready", flush=True)
    for line in sys.stdin:
        name, task, size, count = line.split()
        elapsed = measure(carriers[name], int(task == "way"), int(size), int(count))
        print(elapsed, flush=True)
    channel.close()


def measure(carrier: Carrier, task: int, size: int, count: int) -> int:
    """Performs the client's part of a task; returns its duration in nanoseconds."""
    send, recv = carrier.send, carrier.recv
    message = bytes(size)
    send(COMMAND.pack(task, size, count))
    start = time.perf_counter_ns()
    if task == WAY:
        for _ in range(count):
            send(message)
        recv(8)
    else:
        for _ in range(count):
            send(message)
            recv(size)
    return time.perf_counter_ns() - start


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address, path]:
            serve(address, path)
        case ["run", address, path]:
            run(address, path)
        case _:
            sys.exit("rate serve|run ADDRESS SOCKET")
    sys.stdout.flush()
    os._exit(0)  # the thread that serves the socket may still wait
