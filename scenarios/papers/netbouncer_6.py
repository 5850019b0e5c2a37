"""NetBouncer's figure 6: its variants; and what figures 8 and 9 have in common with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from analysis.methods.base import Localizer
from analysis.methods.netbouncer import NetBouncer
from scenarios.papers.experiment import (
    Effort,
    Experiment,
    Panel,
    Reason,
    Row,
    Task,
    label,
    together,
)
from scenarios.papers.netbouncer_network import QUANTITIES, Network, scores

SHARES = (0.001, 0.01, 0.1)
OURS = "NetBouncer"
DEFAULT = NetBouncer(penalty=1.0)
VARIANTS: Mapping[str, Localizer] = {
    OURS: DEFAULT,
    "NetBouncer+lucky": NetBouncer(penalty=1.0, lucky_share=0.001),
    "w/o DFD": NetBouncer(penalty=1.0, device_detection=False),
    "convex": NetBouncer(penalty=1.0, model="convex"),
    **{f"L1 (λ={weight:g})": NetBouncer(penalty=weight, model="l1") for weight in (0.5, 1.0, 2.0)},
}


def variants(draw: int, k: int, share: float) -> list[Row]:
    return scores(Network.make(k), VARIANTS, share, draw, {"hop by hop": DEFAULT})


def by_share(
    work: Callable[[int, int, float], Sequence[Row]], shares: tuple[float, ...], effort: Effort
) -> Mapping[str, Task]:
    """A task a share of faulty links: the network alone takes five seconds to make."""
    k = 8 if effort.small else 48
    return {
        f"{label(100 * share)}-{draws}": partial(_draws, work, some, k, share)
        for share in shares
        for draws, some in together(effort.draws).items()
    }


def _draws(
    work: Callable[[int, int, float], Sequence[Row]], draws: range, k: int, share: float
) -> list[Row]:
    return [row for draw in draws for row in work(draw, k, share)]


SETTING = (
    "A Clos of 48-port switches with 27,648 servers and 82,944 links, 10 devices of which all "
    "links fail, 100 packets a path. The paper does not say how many paths: ours are 24 over each "
    "link, a 24th of all server-core paths, at which λ = 1 lets show what loses 2 % and more. "
    "Links are good above 0.999. With NetBouncer+lucky a device is bad if no more than 0.1 % of "
    "its paths are good, as some of those through links that lose 2 % are. "
)
PLAN = (
    "The paper's paths are unknown: with more or fewer of them over a link, λ, ω and noise weigh "
    "otherwise."
)
TRIED = (
    "Tried (one other draw): 12, 24, 48, 72, 96 and 120 paths over a link, dealt evenly or drawn "
    "at random, healthy links that lose twice as much, 20 packets a path. No plan gives the "
    "paper's columns at once: errors as the paper's (λ=2: 0.14, 1.41, 15.88) are those of 24 "
    "random paths (0.12, 1.16, 15.4), its false negatives there (0.3, 1.1, 25.6) those of 48 or "
    "more (0, 4, 36), its false positives at λ = 0.5 (48.5, 81.1) those of 90 to 120 (96: 16, 63; "
    "120: 59, 197), where the errors are 0.03. At 10 % and λ = 1 48 random paths give 1 false "
    "positive of L1 and none of NetBouncer."
)
PANELS = tuple(
    Panel(quantity, "% of the links faulty", quantity, log_x=True, log_y=True)
    for quantity in QUANTITIES
)
FOR_NONE = tuple(
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
    seconds=160,
    memory_mb=1900,
    panels=PANELS,
    tasks=partial(by_share, variants, SHARES),
    reasons=(
        *(
            Reason(PLAN, quantity, name, ratio=(0.02, 400.0))
            for name in (*VARIANTS, "hop by hop")
            for quantity in QUANTITIES
        ),
        *FOR_NONE,
    ),
    tried=dict.fromkeys(VARIANTS, TRIED),
    quick=False,
)
