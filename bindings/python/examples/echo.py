# SPDX-License-Identifier: MIT OR Apache-2.0
"""Echo: ``echo.py serve ADDRESS`` in one terminal, ``echo.py send ADDRESS TEXT`` in another."""

import sys

import partywall


def serve(address: str) -> None:
    with partywall.Listener(address) as listener:
        for channel in listener:
            with channel:
                for message in channel:
                    channel.send(message)


def send(address: str, text: str) -> None:
    with partywall.connect(address) as channel:
        channel.send(text.encode())
        answer = channel.recv_bytes(timeout=5)
        print(answer.decode() if answer is not None else "the peer has finished")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve", address]:
            serve(address)
        case ["send", address, text]:
            send(address, text)
        case _:
            sys.exit(__doc__)
