"""Fabrics that packets can be sent through: a Clos with hosts, ports and addresses."""

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
    """A fabric with what a network of packets has besides switches and links.

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
        """The name of each host."""

    @cached_property
    @abstractmethod
    def switch_ip(self) -> npt.NDArray[np.uint32]:
        """uint32[n_switches]."""

    @cached_property
    @abstractmethod
    def link_src_port(self) -> IntArray:
        """The port where each directed link begins: int32[n_links]."""

    @cached_property
    @abstractmethod
    def link_dst_port(self) -> IntArray:
        """The port where each directed link ends: int32[n_links]."""

    @cached_property
    def bouncing(self) -> IntArray:
        return np.flatnonzero(self.tier == self.tier.max()).astype(np.int32)

    @cached_property
    def host_tor(self) -> IntArray:
        """The ToR switch of each host: int32[n_hosts]."""
        return np.repeat(np.arange(self.n_tors, dtype=np.int32), self.hosts_per_tor)

    @cached_property
    def host_port(self) -> IntArray:
        """The ToR's port of each host: int32[n_hosts]."""
        return np.tile(np.arange(1, self.hosts_per_tor + 1, dtype=np.int32), self.n_tors)

    @cached_property
    def host_ip(self) -> npt.NDArray[np.uint32]:
        """2, 3, ... of the ToR's prefix, whose 1 is the ToR's own: uint32[n_hosts]."""
        return self.switch_ip[self.host_tor] + self.host_port.astype(np.uint32)

    @cached_property
    def host_mac(self) -> npt.NDArray[np.uint64]:
        """Locally administered, 02:00 followed by the IPv4 address: uint64[n_hosts]."""
        return np.uint64(0x0200 << 32) | self.host_ip.astype(np.uint64)

    @cached_property
    def switch_mac(self) -> npt.NDArray[np.uint64]:
        return np.uint64(0x0200 << 32) | self.switch_ip.astype(np.uint64)

    def hops(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        """The links of any path between ToRs of different racks: int64[N]."""
        tier = self.tier.astype(np.int64)
        together = self.pod[src_tor] == self.pod[dst_tor]
        turn = np.where(together, 1, tier.max())
        return 2 * turn - tier[src_tor] - tier[dst_tor]

    def segments(self, monitors: str = "tor+core", seed: int = 0) -> Segments:
        """Return every path segment between monitor switches.

        See `testbed.fabric.segments.segments`; the arguments are those of
        `testbed.fabric.monitors.monitor_switches`.
        """
        return segments(Ecmp(self), monitor_switches(self, monitors, seed))
