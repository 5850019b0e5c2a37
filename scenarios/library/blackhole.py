# SPDX-License-Identifier: Apache-2.0
"""Broken forwarding entries: on a few links some flows lose every packet, the others none.

From a quarter of the run on, a faulty link drops all packets of flows with certain low bits in the
destination port. Canary selects flows at the switch where they arrive. It therefore detects the
black hole by the flows that it monitored when the fault began: their upstream switch still counts
packets, and none arrive. Canary cannot detect a black hole that exists from the start, because the
affected flows never arrive and so are never selected.
"""

from dataclasses import replace

import numpy as np

from scenarios.experiment.request import Scenario
from scenarios.experiment.settings import Settings
from testbed.fabric.clos import Fabric
from testbed.faults.plan import FaultPlan, FlowMatch, Ternary
from testbed.faults.specification import parse_faults


def black_holes(topology: Fabric, settings: Settings) -> FaultPlan:
    """Return faults that drop all packets with certain low bits in the destination port, from a
    quarter of the run on."""
    plan = parse_faults(settings.faults, topology, settings.seed)
    rng = np.random.default_rng([settings.seed, 0xB1AC])
    opens = settings.duration_s / 4
    faults = tuple(
        replace(
            fault,
            kind="blackhole",
            rate=1.0,
            match=FlowMatch(dst_port=Ternary(int(rng.integers(4)), 0b11)),
            schedule=((opens, settings.duration_s),),
        )
        for fault in plan.faults
    )
    return FaultPlan(faults, plan.devices)


SCENARIO = Scenario(defaults={"faults": "3links"}, make_faults=black_holes)
