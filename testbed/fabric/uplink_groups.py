# SPDX-License-Identifier: Apache-2.0
"""The groups of uplinks of a Clos in which not all uplinks of a switch lead equally to each ToR.

A switch sends what goes up over the shortest paths alone, and over an uplink as many flows as it
has shortest paths behind it (weighted ECMP), so that all paths of two ToRs are equally likely, as
`testbed.fabric.ecmp` has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from testbed.arrays import IntArray
from testbed.fabric.clos import Fabric, TopologyError
from testbed.fabric.ecmp_probabilities import FAR, EcmpProbabilities, Ways

MOST_MEMBERS = 256  # the switch program chooses one by eight bits of a hash
MOST_GROUPS = 511  # of nine bits; 0 is none
_ALL_MEMBERS = 512  # of a switch's action profile


class Group(NamedTuple):
    """ToRs, int32[], and the uplinks that lead to them: directed links, each as often as its weight
    says, int32[]."""

    tors: IntArray
    links: IntArray


@dataclass(frozen=True)
class UplinkGroups:
    """The groups of each switch that has some, that with the most ToRs first."""

    of_switch: Mapping[int, list[Group]]


def uplink_groups(fabric: Fabric) -> UplinkGroups | None:
    """Return the groups of a fabric's switches; None if all uplinks of each lead equally to all
    ToRs that are not below it, so that one group of all is enough.

    Raises:
        TopologyError: A group, or the groups of a switch, are too large for the switch program (one
            line).

    >>> from testbed.fabric.clos import leaf_spine
    >>> uplink_groups(leaf_spine(3, 2))
    >>> of_leaf1 = uplink_groups(leaf_spine(3, 2).without([0])).of_switch[1]  # no leaf0--spine0
    >>> [(group.tors.tolist(), group.links.tolist()) for group in of_leaf1]
    [([0], [4]), ([2], [2, 4])]
    """
    ways = EcmpProbabilities(fabric).ways
    found, even = {}, True
    for switch in np.unique(fabric.link_src[::2]).tolist():
        links = np.flatnonzero(fabric.link_src == switch)
        links = links[links % 2 == 0].astype(np.int32)
        weights, tors = _weights(ways, switch, fabric.link_dst[links])
        rows, row_of = np.unique(weights, axis=0, return_inverse=True)
        even &= len(rows) <= 1 and bool((rows == 1).all())
        groups = [
            Group(tors[row_of.reshape(-1) == row], np.repeat(links, weight))
            for row, weight in enumerate(rows)
        ]
        if groups:
            found[switch] = sorted(groups, key=lambda group: -len(group.tors))
            _check(fabric, switch, rows)
    return None if even else UplinkGroups(found)


def _weights(ways: Ways, switch: int, above: IntArray) -> tuple[IntArray, IntArray]:
    """Return the weight of a switch's link to each switch ``above`` for each ToR that is reached
    over one of them, int32[T, len(above)], and these ToRs, int32[T]."""
    hops, upward = ways.hops[:, switch], ways.down_hops[:, switch] == FAR
    nearer = ways.hops[:, above] + np.uint8(1) == hops[:, None]
    nearer &= (upward & (hops != FAR))[:, None]
    routes = np.where(nearer, ways.routes[:, above], 0).round().astype(np.int32)
    tors = np.flatnonzero(routes.any(axis=1)).astype(np.int32)
    routes = routes[tors]
    return routes // np.gcd.reduce(routes, axis=1, keepdims=True), tors


def _check(fabric: Fabric, switch: int, rows: IntArray) -> None:
    """Check that the switch program has room for groups with the weights ``rows``."""
    for number, most, what in (
        (int(rows.sum(axis=1).max()), MOST_MEMBERS, "shares of flows in a group of uplinks"),
        (int(rows.max(axis=0).sum()), _ALL_MEMBERS, "shares of flows in its groups of uplinks"),
        (len(rows), MOST_GROUPS, "groups of uplinks"),
    ):
        if number > most:
            raise TopologyError(
                f"{fabric.title} needs BACKEND=flow: {fabric.switch_names[switch]} has {number} "
                f"{what}, packets allow {most}"
            )
