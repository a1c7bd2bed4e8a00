# SPDX-License-Identifier: MIT OR Apache-2.0
"""Links: pairs of named streams of messages that outlive connections and processes.

Each end keeps a message that it sent, in a file of its own, until the other has acknowledged it.
Kill either, and start it again: both go on where they were, without gap and without repeat::

    client = Client("alice", "/var/lib/alice")
    with client.connect("unix:/run/bob.sock", "bob", "orders") as link:  # does not wait for bob
        link.send(b"buy 5")                                              # kept from here on
        link.wait_acked()

The other end serves links by name::

    with Server("unix:/run/bob.sock", "bob", "/var/lib/bob") as server, server.accept() as link:
        for message in link:
            work(message)
            message.ack()

A file that another boot has left unclosed is refused: ``Config(after_reboot="adopt_proven")`` goes
on with what is provable, and ``Link.events`` says that messages may be lost or come again.
"""

from ._native import Link
from ._native import LinkClient as Client
from ._native import LinkConfig as Config
from ._native import LinkEvent as Event
from ._native import LinkGroup as Group
from ._native import LinkMessage as Message
from ._native import LinkPosition as Position
from ._native import LinkReport as Report
from ._native import LinkServer as Server
from ._native import LinkStats as Stats
from ._native import LinkStatus as Status
from ._native import LoginRequest

__all__ = [
    "Client",
    "Config",
    "Event",
    "Group",
    "Link",
    "LoginRequest",
    "Message",
    "Position",
    "Report",
    "Server",
    "Stats",
    "Status",
]
