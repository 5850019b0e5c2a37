"""Forwarding: two-level prefixes down, ECMP up in the fat-tree (Al-Fares et al., SIGCOMM 2008)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from testbed.control.switch import Tables
from testbed.dataplane import IDENTITY, ROUTING
from testbed.fabric.addressed import AddressedFabric
from testbed.fabric.fat_tree import FatTree


@dataclass
class Uplinks:
    """The ECMP group of a switch: ``members`` are its members by uplink, a directed link."""

    control: Tables
    group: int
    members: dict[int, int]
    _drained: set[int] = field(default_factory=set)

    def drain(self, link: int) -> None:
        """Take an uplink out: flows take the others. What is on its way arrives."""
        self._drained.add(link)
        self._write()

    def undrain(self, link: int) -> None:
        """Put an uplink back."""
        self._drained.remove(link)
        self._write()

    def _write(self) -> None:
        left = [member for link, member in self.members.items() if link not in self._drained]
        self.control.action_profile(ROUTING.selector).modify_group(self.group, left)


def install_forwarding(
    topology: AddressedFabric,
    switch: int,
    control: Tables,
    mask: int,
    monitor: bool,
) -> Uplinks | None:
    """Install one switch's identity, routes and uplink group; return that group, if it has one.

    Args:
        topology: A fat-tree, or two switches.
        switch: Index of the switch.
        control: Its tables.
        mask: Its bits of pathBF (`testbed.fabric.pathbf.bloom_mask`).
        monitor: Whether it hosts meters.

    Costs O(k^2) table writes at a ToR and O(k) elsewhere.
    """
    own_ip = int(topology.switch_ip[switch])
    tier = int(topology.tier[switch])
    control.table(IDENTITY.identity).set_default(
        IDENTITY.identify, (int(monitor), int(tier > 0), mask, own_ip)
    )
    routes = _Routes(topology, control)
    routes.add(own_ip, 32, ROUTING.local)
    if not isinstance(topology, FatTree):
        _rack_routes(topology, switch, routes)
        for link in _outgoing(topology, switch):
            rack = int(topology.switch_ip[topology.link_dst[link]]) & ~0xFF
            routes.through(rack, 24, int(link))
        return None
    if tier == 0:
        _tor_routes(topology, switch, routes)
    elif tier == 1:
        _agg_routes(topology, switch, routes)
    else:
        _core_routes(topology, switch, routes)
    return _uplinks(topology, switch, control) if tier < 2 else None


class _Routes:
    """Writes routes of one switch; links give port and next hop's MAC."""

    def __init__(self, topology: AddressedFabric, control: Tables) -> None:
        self._topology = topology
        self._table = control.table(ROUTING.routes)

    def add(self, prefix: int, length: int, action: str, *params: int) -> None:
        self._table.add([(prefix, length)], action, params)

    def through(self, prefix: int, length: int, link: int) -> None:
        self.add(prefix, length, ROUTING.forward, *_hop(self._topology, link))


def _hop(topology: AddressedFabric, link: int) -> tuple[int, int]:
    return int(topology.link_src_port[link]), int(topology.switch_mac[topology.link_dst[link]])


def _outgoing(topology: AddressedFabric, switch: int) -> npt.NDArray[np.intp]:
    return np.flatnonzero(topology.link_src == switch)


def _rack_routes(topology: AddressedFabric, tor: int, routes: _Routes) -> None:
    routes.add(int(topology.switch_ip[tor]) & ~0xFF, 24, ROUTING.unroutable)
    for host in np.flatnonzero(topology.host_tor == tor):
        port, mac = int(topology.host_port[host]), int(topology.host_mac[host])
        routes.add(int(topology.host_ip[host]), 32, ROUTING.deliver, port, mac)


def _tor_routes(topology: FatTree, tor: int, routes: _Routes) -> None:
    _rack_routes(topology, tor, routes)
    up = _outgoing(topology, tor)
    for core in range(topology.n_cores):
        core_ip = int(topology.switch_ip[topology.core(core)])
        routes.through(core_ip, 32, int(up[core // topology.half]))
    for link in up:  # for probes that turn there
        routes.through(int(topology.switch_ip[topology.link_dst[link]]), 32, int(link))
    routes.add(0, 0, ROUTING.up)


def _agg_routes(topology: FatTree, agg: int, routes: _Routes) -> None:
    routes.add(int(topology.switch_ip[agg]) & ~0xFFFF, 16, ROUTING.unroutable)
    for link in _outgoing(topology, agg):
        neighbour = int(topology.link_dst[link])
        address = int(topology.switch_ip[neighbour])
        if topology.tier[neighbour] == 0:
            routes.through(address & ~0xFF, 24, int(link))
        else:
            routes.through(address, 32, int(link))
    routes.add(0, 0, ROUTING.up)


def _core_routes(topology: FatTree, core: int, routes: _Routes) -> None:
    for link in _outgoing(topology, core):
        agg = int(topology.link_dst[link])
        routes.through(int(topology.switch_ip[agg]) & ~0xFFFF, 16, int(link))


def _uplinks(topology: FatTree, switch: int, control: Tables) -> Uplinks:
    profile = control.action_profile(ROUTING.selector)
    up = [int(link) for link in _outgoing(topology, switch) if link % 2 == 0]
    members = {link: profile.add_member(ROUTING.forward, _hop(topology, link)) for link in up}
    group = profile.add_group(list(members.values()))
    control.table(ROUTING.uplinks).add_group_entry([1], group)
    return Uplinks(control, group, members)
