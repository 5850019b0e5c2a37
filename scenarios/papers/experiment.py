"""Types of an experiment: what ``values.yaml`` declares of a figure, and the tasks that compute
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
    """One figure of ours: ``value`` of a quantity, for a series at x, in a draw."""

    quantity: str
    series: str
    x: str
    draw: int
    value: float


class Effort(NamedTuple):
    """How much is computed: ``draws`` of everything random; ``small`` is for tests alone.

    A ``trace`` is a capture that takes the place of generated traffic.
    """

    draws: int = 20
    small: bool = False
    trace: Path | None = None


Task = Callable[[], Sequence[Row]]
Tasks = Callable[[Effort], Mapping[str, Task]]
"""The pieces of work of an experiment, by name; each is kept when it is done."""


def label(x: float | str) -> str:
    """Return an x as rows and values write it: ``0.001``, ``10`` or a name."""
    return x if isinstance(x, str) else f"{x:g}"


def by_draw(effort: Effort, task: Callable[..., Sequence[Row]], *arguments: Any) -> dict[str, Task]:
    """Return a task for each draw: ``task(draw, *arguments)``."""
    return {f"draw-{draw}": partial(task, draw, *arguments) for draw in range(effort.draws)}


def draw_groups(draws: int, size: int = 20) -> dict[str, range]:
    """Return ranges of ``size`` draws, by name: for draws that share a calibration or a network
    that takes long to make."""
    every = [range(first, min(first + size, draws)) for first in range(0, draws, size)]
    return {f"draws-{some[0]}-{some[-1]}": some for some in every}


def _list(given: Any) -> Any:
    return given if isinstance(given, list | tuple) else (given,)


def _text(given: Any) -> Any:
    return " ".join(given) if isinstance(given, list) else given


def _labels(given: Any) -> Any:
    return tuple(label(x) for x in _list(given))


Names = Annotated[tuple[str, ...], BeforeValidator(_list)]
Numbers = Annotated[tuple[float, ...], BeforeValidator(_list)]
Text = Annotated[str, BeforeValidator(_text)]
"""A text, or several that are joined."""
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, config=_STRICT)
class Panel:
    """One pair of axes: a quantity over x; ``y`` is what its axis says, if not the quantity.

    ``numeric`` x are a scale, others are names in the order of the rows. ``limits`` are of y.
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
        """Return what is written along the y axis."""
        return self.y or self.quantity


@dataclass(frozen=True, config=_STRICT)
class Reason:
    """Why ours differs from the paper's: it holds where ours is ``ratio`` times the paper's.

    ``quantity``, ``series``, ``x`` and ``paper`` (the paper's value) say of which rows it speaks;
    an empty one is all. With ``cannot`` the rows cannot be compared at all, whatever the ratio.
    """

    why: Text
    quantity: Names = ()
    series: Names = ()
    x: Annotated[tuple[str, ...], BeforeValidator(_labels)] = ()
    paper: Numbers = ()
    ratio: tuple[float, float] = (0.0, 0.0)
    cannot: bool = False

    def speaks_of(self, quantity: str, series: str, x: str, paper: float) -> bool:
        """Whether it is about our ``quantity`` and ``series`` at ``x`` beside a paper's value."""
        asked = ((self.quantity, quantity), (self.series, series), (self.x, x), (self.paper, paper))
        return all(not every or one in every for every, one in asked)


Kind = Literal["stated", "derived", "bound"]
Side = Literal["above", "below"]


class Printed(NamedTuple):
    """A value of a paper.

    Attributes:
        kind: ``stated``: the number is printed. ``derived``: it follows from printed numbers.
            ``bound``: only that it is ``above`` or ``below`` something.
        rounding: How far the printed number may be from what was rounded to it.
        mean: Whether it is a mean of many draws; else it is one draw.
        section, quote, arithmetic: Where the words are, the words, and how a derived one follows.
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
    """What ``values.yaml`` says of a figure or table, beside the paper's values.

    Attributes:
        paper, shows: Whose it is, and what it shows, in a line.
        setting: What is done, and in what that differs from the paper.
        seconds, memory_mb: What it takes, of one processor.
        panels: How it is drawn.
        series, quantities: Which of our series and quantities are held against one of the paper,
            where the names differ or ours are several.
        reasons: Why figures differ.
        tried: What was tried where no reason is known, by series of ours.
        quick: Whether ``FIG=quick`` has it.
        traffic: Whether it takes a capture.
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
        """Return our quantities and series that are held against these of the paper."""
        quantities = self.quantities.get(quantity, (quantity,))
        names = self.series.get(series, (series,))
        return [(each, name) for each in quantities for name in names]


OverAll = Callable[[Sequence[Row]], Sequence[Row]]
"""Makes further rows from the rows of all tasks."""


def no_rows(rows: Sequence[Row]) -> Sequence[Row]:
    """Return no row, whatever the tasks' rows are."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Experiment(Declared):
    """A figure or table of a paper, as ``FIG=name`` runs it.

    Attributes:
        tasks: The work.
        over_all: Rows that are computed from the rows of all tasks.
        values: What the paper prints.
    """

    name: str
    tasks: Tasks
    over_all: OverAll = no_rows
    values: tuple[Printed, ...] = ()
