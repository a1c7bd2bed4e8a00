# SPDX-License-Identifier: MIT OR Apache-2.0
"""A log agent, which the application never waits for.

``log_agent.py agent ADDRESS`` prints records, and how many were lost where;
``log_agent.py app ADDRESS COUNT`` logs so many lines from four threads.
"""

import sys
import threading

import partywall
from partywall import lossy


def agent(address: str) -> None:
    # The agent looks for records every 10 ms, so the application never has to wake it.
    with partywall.Listener(address, partywall.Config(wait=0.01)) as listener:
        records = lossy.Receiver(listener.accept())
    for record in records:
        if record.lost_before:
            print(f"... {record.lost_before} records lost ...")
        print(bytes(record).decode())
    print(f"{records.received} records received, {records.lost} lost")


def app(address: str, count: int) -> None:
    log = lossy.Sender(partywall.connect(address, partywall.Config(begin="shm")))

    def work(thread: int) -> None:
        for line in range(count // 4):
            log.log(f"thread {thread}: line {line}".encode())

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.flush(timeout=10)
    print(f"{log.stats().sent} lines sent, {log.stats().dropped} dropped")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["agent", address]:
            agent(address)
        case ["app", address, count]:
            app(address, int(count))
        case _:
            sys.exit(__doc__)
