# SPDX-License-Identifier: Apache-2.0
"""What each change of a published method is, and what it does to F1 and to false alarms.

`python -m tests.studies changes` measures and writes ``docs/data/changes.csv``. What each
change is stands in the methods' classes (`analysis.methods.variants`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.registry import METHODS, ON_REQUEST, make_method
from analysis.methods.variants import Change, changes_of
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import make_request
from scenarios.experiment.without_packets import simulate
from testbed.measurements.registry import MEASUREMENTS
from tests.studies.data import write_rows

SEEDS: Mapping[int, Sequence[int]] = {4: range(21, 26), 8: range(21, 24), 16: range(21, 22)}
"""Which seeds the figures are means of, by the fabric's K."""

WORLDS = {"10 % of the links": "10pct", "few and faint": "1..8links:0.001..0.01", "healthy": "none"}
TELEMETRY = "A1+A2+P"


def changes() -> Iterator[tuple[str, Change]]:
    """Return every change with its method's name, in the order of the tables."""
    for name, constructor in (METHODS | ON_REQUEST).items():
        if "+" not in name:
            yield from ((name, change) for change in changes_of(constructor))


def measured() -> Iterator[tuple[str, Change]]:
    """Return those of methods that can be asked about a run without packets."""
    for name, change in changes():
        if set(getattr(make_method(name), "views", ())) <= MEASUREMENTS.keys():
            yield name, change


def observed(**settings: Any) -> tuple[Telemetry, Any]:
    """Simulate a run without packets; return its telemetry and its faulty directed links."""
    request = make_request(None, {"backend": "flow", **settings})
    made = request.settings()
    layout = layout_of(made, request.scenario)
    return read_telemetry(simulate(layout), TELEMETRY), layout.plan.links


def write_changes(console: Console) -> None:
    names = list(dict.fromkeys(n for name, c in measured() for n in (name, f"{name}+{c.name}")))
    names += [name for name in METHODS if "+" in name and name not in names]
    effects: dict[tuple[str, str, int], str] = {}
    for world, faults in WORLDS.items():
        for k, seeds in SEEDS.items():
            seen = [observed(k=k, seed=seed, faults=faults) for seed in seeds]
            for name in names:
                each = [_figure(name, *one) for one in seen]
                text = f"{np.mean(each):.1f}" if faults == "none" else f"{np.mean(each):.2f}"
                effects[name, world, k] = text
            console.print(f"{world}, K={k}")
    rows = [(*key, effects[key]) for n in names for key in effects if key[0] == n]
    console.print(f"written: {write_rows('changes', ('method', 'world', 'k', 'figure'), rows)}")


def _figure(name: str, telemetry: Telemetry, faulty: Any) -> float:
    """Return F1 on the method's own terms, or where nothing is faulty how many links it blames."""
    found = make_method(name).localize(telemetry)
    own = score(found.flagged, faulty, telemetry.topology)[found.native]
    return own.f1 if len(faulty) else own.false_positives
