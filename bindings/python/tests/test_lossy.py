# SPDX-License-Identifier: MIT OR Apache-2.0
"""Lossy records: policies for a full channel, counts, ends."""

import threading
import time

import partywall
import pytest
from conftest import DEADLINE, make_pair
from partywall import lossy


def test_records_arrive_with_the_number_lost_before_them(address: str) -> None:
    client, server = make_pair(address, memory_max=1 << 20, ring_bytes=4096, inline_max=512)
    log, records = lossy.Sender(client), lossy.Receiver(server)
    outcomes = [log.log(b"record %d" % number) for number in range(1000)]
    kept = outcomes.index("full")
    assert set(outcomes) == {"sent", "full"}
    for number in range(kept):
        record = records.recv(DEADLINE)
        assert record is not None and record == b"record %d" % number
        assert record.lost_before == 0
    assert log.log(b"after the losses") == "sent"
    record = records.recv(DEADLINE)
    assert record is not None
    stats = log.stats()
    assert record.lost_before == stats.dropped == stats.dropped_full == 1000 - kept
    assert (stats.sent, stats.queued) == (kept + 1, 0)
    assert (records.received, records.lost) == (kept + 1, 1000 - kept)
    with pytest.raises(partywall.WouldBlock):
        records.recv(0)
    with pytest.raises(partywall.TimedOut):
        records.recv(0.001)


def test_queue_keeps_the_latest_records(address: str) -> None:
    client, server = make_pair(address, memory_max=1 << 20, ring_bytes=4096, inline_max=512)
    log = lossy.Sender(client, "drop_oldest", queue_records=3)
    while log.log(b"early") == "sent":
        pass
    for number in range(10):
        assert log.log(b"late %d" % number) == "queued"
    assert log.stats().queued == 3
    records = lossy.Receiver(server)
    seen: list[bytes] = []

    def receive() -> None:
        seen.extend(bytes(record) for record in records)

    receiving = threading.Thread(target=receive)
    receiving.start()
    log.flush(DEADLINE)
    assert log.log(b"last", DEADLINE) == "sent"
    del log
    receiving.join(DEADLINE)
    assert not receiving.is_alive()
    assert seen[-4:] == [b"late 7", b"late 8", b"late 9", b"last"]


def test_policy_that_waits_drops_after_its_time(address: str) -> None:
    client, _server = make_pair(address, memory_max=1 << 20, ring_bytes=4096, inline_max=512)
    log = lossy.Sender(client, 0.001)
    outcomes = {log.log(b"") for _ in range(200)}
    assert outcomes == {"sent", "full"}
    assert log.log(bytes(64 << 20)) == "too_large"
    with pytest.raises(partywall.TimedOut):
        log.flush(0.001)
    log.try_flush()


def test_agent_that_polls_and_its_end_are_noticed(address: str) -> None:
    client, server = make_pair(address, wait=0.001)
    log, records = lossy.Sender(client), lossy.Receiver(server)
    log.log(b"found by polling")
    record = records.recv(DEADLINE)
    assert record is not None and bytes(record) == b"found by polling"
    with pytest.raises(partywall.TimedOut):
        records.recv(0.01)
    del records
    until = time.monotonic() + DEADLINE
    while log.log(b"nobody") != "closed" and time.monotonic() < until:
        pass
    assert log.is_closed and log.stats().dropped_closed >= 1


def test_other_messages_are_no_records(address: str) -> None:
    client, server = make_pair(address)
    records = lossy.Receiver(server)
    client.send(b"no header")
    with pytest.raises(partywall.NotARecord) as wrong:
        records.recv(DEADLINE)
    assert wrong.value.code == 701
    with pytest.raises(ValueError):
        server.recv(0)
    with pytest.raises(ValueError):
        lossy.Sender(client, "drop_all")  # type: ignore[arg-type]
