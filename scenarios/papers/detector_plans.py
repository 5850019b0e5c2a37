"""deTector: how many paths its plans have."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from scenarios.papers.experiment import Effort, Experiment, Panel, Row, Task, label
from testbed.fabric.fat_tree import FatTree
from testbed.probes.probe_matrix import ProbeMatrix, probe_matrix

PLANNED = ((6, 1, 1), (12, 1, 1), (18, 1, 1), (24, 1, 1), (6, 3, 1), (12, 3, 1), (18, 3, 1))
PATHS, CANDIDATES = "paths, of the least", "candidate paths"


@cache
def planned(k: int, alpha: int, beta: int) -> ProbeMatrix:
    return probe_matrix(FatTree(k), alpha, beta)


def plans(most: int) -> list[Row]:
    """Paths of plans, in shares of the least that could cover each link alpha times: a path covers
    no more than its four links."""
    rows = []
    for k, alpha, beta in PLANNED:
        if k <= most:
            matrix = planned(k, alpha, beta)
            least = alpha * matrix.fabric.n_edges / 4
            rows.append(Row(PATHS, f"α={alpha}, β={beta}", label(k), 0, len(matrix) / least))
    for k in (6, 12, 18, 24, 64):
        tree = FatTree(k)
        ends = tree.n_tors * (tree.n_tors - 1)
        rows.append(Row(CANDIDATES, "paths among ToRs", label(k), 0, float(ends * tree.n_cores)))
    return rows


def _plans(effort: Effort) -> Mapping[str, Task]:
    return {"plans": partial(plans, 6 if effort.small else 24)}


PLANS = Experiment(
    "detector-plans",
    "deTector, section 4",
    "paths of its plans beside the fewest that could be",
    "Plans for fat-trees by the PMC algorithm, in shares of α · links / 4, below which no plan "
    "covers every link α times; and the paths among ToRs that it selects from.",
    seconds=5,
    memory_mb=360,
    panels=(
        Panel(PATHS, "K", "paths, in shares of the least"),
        Panel(CANDIDATES, "K", "paths among ToRs", log_y=True),
    ),
    tasks=_plans,
)
