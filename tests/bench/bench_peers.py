# SPDX-License-Identifier: Apache-2.0
"""`make bench-peers`: packet-hops a second of processor, here, in ns-3 and in BMv2.

The same fat-tree, flows and losses: a hop is a packet that arrives at a switch. The soft switches
run the Canary program with all rules of a default run, whose probes and traceroutes are in the
network, too; ns-3 forwards the data by IP with ECMP and does nothing else. ns-3 is that of PyPI's
wheel, which ``--ns3 FOLDER`` names, unpacked (`pip install --no-deps --target FOLDER ns3`); a small
C++ program is compiled against it. BMv2, where ``simple_switch_grpc`` is installed and the user is
root, forwards one flow through one switch with the Canary program.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import Mock, patch

import numpy as np
from rich.console import Console

from scenarios.experiment import loop
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import Inputs, inputs_of, layout_of
from scenarios.experiment.observer import Observer
from scenarios.experiment.settings import make_settings
from scenarios.experiment.setup import set_up
from testbed.fabric.packet_fabric import PacketFabric
from testbed.faults.plan import FaultPlan
from testbed.network.virtual import VirtualNetwork
from testbed.traffic.demand import make_traffic
from testbed.traffic.flows import Traffic

SETTINGS = {"backend": "virtual", "threads": 1, "k": 4, "epochs": 2}


def here(inputs: Inputs) -> tuple[int, int, float]:
    """Return packets that arrived at switches and at hosts, and processor seconds, of a run in
    virtual time, of its network alone; with the data flow probes and traceroutes."""
    spent = 0.0
    run_until = VirtualNetwork._run

    def timed(network: VirtualNetwork, time_ns: int) -> None:
        nonlocal spent
        start = time.process_time()
        run_until(network, time_ns)
        spent += time.process_time() - start

    with (
        patch.object(VirtualNetwork, "_run", timed),
        patch.object(loop, "record", lambda *args: None),
        tempfile.TemporaryDirectory() as folder,
        open_backend(inputs, Path(folder)) as backend,
    ):
        emulation = set_up(inputs, backend)
        loop.run(emulation, Mock(), Observer())
        found = emulation.network.statistics
    return found.packet_hops, found.delivered, spent


def write_input(topology: PacketFabric, plan: FaultPlan, traffic: Traffic, path: Path) -> None:
    """Write what peers_ns3.cc reads."""
    loss = np.zeros(topology.n_links)
    for fault in plan.faults:
        loss[fault.link] = 1.0 if fault.rate is None else fault.rate
    hosts = np.arange(topology.n_hosts)
    up, down = slice(0, None, 2), slice(1, None, 2)
    fabric = np.column_stack([topology.link_src[up], topology.link_dst[up], loss[up], loss[down]])
    zero = np.zeros(len(hosts))
    access = np.column_stack([topology.n_switches + hosts, topology.host_tor, zero, zero])
    flow = traffic.flow
    packets = np.column_stack(
        [traffic.time_ns, traffic.src_host[flow], traffic.dst_host[flow], flow, traffic.size]
    )
    with path.open("w") as file:
        counts = topology.n_switches, len(hosts), len(fabric) + len(access), len(packets)
        file.write(" ".join(map(str, counts)) + "\n")
        np.savetxt(file, np.concatenate([fabric, access]), "%d %d %.9g %.9g")
        np.savetxt(file, packets, "%d")


def ns3(folder: Path, source: Path, work: Path) -> tuple[int, int, float]:
    """Return the same of ns-3, whose wheel is unpacked in ``folder``."""
    root = next(folder.rglob("core-module.h")).parent.parent
    libraries = next(folder.rglob("libns3*-core.so")).parent
    names = ["core", "network", "internet", "point-to-point"]
    found = [next(libraries.glob(f"libns3*-{name}.so")) for name in names]
    program = work / "peers"
    search = [libraries, *(path for path in folder.iterdir() if path.name.endswith(".libs"))]
    subprocess.run(
        [
            *("g++", "-std=c++20", "-O2", f"-I{root}", "-o", str(program)),
            *(str(Path(__file__).with_name("peers_ns3.cc")), *map(str, found)),
            *("-Wl,--allow-shlib-undefined", *(f"-Wl,-rpath,{path}" for path in search)),
        ],
        check=True,
    )
    paths = os.pathsep.join(map(str, search))
    told = subprocess.run(
        [str(program), str(source)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={**os.environ, "LD_LIBRARY_PATH": paths},
    ).stdout.split()
    return int(told[0]), int(told[1]), float(told[2])


def bmv2() -> float:
    """Return the processor time of a packet of 64 bytes in BMv2, in seconds."""
    from tests.bench import bench_ports

    library = bench_ports.flood_library()
    costs = [bench_ports.measure(bench_ports.bmv2, library)[2] for _ in range(bench_ports.RUNS)]
    return min(costs) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ns3", type=Path, help="where the wheel of ns-3 is unpacked")
    chosen = parser.parse_args()
    console = Console(highlight=False, width=120)
    settings = make_settings(SETTINGS)
    layout = layout_of(settings)
    topology = layout.fabric
    assert isinstance(topology, PacketFabric)
    plan = layout.plan
    traffic, _ = make_traffic(layout.demand, topology, lambda share: None)
    console.print(
        f"K={settings.k}, {len(plan.faults)} faulty links, {len(traffic.time_ns):,} packets of "
        "data, one thread:"
    )

    def say(name: str, hops: int, delivered: int, spent: float) -> None:
        """Print one line of the table."""
        console.print(
            f"  {name:12} {hops:10,} packet-hops, {delivered:9,} packets delivered, "
            f"{spent:7.2f} s of processor, {hops / spent / 1e6:6.3f} M hops a second"
        )

    say("here", *here(inputs_of(layout, traffic)))
    if chosen.ns3 is None:
        console.print("  ns-3: skipped, --ns3 names no folder (NS3=FOLDER make bench-peers)")
    else:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "input"
            write_input(topology, plan, traffic, source)
            say("ns-3", *ns3(chosen.ns3.absolute(), source, Path(folder)))
    if shutil.which("simple_switch_grpc") and os.geteuid() == 0:
        console.print(f"  BMv2         {1 / bmv2() / 1e6:.3f} M packets a second of processor")
    else:
        console.print("  BMv2: skipped, it needs simple_switch_grpc and root")
    return 0


if __name__ == "__main__":
    sys.exit(main())
