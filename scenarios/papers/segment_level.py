"""Figures 8 to 10 as the Canary authors simulated them: a fat-tree as path segments, no packets.

Faults drop both ways; each segment counts alpha to 1.5 alpha packets in one epoch; NetBouncer has
one prober a ToR, which probes each core switch. Nothing else loses packets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from analysis.evaluation.metrics import Score, score
from analysis.methods.base import Localizer
from analysis.methods.flock.flock import Flock
from analysis.methods.netbouncer import NetBouncer, NetBouncerStage
from analysis.solvers.stages import GROUPS
from analysis.telemetry.telemetry import Probes, SegmentCounts, Telemetry
from scenarios.papers.experiment import Row, label
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from testbed.faults.specification import PAPER_RATES, draw_rates

ALPHAS = (200, 500, 1000)
PROBES = 100
STAGES, LEAST = 5, GROUPS[-1]
FOUND, WRONG, LAST = "links found", "links wrong", "the end"
SHOWN = ("accuracy", "precision", "recall", "F1")
FROM_PROBES: Mapping[str, Localizer] = {
    "NetBouncer": NetBouncer(penalty=1.0),
    "Flock": Flock.canary_table_iii(),
    "NetBouncer-stage": NetBouncerStage(penalty=1.0),
}
"""With the parameters of Canary's table III."""


@dataclass(frozen=True)
class World:
    """``loss`` float64[n_links] of each directed link, the ``faulty`` ones, and what was seen."""

    fabric: FatTree
    loss: npt.NDArray[np.float64]
    faulty: npt.NDArray[np.int64]
    telemetry: Telemetry

    @classmethod
    def draw(cls, k: int, alpha: int, seed: int, share: float = 0.1) -> World:
        """A tenth of the undirected links fail, with the rates' proportions of section IV-D.

        Equal seeds give equal faults and probes, whatever ``alpha``.
        """
        rng = np.random.default_rng([seed, k, 8])
        fabric = FatTree(k)
        edges = rng.choice(fabric.n_edges, round(share * fabric.n_edges), replace=False)
        loss = np.zeros(fabric.n_links)
        rates = draw_rates(rng, len(edges), PAPER_RATES)
        loss[2 * edges] = loss[2 * edges + 1] = rates
        bounces = Ecmp(fabric).bounces()
        sent = np.full(len(bounces), PROBES, np.int64)
        probes = Probes(bounces, sent, rng.binomial(sent, _lost_share(bounces, loss)))
        segments = fabric.segments()
        counted = rng.integers(0, 1 << 62, len(segments)) / 2.0**62  # one draw for all alphas
        packets = (alpha * (1 + 0.5 * counted)).astype(np.int64)[None, :]
        lost = np.random.default_rng([seed, alpha]).binomial(
            packets, _lost_share(segments.paths, loss)
        )
        telemetry = Telemetry(
            fabric, "tor+core", segments=SegmentCounts(segments, packets, lost), probes=probes
        )
        return cls(fabric, loss, np.flatnonzero(loss > 0), telemetry)


def _lost_share(paths: Paths, loss: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The chance to be lost on each path."""
    padded = paths.padded()
    through = np.where(padded >= 0, 1 - loss[padded], 1.0)
    return 1 - through.prod(axis=1)


def even(loss: npt.NDArray[np.float64], groups: int) -> Sequence[float]:
    """Descending edges that divide lossy segments (their ``loss``) into groups of equal numbers."""
    inner = np.quantile(loss, np.linspace(1, 0, groups + 1)[1:-1])
    return [1.0, *np.clip(inner, 1.01 * LEAST, 0.999), LEAST]


def as_rates(telemetry: Telemetry, packets: int) -> Telemetry:
    """Probes' loss rates as if each path had had so many packets."""
    probes = telemetry.need("probes", "rates")
    lost = np.round(probes.lost / probes.sent * packets).astype(np.int64)
    return replace(telemetry, probes=Probes(probes.paths, np.full_like(lost, packets), lost))


def stages(
    name: str, method: Localizer, telemetry: Telemetry, faulty: npt.NDArray[np.int64], draw: int
) -> list[Row]:
    """The scores of a method after each of five stages, and its links found and wrong at the end:
    of undirected links where it reads probes, of directed ones where it reads segments."""
    verdict = method.localize(telemetry)
    flagged = verdict.stages or (verdict.flagged,) * STAGES
    after = [score(links, faulty, telemetry.topology)[verdict.native] for links in flagged]
    rows = [
        Row(quantity, name, label(stage), draw, value)
        for stage, each in enumerate(after, 1)
        for quantity in SHOWN
        if not math.isnan(value := _figure(each, quantity))  # the precision of no link blamed
    ]
    rows.append(Row(FOUND, name, LAST, draw, after[-1].true_positives))
    rows.append(Row(WRONG, name, LAST, draw, after[-1].false_positives))
    return rows


def _figure(of: Score, quantity: str) -> float:
    return {
        "accuracy": of.accuracy,
        "precision": of.precision,
        "recall": of.recall,
        "F1": of.f1,
    }[quantity]
