# SPDX-License-Identifier: Apache-2.0
"""The types of an experiment: what ``values.yaml`` declares of a figure, and the tasks that compute
it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, ConfigDict
from pydantic.dataclasses import dataclass


class Row(NamedTuple):
    """One computed value: that of a ``quantity``, for a ``series`` at ``x``, in a ``draw``."""

    quantity: str
    series: str
    x: str
    draw: int
    value: float


class Effort(NamedTuple):
    """How much is computed: ``draws`` is the number of random repetitions; ``small`` is for tests
    only.

    ``trace`` is the path of a capture that replaces generated traffic.
    """

    draws: int = 20
    small: bool = False
    trace: Path | None = None


Task = Callable[[], Sequence[Row]]
Tasks = Callable[[Effort], Mapping[str, Task]]
"""Returns the tasks of an experiment by name; the rows of each are kept when it has ended."""


def label(x: float | str) -> str:
    """Return an x, a number or a name, as the text that rows and ``values.yaml`` have: ``0.001``,
    ``10`` or the name."""
    return x if isinstance(x, str) else f"{x:g}"


def by_draw(effort: Effort, task: Callable[..., Sequence[Row]], *arguments: Any) -> dict[str, Task]:
    """Return a task for each draw: ``task(draw, *arguments)``."""
    return {f"draw-{draw}": partial(task, draw, *arguments) for draw in range(effort.draws)}


def draw_groups(draws: int, size: int = 20) -> dict[str, range]:
    """Return ranges of ``size`` draws by name, for draws that share a calibration or a network that
    takes long to make."""
    every = [range(first, min(first + size, draws)) for first in range(0, draws, size)]
    return {f"draws-{some[0]}-{some[-1]}": some for some in every}


def _list(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


def _text(value: Any) -> Any:
    return " ".join(value) if isinstance(value, list) else value


def _labels(value: Any) -> Any:
    return tuple(label(x) for x in _list(value))


Names = Annotated[tuple[str, ...], BeforeValidator(_list)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_list)]
Text = Annotated[str, BeforeValidator(_text)]
"""A text; a list of texts is joined."""
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Panel:
    """One pair of axes: a quantity over x; ``y`` is the label of the y axis, by default the
    quantity.

    With ``numeric``, x is a scale; else x are names in the order of the rows. ``limits`` are those
    of the y axis.
    """

    quantity: str
    x: str = ""
    y: str = ""
    numeric: bool = True
    log_x: bool = False
    log_y: bool = False
    limits: tuple[float, float] | None = None

    @property
    def y_axis(self) -> str:
        """Return the label of the y axis."""
        return self.y or self.quantity


@dataclass(frozen=True, config=_STRICT)
class Reason:
    """A reason why our value differs from the paper's; it holds if ours is ``ratio`` times the
    paper's, a range.

    ``quantity``, ``series``, ``x`` and ``paper`` (the paper's value) select the rows; an empty one
    selects all. With ``cannot``, the rows cannot be compared at all, whatever the ratio.
    """

    why: Text
    quantity: Names = ()
    series: Names = ()
    x: Annotated[tuple[str, ...], BeforeValidator(_labels)] = ()
    paper: Numbers = ()
    ratio: tuple[float, float] = (0.0, 0.0)
    cannot: bool = False

    def speaks_of(self, quantity: str, series: str, x: str, paper: float) -> bool:
        """Return True if the reason is about our ``quantity`` and ``series`` at ``x`` and this
        number of the paper."""
        pairs = ((self.quantity, quantity), (self.series, series), (self.x, x), (self.paper, paper))
        return all(not every or one in every for every, one in pairs)


Kind = Literal["stated", "derived", "bound"]
Side = Literal["above", "below"]


class Printed(NamedTuple):
    """A value that a paper prints.

    Attributes:
        kind: ``stated``: the number is printed. ``derived``: it follows from printed numbers.
            ``bound``: only that it is ``above`` or ``below`` a number.
        side: The side of a bound; None for other kinds.
        rounding: The largest difference between the printed number and the exact one.
        mean: Whether it is a mean of many draws; else it is one draw.
        section, quote, arithmetic: The place in the paper, its words, and the computation of a
            derived value.
    """

    quantity: str
    series: str
    x: str
    value: float
    kind: Kind
    side: Side | None = None
    rounding: float = 0.0
    mean: bool = False
    section: str = ""
    quote: str = ""
    arithmetic: str = ""


@dataclass(frozen=True, config=_STRICT)
class Declared:
    """The declaration of a figure or table in ``values.yaml``, without the paper's values.

    Attributes:
        paper, shows: The paper and number of the figure, and what it shows, in a line.
        setting: The setting, and how it differs from the paper's.
        seconds, memory_mb: The processor seconds and the memory of the experiment.
        panels: The panels that are drawn.
        series, quantities: Which of our series and quantities are compared with one of the paper,
            if the names differ or several of ours correspond to it.
        reasons: Reasons for differences.
        tried: What was tried where no reason is known, by our series.
        quick: Whether ``FIG=quick`` includes it.
        traffic: Whether it can use a capture.
    """

    paper: str
    shows: str
    setting: Text
    seconds: int
    memory_mb: int
    panels: tuple[Panel, ...]
    series: Mapping[str, Names] = field(default_factory=dict)
    quantities: Mapping[str, Names] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    tried: Mapping[str, str] = field(default_factory=dict)
    quick: bool = True
    traffic: bool = False

    def ours(self, quantity: str, series: str) -> list[tuple[str, str]]:
        """Return our pairs (quantity, series) that are compared with this one of the paper."""
        quantities = self.quantities.get(quantity, (quantity,))
        names = self.series.get(series, (series,))
        return [(each, name) for each in quantities for name in names]


OverAll = Callable[[Sequence[Row]], Sequence[Row]]
"""Computes further rows from the rows of all tasks."""


def no_rows(rows: Sequence[Row]) -> Sequence[Row]:
    """Return no rows, whatever the rows of the tasks are."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Experiment(Declared):
    """A figure or table of a paper that ``FIG=name`` reproduces.

    Attributes:
        name: The name of the experiment.
        tasks: Returns the tasks that compute its rows.
        over_all: Computes further rows from the rows of all tasks.
        values: The values that the paper prints.
    """

    name: str
    tasks: Tasks
    over_all: OverAll = no_rows
    values: tuple[Printed, ...] = ()
