"""What each change of a published method is, and what it does to F1 and to false alarms.

`python -m tests.studies changes` measures and writes ``docs/papers/changes.md``. Its words are
those of the methods' classes (`analysis.methods.base`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from analysis.evaluation.metrics import score
from analysis.methods.base import Change, changes_of
from analysis.methods.registry import METHODS, ON_REQUEST, make_method
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment.request import make_request
from scenarios.experiment.without_packets import simulate
from testbed.fabric.topologies import make_fabric

FILE = Path(__file__).parents[2] / "docs" / "papers" / "changes.md"
HEAD = "| variant | whose | where | what is printed | what we do | why |"
SEEDS: Mapping[int, Sequence[int]] = {4: range(21, 26), 8: range(21, 24), 16: range(21, 22)}
"""Which seeds the figures are means of, by the fabric's K."""

WORLDS = {"10 % of the links": "10pct", "few and faint": "1..8links:0.001..0.01", "healthy": "none"}
TELEMETRY = "A1+A2+P"
LINE = "\n"
_RULE = "| --- | --- | --- | --- | --- | --- |"


def changes() -> Iterator[tuple[str, Change]]:
    """Return every change with its method's name, in the order of the tables."""
    for name, constructor in (METHODS | ON_REQUEST).items():
        if "+" not in name:
            yield from ((name, change) for change in changes_of(constructor))


def words() -> list[str]:
    """Return a row of the table for each change."""
    return [
        f"| `{name}+{c.name}` (`{c.parameter}={_value(c.value)}`) | {c.whose} | {c.section} | "
        f"{c.printed} | {c.ours} | {c.why} |"
        for name, c in changes()
    ]


def _value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def observed(**settings: Any) -> tuple[Telemetry, Any]:
    """Simulate a run without packets; return its telemetry and its faulty directed links."""
    request = make_request(None, {"backend": "flow", **settings})
    made = request.settings()
    fabric = make_fabric(made.topology, made.k, made.seed)
    plan = request.scenario.faults(fabric, made)
    return simulate(made, plan, fabric).telemetry(TELEMETRY), plan.links


def write_changes(console: Console) -> None:
    names = list(dict.fromkeys(n for name, c in changes() for n in (name, f"{name}+{c.name}")))
    names += [name for name in METHODS if "+" in name and name not in names]
    effects: dict[tuple[str, str], list[str]] = {}
    for world, faults in WORLDS.items():
        for k, seeds in SEEDS.items():
            seen = [observed(k=k, seed=seed, faults=faults) for seed in seeds]
            for name in names:
                each = [_figure(name, *one) for one in seen]
                text = f"{np.mean(each):.1f}" if faults == "none" else f"{np.mean(each):.2f}"
                effects.setdefault((name, world), []).append(text)
            console.print(f"{world}, K={k}")
    rows = [
        f"| `{name}` | " + " | ".join(", ".join(effects[name, world]) for world in WORLDS) + " |"
        for name in names
    ]
    FILE.write_text(_document(rows))
    console.print(f"{FILE.name} is written")


def _figure(name: str, telemetry: Telemetry, faulty: Any) -> float:
    """Return F1 on the method's own terms, or where nothing is faulty how many links it blames."""
    found = make_method(name).localize(telemetry)
    own = score(found.flagged, faulty, telemetry.topology)[found.native]
    return own.f1 if len(faulty) else own.false_positives


def _document(rows: Sequence[str]) -> str:
    seeds = ", ".join(f"{len(seeds)} at K={k}" for k, seeds in SEEDS.items())
    return f"""# What this project changed in published methods

`canary`, `netbouncer`, `netbouncer-stage`, `flock`, `007` and `detector` are the algorithms of
their papers. Each change is a parameter that is off in them; `NAME+CHANGE` turns it on, and several
may be combined. `python -m tests.studies changes` writes this file from the methods' classes. Not
all of them are this project's: some are what a paper compares its method with, or what its authors'
code does, and blame more healthy links than the method ([healthy links](healthy.md)). None of this
project's does.

{HEAD}
{_RULE}
{LINE.join(words())}

## What they change

Mean F1 on each method's own terms at K=4, 8 and 16, and where nothing is faulty the links blamed in
a run: `BACKEND=flow`, {TELEMETRY}, default settings; seeds: {seeds}. Few and faint are one to eight
links that lose 0.1 to 1 %. So few seeds show what is large.

| method | {" | ".join(WORLDS)} |
| --- |{" --- |" * len(WORLDS)}
{LINE.join(rows)}
"""
