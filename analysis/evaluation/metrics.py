# SPDX-License-Identifier: Apache-2.0
"""Precision, recall and F1 of a diagnosis, on directed and on undirected links.

A run on real packets has two truths: the links with an injected fault, and the links that really
lost packets, whether a fault or an overloaded machine dropped them. A method that blames a link of
the latter kind is wrong by the first truth and right by the second.

Conventions: the precision of a verdict that blames nothing is undefined, nan, and recall is 1 when
nothing is faulty. F1 is 2 TP / (2 TP + FP + FN), which is the harmonic mean of precision and recall
where both are defined; so a method that blames nothing has an F1 of 0 where something is faulty,
and of 1 where nothing is. An undirected link (id >> 1) is faulty if either direction is.

What was not observed is no verdict (`analysis.telemetry.identifiability`). Faulty links that no
observation crossed, and that are not blamed, are no misses: they are counted apart. So recall and
F1 are undefined where all faulty links are such and nothing is blamed, and all is undefined where
nothing at all was observed.

Links that no observation separates are blamed as one class. ``f1`` is strict: each link of a blamed
class counts. ``class_f1`` is over classes: one is faulty if it holds a faulty link, or several, and
found if it is blamed. It is the same where every blamed and every faulty link is alone in its
class.

A bad threshold is not a bad method. ``best_f1`` is the F1 at the best cut of the method's own
ranking: of the verdicts that blame its first links, any number of them, that with the highest F1.
The ranking has the blamed links first, then the others, each by descending score; links with equal
scores are taken together. So ``best_f1`` is never below ``f1``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from analysis.telemetry.identifiability import Identifiability
from testbed.arrays import BoolArray, FloatArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric


@dataclass(frozen=True)
class Score:
    """The scores of a diagnosis. ``precision`` is nan if nothing is blamed. ``missed`` and
    ``wrong`` are ascending ids of what was scored: directed links, undirected links (``link >> 1``)
    or switches. ``unobserved`` are faulty links that were not observed; they are not in ``missed``.
    ``classes`` is the number of blamed classes of links. ``best_f1`` is nan without a ranking."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    true_positives: int
    false_positives: int
    false_negatives: int
    missed: tuple[int, ...]
    wrong: tuple[int, ...]
    unobserved: tuple[int, ...] = ()
    class_f1: float = math.nan
    classes: int = 0
    best_f1: float = math.nan

    @property
    def tied(self) -> bool:
        """Return True if a class of several links is blamed or missed, so that the scores over
        classes differ from those over links."""
        return self.classes < self.true_positives + self.false_positives or not (
            self.class_f1 == self.f1 or math.isnan(self.f1)
        )


def score(
    flagged: npt.NDArray[np.integer],
    truth: npt.NDArray[np.integer],
    topology: Fabric,
    tells: Identifiability | None = None,
    suspicion: FloatArray | None = None,
) -> dict[Literal["directed", "undirected"], Score]:
    """Return the scores of blamed links, on ``directed`` and on ``undirected`` links.

    Args:
        flagged, truth: Ids of the blamed and of the faulty directed links, in any order; repeats
            are allowed.
        topology: The fabric.
        tells: Which links the telemetry observed and tells apart; by default all.
        suspicion: The score of each directed link, float64[n_links], for ``best_f1``.

    Raises:
        UserError: An id is no link of the topology.
    """
    for name, links in (("flagged", flagged), ("truth", truth)):
        if len(links) and (links.min() < 0 or links.max() >= topology.n_links):
            raise UserError(f"{name} has numbers that are no links of {topology.title}")
    tells = tells or Identifiability.everything(topology.n_links)
    both = None if suspicion is None else np.maximum(suspicion[::2], suspicion[1::2])
    of_edges = np.unique(flagged >> 1), np.unique(truth >> 1), tells.undirected
    return {
        "directed": _score(np.unique(flagged), np.unique(truth), tells, suspicion),
        "undirected": _score(*of_edges, both),
    }


def lossy_links(
    faulty: BoolArray,
    fault_drops: npt.NDArray[np.integer],
    dropping: npt.NDArray[np.integer],
) -> npt.NDArray[np.integer]:
    """Return the ids of the directed links that really lost packets, ascending: int64[].

    Args:
        faulty: Whether a fault was injected, bool[n_links].
        fault_drops: Packets dropped by faults and noise, int[n_links]; a link without a fault, with
            noise alone, does not count.
        dropping: Ids of the links where the emulator itself dropped packets, in any order.
    """
    lost = faulty & (fault_drops > 0)
    lost[dropping] = True
    return np.flatnonzero(lost)


def best_cut(
    flagged: npt.NDArray[np.integer],
    truth: npt.NDArray[np.integer],
    judged: BoolArray,
    suspicion: FloatArray,
) -> float:
    """Return the highest F1, 0 to 1, of all cuts of a ranking; nan if there is nothing to find.

    Args:
        flagged: Ids of the blamed links, which are ranked first.
        truth: Ids of the faulty links.
        judged: Which links are ranked, bool[n_links]; the others are not observed.
        suspicion: The score of each link, float64[n_links].
    """
    if not len(truth):
        return 1.0 if judged.any() else math.nan
    blamed, faulty = np.zeros((2, len(judged)), np.bool_)
    blamed[flagged], faulty[truth] = True, True
    links = np.flatnonzero(judged)
    scored = int(faulty[links].sum())
    if not scored:
        return math.nan if not len(flagged) else 0.0
    order = links[np.lexsort((-suspicion[links], ~blamed[links]))]
    hits, accused = np.cumsum(faulty[order]), np.arange(1, len(order) + 1)
    before, after = order[:-1], order[1:]
    same = (blamed[before] == blamed[after]) & (suspicion[before] == suspicion[after])
    cuts = np.append(~same, True)
    return float((2 * hits[cuts] / (accused[cuts] + scored)).max())


def _score(
    flagged: npt.NDArray[np.integer],
    truth: npt.NDArray[np.integer],
    tells: Identifiability,
    suspicion: FloatArray | None,
) -> Score:
    judged = tells.observed.copy()
    judged[flagged] = True
    scored = truth[judged[truth]]
    hit = len(np.intersect1d(flagged, scored, assume_unique=True))
    wrong = np.setdiff1d(flagged, scored, assume_unique=True)
    missed = np.setdiff1d(scored, flagged, assume_unique=True)
    known, nothing = bool(judged.any()), not len(truth)
    blamed, faulty = np.unique(tells.classes[flagged]), np.unique(tells.classes[scored])
    found = len(np.intersect1d(blamed, faulty, assume_unique=True))

    def f1(hits: int, counted: int) -> float:
        """Return F1, 0 to 1, from the number of hits and that of all blamed and all faulty links.
        Without either it is 1 if nothing was there to find, otherwise nan."""
        return 2 * hits / counted if counted else 1.0 if known and nothing else math.nan

    return Score(
        precision=hit / len(flagged) if len(flagged) else math.nan,
        recall=hit / len(scored) if len(scored) else 1.0 if known and nothing else math.nan,
        f1=f1(hit, len(flagged) + len(scored)),
        accuracy=1 - (len(wrong) + len(missed)) / judged.sum() if known else math.nan,
        true_positives=hit,
        false_positives=len(wrong),
        false_negatives=len(missed),
        missed=tuple(missed.tolist()),
        wrong=tuple(wrong.tolist()),
        unobserved=tuple(truth[~judged[truth]].tolist()),
        class_f1=f1(found, len(blamed) + len(faulty)),
        classes=len(blamed),
        best_f1=math.nan if suspicion is None else best_cut(flagged, truth, judged, suspicion),
    )
