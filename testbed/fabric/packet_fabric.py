# SPDX-License-Identifier: Apache-2.0
"""Fabrics for emulated packets: a Clos with hosts, ports and addresses."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np
import numpy.typing as npt

from testbed.arrays import IntArray, LongArray
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.directions import Directions
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.monitors import monitor_switches
from testbed.fabric.names import plain, shortened
from testbed.fabric.segments import Segments, segments
from testbed.fabric.uplink_groups import MOST_MEMBERS, UplinkGroups, uplink_groups


class PacketFabric(Fabric):
    """A fabric that has hosts, ports and addresses besides switches and links.

    Ports count from 1: those of hosts, then those of links down, then those of links up. Every
    switch has an IPv4 address, every ToR a prefix of 24 bits for its hosts.

    Attributes:
        pod_length: The bits of the prefix that a pod's addresses share; 0 if they share none.
        groups: The groups of uplinks that lead to different ToRs; None if a switch's uplinks all
            lead equally to all that are not below it.

    >>> from testbed.fabric.clos import leaf_spine
    >>> fabric = PacketFabric.of(leaf_spine(4, 2, oversubscription=2))
    >>> fabric.n_hosts, fabric.n_ports, fabric.host_names[:5]
    (16, 6, ['h0_0', 'h0_1', 'h0_2', 'h0_3', 'h1_0'])
    """

    pod_length = 0
    groups: UplinkGroups | None = None

    @classmethod
    def of(cls, fabric: Fabric) -> PacketFabric:
        """Return a Clos with ports and addresses.

        Raises:
            TopologyError: The switch program cannot forward its packets (one line).
        """
        found = cls(
            fabric.switch_names,
            fabric.tier,
            fabric.link_src[::2],
            fabric.link_dst[::2],
            hosts_per_tor=fabric.hosts_per_tor,
            n_tors=fabric.n_tors,
            title=fabric.title,
        )
        need_forwardable(found)
        found.groups = uplink_groups(found)
        return found

    @cached_property
    def switch_ip(self) -> npt.NDArray[np.uint32]:
        """Return the IPv4 address of each switch as an integer, uint32[n_switches].

        10.0.0.1, 10.0.1.1, ... for the ToRs, 10.128.0.1, 10.128.1.1, ... for all others.
        """
        number = np.arange(self.n_switches, dtype=np.uint32)
        higher = number >= self.n_tors
        number[higher] += np.uint32((1 << 15) - self.n_tors)
        return np.uint32(10 << 24) | number << np.uint32(8) | np.uint32(1)

    @cached_property
    def _edge_ports(self) -> tuple[IntArray, IntArray]:
        """Return the ports of each undirected link at its lower and at its upper switch, int32[]
        each."""
        lower, upper = self.link_src[::2], self.link_dst[::2]
        first = np.where(np.arange(self.n_switches) < self.n_tors, self.hosts_per_tor, 0) + 1
        down = np.bincount(upper, minlength=self.n_switches)
        at_lower = (first + down)[lower] + _count_before(lower)
        return at_lower.astype(np.int32), (first[upper] + _count_before(upper)).astype(np.int32)

    @cached_property
    def link_src_port(self) -> IntArray:
        """Return the port where each directed link begins, int32[n_links]."""
        lower, upper = self._edge_ports
        return np.stack((lower, upper), axis=1).reshape(-1)

    @cached_property
    def link_dst_port(self) -> IntArray:
        """Return the port where each directed link ends, int32[n_links]."""
        lower, upper = self._edge_ports
        return np.stack((upper, lower), axis=1).reshape(-1)

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

    @cached_property
    def directions(self) -> Directions:
        """Return where each switch sends packets to every other."""
        return Directions(self)

    def hops(
        self, src_tor: npt.NDArray[np.integer], dst_tor: npt.NDArray[np.integer]
    ) -> npt.NDArray[np.int64]:
        """Return the number of links of a path between ToRs (int[N] each) of different racks.

        int64[N]; all paths of a pair are equally long.
        """
        tier = self.tier.astype(np.int64)
        if self.groups is None:
            turn = np.where(self.pod[src_tor] == self.pod[dst_tor], 1, tier.max())
        else:  # not all ToRs of a pod may meet in it
            turn = self._turn[src_tor, dst_tor].astype(np.int64)
        return 2 * turn - tier[src_tor] - tier[dst_tor]

    @cached_property
    def _turn(self) -> npt.NDArray[np.int8]:
        """Return the tier where the paths of two ToRs turn, int8[n_tors, n_tors]."""
        return Ecmp(self).turn

    def segments(self, monitors: str = "tor+core", seed: int = 0) -> Segments:
        """Return every path segment between monitor switches.

        See `testbed.fabric.segments.segments`. The arguments are those of
        `testbed.fabric.monitors.monitor_switches`; ``seed`` is the number that draws shares.
        """
        return segments(Ecmp(self), monitor_switches(self, monitors, seed))


def _count_before(values: IntArray) -> LongArray:
    """Return how many equal values stand before each, int64[N]."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    found = np.empty(len(values), np.int64)
    found[order] = np.arange(len(values)) - np.searchsorted(ordered, ordered)
    return found


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,29}")  # names of files, nodes, interfaces
_MOST_TIERS = 3
_MOST_PORTS = 511  # of nine bits, the last is the drop port
_MOST_HOSTS = 253  # addresses of a rack besides its ToR's
_MOST_SWITCHES = 1 << 15  # of each kind, by the addresses


def need_forwardable(fabric: PacketFabric) -> None:
    """Check that the switch program can forward a fabric's packets.

    It knows one way down from a switch to a ToR, has numbers for so many ports, and chooses among
    so many uplinks.

    Raises:
        TopologyError: It cannot (one line).
    """
    title, tier = fabric.title, fabric.tier
    for name in fabric.switch_names:
        if not _NAME.fullmatch(name):
            raise TopologyError(
                f"{title}: on packets a switch's name has up to 30 letters, digits, '_', '.' and "
                f"'-', which {shortened(plain(name))!r} has not"
            )
    if fabric.n_tors > int((tier == 0).sum()):
        raise TopologyError(f"{title}: on packets every ToR is a switch of tier 0")
    if tier.max() >= _MOST_TIERS:
        raise TopologyError(f"{title} has {tier.max() + 1} tiers: packets need at most 3")
    for number, most, what in (
        (fabric.hosts_per_tor, _MOST_HOSTS, "hosts at a ToR"),
        (fabric.n_ports, _MOST_PORTS, "ports of a switch"),
        (fabric.n_switches, _MOST_SWITCHES, "switches"),
        (np.bincount(fabric.link_src[::2]).max(), MOST_MEMBERS, "uplinks of a switch"),
    ):
        if number > most:
            raise TopologyError(f"{title} has {number} {what}: packets need at most {most}")
    ecmp = Ecmp(fabric)
    if (ecmp.count > 1).any():
        tor, switch = np.argwhere(ecmp.count > 1)[0]
        names = fabric.switch_names
        raise TopologyError(
            f"{title} needs BACKEND=flow: there are several ways from {names[switch]} down to "
            f"{names[tor]}"
        )


class TwoSwitches(PacketFabric):
    """``tor0`` with host ``h0`` and ``tor1`` with ``h1``; link 0 leads up, 1 down.

    >>> network = TwoSwitches()
    >>> network.link_names, network.host_names
    (['tor0->tor1', 'tor1->tor0'], ['h0', 'h1'])

    >>> network.n_links, network.n_hosts, len(network.segments("tor"))
    (2, 2, 2)
    """

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
