# SPDX-License-Identifier: Apache-2.0
"""`make bench-net`: what TCP gets through each kind of switch, between two pods."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from testbed.network.mininet import MininetNetwork
from testbed.network.network import NetworkError
from testbed.network.processes import ProcessError
from testbed.network.requirements import missing
from testbed.network.switches import Backend
from testbed.traffic.iperf import need_iperf
from testbed.traffic.sockets import TcpSockets
from tests.testbed.network.mininet.conftest import bring_up, wait_until

SERVER, CLIENT, ADDRESS = "h3_1_1", "h0_0_0", "10.3.1.3"
SECONDS = 8
STREAMS = (1, 4)
BAR = 5.0


def throughput(net: MininetNetwork, streams: int) -> tuple[float, int]:
    """Mb/s that arrived, and segments sent again."""
    sockets = TcpSockets(net.host_pids())
    server = net.host(SERVER).popen(["iperf3", "-s", "-1", "-4"], stdout=subprocess.DEVNULL)
    wait_until(lambda: 5201 in sockets.listening(net.topology.host_names.index(SERVER)))
    sockets.close()
    command = ["iperf3", "-4", "-c", ADDRESS, "-t", str(SECONDS), "-O", "1", "--json"]
    client = net.host(CLIENT).popen([*command, "-P", str(streams)], stdout=subprocess.PIPE)
    out, _ = client.communicate(timeout=60)
    server.wait(timeout=60)
    result = json.loads(out)
    if "error" in result:
        raise NetworkError(f"iperf3: {result['error']}")
    end = result["end"]
    return end["sum_received"]["bits_per_second"] / 1e6, end["sum_sent"]["retransmits"]


def measure(backend: Backend) -> list[tuple[float, int]]:
    """Throughput and retransmissions for each number of streams."""
    with tempfile.TemporaryDirectory() as folder, bring_up(Path(folder), backend) as net:
        return [throughput(net, streams) for streams in STREAMS]


def main() -> int:
    console = Console(highlight=False)
    try:
        if reason := missing("softswitch"):
            raise NetworkError(reason)
        need_iperf()
        with console.status("soft switch ..."):
            soft = measure("softswitch")
        absent = missing("bmv2")
        with console.status("BMv2 ..."):
            bmv2 = None if absent else measure("bmv2")
    except (NetworkError, ProcessError) as error:
        print(f"bench-net: {' '.join(str(error).split())}", file=sys.stderr)
        return 2

    table = Table(title=f"TCP from {CLIENT} to {SERVER}, 5 switches, {SECONDS} s")
    table.add_column("streams", justify="right")
    for name in ("soft switch", "BMv2"):
        table.add_column(f"{name}, Mb/s", justify="right", style="cyan")
        table.add_column("resent", justify="right", style="dim")
    table.add_column("ratio", justify="right")
    ratios = []
    for row, streams in enumerate(STREAMS):
        mine, resent = soft[row]
        cells = [str(streams), f"{mine:.1f}", f"{resent}"]
        if bmv2 is None:
            cells += ["-", "-", "-"]
        else:
            theirs, theirs_resent = bmv2[row]
            ratios.append(mine / theirs)
            colour = "green" if ratios[-1] >= BAR else "red"
            ratio = f"[bold {colour}]{ratios[-1]:.1f}[/]"
            cells += [f"{theirs:.1f}", f"{theirs_resent}", ratio]
        table.add_row(*cells)
    console.print(table)
    if bmv2 is None:
        console.print(f"[yellow]BMv2 skipped:[/] {absent}")
        return 0
    met = min(ratios) >= BAR
    verdict = "[green]met[/]" if met else "[red]missed[/]"
    console.print(f"bar: soft switch at least {BAR:g} x BMv2: {verdict}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
