# SPDX-License-Identifier: Apache-2.0
"""Ports and addresses of a Clos, and the fabrics that the switch program cannot forward."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.fabric.clos import Fabric, TopologyError, clos, leaf_spine
from testbed.fabric.directions import Directions
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric

SHAPES = [
    leaf_spine(6, 4, oversubscription=2),
    leaf_spine(2, 1),
    leaf_spine(300, 2),
    clos(3, 2, 2, 6),
    clos(2, 4, 2, 4, oversubscription=2),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.title)
def test_every_end_of_a_cable_has_a_port_and_every_node_an_address(shape: Fabric) -> None:
    fabric = PacketFabric.of(shape)
    assert (fabric.link_src_port == fabric.link_dst_port[np.arange(fabric.n_links) ^ 1]).all()
    ends = {*zip(fabric.link_src.tolist(), fabric.link_src_port.tolist(), strict=True)}
    ends |= {*zip(fabric.host_tor.tolist(), fabric.host_port.tolist(), strict=True)}
    assert len(ends) == fabric.n_links + fabric.n_hosts
    for switch in range(fabric.n_switches):
        ports = sorted(port for at, port in ends if at == switch)
        assert ports == list(range(1, len(ports) + 1))
        assert ports[-1] <= fabric.n_ports
    addresses = {*fabric.switch_ip.tolist(), *fabric.host_ip.tolist()}
    assert len(addresses) == fabric.n_switches + fabric.n_hosts
    assert all(address >> 24 == 10 for address in addresses)
    assert len({*fabric.host_names, *fabric.switch_names}) == fabric.n_hosts + fabric.n_switches


def test_hosts_are_named_after_their_tor_where_that_is_clear() -> None:
    def first_hosts(*tors: str) -> list[str]:
        lower = np.arange(len(tors))
        top = np.full(len(tors), len(tors))
        tier = np.array([0] * len(tors) + [1])
        return PacketFabric.of(Fabric([*tors, "top"], tier, lower, top)).host_names

    assert first_hosts("leaf1", "leaf12") == ["h1_0", "h12_0"]
    assert first_hosts("tor1_2", "tor2_1") == ["h1_2_0", "h2_1_0"]
    assert first_hosts("red", "blue") == ["h0_0", "h1_0"]
    assert first_hosts("a1", "b1") == ["h0_0", "h1_0"]
    assert first_hosts("h1_0", "x1") == ["host1_0_0", "host1_0"]


@pytest.mark.parametrize(
    ("fabric", "why"),
    [
        (clos(2, 2, 2, 4, wiring="complete"), "several ways from core0 down to tor0_0"),
        (leaf_spine(2, 2, oversubscription=200), "400 hosts at a ToR"),
        (leaf_spine(2, 300, oversubscription=0.1), "300 uplinks of a switch"),
        (leaf_spine(600, 1), "600 ports of a switch"),
        (
            Fabric(list("abcd"), np.arange(4), np.arange(3), np.arange(1, 4)),
            "has 4 tiers",
        ),
        (
            Fabric(["a", "b"], np.array([0, 1]), np.array([0]), np.array([1]), n_tors=2),
            "every ToR is a switch of tier 0",
        ),
        (
            Fabric(["a b; reboot", "top"], np.array([0, 1]), np.array([0]), np.array([1])),
            "which 'a b; reboot' has not",
        ),
        (
            Fabric(["../../x", "top"], np.array([0, 1]), np.array([0]), np.array([1])),
            "a switch's name has up to 30 letters",
        ),
    ],
    ids=[
        "two ways down",
        "hosts",
        "uplinks",
        "ports",
        "tiers",
        "high ToR",
        "name",
        "path",
    ],
)
def test_what_cannot_be_forwarded_is_refused_in_a_line(fabric: Fabric, why: str) -> None:
    with pytest.raises(TopologyError, match=why) as error:
        PacketFabric.of(fabric)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("fabric", [FatTree(4), *SHAPES], ids=lambda fabric: fabric.title)
def test_directions_lead_where_they_say(fabric: Fabric) -> None:
    directions = Directions(fabric)
    for switch in range(0, fabric.n_switches, 7):
        below, above, beside = (
            ask(switch) for ask in (directions.below, directions.above, directions.beside)
        )
        for hops in (below, above, beside):
            assert (fabric.link_src[hops.links] == switch).all()
        every = np.concatenate((below.switches, above.switches, beside.switches, [switch]))
        assert len(set(every.tolist())) == len(every)
        assert (fabric.tier[below.switches] < fabric.tier[switch]).all()
        assert (fabric.tier[above.switches] > fabric.tier[switch]).all()
        # A link down leads to the switch itself or to one that has it below.
        for each, link in zip(*below, strict=True):
            next_switch = int(fabric.link_dst[link])
            assert each == next_switch or each in directions.below(next_switch).switches
