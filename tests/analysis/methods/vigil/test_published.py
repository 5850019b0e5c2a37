# SPDX-License-Identifier: Apache-2.0
"""`007` is section 5.1 and algorithm 1: the plain reference agrees in every case."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from analysis.methods.vigil.vigil import Vigil
from analysis.telemetry.telemetry import Connections, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths
from tests.analysis.references.vigil import (
    Pair,
    Path,
    algorithm_1,
    least_votes,
    votes,
    without_noise,
)

CASES = 75
THRESHOLDS = (0.01, 0.0, 0.03, 0.1)
FABRICS = {"K=4": FatTree(4), "leaf-spine": leaf_spine(5, 3)}
EVERY = list(product(FABRICS, (0.0, 0.3)))


def every_path(fabric: Fabric) -> dict[Pair, list[Path]]:
    found = {}
    for src in range(fabric.n_tors):
        for dst in range(fabric.n_tors):
            if src != dst:
                ends = np.array([src], np.int32), np.array([dst], np.int32)
                paths = fabric.path_sets(*ends).paths
                found[src, dst] = [tuple(paths[p].tolist()) for p in range(len(paths))]
    return found


def case(seed: int, paths: dict[Pair, list[Path]], fabric: Fabric, broken: float):
    """Connections over a few bad links, and some over any links."""
    rng = np.random.default_rng([seed, fabric.n_links])
    pairs = list(paths)
    bad = set(rng.choice(fabric.n_links, rng.integers(1, 6), replace=False).tolist())
    traces = []
    for _ in range(rng.integers(1, 200)):
        pair = pairs[rng.integers(len(pairs))]
        path = paths[pair][rng.integers(len(paths[pair]))]
        if bad & set(path) or rng.random() < 0.15:
            cut = rng.integers(len(path)) if rng.random() < broken else len(path)
            traces.append((pair, path[:cut], bool(cut == len(path))))
    width = 1 + max((len(seen) for _, seen, _ in traces), default=0)
    rows = np.array([[*seen] + [-1] * (width - len(seen)) for _, seen, _ in traces], np.int32)
    connections = Connections(
        np.array([pair[0] for pair, _, _ in traces], np.int32),
        np.array([pair[1] for pair, _, _ in traces], np.int32),
        rng.integers(1, 4, len(traces)),
        Paths.from_padded(rows.reshape(len(traces), width)),
        np.array([complete for _, _, complete in traces], np.bool_),
        0,
    )
    return traces, Telemetry(fabric, "none", connections=connections)


def compared(name: str, broken: float) -> Iterator[tuple[Any, Any]]:
    """Yield the links that the method and its reference blame in each case, and the votes."""
    fabric = FABRICS[name]
    paths = every_path(fabric)
    for seed in range(CASES):
        traces, telemetry = case(seed, paths, fabric, broken)
        given = (*THRESHOLDS, None)[seed % (len(THRESHOLDS) + 1)]
        method = Vigil(threshold=given)
        assert method.published
        found = method.decide(telemetry)
        lost = telemetry.need("connections", "007").lost.tolist()
        voters = without_noise(traces, lost, paths, fabric.n_links)
        tally = votes(voters, paths, fabric.n_links)
        own = [votes([one], paths, fabric.n_links) for one in voters]
        lengths = [
            len(paths[pair][0]) if any(v) else 0
            for (pair, _, _), v in zip(voters, own, strict=True)
        ]
        hops = sum(lengths) / max(sum(n > 0 for n in lengths), 1)
        rule = partial(
            least_votes,
            hops=hops,
            n_links=fabric.n_links,
            spread=method.spread,
            alarms=method.alarms,
        )
        expected = sorted(algorithm_1(tally, paths, rule if given is None else given))
        blamed = set(found.flagged.tolist())
        others = [i for i in range(fabric.n_links) if i not in blamed]
        first = all(found.score[i] <= tally[i] + 1e-9 for i in range(fabric.n_links))
        ranked = not blamed or max(found.score[others], default=0.0) <= min(
            found.score[sorted(blamed)]
        ) * (1 + 1e-6)
        yield (found.flagged.tolist(), first and ranked), (expected, True)


@pytest.mark.parametrize(("name", "broken"), EVERY)
def test_it_is_the_paper_s(name: str, broken: float) -> None:
    """300 cases, half of them with traces that broke off."""
    blamed = 0
    for seed, (found, expected) in enumerate(compared(name, broken)):
        assert found == expected, seed
        blamed += len(found[0])
    assert blamed > 400


def test_each_change_changes_something() -> None:
    fabric = FatTree(4)
    paths = every_path(fabric)
    for change in Vigil.changes:
        method = Vigil(threshold=0.01, **{change.parameter: change.value})
        assert method.name == f"007+{change.name}" and not method.published
        differs = (
            method.decide(seen).flagged.tolist()
            != Vigil(threshold=0.01).decide(seen).flagged.tolist()
            for _, seen in (case(seed, paths, fabric, 0.3) for seed in range(20))
        )
        assert any(differs), change.name
