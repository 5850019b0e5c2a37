"""All experiments, in the papers' order, and what is left out and why."""

from __future__ import annotations

from scenarios.papers.canary_6 import FIGURE_6A, FIGURE_6B, TABLE_II
from scenarios.papers.canary_8 import FIGURE_8
from scenarios.papers.canary_9 import FIGURE_9
from scenarios.papers.canary_11 import FIGURE_11
from scenarios.papers.canary_tables import TABLE_III, TABLE_IV
from scenarios.papers.canary_theorems import THEOREM_1, THEOREM_2
from scenarios.papers.experiment import Experiment
from testbed.fabric.names import nearest

__all__ = ["EXPERIMENTS", "LEFT_OUT", "chosen"]

EXPERIMENTS = {
    each.name: each
    for each in (
        THEOREM_1,
        THEOREM_2,
        FIGURE_6A,
        FIGURE_6B,
        FIGURE_8,
        FIGURE_9,
        FIGURE_11,
        TABLE_II,
        TABLE_III,
        TABLE_IV,
    )
}

LEFT_OUT = {
    "Canary, figures 1 to 5": "drawings and examples; figures 4 and 5 are tests",
    "Canary, figure 7": "not done yet: it needs a network of two switches and a trace",
    "Canary, figure 10": "not done yet: a sweep over K, by hand with make compare",
    "Canary, figure 12": "throughput of an ASIC: none here; table IV says what fits its stages",
    "NetBouncer, figures 11 to 13": "production data",
    "Flock, figure 7": "processor time of agents on hosts that are not here",
    "007, figures 1 and 14, section 8": "production data",
    "deTector, from section 4.4 on": "not in the copy that these values are from",
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
            raise ValueError(f"there is no figure {name}: {nearest(name, EXPERIMENTS)}")
        found.append(EXPERIMENTS[name])
    return found
