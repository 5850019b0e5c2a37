"""Broken forwarding entries: on a few links some flows lose every packet, the others none.

A quarter of the flows of a link, chosen by two bits of the destination port, fall into the hole;
aggregate loss rates of links and paths look moderate although no packet is dropped at random.
"""

from dataclasses import replace

import numpy as np

from scenarios.scenario import Scenario
from scenarios.settings import Settings
from testbed.faults.specification import FaultPlan, FlowMatch, Ternary, parse_faults
from testbed.topology import FatTree


def black_holes(topology: FatTree, settings: Settings) -> FaultPlan:
    plan = parse_faults(settings.faults, topology, settings.seed)
    rng = np.random.default_rng([settings.seed, 0xB1AC])
    faults = tuple(
        replace(
            fault,
            kind="blackhole",
            rate=1.0,
            match=FlowMatch(dst_port=Ternary(int(rng.integers(4)), 0b11)),
        )
        for fault in plan.faults
    )
    return FaultPlan(faults, plan.devices)


SCENARIO = Scenario(defaults={"faults": "3links"}, make_faults=black_holes)
