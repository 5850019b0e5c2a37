"""NetBouncer's figures 6, 8 and 9: its variants, its lambda, and its rivals."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from analysis.methods.base import Localizer
from analysis.methods.detector import Detector
from analysis.methods.netbouncer import NetBouncer
from analysis.methods.netscope import NetScope
from scenarios.papers.experiment import Effort, Experiment, Panel, Reason, Row, Task, label
from scenarios.papers.netbouncer_network import QUANTITIES, Network, scores

__all__ = ["FIGURE_6", "FIGURE_8", "FIGURE_9"]

FN, FP, ERROR = QUANTITIES
SHARES = (0.001, 0.01, 0.1)
LAMBDAS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
TRADE = "errors at λ = 8 / at λ = 0.05"
OURS = "NetBouncer"
DEFAULT = NetBouncer(penalty=1.0, lucky_share=0.001)
VARIANTS: Mapping[str, Localizer] = {
    OURS: DEFAULT,
    "NetBouncer, good paths by figure 3": NetBouncer(penalty=1.0, lucky_share=0.0),
    "w/o DFD": NetBouncer(penalty=1.0, device_detection=False),
    "convex": NetBouncer(penalty=1.0, model="convex", lucky_share=0.001),
    **{
        f"L1 (λ={weight:g})": NetBouncer(penalty=weight, model="l1", lucky_share=0.001)
        for weight in (0.5, 1.0, 2.0)
    },
}
RIVALS: Mapping[str, Localizer] = {
    OURS: DEFAULT,
    **{f"deTector ({hit:g})": Detector(hit_ratio=hit, noise=1e-5) for hit in (0.6, 0.9)},
    **{f"NetScope ({w:g})": NetScope(omega=w, link_threshold=0.999) for w in (0.1, 1.0, 10.0)},
}


def variants(draw: int, k: int, share: float) -> list[Row]:
    return scores(Network.make(k), VARIANTS, share, draw, {"hop by hop": DEFAULT})


def rivals(draw: int, k: int, share: float) -> list[Row]:
    return scores(Network.make(k), RIVALS, share, draw)


def lambdas(draw: int, k: int, share: float) -> list[Row]:
    """With x the lambda."""
    rows = []
    methods = {label(weight): NetBouncer(penalty=weight, lucky_share=0.001) for weight in LAMBDAS}
    for row in scores(Network.make(k), methods, share, draw):
        rows.append(row._replace(series=OURS, x=row.series))
    ends = {(row.quantity, row.x): row.value for row in rows}
    for quantity in (FN, FP):
        first, last = (ends[quantity, label(end)] for end in (LAMBDAS[0], LAMBDAS[-1]))
        rows.append(Row(TRADE, OURS, quantity, draw, (last + 1) / (first + 1)))
    return rows


def _tasks(work, shares: tuple[float, ...], effort: Effort) -> Mapping[str, Task]:
    k = 8 if effort.small else 48
    return {
        f"draw-{n}-{label(100 * share)}": partial(work, n, k, share)
        for n in range(effort.draws)
        for share in shares
    }


SETTING = (
    "A Clos of 48-port switches with 27,648 servers and 82,944 links, 10 devices of which all "
    "links fail, 100 packets a path. The paper does not say how many paths: ours are 24 over each "
    "link, a 24th of all server-core paths, at which λ = 1 lets show what loses 2 % and more. "
    "Links are good above 0.999. A device is bad if no more than 0.1 % of its paths are good, as "
    "some of those through links that lose 2 % are. "
)
PLAN = (
    "The paper's paths are unknown: with more or fewer of them over a link, λ, ω and noise weigh "
    "otherwise."
)
HIT = (
    "How deTector tells a lossy path from noise is not in our copy: by a binomial test of a noise "
    "of 10⁻⁵ hardly a healthy link is on enough lossy paths to be blamed; in the paper many are."
)
TRIED = (
    "Not explained by the number of paths, which the paper does not say: the errors of L1's "
    "estimates are those of 24 paths over a link; more would bring false positives at λ = 0.5, but "
    "other errors than the paper's."
)
PANELS = tuple(
    Panel(quantity, "% of the links faulty", quantity, log_x=True, log_y=True)
    for quantity in QUANTITIES
)
REASONS = (
    *(
        Reason(PLAN, quantity, name, ratio=(0.02, 400.0))
        for name in {**VARIANTS, "hop by hop": DEFAULT, **RIVALS}
        for quantity in QUANTITIES
    ),
    *(Reason(HIT, FP, ratio=(0.0, 0.5), paper=false) for false in (6e3, 7.2e3, 22.8e3, 0.7, 0.4)),
    Reason(HIT, FP, ratio=(0.0, 0.5), paper=21.7),
)
NONE = tuple(
    Reason(
        f"{PLAN} These are of 83 to 8,300 faulty links, and 480 of devices.",
        quantity,
        ratio=(0.0, float("inf")),
        paper=0.0,
    )
    for quantity in QUANTITIES
)
FIGURE_6 = Experiment(
    "netbouncer-6",
    "NetBouncer, figure 6",
    "false negatives, false positives and error of its variants",
    SETTING + "λ = 1 unless said.",
    seconds=180,
    memory_mb=1900,
    panels=PANELS,
    tasks=partial(_tasks, variants, SHARES),
    reasons=(*REASONS, *NONE),
    tried=dict.fromkeys((*VARIANTS, *RIVALS), TRIED),
    quick=False,
)
FIGURE_8 = Experiment(
    "netbouncer-8",
    "NetBouncer, figure 8",
    "false negatives and positives by λ, 1 % faulty",
    SETTING,
    seconds=45,
    memory_mb=1900,
    panels=(
        *(Panel(q, "λ", q, log_x=True, log_y=True) for q in (FN, FP)),
        Panel(TRADE, "", "errors plus 1 at λ = 8, over those at 0.05", numeric=False, log_y=True),
    ),
    tasks=partial(_tasks, lambdas, (0.01,)),
    quick=False,
)
FIGURE_9 = Experiment(
    "netbouncer-9",
    "NetBouncer, figure 9",
    "false negatives and positives of NetBouncer, deTector and NetScope",
    SETTING + "deTector's PLL and NetScope read the same paths. KDD14 is left out.",
    seconds=280,
    memory_mb=1900,
    panels=PANELS[:2],
    tasks=partial(_tasks, rivals, SHARES),
    reasons=(*REASONS, *NONE),
    tried=dict.fromkeys((*VARIANTS, *RIVALS), TRIED),
    quick=False,
)
