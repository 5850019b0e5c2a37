# SPDX-License-Identifier: Apache-2.0
"""`detector` does what its docstring describes: the plain reference agrees in every case.

Whether that is what the paper prints cannot be checked here: the text at hand ends before PLL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from analysis.methods.detector import Detector
from analysis.telemetry.telemetry import Probes, Telemetry
from testbed.fabric.clos import Fabric, leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from tests.analysis.references.detector import pll

CASES = 75
FABRICS = {"K=4": FatTree(4), "leaf-spine": leaf_spine(5, 3)}
EVERY = list(product(FABRICS, (0.6, 0.25)))


def case(seed: int, fabric: Fabric) -> Telemetry:
    """Links of all rates, some of which spare paths, background, and paths not probed."""
    rng = np.random.default_rng([seed, fabric.n_links])
    src, dst = np.divmod(np.arange(fabric.n_tors**2, dtype=np.int32), np.int32(fabric.n_tors))
    apart = src != dst
    paths = Ecmp(fabric).draw(np.repeat(src[apart], 2), np.repeat(dst[apart], 2), rng)
    loss = rng.choice([0.0, 1e-4, 1e-3], fabric.n_links) * rng.integers(0, 2)
    faulty = rng.choice(fabric.n_links, rng.integers(0, fabric.n_links // 8), replace=False)
    loss[faulty] = rng.choice([1.0, 0.5, 0.1, 0.01], len(faulty))
    spared = rng.random((len(paths), fabric.n_links)) < 0.3 * rng.integers(0, 2)
    through = [
        math.prod(1.0 if spared[p, i] else float(1 - loss[i]) for i in paths[p])
        for p in range(len(paths))
    ]
    sent = rng.integers(5, 100, len(paths)) * (rng.random(len(paths)) > 0.1)
    probes = Probes(paths, sent, rng.binomial(sent, 1 - np.array(through)))
    return Telemetry(fabric, "none", detector=probes)


def compared(name: str, hit_ratio: float) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the links that the method and its reference blame in each case."""
    for seed in range(CASES):
        telemetry, noise = case(seed, FABRICS[name]), (1e-5, 1e-3)[seed % 2]
        probes = telemetry.need("detector", "detector")
        method = Detector(hit_ratio=hit_ratio, noise=noise, significance=0.02)
        assert method.published
        expected = pll(
            [probes.paths[p].tolist() for p in range(len(probes))],
            probes.sent.tolist(),
            probes.lost.tolist(),
            hit_ratio,
            noise,
            0.02,
        )
        yield method.decide(telemetry).flagged.tolist(), sorted(expected)


@pytest.mark.parametrize(("name", "hit_ratio"), EVERY)
def test_it_is_what_is_described(name: str, hit_ratio: float) -> None:
    """300 cases."""
    blamed = 0
    for seed, (found, expected) in enumerate(compared(name, hit_ratio)):
        assert found == expected, seed
        blamed += len(expected)
    assert blamed > 40
