# SPDX-License-Identifier: MIT OR Apache-2.0
"""The exceptions. Each derives from the exception of the standard library that fits it."""

import errno as _errno


class Error(OSError):
    """An operation failed.

    ``code`` is the number of the cause (SPEC 17), which is the same in every language. The text
    says what to do. ``errno`` is that of the system call that failed, or one that fits the cause.
    """

    code: int = 0
    application_code: int = 0
    """The code that an application gave to end the stream or session; 0 if there is none."""


class ForkedError(Error):
    """The object belongs to the parent process."""


class TimedOut(Error, TimeoutError):
    """The deadline passed before the operation was done."""


class WouldBlock(Error, BlockingIOError):
    """The call never waits, and would have to: there is no message, or no room."""


class BusyError(Error, BlockingIOError):
    """Another thread uses the object at this moment."""


class Closed(Error, BrokenPipeError):
    """The peer has stopped receiving, so no message will be received."""


class Disconnected(Error, ConnectionResetError):
    """The peer died or hung up. Everything that it had sent was received before."""


class SendingEnded(Error, ValueError):
    """This side has ended its sending. It still receives."""


class TooLarge(Error, ValueError):
    """The message can never be sent on this connection. The text names the setting."""


class ConfigError(Error, ValueError):
    """A setting or an address is impossible."""


class StreamReset(Error, ConnectionResetError):
    """The peer has reset the stream instead of ending it."""


class StreamStopped(Error, BrokenPipeError):
    """The peer receives no more on the stream."""


class SessionClosed(Error, ConnectionAbortedError):
    """The session of the stream was closed, here or by the peer."""


class GoingAway(Error, ConnectionRefusedError):
    """The peer takes no more streams of this session: open the stream over another one."""


class ProtocolError(Error, ConnectionAbortedError):
    """The peer broke a rule of the protocol, and the connection was cut."""


class HandshakeError(Error, ConnectionError):
    """A listener was reached, but no connection was agreed on."""


class HandshakeTimedOut(HandshakeError, TimeoutError):
    """The peer did not finish the handshake in time."""


class ConnectError(Error, ConnectionError):
    """The system could not connect to a listener at the address."""


class RefusedError(ConnectError, ConnectionRefusedError):
    """No process listens at the address."""


class ConnectTimedOut(ConnectError, TimeoutError):
    """The listener did not take the connection in time."""


class NoSocketError(ConnectError, FileNotFoundError):
    """The path of the address does not exist."""


class NoDirectoryError(Error, FileNotFoundError):
    """The directory of a listener's address does not exist."""


class DeniedError(Error, PermissionError):
    """The system does not permit listening or connecting at the address."""


class LinkError(Error):
    """A link has stopped in this process, or could not be opened. The text says what to do."""


class LinkFenced(LinkError):
    """A later process has opened the same end of the link, so this one attaches no more."""


class LinkQuarantined(LinkError):
    """The files of the two ends contradict each other: both keep everything until you decide."""


class LinkBusy(LinkError, BlockingIOError):
    """Another process, or another handle of this one, owns this end of the link."""


class LinkFileError(LinkError):
    """The file or the directory of a link cannot be used. The file was not changed."""


class OtherBoot(LinkFileError):
    """The file of a link is of another boot, and was not closed: messages may be missing.

    The text says what is proven. ``partywall link adopt`` or ``Config(after_reboot="adopt_proven")``
    goes on with that.
    """


class NotARecord(Error, ValueError):
    """A message is no record: its sender is no ``partywall.lossy.Sender``."""


class CallFailed(Error):
    """The handler of a call has failed, as it chose."""

    failure_code: int = 0
    """The code that the handler chose."""
    detail: bytes = b""
    """What the handler said."""


class CallRefused(Error, BlockingIOError):
    """The server has too many calls that wait: it has not begun this one. Try again later."""


class CallAborted(Error):
    """The server gave the call up: its handler raised an exception."""


class Failure(Exception):
    """What a handler of calls raises, so that the call fails with a code and a detail."""

    def __init__(self, failure_code: int, detail: "str | bytes" = b"") -> None:
        super().__init__(failure_code, detail)
        self.failure_code = failure_code
        self.detail = detail.encode() if isinstance(detail, str) else detail


_CLASSES: dict[int, tuple[type[Error], int]] = {
    1: (ForkedError, _errno.EBADF),
    4: (TimedOut, _errno.ETIMEDOUT),
    5: (WouldBlock, _errno.EAGAIN),
    6: (WouldBlock, _errno.EAGAIN),
    7: (WouldBlock, _errno.EAGAIN),
    8: (BusyError, _errno.EAGAIN),
    9: (Closed, _errno.EPIPE),
    10: (Disconnected, _errno.ECONNRESET),
    11: (TooLarge, _errno.EMSGSIZE),
    12: (TooLarge, _errno.EMSGSIZE),
    13: (ConfigError, _errno.EINVAL),
    14: (Error, _errno.EINVAL),
    201: (HandshakeTimedOut, _errno.ETIMEDOUT),
    202: (HandshakeError, _errno.ECONNRESET),
    206: (HandshakeError, _errno.EACCES),
    301: (ConfigError, _errno.EINVAL),
    302: (ConfigError, _errno.ENAMETOOLONG),
    303: (ConfigError, _errno.EADDRNOTAVAIL),
    304: (ConfigError, _errno.EINVAL),
    305: (ConfigError, _errno.EINVAL),
    306: (Error, _errno.EMFILE),
    307: (Error, _errno.ENOMEM),
    311: (Error, _errno.EADDRINUSE),
    312: (Error, _errno.EEXIST),
    314: (DeniedError, _errno.EACCES),
    315: (NoDirectoryError, _errno.ENOENT),
    331: (ConnectTimedOut, _errno.ETIMEDOUT),
    332: (NoSocketError, _errno.ENOENT),
    333: (RefusedError, _errno.ECONNREFUSED),
    334: (ConnectError, _errno.ENOTSOCK),
    335: (DeniedError, _errno.EACCES),
    336: (ConnectError, _errno.EIO),
    401: (SessionClosed, _errno.ECONNABORTED),
    403: (GoingAway, _errno.ECONNREFUSED),
    404: (GoingAway, _errno.ECONNREFUSED),
    405: (TooLarge, _errno.EMSGSIZE),
    406: (StreamStopped, _errno.EPIPE),
    407: (StreamReset, _errno.ECONNRESET),
    408: (SendingEnded, _errno.EPIPE),
    409: (Error, _errno.ENOTCONN),
    411: (SessionClosed, _errno.ECONNABORTED),
    502: (LinkFenced, _errno.ESTALE),
    503: (LinkQuarantined, _errno.EUCLEAN),
    507: (LinkBusy, _errno.EBUSY),
    511: (ConfigError, _errno.EINVAL),
    512: (ConfigError, _errno.ENAMETOOLONG),
    521: (LinkFileError, _errno.ENOENT),
    527: (LinkBusy, _errno.EBUSY),
    528: (LinkBusy, _errno.EBUSY),
    529: (LinkFileError, _errno.ENOSPC),
    533: (OtherBoot, _errno.ESTALE),
    534: (OtherBoot, _errno.ENOENT),
    701: (NotARecord, _errno.EBADMSG),
    711: (CallFailed, _errno.EREMOTEIO),
    712: (CallRefused, _errno.EAGAIN),
    713: (CallAborted, _errno.ECANCELED),
    801: (ConfigError, _errno.EINVAL),
    802: (ConfigError, _errno.EINVAL),
    803: (ConfigError, _errno.EINVAL),
    804: (ConfigError, _errno.ENAMETOOLONG),
    811: (Error, _errno.EBUSY),
    812: (ConfigError, _errno.EINVAL),
    813: (ConfigError, _errno.EINVAL),
}


def _exception(code: int, text: str, errno: int | None) -> Error:
    """Makes the exception of the number ``code``."""
    kind, usual = _class_of(code)
    error = kind(errno if errno is not None else usual, text)
    error.code = code
    return error


def _class_of(code: int) -> tuple[type[Error], int]:
    """Returns the class of a number, and the errno if the system has reported none."""
    if code in _CLASSES:
        return _CLASSES[code]
    if 100 <= code < 200:
        return ProtocolError, _errno.ECONNABORTED
    if 200 <= code < 300:
        return HandshakeError, _errno.EPROTO
    if 500 <= code < 521:
        return LinkError, _errno.EIO
    if 521 <= code < 700:
        return LinkFileError, _errno.EIO
    if 721 <= code < 730:
        return ProtocolError, _errno.EBADMSG
    return Error, _errno.EIO
