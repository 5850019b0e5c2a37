# SPDX-License-Identifier: Apache-2.0
"""The setting TOPOLOGY: a fabric described by one word.

    fat-tree                                the fat-tree of K
    two-switch                              two switches with a host each and a link between them
    leaf-spine:LEAVES:SPINES[:OVERSUB]      two tiers; OVERSUB hosts for each uplink of a leaf
    clos:PODS:TORS:AGGS:CORES[:OVERSUB]     three tiers: pods of ToRs and aggregation switches

each with ``:irregular=5pct`` to leave out that share of its undirected links, drawn at random.
"""

from __future__ import annotations

import re

import numpy as np

from testbed.fabric.clos import Fabric, TopologyError, clos, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.packet_fabric import PacketFabric, TwoSwitches

_FORMS = (
    "fat-tree, two-switch, leaf-spine:LEAVES:SPINES[:OVERSUB] or "
    "clos:PODS:TORS:AGGS:CORES[:OVERSUB], each also with :irregular=5pct"
)
_SHAPES = {"leaf-spine": (leaf_spine, 2), "clos": (clos, 4)}
_ATTEMPTS = 100
_MOST = 8192  # ToRs, as in the fat-tree of K=128


def is_described(text: str) -> bool:
    """Return whether a value of TOPOLOGY describes a fabric, rightly or not; else it is a file."""
    return text.strip().partition(":")[0] in ("fat-tree", "two-switch", *_SHAPES)


def make_fabric(text: str, k: int, seed: int) -> Fabric:
    """Return the fabric that TOPOLOGY describes.

    Args:
        text: The value of TOPOLOGY; see the module.
        k: The number of ports of a fat-tree's switch; not used for other shapes.
        seed: Draws the links that an irregular fabric lacks.

    Raises:
        TopologyError: One line saying what is wrong and what would be right.

    >>> make_fabric("fat-tree", k=8, seed=1).n_links
    512
    >>> make_fabric("leaf-spine:8:4:3", k=4, seed=1).n_hosts
    96
    >>> make_fabric("clos:2:4:2:4:irregular=5pct", k=4, seed=1).n_links  # one cable less
    46
    """
    regular, _, irregular = text.strip().partition(":irregular=")
    name, *fields = regular.split(":")
    if regular in ("fat-tree", "two-switch"):
        fabric: Fabric = make_packet_fabric(regular, k, seed)
    elif name in _SHAPES:
        shape, numbers = _SHAPES[name]
        try:
            sizes = [int(field) for field in fields[:numbers]]
            oversubscription = [float(field) for field in fields[numbers:]]
        except ValueError:
            raise unknown(text) from None
        if len(sizes) < numbers or len(oversubscription) > 1:
            raise unknown(text)
        tors = sizes[0] * sizes[1] if name == "clos" else sizes[0]
        if max(tors, *sizes) > _MOST:
            raise TopologyError(f"TOPOLOGY={text} is too large: use up to {_MOST} ToRs")
        fabric = shape(*sizes, oversubscription=(oversubscription or [1.0])[0])
    else:
        raise unknown(text)
    if ":irregular=" not in text:
        return fabric
    share = re.fullmatch(r"(\d+(?:\.\d+)?)(?:pct|%)", irregular)
    if share is None or not 0 < float(share[1]) < 100:
        raise unknown(text)
    return _irregular(fabric, float(share[1]) / 100, seed)


def make_packet_fabric(text: str, k: int, seed: int) -> PacketFabric:
    """Return the fabric of a run with packets.

    Args:
        text, k, seed: See `make_fabric`.

    Raises:
        TopologyError: There is no such fabric, or no packets are sent through it (one line).
    """
    if text == "two-switch":
        return TwoSwitches()
    if text == "fat-tree":
        return FatTree(k)
    return PacketFabric.of(make_fabric(text, k, seed))


def unknown(text: str) -> TopologyError:
    """Return the error for a value of TOPOLOGY that is neither a description nor a file."""
    return TopologyError(f"TOPOLOGY={text} is unknown: use {_FORMS}, or a file of a fabric")


def _irregular(fabric: Fabric, share: float, seed: int) -> Fabric:
    """Return the fabric without a share of its links, such that all ToRs still have paths."""
    count = round(share * fabric.n_edges)
    if count == 0:
        raise TopologyError(
            f"TOPOLOGY: {100 * share:g}pct of the {fabric.n_edges} links of {fabric.title} rounds "
            "to no link: leave out more"
        )
    rng = np.random.default_rng([seed, 0x1226])
    for _ in range(_ATTEMPTS):
        found = fabric.without(rng.choice(fabric.n_edges, count, replace=False))
        try:
            Ecmp(found)
        except TopologyError:
            continue
        return found
    raise TopologyError(
        f"TOPOLOGY: without {100 * share:g}pct of its links {fabric.title} is not connected: "
        "leave out fewer"
    )
