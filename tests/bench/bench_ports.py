# SPDX-License-Identifier: Apache-2.0
"""Packets a second and latency through one switch's real ports, of the soft switch and of BMv2.

``python -m tests.bench.bench_ports`` (root). The Canary program with one route; frames of 64 and
1,500 bytes come in by one veth pair as fast as they can be sent and leave by another; for the
latency one frame at a time. The switch's processor time does not depend on what else runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL, c_char_p, c_double, c_int, c_int64, c_uint32, c_void_p
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from canary_softswitch.compiler.build import load_library, read_c
from testbed.softswitch.tests.server.client import Client, Process
from testbed.softswitch.tests.server.frames import udp
from testbed.softswitch.tests.server.test_thrift import free_port
from testbed.softswitch.tests.server.wires import Wire, attach

SECONDS = 4.0
SIZES = (64, 1500)
FRAMES = 5000
RUNS = 3


@contextmanager
def bmv2(wires: list[Wire]) -> Iterator[tuple[str, int]]:
    """P4Runtime's address and the process of a simple_switch_grpc."""
    address = f"127.0.0.1:{free_port()}"
    command = ["simple_switch_grpc", "--no-p4", *attach(wires), "--thrift-port", str(free_port())]
    process = subprocess.Popen(
        [*command, "--", "--grpc-server-addr", address, "--cpu-port", "100"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        time.sleep(2)
        yield address, process.pid
    finally:
        process.kill()
        process.wait()


@contextmanager
def soft(wires: list[Wire]) -> Iterator[tuple[str, int]]:
    """P4Runtime's address and the process of a soft switch."""
    with Process("--no-p4", *attach(wires), target=("--cpu-port", "100")) as p:
        yield p.grpc, p.popen.pid


def received(wire: Wire) -> int:
    return int(Path(f"/sys/class/net/{wire.host}/statistics/rx_packets").read_text())


def until_still(wire: Wire) -> None:
    """What was on its way has come."""
    before = -1
    while (now := received(wire)) != before:
        before = now
        time.sleep(1)


def processor_s(pid: int) -> float:
    """What a process has had of the processors."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def measure(kind, library) -> list[float]:
    """Packets a second of each size, processor time of each in us, then the latency's median and
    99.9 % in us."""
    wires = [Wire(), Wire()]
    try:
        with kind(wires) as (address, pid), Client(address) as client:
            client.configure()
            client.write(("insert", client.route(0x0A000000, 8, 2)))
            source, sink = (w.host.encode() for w in wires)
            rates: list[float] = []
            costs: list[float] = []
            for size in SIZES:
                frame = udp(size=size - 14)
                sender = threading.Thread(
                    target=library.flood, args=(source, frame, len(frame), SECONDS + 1)
                )
                sender.start()
                time.sleep(0.5)
                start, before, spent = time.monotonic(), received(wires[1]), processor_s(pid)
                time.sleep(SECONDS)
                passed, took = received(wires[1]) - before, time.monotonic() - start
                rates.append(passed / took)
                costs.append((processor_s(pid) - spent) / max(1, passed) * 1e6)
                sender.join()
                until_still(wires[1])
            frame = np.frombuffer(bytearray(udp(size=SIZES[0] - 14)), np.uint8)
            times = np.zeros(FRAMES, np.int64)
            library.pass_each(
                source, sink, frame.ctypes.data, len(frame), times.ctypes.data, FRAMES
            )
            good = times[times > 0] / 1000
            return [*rates, *costs, float(np.median(good)), float(np.quantile(good, 0.999))]
    finally:
        for w in wires:
            w.close()


def flood_library() -> CDLL:
    """The functions of flood.c, which send and receive frames."""
    return load_library(
        read_c(Path(__file__).with_name("flood.c")),
        {
            "flood": (c_int64, c_char_p, c_char_p, c_uint32, c_double),
            "pass_each": (c_int, c_char_p, c_char_p, c_void_p, c_uint32, c_void_p, c_uint32),
        },
    )


def main() -> int:
    console = Console(highlight=False, width=130)
    library = flood_library()
    columns = [f"{s} B, {what}" for what in ("packets/s", "us/packet") for s in SIZES]
    table = Table("", *columns, "latency median, us", "99.9 %, us")
    kinds = {"soft switch": soft}
    if shutil.which("simple_switch_grpc"):
        kinds["simple_switch_grpc"] = bmv2
    for name, kind in kinds.items():
        runs = np.array([measure(kind, library) for _ in range(RUNS)])
        n = len(SIZES)
        best = [*runs[:, :n].max(axis=0), *runs[:, n:].min(axis=0)]
        table.add_row(name, *(f"{x:,.0f}" for x in best[:n]), *(f"{x:,.2f}" for x in best[n:]))
    console.print(table)
    console.print(f"the best of {RUNS} runs each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
