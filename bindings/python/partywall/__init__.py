# SPDX-License-Identifier: MIT OR Apache-2.0
"""Messages between two Linux processes through shared memory.

One process listens::

    with partywall.Listener("unix:/run/app.sock") as listener:
        for channel in listener:
            for message in channel:
                channel.send(message)

The other connects::

    with partywall.connect("unix:/run/app.sock") as channel:
        channel.send(b"hello")
        with channel.recv() as answer:
            print(bytes(answer))

Every call that waits takes ``timeout`` in seconds: ``None`` is for ever, and 0 never waits. While a
call waits, other threads run, and Ctrl-C ends it.
"""

from ._errors import (
    BusyError,
    Closed,
    ConfigError,
    ConnectError,
    ConnectTimedOut,
    DeniedError,
    Disconnected,
    Error,
    ForkedError,
    HandshakeError,
    HandshakeTimedOut,
    NoSocketError,
    ProtocolError,
    RefusedError,
    SessionClosed,
    StreamReset,
    StreamStopped,
    TimedOut,
    TooLarge,
    WouldBlock,
)
from ._native import (
    Channel,
    Config,
    Credentials,
    Listener,
    Message,
    Peer,
    ReceiverStats,
    Reservation,
    SenderStats,
    connect,
)

__all__ = [
    "BusyError",
    "Channel",
    "Closed",
    "Config",
    "ConfigError",
    "ConnectError",
    "ConnectTimedOut",
    "Credentials",
    "DeniedError",
    "Disconnected",
    "Error",
    "ForkedError",
    "HandshakeError",
    "HandshakeTimedOut",
    "Listener",
    "Message",
    "NoSocketError",
    "Peer",
    "ProtocolError",
    "ReceiverStats",
    "RefusedError",
    "SessionClosed",
    "StreamReset",
    "StreamStopped",
    "Reservation",
    "SenderStats",
    "TimedOut",
    "TooLarge",
    "WouldBlock",
    "connect",
]
