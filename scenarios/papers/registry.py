"""All experiments, in the papers' order, and what is left out and why."""

from __future__ import annotations

from scenarios.papers.canary_6a import FIGURE_6A
from scenarios.papers.canary_6b import FIGURE_6B
from scenarios.papers.canary_7 import FIGURE_7
from scenarios.papers.canary_8 import FIGURE_8
from scenarios.papers.canary_8_packets import FIGURE_8_PACKETS
from scenarios.papers.canary_9 import FIGURE_9
from scenarios.papers.canary_10 import FIGURE_10
from scenarios.papers.canary_11 import FIGURE_11
from scenarios.papers.canary_12 import FIGURE_12
from scenarios.papers.canary_table_2 import TABLE_II
from scenarios.papers.canary_tables import TABLE_III, TABLE_IV
from scenarios.papers.canary_theorem_1 import THEOREM_1
from scenarios.papers.canary_theorem_2 import THEOREM_2
from scenarios.papers.detector_accuracy import ACCURACY
from scenarios.papers.detector_plans import PLANS
from scenarios.papers.experiment import Experiment
from scenarios.papers.flock_2 import FIGURE_2
from scenarios.papers.flock_3 import FIGURE_3 as FLOCK_3
from scenarios.papers.flock_4 import FIGURE_4C
from scenarios.papers.flock_5 import FIGURE_5 as FLOCK_5
from scenarios.papers.flock_5c import FIGURE_5C
from scenarios.papers.flock_8 import FIGURE_8 as FLOCK_8
from scenarios.papers.flock_table_1 import TABLE_1
from scenarios.papers.netbouncer_6 import FIGURE_6 as NETBOUNCER_6
from scenarios.papers.netbouncer_7 import FIGURE_7 as NETBOUNCER_7
from scenarios.papers.netbouncer_8 import FIGURE_8 as NETBOUNCER_8
from scenarios.papers.netbouncer_9 import FIGURE_9 as NETBOUNCER_9
from scenarios.papers.vigil_13 import FIGURE_13
from scenarios.papers.vigil_failures import FIGURE_10_TO_12, SECTION_6_7
from scenarios.papers.vigil_simulation import FIGURE_3, FIGURE_5, FIGURE_8_AND_9
from testbed.errors import UserError
from testbed.fabric.names import nearest

EXPERIMENTS = {
    each.name: each
    for each in (
        THEOREM_1,
        THEOREM_2,
        FIGURE_6A,
        FIGURE_6B,
        FIGURE_7,
        FIGURE_8,
        FIGURE_8_PACKETS,
        FIGURE_9,
        FIGURE_10,
        FIGURE_11,
        FIGURE_12,
        TABLE_II,
        TABLE_III,
        TABLE_IV,
        FIGURE_3,
        FIGURE_5,
        FIGURE_8_AND_9,
        FIGURE_10_TO_12,
        SECTION_6_7,
        FIGURE_13,
        NETBOUNCER_6,
        NETBOUNCER_7,
        NETBOUNCER_8,
        NETBOUNCER_9,
        ACCURACY,
        PLANS,
        FIGURE_2,
        FLOCK_3,
        FIGURE_4C,
        FLOCK_5,
        FIGURE_5C,
        FLOCK_8,
        TABLE_1,
    )
}

LEFT_OUT = {
    "Canary, figures 1 to 5": "drawings and examples; figures 4 and 5 are tests",
    "NetBouncer, figures 11 to 13": "production data",
    "Flock, figure 4 (a) and (b)": "a cluster of hardware",
    "Flock, figure 4 (d)": "times: python -m tests.bench flock has the largest network of it",
    "Flock, figure 6": "an example",
    "Flock, figure 7": "processor time of agents on hosts that are not here",
    "007, figures 1, 2 and 14, section 8": "production data, and a drawing",
    "deTector, from section 4.4 on": "not in the copy that these values are from",
    "deTector, 3.9 and 1.9 times fewer probes": "how Pingmesh and NetNORAD probe and localize "
    "there is in the missing part",
}


def chosen(names: str) -> list[Experiment]:
    """Experiments by a comma list, ``quick`` or ``all``.

    Raises:
        ValueError: There is no such experiment; says which are near.
    """
    if names in ("all", "quick"):
        return [each for each in EXPERIMENTS.values() if names == "all" or each.quick]
    found = []
    for name in names.split(","):
        if name not in EXPERIMENTS:
            raise UserError(f"there is no figure {name}: {nearest(name, EXPERIMENTS)}")
        found.append(EXPERIMENTS[name])
    return found
