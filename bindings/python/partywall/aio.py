# SPDX-License-Identifier: MIT OR Apache-2.0
"""Sessions as asyncio's connections: streams of bytes, transports and servers.

The functions are those of asyncio, with an address instead of host and port::

    async def echo(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    server = await partywall.aio.start_server(echo, "unix:/run/app.sock")
    reader, writer = await partywall.aio.open_connection("unix:/run/app.sock")

Each connection is a stream of a session of its own. The event loop of asyncio watches one
descriptor for all of them.

``Link`` and ``Calls`` wait for a link or for calls without a thread::

    link = partywall.aio.Link(links.Client("alice").connect("unix:/run/bob.sock", "bob", "orders"))
    await link.send(b"buy 5")
    async for message in link:
        message.ack()
"""

import asyncio
import itertools
import warnings
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from os import PathLike
from typing import TYPE_CHECKING, Any, Self, TypeVar

from . import calls, links
from ._errors import WouldBlock
from ._native import Config, EventListener, EventLoop, EventSession, EventStream, Message, Peer
from ._native import Pending, Shmipc

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "Calls",
    "Link",
    "Server",
    "Transport",
    "accept_link",
    "create_connection",
    "create_server",
    "open_connection",
    "start_server",
]

_Address = str | PathLike[str]
_P = TypeVar("_P", bound=asyncio.BaseProtocol)

_READABLE, _OPENED = 1, 4

_READS_MAX = 16
"""Most messages that one connection takes before others have their turn."""

_LIMIT = 64 << 10
"""Bytes that a StreamReader buffers, as in asyncio."""


class _Reactor:
    """The sources of one asyncio loop, by their tags."""

    def __init__(self) -> None:
        self.native = EventLoop()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.new_tag = itertools.count(1).__next__
        self._polls_soon = False
        """Whether a call that polls is in the queue of the loop."""

    def __del__(self) -> None:
        # asyncio's loop was closed. The handlers refer to all transports. If they were not removed
        # here, a program that still has one transport would keep the others alive.
        if (handlers := getattr(self, "handlers", None)) is not None:
            handlers.clear()

    def run(self) -> None:
        """Passes the events of sources on, once the descriptor is readable."""
        if not self._polls_soon:
            self._poll()

    def _poll(self) -> None:
        self._polls_soon = False
        events = self.native.poll_spinning()
        if not events:
            return
        try:
            for tag, kinds in events:
                if handler := self.handlers.get(tag):
                    self._call(handler, kinds)
        finally:
            # The native loop's descriptor becomes readable only after a poll without events, so
            # another poll must follow. The next poll runs after the tasks that the events of this
            # poll have resumed, and so finds the answer of a fast peer without a wake-up.
            self._polls_soon = True
            asyncio.get_running_loop().call_soon(self._poll)

    def _call(self, handler: Callable[[int], None], kinds: int) -> None:
        try:
            handler(kinds)
        except Exception as error:
            # A handler that raises must not keep the handlers of other sources from being called.
            asyncio.get_running_loop().call_exception_handler(
                {"message": "a protocol has raised", "exception": error}
            )


_reactors: "weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, weakref.ref[_Reactor]]" = (
    weakref.WeakKeyDictionary()
)
"""The reactor of each loop. Only the loop owns it, so closing the loop ends what is open."""


def _reactor_of(loop: asyncio.AbstractEventLoop) -> _Reactor:
    """Returns the reactor of the running loop, and makes it at the first call."""
    known = _reactors.get(loop)
    reactor = known() if known is not None else None
    if reactor is None:
        reactor = _Reactor()
        loop.add_reader(reactor.native.fileno(), reactor.run)
        _reactors[loop] = weakref.ref(reactor)
    return reactor


class Transport(asyncio.Transport):
    """One stream as a transport of asyncio. ``get_extra_info`` has ``peer`` and ``transport``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        stream: EventStream,
        tag: int,
        protocol: asyncio.BaseProtocol,
        server: "Server | None" = None,
    ) -> None:
        super().__init__({"peer": stream.peer, "transport": stream.transport, "peername": ""})
        self._loop = loop
        self._handlers = _reactor_of(loop).handlers
        self._stream = stream
        self._tag = tag
        self._server = server
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        self._is_closing = False
        self._is_lost = False
        self._is_paused = False
        self._has_read_end = False
        self._has_written_end = False
        self._has_paused_protocol = False
        self._has_turn = False
        """Whether a call that receives is in the queue of the loop."""
        self.set_write_buffer_limits()
        self.set_protocol(protocol)
        self._handlers[tag] = self._handle
        if server is not None:
            server._attach(self)
        loop.call_soon(self._start)

    def _start(self) -> None:
        if self._is_lost:
            return
        self._protocol.connection_made(self)
        self._receive()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    @property
    def peer(self) -> Peer:
        """The process at the other end."""
        return self._stream.peer

    def _handle(self, kinds: int) -> None:
        # If asyncio's loop has already queued a call of `_take_turn`, that call receives the
        # message; otherwise this method does.
        if kinds & _READABLE and not self._has_turn:
            self._receive()
        if self._unsent and not self._is_lost:
            self._send_unsent()

    # Receiving

    def is_reading(self) -> bool:
        return not (self._is_paused or self._is_closing)

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._receive_soon()

    def _receive(self) -> None:
        for _ in range(_READS_MAX):
            if self._is_lost or self._has_read_end:
                return
            if not self.is_reading():
                # Without the pause, the native loop would report the unread stream in every poll.
                self._stream.pause()
                return
            try:
                data = self._stream.try_recv()
            except OSError as error:
                self._lose(error)
                return
            if data is None:
                return
            self._deliver(data)
        # More bytes may be there. After a read that has left bytes, the native loop need not report
        # the stream again. So this transport receives again in the next turn of asyncio's loop.
        self._receive_soon()

    def _receive_soon(self) -> None:
        """Receives in the next round of the loop, after the turns of other connections."""
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._has_turn = False
        self._receive()

    def _deliver(self, data: bytes) -> None:
        try:
            if not data:
                self._has_read_end = True
                if not self._protocol.eof_received():
                    self.close()
            elif self._is_buffered:
                self._deliver_buffered(data)
            else:
                self._protocol.data_received(data)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, "the protocol failed to take data")
            self._lose(error)

    def _deliver_buffered(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            buffer = memoryview(self._protocol.get_buffer(len(rest)))
            count = min(len(buffer), len(rest))
            if not count:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._protocol.buffer_updated(count)

    # Sending

    def write(self, data: "bytes | bytearray | memoryview[Any]") -> None:
        if self._has_written_end:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._is_lost or self._is_closing or not data:
            return
        sent = 0
        if not self._unsent:
            try:
                sent = self._stream.try_send(data, 0)
            except OSError as error:
                self._lose(error)
                return
        if sent == len(data) and isinstance(data, (bytes, bytearray)):
            return
        view = memoryview(data).cast("B")
        if sent == len(view):
            return
        # The caller may change its buffer after this call, so the unsent bytes are copied.
        rest = memoryview(bytes(view[sent:]))
        self._unsent.append(rest)
        self._unsent_bytes += len(rest)
        if self._unsent_bytes > self._high and not self._has_paused_protocol:
            self._has_paused_protocol = True
            self._call_protocol("pause_writing")

    def _send_unsent(self) -> None:
        try:
            while self._unsent:
                first = self._unsent[0]
                sent = self._stream.try_send(first, 0)
                self._unsent_bytes -= sent
                if sent < len(first):
                    self._unsent[0] = first[sent:]
                    break
                self._unsent.popleft()
        except OSError as error:
            self._lose(error)
            return
        if self._has_paused_protocol and self._unsent_bytes <= self._low:
            self._has_paused_protocol = False
            self._call_protocol("resume_writing")
        if not self._unsent:
            self._finish_sending()

    def _call_protocol(self, name: str) -> None:
        """Calls the protocol, whose exception must not keep the transport from its work."""
        try:
            getattr(self._protocol, name)()
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._report(error, f"the protocol failed in {name}()")

    def _finish_sending(self) -> None:
        """Ends what had to wait until everything was sent."""
        if self._has_written_end:
            self._stream.finish()
        if self._is_closing:
            self._lose(None)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._has_written_end or self._is_closing:
            return
        self._has_written_end = True
        if not self._unsent:
            self._stream.finish()

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = 64 << 10 if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    # The end

    def is_closing(self) -> bool:
        return self._is_closing or self._is_lost

    def close(self) -> None:
        if self._is_closing or self._is_lost:
            return
        self._is_closing = True
        if not self._unsent:
            self._lose(None)

    def abort(self) -> None:
        if not self._is_lost:
            self._stream.reset()
            self._lose(None)

    def _lose(self, error: BaseException | None) -> None:
        """Drops the stream, and notifies the protocol in the next turn of the loop."""
        if self._is_lost:
            return
        self._is_lost = self._is_closing = True
        self._unsent.clear()
        self._unsent_bytes = 0
        self._handlers.pop(self._tag, None)
        self._stream.close()
        self._loop.call_soon(self._notify_lost, error)

    def _notify_lost(self, error: BaseException | None) -> None:
        try:
            self._protocol.connection_lost(error)
        finally:
            if self._server is not None:
                self._server._detach(self)

    def __del__(self, _warn: Any = warnings.warn) -> None:
        if not getattr(self, "_is_lost", True):
            _warn(f"unclosed transport {self!r}", ResourceWarning, source=self)

    def _report(self, error: BaseException, text: str) -> None:
        self._loop.call_exception_handler(
            {"message": text, "exception": error, "transport": self, "protocol": self._protocol}
        )


class Server(asyncio.AbstractServer):
    """A listener whose connections get a protocol each, as ``asyncio.Server``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: EventListener,
        tag: int,
        factory: Callable[[], asyncio.BaseProtocol],
    ) -> None:
        self._loop = loop
        reactor = _reactor_of(loop)
        self._handlers, self._new_tag = reactor.handlers, reactor.new_tag
        self._listener = listener
        self._tag = tag
        self._factory = factory
        self._address = listener.address
        self._is_serving = True
        self._transports: set[Transport] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._handlers[tag] = self._handle

    @property
    def address(self) -> str:
        """The address, as text, with the port that the system chose."""
        return self._address

    def _handle(self, kinds: int) -> None:
        if not kinds & _OPENED:
            return
        tag = self._new_tag()
        try:
            session = self._listener.try_accept(tag)
        except OSError as error:
            self._loop.call_exception_handler(
                {"message": "no session could be accepted", "exception": error}
            )
            return
        if session is not None:
            self._serve(session, tag)

    def _serve(self, session: EventSession, tag: int) -> None:
        """Accepts the streams of a session until it is over."""

        def accept(kinds: int = _OPENED) -> None:
            stream_tag = self._new_tag()
            goes_on, stream = session.try_accept(stream_tag)
            if stream is not None:
                Transport(self._loop, stream, stream_tag, self._factory(), self)
            elif not goes_on:
                self._handlers.pop(tag, None)

        self._handlers[tag] = accept
        accept()

    def _attach(self, transport: Transport) -> None:
        self._transports.add(transport)

    def _detach(self, transport: Transport) -> None:
        self._transports.discard(transport)
        self._wake()

    def _wake(self) -> None:
        if self._is_serving or self._transports:
            return
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    def is_serving(self) -> bool:
        return self._is_serving

    async def start_serving(self) -> None:
        """Does nothing: a server listens from the moment it is made."""

    async def serve_forever(self) -> None:
        """Waits until the task is cancelled, then closes the server."""
        try:
            await self._loop.create_future()
        finally:
            self.close()

    def close(self) -> None:
        """Stops listening. Connections go on."""
        if self._is_serving:
            self._is_serving = False
            self._handlers.pop(self._tag, None)
            self._listener.close()
            self._wake()

    async def wait_closed(self) -> None:
        """Waits until the server is closed and its connections have ended."""
        if self._is_serving or self._transports:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.close()
        await self.wait_closed()


async def _connect(
    reactor: _Reactor, tag: int, address: _Address, config: Config | None, shmipc: Shmipc | None
) -> EventSession:
    """Opens a session. The thread of its handshake is not the executor's, which `asyncio.run` would
    wait for after Ctrl-C."""
    loop = asyncio.get_running_loop()
    connecting = reactor.native.connect(address, tag, config, shmipc)
    descriptor = connecting.fileno()
    over = asyncio.Event()
    loop.add_reader(descriptor, over.set)
    try:
        while (session := connecting.take()) is None:
            await over.wait()
            over.clear()
    finally:
        loop.remove_reader(descriptor)
    return session


async def _open(
    reactor: _Reactor, address: _Address, config: Config | None, shmipc: Shmipc | None
) -> tuple[EventStream, int]:
    """Opens a session and its stream."""
    session_tag, tag = reactor.new_tag(), reactor.new_tag()
    session = await _connect(reactor, session_tag, address, config, shmipc)
    room = asyncio.Event()
    reactor.handlers[session_tag] = lambda kinds: room.set()
    try:
        while (stream := session.try_open(tag)) is None:
            await room.wait()
            room.clear()
    finally:
        reactor.handlers.pop(session_tag, None)
    return stream, tag


async def create_connection(
    protocol_factory: Callable[[], _P],
    address: _Address,
    config: Config | None = None,
    *,
    shmipc: Shmipc | None = None,
) -> tuple[Transport, _P]:
    """Connects to the server at ``address``, as ``loop.create_connection`` does; with ``shmipc``, to
    a server of that protocol."""
    loop = asyncio.get_running_loop()
    stream, tag = await _open(_reactor_of(loop), address, config, shmipc)
    protocol = protocol_factory()
    transport = Transport(loop, stream, tag, protocol)
    try:
        await asyncio.sleep(0)  # until the protocol has its transport
    except BaseException:
        transport.abort()
        raise
    return transport, protocol


async def create_server(
    protocol_factory: Callable[[], asyncio.BaseProtocol],
    address: _Address,
    config: Config | None = None,
    *,
    shmipc: Shmipc | None = None,
) -> Server:
    """Listens at ``address``, as ``loop.create_server`` does; with ``shmipc``, for clients of that
    protocol, too."""
    loop = asyncio.get_running_loop()
    reactor = _reactor_of(loop)
    tag = reactor.new_tag()
    listener = reactor.native.bind(address, tag, config, shmipc)
    return Server(loop, listener, tag, protocol_factory)


async def open_connection(
    address: _Address,
    *,
    limit: int = _LIMIT,
    config: Config | None = None,
    shmipc: Shmipc | None = None,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects, as ``asyncio.open_connection`` does."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(lambda: protocol, address, config, shmipc=shmipc)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


_Connected = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


async def start_server(
    client_connected_cb: _Connected,
    address: _Address,
    *,
    limit: int = _LIMIT,
    config: Config | None = None,
    shmipc: Shmipc | None = None,
) -> Server:
    """Listens, and calls ``client_connected_cb`` for each connection, as ``asyncio`` does."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.BaseProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, client_connected_cb, loop=loop)

    return await create_server(factory, address, config, shmipc=shmipc)


_Done = Callable[[Any, BaseException | None], object]


async def _wait_for(
    start: Callable[[_Done], Pending], give_back: Callable[[Any], object] | None = None
) -> Any:
    """Waits for an operation of the native module. Cancelling gives the operation up; ``give_back``
    takes a value that comes nevertheless."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def refuse(value: Any, error: BaseException | None) -> None:
        if give_back is not None and error is None:
            give_back(value)

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            refuse(value, error)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def done(value: Any, error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            if not loop.is_closed():
                raise
            refuse(value, error)

    pending = start(done)
    try:
        return await future
    except asyncio.CancelledError:
        pending.cancel()
        if future.done() and not future.cancelled() and future.exception() is None:
            refuse(future.result(), None)
        raise


class _Results:
    """Takes values, one after the other. A cancelled coroutine leaves its value to the next one, also
    to one of another loop."""

    def __init__(self, start: Callable[[_Done], Pending]) -> None:
        self._start = start
        self._pending: Pending | None = None
        self._found: deque[tuple[Any, BaseException | None]] = deque()
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __del__(self) -> None:
        # A running operation refers to its link and would keep the link open, so it is cancelled.
        if (pending := getattr(self, "_pending", None)) is not None:
            pending.cancel()

    def is_waiting(self) -> bool:
        """Whether a value is on its way, or is there and was not taken."""
        return self._pending is not None

    async def take(self) -> Any:
        while not self._found:
            if self._pending is None:
                self._pending = self._start(self._make_done())
            await self._wait()
        value, error = self._found.popleft()
        self._pending = None
        _wake_first(self._waiters)  # it starts the operation for its own value
        if error is not None:
            raise error
        return value

    async def _wait(self) -> None:
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            # The waiter was added to `_waiters` before this check for a value, so a value that
            # comes after the check wakes the waiter.
            if not self._found:
                await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                _wake_first(self._waiters)  # the wake-up was for whoever waits now
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _make_done(self) -> _Done:
        # `done`, which gets the result of the operation, refers to these two lists and not to this
        # object. So once no program uses this object, it is freed, and its `__del__` cancels the
        # operation.
        found, waiters = self._found, self._waiters

        def done(value: Any, error: BaseException | None) -> None:
            found.append((value, error))
            for waiter in waiters.copy():
                try:
                    waiter.get_loop().call_soon_threadsafe(_wake_first, waiters)
                    return
                except RuntimeError:
                    pass  # a waiter of a closed loop is gone

        return done


def _wake_first(waiters: deque[asyncio.Future[None]]) -> None:
    while waiters:
        waiter = waiters.popleft()
        if not waiter.done():
            waiter.set_result(None)
            return


class Link:
    """The calls of a link that wait, as coroutines. ``link`` has the others.

    Cancelling one gives it up as a whole: nothing was sent, unless it was done just then. A message
    that comes after a cancelled ``recv`` is kept for the next one.
    """

    def __init__(self, link: links.Link) -> None:
        self.link = link
        """The link whose calls these are."""
        self._messages = _Results(link.start_recv)
        self._events = _Results(link.start_next_event)

    async def send(self, payload: "Buffer") -> None:
        """Sends a copy of ``payload``. Waits for room."""
        try:
            self.link.send(payload, 0)
        except WouldBlock:
            await _wait_for(lambda done: self.link.start_send(payload, done))

    async def recv(self) -> links.Message | None:
        """Receives the next message; ``None`` once the peer has closed its end in good order."""
        if not self._messages.is_waiting():
            try:
                return self.link.recv(0)
            except WouldBlock:
                pass
        message: links.Message | None = await self._messages.take()
        return message

    async def reply(self, message: links.Message, answer: "Buffer") -> None:
        """Sends ``answer`` and acknowledges ``message``, both or neither."""
        await _wait_for(lambda done: message.start_reply(answer, done))

    async def wait_acked(self) -> None:
        """Waits until the peer has acknowledged every message that was sent before."""
        await _wait_for(self.link.start_wait_acked)

    async def wait_attached(self) -> None:
        """Waits until the link has a connection."""
        await _wait_for(self.link.start_wait_attached)

    async def next_event(self) -> links.Event:
        """Waits for the next event of the link."""
        event: links.Event = await self._events.take()
        return event

    async def close(self) -> None:
        """Closes this end in good order. Cancelling it closes the link at once."""
        await _wait_for(self.link.start_close)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> links.Message:
        message = await self.recv()
        if message is None:
            raise StopAsyncIteration
        return message


async def accept_link(server: links.Server) -> Link:
    """Waits for the next link that a client attaches. Raises ValueError if the server is closed.
    Cancelling it leaves a link that has come to the next call."""
    return Link(await _wait_for(server.start_accept, server.give_back))


class Calls:
    """Calls of a client as coroutines. Cancelling one cancels the call at the server, too."""

    def __init__(self, client: calls.Client) -> None:
        self.client = client
        """The client that makes the calls."""

    async def call(self, payload: "Buffer", timeout: float | None = None) -> Message:
        """Makes a call, and returns its answer. The server learns of ``timeout``, in seconds."""
        answer: Message = await _wait_for(
            lambda done: self.client.start_call(payload, timeout, done)
        )
        return answer
