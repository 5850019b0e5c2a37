# SPDX-License-Identifier: Apache-2.0
"""Links that come and go: a few links lose half their packets for a third of every 0.9 s.

The aggregation of epochs (Canary, section III-F: losses in n' of n epochs) must still see them.
"""

from dataclasses import replace

import numpy as np

from scenarios.experiment.request import Scenario
from scenarios.experiment.settings import Settings
from testbed.fabric.clos import Fabric
from testbed.faults.plan import FaultPlan
from testbed.faults.specification import parse_faults

PERIOD_S = 0.9


def flapping(topology: Fabric, settings: Settings) -> FaultPlan:
    """Return faults that drop half of the packets during a third of every `PERIOD_S` seconds, each
    with its own phase."""
    plan = parse_faults(settings.faults, topology, settings.seed)
    rng = np.random.default_rng([settings.seed, 0xF1A9])
    faults = []
    for fault in plan.faults:
        first = rng.uniform(0, min(PERIOD_S, settings.duration_s))
        start = (first + np.arange(0, settings.duration_s, PERIOD_S)).round(6)
        start = start[start < settings.duration_s]
        spans = tuple((float(t), float(t + PERIOD_S / 3)) for t in start)
        faults.append(replace(fault, rate=0.5, schedule=spans))
    return FaultPlan(tuple(faults), plan.devices)


SCENARIO = Scenario(defaults={"faults": "3links"}, make_faults=flapping)
