"""What an experiment is: tasks that give rows of figures, and how these are drawn and explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """One figure of ours: ``value`` of a quantity, for a series at x, in a draw."""

    quantity: str
    series: str
    x: str
    draw: int
    value: float


@dataclass(frozen=True)
class Effort:
    """How much is computed: ``draws`` of everything random; ``small`` is for tests alone.

    A ``trace`` is a capture that takes the place of generated traffic.
    """

    draws: int = 20
    small: bool = False
    trace: Path | None = None


Task = Callable[[], Sequence[Row]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a quantity over x.

    ``numeric`` x are a scale, others are names in the order of the rows. ``limits`` are of y.
    """

    quantity: str
    x: str
    y: str
    numeric: bool = True
    log_x: bool = False
    log_y: bool = False
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Reason:
    """Why ours differs from the paper's: it holds where ours is ``ratio`` times the paper's.

    ``series`` and ``x`` say which rows; an empty one is all. With ``paper`` it is of that value of
    the paper alone. With ``cannot`` the rows cannot be compared at all, whatever the ratio.
    """

    why: str
    quantity: str
    series: str = ""
    x: tuple[str, ...] = ()
    ratio: tuple[float, float] = (0.0, 0.0)
    paper: float | None = None
    cannot: bool = False


def _nothing(rows: Sequence[Row]) -> Sequence[Row]:
    return ()


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper.

    Attributes:
        name: As in ``FIG=name``; also of its figure in ``values.yaml``.
        paper, shows: Whose it is, and what it shows, in a line.
        setting: What is done, and in what that differs from the paper.
        seconds, memory_mb: What it takes, of one processor.
        panels: How it is drawn.
        tasks: The pieces of work, by name; each is kept when it is done.
        over_all: Figures that are of the rows of all pieces.
        series, quantities: Which of our series and quantities are held against one of the paper,
            where the names differ or ours are several.
        reasons: Why figures differ.
        tried: What was tried where no reason is known, by series of ours.
        quick: Whether ``FIG=quick`` has it.
        traffic: Whether it takes a capture.
    """

    name: str
    paper: str
    shows: str
    setting: str
    seconds: int
    memory_mb: int
    panels: tuple[Panel, ...]
    tasks: Callable[[Effort], Mapping[str, Task]]
    over_all: Callable[[Sequence[Row]], Sequence[Row]] = _nothing
    series: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    quantities: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    tried: Mapping[str, str] = field(default_factory=dict)
    quick: bool = True
    traffic: bool = False

    def ours(self, quantity: str, series: str) -> list[tuple[str, str]]:
        """Our quantities and series that are held against these of the paper."""
        quantities = self.quantities.get(quantity, (quantity,))
        names = self.series.get(series, (series,))
        return [(each, name) for each in quantities for name in names]


def label(x: float | str) -> str:
    """An x as rows and values have it: ``0.001``, ``10`` or a name."""
    return x if isinstance(x, str) else f"{x:g}"


def together(draws: int, at_once: int = 20) -> dict[str, range]:
    """So many draws at a time, by name: where all need one calibration, or one large network."""
    every = [range(first, min(first + at_once, draws)) for first in range(0, draws, at_once)]
    return {f"draws-{some[0]}-{some[-1]}": some for some in every}
