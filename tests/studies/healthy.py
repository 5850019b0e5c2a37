# SPDX-License-Identifier: Apache-2.0
"""Healthy links blamed where nothing is faulty: published methods, and what varies them.

`python -m tests.studies healthy` measures and writes ``docs/data/healthy.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.registry import METHODS, make_method
from tests.studies.changes import measured, observed
from tests.studies.data import write_rows

FABRICS: Mapping[str, tuple[dict[str, Any], int]] = {
    "K=4": ({"k": 4}, 100),
    "K=8": ({"k": 8}, 100),
    "K=16": ({"k": 16}, 100),
    "leaf-spine 8x4": ({"topology": "leaf-spine:8:4"}, 100),
}
"""The settings of each fabric besides the noise, and over how many seeds, from 1 on."""

NOISES = {"0": "0", "1e-5": "0.00001", "1e-4": "0.0001"}


def write_healthy(console: Console) -> None:
    names = list(dict.fromkeys(n for name, c in measured() for n in (name, f"{name}+{c.name}")))
    names += [name for name in METHODS if name not in names]
    blamed: dict[str, list[int]] = {name: [] for name in names}
    for title, (settings, seeds) in FABRICS.items():
        for noise in NOISES.values():
            found = dict.fromkeys(names, 0)
            for seed in range(1, seeds + 1):
                seen, faulty = observed(faults="none", noise=noise, seed=seed, **settings)
                for name in names:
                    verdict = make_method(name).localize(seen)
                    own = score(verdict.flagged, faulty, seen.topology)[verdict.native]
                    found[name] += own.false_positives
            for name in names:
                blamed[name].append(found[name])
            console.print(f"{title}, noise {noise}: {seeds} seeds")
    columns = [(title, noise) for title in FABRICS for noise in NOISES]
    rows = [
        (name, *column, links)
        for name, each in blamed.items()
        for column, links in zip(columns, each, strict=True)
    ]
    head = ("method", "fabric", "noise", "blamed")
    console.print(f"written: {write_rows('healthy', head, rows)}")
