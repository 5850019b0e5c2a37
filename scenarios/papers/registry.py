# SPDX-License-Identifier: Apache-2.0
"""All experiments in the order of the papers, and the figures that are left out, with the reasons.

``values.yaml`` declares how each figure is drawn and explained, and the values that its paper
prints; the code that computes it is named here alone. Each value comes with a quote from the paper;
no value is read off a picture or written from memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from scenarios.papers import (
    canary_flows,
    canary_localization,
    canary_sketches,
    canary_tables,
    canary_theorems,
    detector,
    flock,
    netbouncer,
    vigil,
)
from scenarios.papers.experiment import (
    Declared,
    Experiment,
    Kind,
    OverAll,
    Printed,
    Side,
    Tasks,
    label,
    no_rows,
)
from testbed.errors import UserError
from testbed.fabric.names import nearest
from testbed.record.yaml_file import read_yaml

FILE = Path(__file__).parent / "values.yaml"

_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(?:\s*×\s*10\^?\{?(-?\d+)\}?|(k)\b)?")


class _Group(BaseModel):
    """The values of one quantity and series from one quote, by x."""

    model_config = ConfigDict(extra="forbid")

    quantity: str
    series: str
    kind: Kind
    side: Side | None = None
    rounding: float = Field(default=0.0, ge=0)
    mean: bool = False
    section: str = Field(min_length=1)
    quote: str = Field(min_length=1)
    arithmetic: str = ""
    values: dict[float | str, float] = Field(min_length=1)

    @model_validator(mode="after")
    def _whole(self) -> _Group:
        """Check that a bound has a side, a derived value its arithmetic, and that stated values are
        in the quote."""
        if (self.kind == "bound") != (self.side is not None):
            raise ValueError(
                "a bound needs a side, above or below, and other values must not have one"
            )
        if (self.kind == "derived") != bool(self.arithmetic):
            raise ValueError(
                "a derived value needs its arithmetic, and other values must not have one"
            )
        if self.kind == "stated":
            there = numbers(self.quote)
            for value in self.values.values():
                if not any(abs(value - number) <= 1e-9 * abs(value) for number in there):
                    raise ValueError(f"{value:g} is stated, but not in the quote")
        return self

    def printed(self) -> list[Printed]:
        """Return the values of the group, a `Printed` for each x."""
        same = self.model_dump(exclude={"values"})
        return [Printed(x=label(x), value=value, **same) for x, value in self.values.items()]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Figure(Declared):
    values: tuple[_Group, ...] = ()


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    figures: dict[str, _Figure]


def numbers(quote: str) -> list[float]:
    """Return the numbers in a quote, in the forms ``54,608``, ``54, 608``, ``2.85×10^{-5}``,
    ``4.1k`` and ``.6``."""
    found = []
    for text in (quote, re.sub(r"(?<=\d), (?=\d{3}\b)", ",", quote)):
        plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
        for digits, power, thousands in _NUMBER.findall(plain):
            scale = 10.0 ** int(power) if power else 1e3 if thousands else 1.0
            found.append(float(digits) * scale)
    return found


def read_values(path: Path = FILE) -> Mapping[str, Mapping[str, Any]]:
    """Return the fields of an `Experiment` that the file declares, for each figure.

    Raises:
        YamlError: The file has another form; the message is one line with the place in the file.
    """
    empty = "figures: with a mapping for each"
    file = read_yaml(path, f"there is no {path}", empty, own=path == FILE)
    content, found = file.valid(_File), {}
    for name, figure in content.figures.items():
        declared = {each.name: getattr(figure, each.name) for each in fields(Declared)}
        values = tuple(value for group in figure.values for value in group.printed())
        found[name] = declared | {"values": values}
    return found


TASKS: Mapping[str, Tasks] = {
    "canary-theorem-1": canary_theorems.theorem_1,
    "canary-theorem-2": canary_theorems.theorem_2,
    "canary-6a": canary_sketches.figure_6a,
    "canary-6b": canary_sketches.figure_6b,
    "canary-7": canary_flows.figure_7,
    "canary-8": canary_localization.figure_8,
    "canary-8-packets": canary_localization.figure_8_packets,
    "canary-9": canary_localization.figure_9,
    "canary-10": canary_localization.figure_10,
    "canary-11": canary_flows.figure_11,
    "canary-12": canary_tables.figure_12,
    "canary-table-2": canary_sketches.table_2,
    "canary-table-3": canary_tables.table_3,
    "canary-table-4": canary_tables.table_4,
    "007-3": partial(vigil.sweeps, "3"),
    "007-5": partial(vigil.sweeps, "5"),
    "007-8": partial(vigil.sweeps, "8"),
    "007-10": partial(vigil.sweeps, "10"),
    "007-6.7": partial(vigil.sweeps, "6.7"),
    "007-13": vigil.figure_13,
    "netbouncer-6": netbouncer.figure_6,
    "netbouncer-7": netbouncer.figure_7,
    "netbouncer-8": netbouncer.figure_8,
    "netbouncer-9": netbouncer.figure_9,
    "detector-accuracy": detector.accuracy,
    "detector-plans": detector.plans,
    "flock-2": flock.figure_2,
    "flock-3": flock.figure_3,
    "flock-4c": flock.figure_4c,
    "flock-5": flock.figure_5,
    "flock-5c": flock.figure_5c,
    "flock-8": flock.figure_8,
    "flock-table-1": flock.table_1,
}
OVER_ALL: Mapping[str, OverAll] = {"flock-table-1": flock.aggregates}
DECLARED = read_values()
EXPERIMENTS = {
    name: Experiment(name=name, tasks=tasks, over_all=OVER_ALL.get(name, no_rows), **DECLARED[name])
    for name, tasks in TASKS.items()
}

LEFT_OUT = {
    "Canary, figures 1 to 5": "drawings and examples; figures 4 and 5 are tests",
    "NetBouncer, figures 11 to 13": "production data",
    "Flock, figure 4 (a) and (b)": "a cluster of hardware",
    "Flock, figure 4 (d)": "times: python -m tests.bench flock has the largest network of it",
    "Flock, figure 6": "an example",
    "Flock, figure 7": "processor time of agents on hosts, which the testbed does not have",
    "007, figures 1, 2 and 14, section 8": "production data, and a drawing",
    "deTector, from section 4.4 on": "missing in our copy of the paper",
    "deTector, 3.9 and 1.9 times fewer "
    "probes": "the missing part describes how Pingmesh and NetNORAD probe and localize there",
}


def experiments_named(names: str) -> list[Experiment]:
    """Return the experiments of a comma-separated list, of ``quick`` or of ``all``.

    Raises:
        UserError: There is no such experiment; the message has the nearest names.
    """
    if names in ("all", "quick"):
        return [each for each in EXPERIMENTS.values() if names == "all" or each.quick]
    found = []
    for name in names.split(","):
        if name not in EXPERIMENTS:
            raise UserError(f"there is no figure {name}: {nearest(name, EXPERIMENTS)}")
        found.append(EXPERIMENTS[name])
    return found
