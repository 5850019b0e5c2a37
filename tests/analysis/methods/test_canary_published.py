# SPDX-License-Identifier: Apache-2.0
"""`canary` is the algorithm of section III-F: it agrees with the plain reference in every case."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from analysis.methods.canary import Canary
from analysis.solvers.stages import GROUPS
from analysis.telemetry.telemetry import SegmentCounts, Telemetry
from testbed.fabric.fat_tree import FatTree
from tests.analysis.conftest import path_success
from tests.analysis.references.canary import canary

CASES = 25
GROUPINGS: tuple[int | Sequence[float], ...] = (GROUPS, 1, 3, (1.0, 0.01, 0.0))
WHERE = ((4, "tor+core"), (4, "tor"), (6, "tor+core"))
EVERY = list(product(GROUPINGS, WHERE))


@cache
def case(seed: int, k: int, monitors: str) -> Telemetry:
    """Some faults of all rates, some background, some segments unobserved; few or many packets."""
    rng = np.random.default_rng([seed, k, len(monitors)])
    fabric = FatTree(k)
    segments = fabric.segments(monitors)
    loss = rng.choice([0.0, 1e-5, 3e-4], fabric.n_links) * rng.integers(0, 2)
    faulty = rng.choice(fabric.n_links, rng.integers(0, fabric.n_links // 6), replace=False)
    loss[faulty] = rng.choice([1.0, 0.5, 0.15, 0.07, 0.03, 0.004, 0.001], len(faulty))
    sent = rng.integers(0, rng.choice([3, 50, 1000, 30_000]), (rng.integers(1, 7), len(segments)))
    sent[:, rng.random(len(segments)) < 0.1] = 0
    counts = SegmentCounts(
        segments, sent, rng.binomial(sent, 1 - path_success(segments.paths, loss))
    )
    return Telemetry(fabric, monitors, segments=counts)


def reference(
    telemetry: Telemetry,
    groups: int | Sequence[float],
    share: float | tuple[float, float, int],
    penalty: float,
) -> list[list[int]]:
    counts = telemetry.need("segments", "canary")
    paths = counts.segments.paths
    found = canary(
        [sorted(paths[s].tolist()) for s in range(len(paths))],
        counts.segments.subproblem.tolist(),
        counts.sent.tolist(),
        counts.lost.tolist(),
        groups,
        share,
        penalty,
        1e-4,
    )
    return [sorted(links) for links in found]


def compared(
    groups: int | Sequence[float], where: tuple[int, str]
) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield what the method and its reference blame in each case, stage by stage."""
    for seed in range(CASES):
        telemetry = case(seed, *where)
        share, penalty = (0.25, 0.0, 1.0, None)[seed % 4], (1.0, 0.3, 2.0)[seed // 3 % 3]
        method = Canary(groups=groups, lossy_share=share, penalty=penalty)
        assert method.published
        found = method.decide(telemetry)
        rule = (method.healthy_loss, method.alarms, telemetry.topology.n_links)
        expected = reference(telemetry, groups, rule if share is None else share, penalty)
        yield [stage.tolist() for stage in found.stages], expected


@pytest.mark.parametrize(("groups", "where"), EVERY)
def test_it_is_the_paper_s(groups: int | Sequence[float], where: tuple[int, str]) -> None:
    """300 cases, each with its stages; lambda = 1 as printed, and others."""
    blamed = 0
    for seed, (found, expected) in enumerate(compared(groups, where)):
        assert found == expected, seed
        blamed += len(found[-1])
    assert blamed > 100


def test_each_change_changes_something() -> None:
    for change in Canary.changes:
        method = Canary(**{change.parameter: change.value})
        assert method.name == f"canary+{change.name}" and not method.published
        differs = (
            method.decide(seen).flagged.tolist() != Canary().decide(seen).flagged.tolist()
            for seen in (case(seed, 4, "tor") for seed in range(40))
        )
        assert any(differs), change.name
