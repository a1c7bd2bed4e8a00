# SPDX-License-Identifier: MIT OR Apache-2.0
"""The protocol shmipc, versions 2 and 3: sessions with programs of shmipc-go, in both roles.

A listener that is given the protocol serves its clients, and those of Partywall as before::

    with sessions.Listener("unix:/run/app.sock", shmipc=Shmipc()) as listener:
        for session in listener:
            ...

The other way round, a session is opened with a server of shmipc::

    with sessions.connect("unix:/run/old.sock", shmipc=Shmipc()) as session:
        ...

``partywall.aio`` takes the same argument.
"""

from ._native import Shmipc

__all__ = ["Shmipc"]
