"""How good a verdict is, on directed and on undirected links.

There are two truths of a run on real packets: the links with an injected fault, and the links that
really lost packets, by faults or because a machine that was too busy dropped them. A method that
blames one of the latter is wrong by the first and right by the second.

Conventions: the precision of a verdict that blames nothing is undefined, nan, and recall is 1 when
nothing is faulty. F1 is 2 TP / (2 TP + FP + FN), which is the harmonic mean of precision and recall
where both are defined; so a method that blames nothing has an F1 of 0 where something is faulty,
and of 1 where nothing is. An undirected link (id >> 1) is faulty if either direction is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.arrays import BoolArray
from testbed.errors import UserError
from testbed.fabric.clos import Fabric


@dataclass(frozen=True)
class Score:
    """Detection quality. ``precision`` is nan where nothing is blamed. ``missed`` and ``wrong`` are
    ascending ids: of directed links, of undirected links (``link >> 1``) or of switches, as what
    was scored."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    true_positives: int
    false_positives: int
    false_negatives: int
    missed: tuple[int, ...]
    wrong: tuple[int, ...]


def score(
    flagged: npt.NDArray[np.integer], truth: npt.NDArray[np.integer], topology: Fabric
) -> dict[Literal["directed", "undirected"], Score]:
    """Compare flagged with truly faulty directed links (ids, any order, repeats allowed).

    Raises:
        ValueError: An id is no link of the topology.
    """
    for name, links in (("flagged", flagged), ("truth", truth)):
        if len(links) and (links.min() < 0 or links.max() >= topology.n_links):
            raise UserError(f"{name} has ids that are no link of {topology.title}")
    return {
        "directed": _score(np.unique(flagged), np.unique(truth), topology.n_links),
        "undirected": _score(np.unique(flagged >> 1), np.unique(truth >> 1), topology.n_edges),
    }


def lossy_links(
    faulty: BoolArray,
    fault_drops: npt.NDArray[np.integer],
    dropping: npt.NDArray[np.integer],
) -> npt.NDArray[np.integer]:
    """The directed links that really lost packets, ascending ids.

    Args:
        faulty: Whether a fault was injected, bool[n_links].
        fault_drops: Packets that faults and noise took, int[n_links]; noise alone counts as none.
        dropping: Ids of the links where the emulator itself dropped packets, any order.
    """
    lost = faulty & (fault_drops > 0)
    lost[dropping] = True
    return np.flatnonzero(lost)


def device_score(
    blamed: npt.NDArray[np.integer], truth: npt.NDArray[np.integer], topology: Fabric
) -> Score:
    """Compare blamed with truly faulty switches (ids, any order, repeats allowed).

    Raises:
        ValueError: An id is no switch of the topology.
    """
    for name, switches in (("blamed", blamed), ("truth", truth)):
        if len(switches) and (switches.min() < 0 or switches.max() >= topology.n_switches):
            raise UserError(f"{name} has ids that are no switch of {topology.title}")
    return _score(np.unique(blamed), np.unique(truth), topology.n_switches)


def _score(flagged: npt.NDArray[np.integer], truth: npt.NDArray[np.integer], n_links: int) -> Score:
    hit = len(np.intersect1d(flagged, truth, assume_unique=True))
    wrong = np.setdiff1d(flagged, truth, assume_unique=True)
    missed = np.setdiff1d(truth, flagged, assume_unique=True)
    counted = len(flagged) + len(truth)
    return Score(
        precision=hit / len(flagged) if len(flagged) else math.nan,
        recall=hit / len(truth) if len(truth) else 1.0,
        f1=2 * hit / counted if counted else 1.0,
        accuracy=1 - (len(wrong) + len(missed)) / n_links,
        true_positives=hit,
        false_positives=len(wrong),
        false_negatives=len(missed),
        missed=tuple(int(link) for link in missed),
        wrong=tuple(int(link) for link in wrong),
    )
