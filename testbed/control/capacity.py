"""How many entries the switches' tables need for what a controller installs.

The P4 program has tables of sizes that suit most fabrics, and a run of a larger one makes them as
large as it needs (`testbed.dataplane.adapted`). The tables of a meter's rules keep their size: it
is part of Canary's memory budget, and `testbed.control.selection` refuses flows when they are full.
"""

from __future__ import annotations

import numpy as np

from testbed.control.forwarding import routes
from testbed.dataplane import HEAVY_HITTER, ROUTING
from testbed.fabric.packet_fabric import PacketFabric
from testbed.fabric.segments import Segments


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
