"""Two switches and one link between them: the smallest network with a path segment.

Canary's sections IV-B, IV-C, IV-F and IV-G measure there. Both are ToRs with a host each; that the
second stands a tier above the first gives the link its ways up and down, and probes their turn.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.fabric.packet_fabric import PacketFabric

_LINK = 2  # a switch's port, the host's is 1


class TwoSwitches(PacketFabric):
    """``tor0`` with host ``h0`` and ``tor1`` with ``h1``; link 0 leads up, 1 down.

    >>> network = TwoSwitches()
    >>> network.link_names, network.host_names
    (['tor0->tor1', 'tor1->tor0'], ['h0', 'h1'])

    >>> network.n_links, network.n_hosts, len(network.segments("tor"))
    (2, 2, 2)
    """

    n_ports = 2

    def __init__(self) -> None:
        one = np.ones(1, np.int32)
        super().__init__(
            ["tor0", "tor1"],
            np.array([0, 1]),
            np.zeros(1, np.int32),
            one,
            n_tors=2,
            title="a network of two switches",
        )

    @cached_property
    def host_names(self) -> list[str]:
        """Return the names of both hosts."""
        return ["h0", "h1"]

    @cached_property
    def switch_ip(self) -> npt.NDArray[np.uint32]:
        """Return the switches' IPv4 addresses 10.0.0.1 and 10.1.0.1 as integers, uint32[2]."""
        return np.array([0x0A000001, 0x0A010001], np.uint32)

    @cached_property
    def link_src_port(self) -> IntArray:
        """Return the port where each directed link begins, int32[2]."""
        return np.full(2, _LINK, np.int32)

    @cached_property
    def link_dst_port(self) -> IntArray:
        """Return the port where each directed link ends, int32[2]."""
        return np.full(2, _LINK, np.int32)
