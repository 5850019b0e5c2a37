"""The environments of Flock's table 1: where schemes are calibrated, and where they are tested."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from analysis.evaluation.calibration import Case
from scenarios.papers.flock_world import (
    FLOWS,
    World,
    device_failures,
    lossy_links,
    network,
    silent_drops,
    trace,
)
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.topologies import make_fabric

Made = tuple[World, Case]


def by_rate(small: bool, seed: int, low: float, high: float) -> Made:
    """Silent drops of 1 to 8 links at rates between ``low`` and ``high``."""
    ecmp, rng = network(small), np.random.default_rng([seed, 77])
    failed = rng.choice(ecmp.fabric.n_links, 1 + seed % 8, replace=False)
    loss = lossy_links(ecmp.fabric, failed, rng.uniform(low, high, len(failed)), rng)
    world = trace(ecmp, loss, flows(small), rng, skewed=seed // 8 % 2 == 1)
    return world, Case(world.telemetry("A1"), failed)


def misconfigured(small: bool, seed: int) -> Made:
    """A queue that drops up to 1 % in the paper's cluster of 8 leaves, 2 spines and 48 hosts."""
    fabric = make_fabric("leaf-spine:8:2", 4, seed)
    rng = np.random.default_rng([seed, 78])
    failed = rng.choice(fabric.n_links, 1)
    loss = lossy_links(fabric, failed, rng.uniform(2e-3, 1e-2, 1), rng)
    world = trace(Ecmp(fabric), loss, flows(small) // 4, rng, skewed=seed % 2 == 1)
    return world, Case(world.telemetry("A1"), failed)


def flows(small: bool) -> int:
    return 4_000 if small else FLOWS


def drops(small: bool, seed: int, share: float = 1.0) -> Made:
    return silent_drops(network(small), seed, round(share * flows(small)))


def devices(small: bool, seed: int) -> Made:
    return device_failures(network(small), seed, flows(small))


ENVIRONMENTS: Mapping[str, tuple[Callable[..., Made], Callable[..., Made]]] = {
    "topology": (drops, misconfigured),
    "failure rate": (partial(by_rate, low=1e-3, high=4e-3), partial(by_rate, low=5e-3, high=1e-2)),
    "interval": (partial(drops, share=0.25), drops),
    "scenario": (drops, devices),
}
"""What differs: the environment of the calibration, and that of the test."""
