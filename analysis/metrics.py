"""How good a verdict is, on directed and on undirected links.

Conventions (as Flock's appendix): precision is 1 when nothing is flagged, recall is 1 when nothing
is faulty; hence a silent method on a healthy network scores 1 throughout. F1 is their harmonic
mean, 0 when both are 0. An undirected link (id >> 1) is faulty if either direction is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from testbed.topology import FatTree

__all__ = ["Score", "score"]


@dataclass(frozen=True)
class Score:
    """Detection quality. ``missed`` and ``wrong`` are ascending link ids: directed ids in a
    directed score, undirected ids (``link >> 1``) in an undirected one."""

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
    flagged: npt.NDArray[np.integer], truth: npt.NDArray[np.integer], topology: FatTree
) -> dict[Literal["directed", "undirected"], Score]:
    """Compare flagged with truly faulty directed links (ids, any order, repeats allowed).

    Raises:
        ValueError: An id is no link of the topology.
    """
    for name, links in (("flagged", flagged), ("truth", truth)):
        if len(links) and (links.min() < 0 or links.max() >= topology.n_links):
            raise ValueError(f"{name} has ids that are no link of a K={topology.k} fat-tree")
    return {
        "directed": _score(np.unique(flagged), np.unique(truth), topology.n_links),
        "undirected": _score(np.unique(flagged >> 1), np.unique(truth >> 1), topology.n_edges),
    }


def _score(flagged: npt.NDArray[np.integer], truth: npt.NDArray[np.integer], n_links: int) -> Score:
    hit = len(np.intersect1d(flagged, truth, assume_unique=True))
    wrong = np.setdiff1d(flagged, truth, assume_unique=True)
    missed = np.setdiff1d(truth, flagged, assume_unique=True)
    precision = hit / len(flagged) if len(flagged) else 1.0
    recall = hit / len(truth) if len(truth) else 1.0
    both = precision + recall
    return Score(
        precision=precision,
        recall=recall,
        f1=2 * precision * recall / both if both else 0.0,
        accuracy=1 - (len(wrong) + len(missed)) / n_links,
        true_positives=hit,
        false_positives=len(wrong),
        false_negatives=len(missed),
        missed=tuple(int(link) for link in missed),
        wrong=tuple(int(link) for link in wrong),
    )
