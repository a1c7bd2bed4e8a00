# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lines over a link, which survives kill -9 of either side.

``link.py recv ADDRESS DIRECTORY`` prints lines; ``link.py send ADDRESS DIRECTORY`` sends those of
its standard input. Kill either and start it again: each line that was sent is received.
"""

import os
import sys

from partywall import links


def send(address: str, directory: str) -> None:
    client = links.Client("sender", directory)
    with client.connect(address, "receiver", "lines") as link:
        for line in sys.stdin.buffer:
            link.send(line)  # kept in the directory from here on
        link.wait_acked()


def recv(address: str, directory: str) -> None:
    with links.Server(address, "receiver", directory) as server, server.accept() as link:
        for line in link:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            line.ack()  # a line that was not acknowledged comes again after a kill


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["send", address, directory]:
            act = send
        case ["recv", address, directory]:
            act = recv
        case _:
            sys.exit(__doc__)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    act(address, directory)
