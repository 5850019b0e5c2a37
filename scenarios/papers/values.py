"""Reads ``values.yaml``: how each figure is drawn and explained, and the values that its paper
prints.

Each value comes with a quote from the paper; no value is read off a picture or written from memory.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from scenarios.papers.experiment import Declared, Kind, Printed, Side, label
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
            raise ValueError("a bound has a side, above or below, and nothing else has")
        if (self.kind == "derived") != bool(self.arithmetic):
            raise ValueError("a derived value has its arithmetic, and nothing else has")
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
    file = read_yaml(path, f"there is no {path}", "figures: with a mapping for each")
    content, found = file.valid(_File), {}
    for name, figure in content.figures.items():
        declared = {each.name: getattr(figure, each.name) for each in fields(Declared)}
        values = tuple(value for group in figure.values for value in group.printed())
        found[name] = declared | {"values": values}
    return found
