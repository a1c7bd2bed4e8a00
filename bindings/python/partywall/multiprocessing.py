# SPDX-License-Identifier: MIT OR Apache-2.0
"""Connections with the methods of ``multiprocessing.connection.Connection``, over channels.

``Listener`` and ``Client`` take an address. Objects are pickled; their large buffers, such as the
data of numpy arrays, are messages of their own, which the receiver reads where the sender wrote
them::

    with Listener("unix:/run/app.sock") as listener, listener.accept() as connection:
        connection.send(numpy.zeros(1_000_000))

Unpickling runs code that the peer chooses: receive objects only from processes that you trust.
"""

import multiprocessing
import os
import pickle
import threading
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any, Self

from . import _native
from ._errors import Disconnected, TimedOut, WouldBlock

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Client", "Connection", "Listener"]

_BUFFER_MIN = 16 << 10
"""Length in bytes from which a buffer of an object is a message of its own."""

_COUNT_BYTES = 4
"""Length of the number of buffers, in front of each pickle; little-endian."""


class Connection:
    """One end of a connection that carries objects or bytes. Any thread may use it."""

    def __init__(self, channel: _native.Channel) -> None:
        self._channel: _native.Channel | None = channel
        self._sending = threading.Lock()
        self._receiving = threading.Lock()
        self._found: list[_native.Message | None] = []
        self._part: tuple[bytes, list[bytes | memoryview]] | None = None
        """An object whose buffers have not all come when Ctrl-C ended `recv`."""
        self._ready: int | None = None

    def _open(self) -> _native.Channel:
        if self._channel is None:
            raise OSError("handle is closed")
        return self._channel

    # Sending

    def send(self, obj: Any) -> None:
        """Sends an object. Waits while there is no room.

        If it fails after a part was sent, sending ends, and the peer finds the end: it must not take
        the next object for the rest of this one.
        """
        buffers: list[memoryview] = []

        def keep(buffer: pickle.PickleBuffer) -> bool:
            raw = buffer.raw()
            if len(raw) < _BUFFER_MIN:
                return True
            buffers.append(raw)
            return False

        data = pickle.dumps(obj, protocol=5, buffer_callback=keep)
        with self._sending:
            channel = self._open()
            channel.send(len(buffers).to_bytes(_COUNT_BYTES, "little") + data)
            try:
                for raw in buffers:
                    channel.send(raw)
            except BaseException:
                channel.finish()
                raise

    def send_bytes(self, buf: "Buffer", offset: int = 0, size: int | None = None) -> None:
        """Sends ``size`` bytes of a buffer from index ``offset`` as one message."""
        view = memoryview(buf).cast("B")
        end = len(view) if size is None else offset + size
        if offset < 0 or end < offset or end > len(view):
            raise ValueError("offset and size are outside of the buffer")
        with self._sending:
            self._open().send(view[offset:end])

    # Receiving

    def recv(self) -> Any:
        """Receives an object. Its large buffers are read-only, and the last one is not copied."""
        with self._receiving:
            if self._part is None:
                first = self._next().tobytes()
                count = int.from_bytes(first[:_COUNT_BYTES], "little")
                if len(first) < _COUNT_BYTES or count > len(first):
                    raise pickle.UnpicklingError("the message is no object: use recv_bytes()")
                self._part = first, []
            first, buffers = self._part
            self._receive_buffers(int.from_bytes(first[:_COUNT_BYTES], "little"), buffers)
            self._part = None
        return pickle.loads(memoryview(first)[_COUNT_BYTES:], buffers=buffers)

    def _receive_buffers(self, count: int, buffers: list[bytes | memoryview]) -> None:
        # The sender may reuse the memory of a buffer for the next one. So every buffer is copied
        # except the last, which stays in the sender's memory.
        while len(buffers) < count - 1:
            buffers.append(self._next().tobytes())
        if len(buffers) < count:
            buffers.append(memoryview(self._next()))

    def recv_bytes(self, maxlength: int | None = None) -> bytes:
        """Receives a message as bytes. Raises OSError if it is longer than ``maxlength``."""
        if maxlength is not None and maxlength < 0:
            raise ValueError("negative maxlength")
        with self._receiving:
            message = self._next_whole()
        if maxlength is not None and len(message) > maxlength:
            raise OSError("bad message length")
        return message.tobytes()

    def recv_bytes_into(self, buf: "Buffer", offset: int = 0) -> int:
        """Receives a message into a writable buffer, and returns its length."""
        view = memoryview(buf).cast("B")
        if not 0 <= offset <= len(view):
            raise ValueError("offset is outside of the buffer")
        with self._receiving:
            message = self._next_whole()
        if len(message) > len(view) - offset:
            raise multiprocessing.BufferTooShort(message.tobytes())
        view[offset : offset + len(message)] = message
        return len(message)

    def poll(self, timeout: float | None = 0.0) -> bool:
        """Returns whether a message, or the end, is there within ``timeout`` seconds."""
        with self._receiving:
            if self._found:
                return True
            wait = None if timeout is None else max(timeout, 0.0)
            try:
                self._found.append(self._look(wait))
            except (TimedOut, WouldBlock):
                return False
            return True

    def _next_whole(self) -> _native.Message:
        if self._part is not None:
            raise OSError("an object has come in part: call recv() again")
        return self._next()

    def _next(self) -> _native.Message:
        self._open()
        message = self._found.pop() if self._found else self._look(None)
        if message is None:
            self._found.append(None)  # every later call finds the end, too
            raise EOFError
        return message

    def _look(self, timeout: float | None) -> _native.Message | None:
        """Returns the next message, or ``None`` at the end. A killed peer is an end, too."""
        try:
            return self._open().recv(timeout)
        except Disconnected:
            return None

    # The descriptor

    def fileno(self) -> int:
        """Returns a descriptor that is readable once a message is there.

        ``multiprocessing.connection.wait`` asks for it before each wait. A selector that keeps it
        has to be given it anew after each received message.
        """
        with self._receiving:
            channel = self._open()
            if not self._found and not channel.arm():
                return channel.fileno()
            if self._ready is None:
                self._ready = os.eventfd(1, os.EFD_CLOEXEC)
            return self._ready

    # The end

    @property
    def closed(self) -> bool:
        """Whether this end was closed."""
        return self._channel is None

    @property
    def readable(self) -> bool:
        """Always true: a channel has both directions."""
        return True

    @property
    def writable(self) -> bool:
        """Always true: a channel has both directions."""
        return True

    def close(self) -> None:
        """Closes both directions. The peer receives what was sent, then EOFError."""
        channel = self._channel
        if channel is not None:
            channel.close()
            self._channel = None
        ready, self._ready = self._ready, None
        if ready is not None:
            os.close(ready)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_ready", None) is not None:
            os.close(self._ready)  # type: ignore[arg-type]


class Listener:
    """Accepts connections at an address."""

    def __init__(
        self, address: str | PathLike[str], config: _native.Config | None = None
    ) -> None:
        self._listener = _native.Listener(address, config)

    def accept(self) -> Connection:
        """Waits for a connection."""
        return Connection(self._listener.accept())

    @property
    def address(self) -> str:
        """The address, as text."""
        return self._listener.address

    def close(self) -> None:
        """Stops listening. Connections go on."""
        self._listener.close()

    def __iter__(self) -> Iterator[Connection]:
        for channel in self._listener:  # which ends once another thread has closed it
            yield Connection(channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def Client(address: str | PathLike[str], config: _native.Config | None = None) -> Connection:
    """Connects to the listener at ``address``."""
    return Connection(_native.connect(address, config))
