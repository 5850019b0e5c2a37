"""Healthy links blamed where nothing is faulty: published methods, and what varies them.

`python -m tests.studies healthy` measures and writes ``docs/papers/healthy.md``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.base import split
from analysis.methods.registry import METHODS, make_method
from tests.studies.changes import TELEMETRY, changes, observed

FILE = Path(__file__).parents[2] / "docs" / "papers" / "healthy.md"
FABRICS: Mapping[str, tuple[dict[str, Any], int]] = {
    "K=4": ({"k": 4}, 100),
    "K=8": ({"k": 8}, 100),
    "K=16": ({"k": 16}, 100),
    "leaf-spine 8x4": ({"topology": "leaf-spine:8:4"}, 100),
}
"""The settings of each fabric besides the noise, and over how many seeds, from 1 on."""

NOISES = {"0": "0", "1e-5": "0.00001", "1e-4": "0.0001"}


def write_healthy(console: Console) -> None:
    names = list(dict.fromkeys(n for name, c in changes() for n in (name, f"{name}+{c.name}")))
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
    FILE.write_text("\n".join(_document(blamed)) + "\n")
    console.print(f"{FILE.name} is written")


def _document(blamed: Mapping[str, list[int]]) -> Iterator[str]:
    whose = {f"{name}+{change.name}": change.whose for name, change in changes()}
    seeds = ", ".join(f"{seeds} at {title}" for title, (_, seeds) in FABRICS.items())
    yield f"""# What methods blame where nothing is faulty

`python -m tests.studies healthy` measures and writes this. `BACKEND=flow`, {TELEMETRY}, default
settings; runs: {seeds}. Columns: what each healthy link loses. A cell has the links
blamed in all runs together, on the method's own terms; **bold** is more than the published method
blames. *Whose* a variant is says [changes](changes.md).
"""
    silent = [name for name, links in blamed.items() if not any(links)]
    head = [f"{title}, {noise}" for title in FABRICS for noise in NOISES]
    yield f"| method | whose | {' | '.join(head)} |"
    yield f"| --- | --- |{' ---: |' * len(head)}"
    for name, links in blamed.items():
        if name in silent:
            continue
        of = blamed[split(name)[0]]
        cells = [f"**{n}**" if n > most else str(n) for n, most in zip(links, of, strict=True)]
        own = whose.get(name, "this project" if "+" in name else "published")
        yield f"| `{name}` | {own} | {' | '.join(cells)} |"
    yield f"\nThese blame nothing in any run: {', '.join(f'`{name}`' for name in silent)}."
