"""How many entries the switches' tables need for what a controller installs.

The P4 program has tables of sizes that suit most fabrics, and a run of a larger one makes them as
large as it needs (`testbed.dataplane.adapted`). Those of a meter's rules stay as they are: they are
a budget of Canary's, and `testbed.control.selection` turns flows away that find them full.
"""

from __future__ import annotations

import numpy as np

from testbed.dataplane import HEAVY_HITTER, ROUTING
from testbed.fabric.addressed import AddressedFabric
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.segments import Segments


def needed_entries(topology: AddressedFabric, segments: Segments) -> dict[str, int]:
    """Return the most entries that a switch ever has in each table that may be too small.

    Every segment into a monitor switch may want flows at once, as before the first epoch all do.
    The most routes are a ToR's: itself, its rack and its hosts, each core switch, each aggregation
    switch of its pod, and the way up (`testbed.control.forwarding`).
    """
    needed = {HEAVY_HITTER.segments: int(np.bincount(segments.downstream).max())}
    if isinstance(topology, FatTree):
        needed[ROUTING.routes] = 2 + topology.half + topology.n_cores + topology.half + 1
    return needed
