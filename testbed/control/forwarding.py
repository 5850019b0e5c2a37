# SPDX-License-Identifier: Apache-2.0
"""Forwarding: prefixes down, ECMP up, as in the fat-tree of Al-Fares et al. (SIGCOMM 2008); where
uplinks lead to different ToRs, a group of uplinks for those that have the same ones.

The P4 program has tables of sizes that suit most fabrics, and a run of a larger one makes them as
large as `needed_entries` says (`testbed.dataplane.adapted`). The tables of a meter's rules keep
their size: it is part of Canary's memory budget, and its controller refuses flows when they are
full.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from testbed.control.switch import Tables
from testbed.dataplane import HEAVY_HITTER, IDENTITY, ROUTING
from testbed.fabric.directions import Hops
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments
from testbed.fabric.uplink_groups import MOST_GROUPS

_RACK = 24
"""The bits of a prefix that the addresses of a rack share."""
_FIRST_GROUP = 1
"""The number of a switch's first group of uplinks, in the key of their table."""


@dataclass
class Uplinks:
    """The ECMP groups of a switch: the uplinks (directed links) of each and their members, several
    of an uplink with a larger weight."""

    control: Tables
    groups: dict[int, list[tuple[int, int]]]
    _drained: set[int] = field(default_factory=set)

    def drain(self, link: int) -> None:
        """Remove an uplink from the groups; its flows move, and packets in flight still arrive. It
        stays in a group that would have no uplink without it."""
        self._drained.add(link)
        self._write()

    def undrain(self, link: int) -> None:
        """Add a drained uplink, a directed link's id, to the groups again."""
        self._drained.remove(link)
        self._write()

    def _write(self) -> None:
        profile = self.control.action_profile(ROUTING.selector)
        for group, members in self.groups.items():
            left = [member for link, member in members if link not in self._drained]
            profile.modify_group(group, left or [member for _, member in members])


def install_forwarding(
    topology: PacketFabric,
    switch: int,
    control: Tables,
    mask: int,
    monitor: bool,
) -> Uplinks | None:
    """Install a switch's identity, routes and uplink groups; return these, or None without one.

    Args:
        topology: The fabric.
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
    needed = routes(topology, switch)
    for route in needed:
        table.add([(route.prefix, route.length)], route.action, route.params)
    if all(route.action != ROUTING.up for route in needed):
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

    Routes lead to every switch below and above; to switches beside, for a ping that comes down to
    the wrong one of a pod and turns at a ToR; and up to everything else. A switch of the highest
    tier has one route to a pod whose addresses share a prefix.
    """
    found = [Route(int(topology.switch_ip[switch]), 32, ROUTING.local)]
    if switch < topology.n_tors:
        found += _rack_routes(topology, switch)
    directions = topology.directions
    below, above = directions.below(switch), directions.above(switch)
    if not topology.pod_length:
        ways = [below, above, directions.beside(switch)]
    elif topology.tier[switch] == topology.tier.max():
        return [*found, *_pod_routes(topology, below)]
    else:
        ways = [below, above, directions.beside(switch)]
        if switch >= topology.n_tors:
            found.append(_prefix(topology, switch, topology.pod_length, ROUTING.unroutable))
    reached = 0
    for switches, links in ways:
        for each, link in zip(switches.tolist(), links.tolist(), strict=True):
            length = _RACK if each < topology.n_tors else 32
            found.append(_prefix(topology, each, length, ROUTING.forward, _hop(topology, link)))
            reached += each < topology.n_tors
    if reached + (switch < topology.n_tors) < topology.n_tors and len(above.links):
        found += _up_routes(topology, switch)
    return found


def _up_routes(topology: PacketFabric, switch: int) -> list[Route]:
    """Return the route up, over the first group of uplinks, and those to the ToRs of others."""
    if topology.groups is None:
        return [Route(0, 0, ROUTING.up)]
    if switch not in topology.groups.of_switch:  # its uplinks lead nowhere else
        return []
    _, *others = topology.groups.of_switch[switch]
    return [
        Route(0, 0, ROUTING.up, (_FIRST_GROUP,)),
        *(
            _prefix(topology, tor, _RACK, ROUTING.up, (number,))
            for number, group in enumerate(others, _FIRST_GROUP + 1)
            for tor in group.tors.tolist()
        ),
    ]


def _pod_routes(topology: PacketFabric, below: Hops) -> list[Route]:
    """Return a route to each pod, over the link to its first switch."""
    pod = topology.pod[below.switches]
    first = np.unique(pod, return_index=True)[1]
    ways = zip(below.switches[first].tolist(), below.links[first].tolist(), strict=True)
    return [
        _prefix(topology, each, topology.pod_length, ROUTING.forward, _hop(topology, link))
        for each, link in ways
    ]


def _prefix(
    topology: PacketFabric, switch: int, length: int, action: str, params: tuple[int, ...] = ()
) -> Route:
    """Return a route whose prefix is the first ``length`` bits of a switch's address."""
    address = int(topology.switch_ip[switch])
    return Route(address >> 32 - length << 32 - length, length, action, params)


def _hop(topology: PacketFabric, link: int) -> tuple[int, int]:
    """Return the egress port of a link and the MAC address of the switch at its far end."""
    return int(topology.link_src_port[link]), int(topology.switch_mac[topology.link_dst[link]])


def _outgoing(topology: PacketFabric, switch: int) -> list[int]:
    return np.flatnonzero(topology.link_src == switch).tolist()


def _rack_routes(topology: PacketFabric, tor: int) -> list[Route]:
    rack = _prefix(topology, tor, _RACK, ROUTING.unroutable)
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


def _install_uplinks(topology: PacketFabric, switch: int, control: Tables) -> Uplinks:
    """Install the groups of a switch's uplinks, with a member for each share of an uplink, which
    groups have in common."""
    if topology.groups is None:
        found = [[link for link in _outgoing(topology, switch) if link % 2 == 0]]
    else:
        found = [group.links.tolist() for group in topology.groups.of_switch[switch]]
    profile, shares = control.action_profile(ROUTING.selector), Counter[int]()
    for links in found:
        shares |= Counter(links)
    members = {
        link: [profile.add_member(ROUTING.forward, _hop(topology, link)) for _ in range(n)]
        for link, n in sorted(shares.items())
    }
    groups: dict[int, list[tuple[int, int]]] = {}
    for number, links in enumerate(found, _FIRST_GROUP):
        own = [
            (link, member)
            for link, n in sorted(Counter(links).items())
            for member in members[link][:n]
        ]
        group = profile.add_group([member for _, member in own])
        control.table(ROUTING.uplinks).add_group_entry([number], group)
        groups[group] = own
    return Uplinks(control, groups)


def needed_entries(topology: PacketFabric, segments: Segments) -> dict[str, int]:
    """Return the most entries that a switch ever has in each table that may be too small.

    Every segment into a monitor switch may ask for flows at the same time, as all do before the
    first epoch.
    """
    # Of a fat-tree, all switches of a tier have as many routes.
    alike = np.unique(topology.tier, return_index=True)[1]
    some = alike if topology.pod_length else np.arange(topology.n_switches)
    found = {
        HEAVY_HITTER.segments: int(np.bincount(segments.downstream).max()),
        ROUTING.routes: max(len(routes(topology, switch)) for switch in some.tolist()),
    }
    return found | group_entries(topology)


def group_entries(topology: PacketFabric) -> dict[str, int]:
    """Return room for groups of uplinks if the one of the compiled program is not enough: as much
    for all fabrics, whose switches then run the same program."""
    return {} if topology.groups is None else {ROUTING.uplinks: MOST_GROUPS}
