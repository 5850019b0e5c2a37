"""All experiments in the order of the papers, and the figures that are left out, with the reasons.

``values.yaml`` declares a figure by its name; the code that computes it is named here alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from scenarios.papers import (
    canary_flows,
    canary_localization,
    canary_sketches,
    canary_tables,
    canary_theorems,
    detector,
    flock,
    netbouncer,
    vigil,
)
from scenarios.papers.experiment import Experiment, OverAll, Tasks, no_rows
from scenarios.papers.values import read_values
from testbed.errors import UserError
from testbed.fabric.names import nearest

TASKS: Mapping[str, Tasks] = {
    "canary-theorem-1": canary_theorems.theorem_1,
    "canary-theorem-2": canary_theorems.theorem_2,
    "canary-6a": canary_sketches.figure_6a,
    "canary-6b": canary_sketches.figure_6b,
    "canary-7": canary_flows.figure_7,
    "canary-8": canary_localization.figure_8,
    "canary-8-packets": canary_localization.figure_8_packets,
    "canary-9": canary_localization.figure_9,
    "canary-10": canary_localization.figure_10,
    "canary-11": canary_flows.figure_11,
    "canary-12": canary_tables.figure_12,
    "canary-table-2": canary_sketches.table_2,
    "canary-table-3": canary_tables.table_3,
    "canary-table-4": canary_tables.table_4,
    "007-3": partial(vigil.sweeps, "3"),
    "007-5": partial(vigil.sweeps, "5"),
    "007-8": partial(vigil.sweeps, "8"),
    "007-10": partial(vigil.sweeps, "10"),
    "007-6.7": partial(vigil.sweeps, "6.7"),
    "007-13": vigil.figure_13,
    "netbouncer-6": netbouncer.figure_6,
    "netbouncer-7": netbouncer.figure_7,
    "netbouncer-8": netbouncer.figure_8,
    "netbouncer-9": netbouncer.figure_9,
    "detector-accuracy": detector.accuracy,
    "detector-plans": detector.plans,
    "flock-2": flock.figure_2,
    "flock-3": flock.figure_3,
    "flock-4c": flock.figure_4c,
    "flock-5": flock.figure_5,
    "flock-5c": flock.figure_5c,
    "flock-8": flock.figure_8,
    "flock-table-1": flock.table_1,
}
OVER_ALL: Mapping[str, OverAll] = {"flock-table-1": flock.aggregates}
DECLARED = read_values()
EXPERIMENTS = {
    name: Experiment(name=name, tasks=tasks, over_all=OVER_ALL.get(name, no_rows), **DECLARED[name])
    for name, tasks in TASKS.items()
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


def experiments_named(names: str) -> list[Experiment]:
    """Return the experiments of a comma-separated list, of ``quick`` or of ``all``.

    Raises:
        UserError: There is no such experiment; the message has the nearest names.
    """
    if names in ("all", "quick"):
        return [each for each in EXPERIMENTS.values() if names == "all" or each.quick]
    found = []
    for name in names.split(","):
        if name not in EXPERIMENTS:
            raise UserError(f"there is no figure {name}: {nearest(name, EXPERIMENTS)}")
        found.append(EXPERIMENTS[name])
    return found
