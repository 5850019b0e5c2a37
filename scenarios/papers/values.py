"""What the papers print, from ``values.yaml``: never read off a picture, never from memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from scenarios.papers.experiment import label
from testbed.record.yaml_file import read_yaml

FILE = Path(__file__).parent / "values.yaml"

_NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)(?:\s*×\s*10\^?\{?(-?\d+)\}?|(k)\b)?")

Kind = Literal["stated", "derived", "bound"]
Side = Literal["above", "below"]


@dataclass(frozen=True)
class Printed:
    """A value of a paper.

    Attributes:
        kind: ``stated``: the number is printed. ``derived``: it follows from printed numbers.
            ``bound``: only that it is ``above`` or ``below`` something.
        rounding: How far the printed number may be from what was rounded to it.
        mean: Whether it is a mean of many draws; else it is one draw.
        quote, section, arithmetic: The words, where they are, and how a derived one follows.
    """

    figure: str
    quantity: str
    series: str
    x: str
    value: float
    kind: Kind
    side: Side | None
    rounding: float
    mean: bool
    quote: str
    section: str
    arithmetic: str


class _Group(BaseModel):
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


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    figures: dict[str, list[_Group]]


def numbers(quote: str) -> list[float]:
    """The numbers in a quote: ``54,608``, also ``54, 608``; ``2.85×10^{-5}``, ``4.1k``, ``.6``."""
    found = []
    for text in (quote, re.sub(r"(?<=\d), (?=\d{3}\b)", ",", quote)):
        plain = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
        for digits, power, thousands in _NUMBER.findall(plain):
            scale = 10.0 ** int(power) if power else 1e3 if thousands else 1.0
            found.append(float(digits) * scale)
    return found


def read_values(path: Path = FILE) -> dict[str, list[Printed]]:
    """The values of each figure.

    Raises:
        YamlError: The file is not of the form that `_Group` declares; one line with its place.
    """
    file = read_yaml(path, f"there is no {path}", "figures: with a list of values each")
    content = file.valid(_File)
    return {name: list(_values(name, groups)) for name, groups in content.figures.items()}


def _values(figure: str, groups: list[_Group]) -> Iterator[Printed]:
    for group in groups:
        same = group.model_dump(exclude={"values"})
        for x, value in group.values.items():
            yield Printed(figure=figure, x=label(x), value=value, **same)


@cache
def printed_values() -> dict[str, list[Printed]]:
    """`read_values` of the project's own file."""
    return read_values()
