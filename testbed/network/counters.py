"""What the kernel's interfaces and the switches' fault tables have counted of a real network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from testbed.dataplane import FAULT
from testbed.fabric.addressed import AddressedFabric
from testbed.network.nodes import Nodes

if TYPE_CHECKING:
    from testbed.control.remote.switch import RemoteSwitch


def sent_by(nodes: Nodes, names: Sequence[str]) -> int:
    """Packets that some nodes have sent, on all their cables."""
    return sum(packets for name in names for packets, _ in nodes.counters(name).values())


def link_packets(topology: AddressedFabric, nodes: Nodes) -> npt.NDArray[np.uint64]:
    """Packets put on each directed fabric link so far: uint64[n_links]."""
    names = topology.switch_names
    counts = [nodes.counters(name) for name in names]
    ends = zip(topology.link_src.tolist(), topology.link_src_port.tolist(), strict=True)
    return np.array(
        [counts[switch][f"{names[switch]}-eth{port}"][0] for switch, port in ends], np.uint64
    )


def fault_drops(topology: AddressedFabric, controls: list[RemoteSwitch]) -> npt.NDArray[np.uint64]:
    """Packets that the P4 fault tables dropped at each directed link: uint64[n_links]."""
    from testbed.control.switch import for_each

    every_port = range(1, topology.n_ports + 1)
    counts = for_each(controls, lambda c: c.counter(FAULT.dropped, every_port))
    ports = zip(topology.link_src, topology.link_src_port, strict=True)
    return np.array([counts[s]["packets"][p] for s, p in ports], np.uint64)
