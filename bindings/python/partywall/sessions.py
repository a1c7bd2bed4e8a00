# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sessions: many streams of messages over one connection.

One process accepts sessions and their streams::

    with Listener("unix:/run/app.sock") as listener:
        for session in listener:
            for stream in session:
                with stream:
                    for message in stream:
                        stream.send(message)

The other opens streams, which take no round trip::

    with connect("unix:/run/app.sock") as session, session.open(b"echo") as stream:
        stream.send(b"hello")
        print(bytes(stream.recv(timeout=1.0)))

Both sides open streams. Each has an end and back-pressure of its own.
"""

import io
from typing import TYPE_CHECKING

from ._native import Session, Stream
from ._native import SessionListener as Listener
from ._native import connect_session as connect

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Listener", "Session", "Stream", "StreamFile", "connect"]

_WRITE_MAX = (64 << 10) - 64
"""Longest message in bytes: four of them and their headers fit the default window of a stream."""


class StreamFile(io.RawIOBase):
    """A stream as a raw file, without the boundaries of messages: ``Stream.makefile`` makes it.

    ``io.BufferedReader`` and ``io.BufferedRWPair`` take it. Closing it closes the stream.
    """

    def __init__(self, stream: Stream, timeout: float | None = None) -> None:
        super().__init__()
        self.stream = stream
        """The stream that carries the bytes."""
        self.timeout = timeout
        """Seconds after which a call raises TimedOut."""
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        """Always true: a stream has both directions."""
        return True

    def writable(self) -> bool:
        """Always true: a stream has both directions."""
        return True

    def readinto(self, buffer: "Buffer", /) -> int:
        """Reads the next bytes into a buffer. Returns their number: 0 once the peer has finished."""
        self._check_open()
        place = memoryview(buffer).cast("B")
        if not place:
            return 0
        while not self._rest:
            message = self.stream.recv(self.timeout)
            if message is None:
                return 0
            self._rest = memoryview(message)
        count = min(len(place), len(self._rest))
        place[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def write(self, data: "Buffer", /) -> int:
        """Sends the first bytes of a buffer, almost 64 KiB at most. Returns their number."""
        self._check_open()
        piece = memoryview(data).cast("B")[:_WRITE_MAX]
        if piece:
            self.stream.send(piece, self.timeout)
        return len(piece)

    def close(self) -> None:
        """Closes the stream in good order."""
        if not self.closed:
            super().close()
            self._rest = memoryview(b"")
            self.stream.close()

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")
