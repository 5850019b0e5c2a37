# SPDX-License-Identifier: Apache-2.0
"""10 % of the directed links drop packets at low rates only, 0.001 to 0.05.

Methods with a single stage overlook such links (Canary, section III-F).
"""

from scenarios.experiment.request import Scenario
from scenarios.experiment.settings import Settings
from testbed.fabric.clos import Fabric
from testbed.faults.plan import FaultPlan
from testbed.faults.specification import LOW_RATES, parse_faults


def low_rates(topology: Fabric, settings: Settings) -> FaultPlan:
    """Return the faults of the setting ``faults``, with loss rates of 0.001 to 0.05."""
    return parse_faults(
        settings.faults, topology, settings.seed, LOW_RATES, duration_s=settings.duration_s
    )


SCENARIO = Scenario(make_faults=low_rates)
