#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Compares two `partywall proxy` in front of redis with two haproxy; README.md says how."""

import argparse
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

LOADS = {
    "one": ["-c", "1", "-d", "3"],
    "clients": ["-c", "50", "-d", "3"],
    "pipeline": ["-c", "50", "-d", "3", "-P", "16"],
    "large": ["-c", "50", "-d", "65536"],
}
# Number of requests that each kind of load sends, as a multiple of the number in --requests.
SHARES = {"one": 0.25, "clients": 1, "pipeline": 4, "large": 0.2}

# The proxies to which all others are compared: haproxy with a thread for each processor.
BASELINE = "haproxy"

HAPROXY = """
global
{threads}    maxconn 4000
defaults
    mode tcp
    option tcp-smart-connect
    timeout connect 10s
    timeout client 1h
    timeout server 1h
listen hop
    bind {listen}
    server next {to}
"""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until_answers(port, deadline=20):
    """Waits until redis answers at the port, directly or behind proxies."""
    end = time.monotonic() + deadline
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as client:
                client.sendall(b"PING\r\n")
                if client.recv(64).startswith(b"+PONG"):
                    return
        except OSError:
            pass
        if time.monotonic() > end:
            sys.exit(f"nothing answers at port {port}")
        time.sleep(0.02)


def processor_seconds(process):
    """The processor time that all threads of a process have used, in seconds."""
    total = 0
    for thread in os.listdir(f"/proc/{process.pid}/task"):
        with open(f"/proc/{process.pid}/task/{thread}/schedstat", encoding="ascii") as stat:
            total += int(stat.read().split()[0])
    return total / 1e9


class Run:
    """The processes of one run, which end with it."""

    def __init__(self):
        self.directory = tempfile.TemporaryDirectory(prefix="sidecar-")
        self.processes = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
        self.directory.cleanup()

    def start(self, *command):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.processes.append(process)
        return process

    def path(self, name):
        return os.path.join(self.directory.name, name)

    def redis(self):
        port = free_port()
        server = self.start("redis-server", "--port", str(port), "--save", "", "--appendonly", "no",
                   "--dir", self.directory.name)
        wait_until_answers(port)
        return port, server

    def haproxy(self, threads, redis):
        port, hop = free_port(), self.path(f"haproxy-{threads}.sock")
        parts = [("exit", f"unix@{hop}", f"127.0.0.1:{redis}"),
                 ("entry", f"127.0.0.1:{port}", f"unix@{hop}")]
        # Without the setting `nbthread`, haproxy starts a thread for each processor.
        setting = f"    nbthread {threads}\n" if threads else ""
        started = []
        for name, listen, to in parts:
            config = self.path(f"{name}-{threads}.cfg")
            with open(config, "w", encoding="ascii") as file:
                file.write(HAPROXY.format(threads=setting, listen=listen, to=to))
            started.append(self.start("haproxy", "-db", "-f", config))
        wait_until_answers(port)
        return port, started

    def partywall(self, executable, index, redis):
        port, hop = free_port(), self.path(f"{index}.shm")
        started = [
            self.start(executable, "proxy", "--quiet", "--listen", f"unix:{hop}",
                       "--to", f"tcp:127.0.0.1:{redis}"),
            self.start(executable, "proxy", "--quiet", "--listen", f"tcp:127.0.0.1:{port}",
                       "--to", f"unix:{hop}"),
        ]
        wait_until_answers(port)
        return port, started


def measure(port, proxies, redis, load, requests):
    """Returns the requests per second, and the processor seconds per request: those of the proxies,
    and those of redis and its clients."""
    count = max(1000, int(requests * SHARES[load]))
    before = [processor_seconds(process) for process in [redis, *proxies]]
    clients = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["redis-benchmark", "-p", str(port), "-t", "set", "-n", str(count), "--csv"]
    output = subprocess.run(command + LOADS[load], check=True, capture_output=True, text=True).stdout
    after = [processor_seconds(process) for process in [redis, *proxies]]
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    ends = after[0] - before[0] + sum(ended[:2]) - sum(clients[:2])
    used = sum(after[1:]) - sum(before[1:])
    rate = float(output.strip().splitlines()[-1].split(",")[1].strip('"'))
    return rate, used / count, ends / count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("executables", nargs="+", help="partywall, in one or more versions")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--loads", nargs="+", default=list(LOADS), choices=list(LOADS))
    arguments = parser.parse_args()
    figures = {}
    with Run() as run:
        redis, server = run.redis()
        contenders = {BASELINE: run.haproxy(None, redis), "haproxy, 1 thread": run.haproxy(1, redis)}
        for index, executable in enumerate(arguments.executables):
            contenders[executable] = run.partywall(executable, index, redis)
        for load in arguments.loads:
            for _ in range(arguments.rounds):
                for name, (port, proxies) in contenders.items():
                    figure = measure(port, proxies, server, load, arguments.requests)
                    figures.setdefault((load, name), []).append(figure)
    table(figures)


def table(figures):
    """Prints the medians over the rounds, and those of the ratios to haproxy, with the range of the
    first ratio."""
    print(f"{'load':<10} {'proxies':<30} {'requests/s':>10} {'÷ haproxy':>18}", end="")
    print(f" {'proxies, µs':>12} {'÷':>5} {'ends, µs':>9} {'÷':>5}")
    for (load, name), own in figures.items():
        medians, ratios = [], []
        for mine, theirs in zip(zip(*own), zip(*figures[load, BASELINE])):
            medians.append(statistics.median(mine))
            ratios.append(sorted(a / b for a, b in zip(mine, theirs)))
        rate, proxies, ends = medians
        more, less, other = (statistics.median(column) for column in ratios)
        spread = f"{more:.2f} ({ratios[0][0]:.2f}–{ratios[0][-1]:.2f})"
        print(f"{load:<10} {name[-30:]:<30} {rate:>10.0f} {spread:>18}", end="")
        print(f" {proxies * 1e6:>12.2f} {less:>5.2f} {ends * 1e6:>9.2f} {other:>5.2f}")


if __name__ == "__main__":
    main()
