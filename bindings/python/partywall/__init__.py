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
        answer = channel.recv()  # None once the peer has finished
        if answer is not None:
            print(bytes(answer))

Sessions with many streams are in ``partywall.sessions``, links that survive their processes in
``partywall.links``, requests and answers in ``partywall.calls``, records that may be dropped in
``partywall.lossy``, asyncio's streams in ``partywall.aio``, objects as ``multiprocessing`` sends them
in ``partywall.multiprocessing``, and the protocol of shmipc in
``partywall.shmipc``.

Every call that waits takes ``timeout`` in seconds: ``None`` is for ever, and 0 never waits. Connecting
takes the setting ``handshake_timeout`` instead: ``connect(address, Config(handshake_timeout=1.0))``.
While a call waits, other threads run, and Ctrl-C ends it.

Each exception derives from ``Error``, an ``OSError``; its text says what to do.
"""

from ._errors import (
    BusyError,
    CallAborted,
    CallFailed,
    CallRefused,
    Closed,
    ConfigError,
    ConnectError,
    ConnectTimedOut,
    DeniedError,
    Disconnected,
    Error,
    ForkedError,
    GoingAway,
    HandshakeError,
    HandshakeTimedOut,
    LinkBusy,
    LinkError,
    LinkFenced,
    LinkFileError,
    LinkQuarantined,
    NoDirectoryError,
    NoSocketError,
    NotARecord,
    OtherBoot,
    ProtocolError,
    RefusedError,
    SendingEnded,
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
    "CallAborted",
    "CallFailed",
    "CallRefused",
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
    "GoingAway",
    "HandshakeError",
    "HandshakeTimedOut",
    "LinkBusy",
    "LinkError",
    "LinkFenced",
    "LinkFileError",
    "LinkQuarantined",
    "Listener",
    "Message",
    "NoDirectoryError",
    "NoSocketError",
    "NotARecord",
    "OtherBoot",
    "Peer",
    "ProtocolError",
    "ReceiverStats",
    "RefusedError",
    "Reservation",
    "SenderStats",
    "SendingEnded",
    "SessionClosed",
    "StreamReset",
    "StreamStopped",
    "TimedOut",
    "TooLarge",
    "WouldBlock",
    "connect",
]
