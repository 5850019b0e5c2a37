# SPDX-License-Identifier: Apache-2.0
"""Forwarding: two-level prefixes down, ECMP up in the fat-tree (Al-Fares et al., SIGCOMM 2008).

The P4 program has tables of sizes that suit most fabrics, and a run of a larger one makes them as
large as `needed_entries` says (`testbed.dataplane.adapted`). The tables of a meter's rules keep
their size: it is part of Canary's memory budget, and `testbed.control.selection` refuses flows when
they are full.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from testbed.control.switch import Tables
from testbed.dataplane import HEAVY_HITTER, IDENTITY, ROUTING
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments


@dataclass
class Uplinks:
    """The ECMP group of a switch; ``members`` maps each uplink (a directed link) to its member."""

    control: Tables
    group: int
    members: dict[int, int]
    _drained: set[int] = field(default_factory=set)

    def drain(self, link: int) -> None:
        """Remove an uplink from the group; its flows move, and packets in flight still arrive."""
        self._drained.add(link)
        self._write()

    def undrain(self, link: int) -> None:
        """Add a drained uplink, a directed link's id, to the group again."""
        self._drained.remove(link)
        self._write()

    def _write(self) -> None:
        left = [member for link, member in self.members.items() if link not in self._drained]
        self.control.action_profile(ROUTING.selector).modify_group(self.group, left)


def install_forwarding(
    topology: PacketFabric,
    switch: int,
    control: Tables,
    mask: int,
    monitor: bool,
) -> Uplinks | None:
    """Install a switch's identity, routes and uplink group; return the group, or None without one.

    Args:
        topology: A fat-tree, or two switches.
        switch: Index of the switch.
        control: Its tables.
        mask: Its bits of pathBF (`testbed.fabric.pathbf.bloom_mask`).
        monitor: Whether it hosts meters.

    One table entry is written for each of `routes`.
    """
    own_ip, tier = int(topology.switch_ip[switch]), int(topology.tier[switch])
    control.table(IDENTITY.identity).set_default(
        IDENTITY.identify, (int(monitor), int(tier > 0), mask, own_ip)
    )
    table = control.table(ROUTING.routes)
    for route in routes(topology, switch):
        table.add([(route.prefix, route.length)], route.action, route.params)
    if not isinstance(topology, FatTree) or tier == 2:
        return None
    return _install_uplinks(topology, switch, control)


class Route(NamedTuple):
    """An entry of the table of routes: a prefix and its length, the action and its parameters."""

    prefix: int
    length: int
    action: str
    params: tuple[int, ...] = ()


def routes(topology: PacketFabric, switch: int) -> list[Route]:
    """Return the routes of a switch, given by index, in the order in which they are installed.

    Their number is O(k^2) at a ToR and O(k) at any other switch.
    """
    own = Route(int(topology.switch_ip[switch]), 32, ROUTING.local)
    if not isinstance(topology, FatTree):
        others = [_through(topology, link, 24) for link in _outgoing(topology, switch)]
        return [own, *_rack_routes(topology, switch), *others]
    by_tier = (_tor_routes, _agg_routes, _core_routes)
    return [own, *by_tier[int(topology.tier[switch])](topology, switch)]


def _through(topology: PacketFabric, link: int, length: int) -> Route:
    """Return a route over a link whose prefix is the first ``length`` bits of the far switch's."""
    address = int(topology.switch_ip[topology.link_dst[link]])
    prefix = address >> 32 - length << 32 - length
    return Route(prefix, length, ROUTING.forward, _hop(topology, link))


def _hop(topology: PacketFabric, link: int) -> tuple[int, int]:
    """Return the egress port of a link and the MAC address of the switch at its far end."""
    return int(topology.link_src_port[link]), int(topology.switch_mac[topology.link_dst[link]])


def _outgoing(topology: PacketFabric, switch: int) -> list[int]:
    return np.flatnonzero(topology.link_src == switch).tolist()


def _rack_routes(topology: PacketFabric, tor: int) -> list[Route]:
    rack = Route(int(topology.switch_ip[tor]) & ~0xFF, 24, ROUTING.unroutable)
    hosts = [
        Route(
            int(topology.host_ip[host]),
            32,
            ROUTING.deliver,
            (int(topology.host_port[host]), int(topology.host_mac[host])),
        )
        for host in np.flatnonzero(topology.host_tor == tor)
    ]
    return [rack, *hosts]


def _tor_routes(topology: FatTree, tor: int) -> list[Route]:
    up = _outgoing(topology, tor)
    cores = [
        Route(
            int(topology.switch_ip[topology.core(core)]),
            32,
            ROUTING.forward,
            _hop(topology, up[core // topology.half]),
        )
        for core in range(topology.n_cores)
    ]
    turns = [_through(topology, link, 32) for link in up]  # for probes that turn there
    return [*_rack_routes(topology, tor), *cores, *turns, Route(0, 0, ROUTING.up)]


def _agg_routes(topology: FatTree, agg: int) -> list[Route]:
    pod = Route(int(topology.switch_ip[agg]) & ~0xFFFF, 16, ROUTING.unroutable)
    links = _outgoing(topology, agg)
    neighbours = [
        _through(topology, link, 24 if topology.tier[topology.link_dst[link]] == 0 else 32)
        for link in links
    ]
    down = next(link for link in links if topology.tier[topology.link_dst[link]] == 0)
    pod_number = (agg - topology.n_tors) // topology.half
    siblings = (topology.agg(pod_number, i) for i in range(topology.half))
    turns = [  # a ping to one of them from another pod comes down at any, and turns at a ToR
        Route(int(topology.switch_ip[each]), 32, ROUTING.forward, _hop(topology, down))
        for each in siblings
        if each != agg
    ]
    return [pod, *neighbours, *turns, Route(0, 0, ROUTING.up)]


def _core_routes(topology: FatTree, core: int) -> list[Route]:
    return [_through(topology, link, 16) for link in _outgoing(topology, core)]


def _install_uplinks(topology: FatTree, switch: int, control: Tables) -> Uplinks:
    profile = control.action_profile(ROUTING.selector)
    up = [link for link in _outgoing(topology, switch) if link % 2 == 0]
    members = {link: profile.add_member(ROUTING.forward, _hop(topology, link)) for link in up}
    group = profile.add_group(list(members.values()))
    control.table(ROUTING.uplinks).add_group_entry([1], group)
    return Uplinks(control, group, members)


def needed_entries(topology: PacketFabric, segments: Segments) -> dict[str, int]:
    """Return the most entries that a switch ever has in each table that may be too small.

    Every segment into a monitor switch may ask for flows at the same time, as all do before the
    first epoch. All switches of a tier have the same number of routes.
    """
    first_of_tier = np.unique(topology.tier, return_index=True)[1].tolist()
    return {
        HEAVY_HITTER.segments: int(np.bincount(segments.downstream).max()),
        ROUTING.routes: max(len(routes(topology, switch)) for switch in first_of_tier),
    }
