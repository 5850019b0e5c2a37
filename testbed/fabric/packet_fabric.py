# SPDX-License-Identifier: Apache-2.0
"""Fabrics for emulated packets: a Clos with hosts, ports and addresses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.segments import Segments, segments


class PacketFabric(Fabric, ABC):
    """A fabric that has hosts, ports and addresses besides switches and links.

    Ports count from 1, those of hosts first. Every switch has an IPv4 address, every ToR a prefix
    of 24 bits for its hosts.

    Attributes:
        n_ports: The most ports that a switch has.
        bouncing: The switches of the highest tier, where NetBouncer's probes turn, int32[].
    """

    n_ports: int

    @cached_property
    @abstractmethod
    def host_names(self) -> list[str]:
        """Return the name of each host, in the order of host indices."""

    @cached_property
    @abstractmethod
    def switch_ip(self) -> npt.NDArray[np.uint32]:
        """Return the IPv4 address of each switch as an integer, uint32[n_switches]."""

    @cached_property
    @abstractmethod
    def link_src_port(self) -> IntArray:
        """Return the port where each directed link begins, int32[n_links]."""

    @cached_property
    @abstractmethod
    def link_dst_port(self) -> IntArray:
        """Return the port where each directed link ends, int32[n_links]."""

    @cached_property
    def bouncing(self) -> IntArray:
        """Return the switches of the highest tier, where NetBouncer's probes turn, int32[]."""
        return np.flatnonzero(self.tier == self.tier.max()).astype(np.int32)

    @cached_property
    def host_tor(self) -> IntArray:
        """Return the ToR switch of each host, int32[n_hosts]."""
        return np.repeat(np.arange(self.n_tors, dtype=np.int32), self.hosts_per_tor)

    @cached_property
    def host_port(self) -> IntArray:
        """Return the port of its ToR that each host is connected to, int32[n_hosts]."""
        return np.tile(np.arange(1, self.hosts_per_tor + 1, dtype=np.int32), self.n_tors)

    @cached_property
    def host_ip(self) -> npt.NDArray[np.uint32]:
        """Return the IPv4 address of each host as an integer, uint32[n_hosts].

        The ToR's own address ends in .1, those of its hosts in .2, .3, ....
        """
        return self.switch_ip[self.host_tor] + self.host_port.astype(np.uint32)

    @cached_property
    def host_mac(self) -> npt.NDArray[np.uint64]:
        """Return the MAC address of each host as an integer, uint64[n_hosts].

        It is locally administered: 02:00 followed by the four bytes of the IPv4 address.
        """
        return np.uint64(0x0200 << 32) | self.host_ip.astype(np.uint64)

    @cached_property
    def switch_mac(self) -> npt.NDArray[np.uint64]:
        """Return the MAC address of each switch, made as of `host_mac`, uint64[n_switches]."""
        return np.uint64(0x0200 << 32) | self.switch_ip.astype(np.uint64)

    def hops(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        """Return the number of links of a path between ToRs (int[N] each) of different racks.

        int64[N]; all paths of a pair are equally long.
        """
        tier = self.tier.astype(np.int64)
        together = self.pod[src_tor] == self.pod[dst_tor]
        turn = np.where(together, 1, tier.max())
        return 2 * turn - tier[src_tor] - tier[dst_tor]

    def segments(self, monitors: str = "tor+core", seed: int = 0) -> Segments:
        """Return every path segment between monitor switches.

        See `testbed.fabric.segments.segments`. The arguments are those of
        `testbed.fabric.monitors.monitor_switches`; ``seed`` is the number that draws shares.
        """
        return segments(Ecmp(self), monitor_switches(self, monitors, seed))


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
        """Return the names of both hosts, the first at each switch."""
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
