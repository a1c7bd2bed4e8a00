# SPDX-License-Identifier: MIT OR Apache-2.0
"""Records that a full channel may drop: logs and samples on their way to an agent.

The application never waits for the agent, unless ``on_full`` is a number of seconds::

    log = Sender(partywall.connect("unix:/run/agent.sock", partywall.Config(begin="shm")))
    log.log(b"started")

The agent learns how many records were lost, and where::

    for record in Receiver(listener.accept()):
        print(record.lost_before, bytes(record))
"""

from ._native import LossyReceiver as Receiver
from ._native import LossySender as Sender
from ._native import LossyStats as Stats
from ._native import Record

__all__ = ["Receiver", "Record", "Sender", "Stats"]
