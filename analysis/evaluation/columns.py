"""The table of a run's methods, cell by cell: what the terminal prints is what a page shows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from testbed.fabric.names import plain
from testbed.record.measurements import ENOUGH

T = TypeVar("T")

BENCHES: Mapping[str, str] = {
    "published": "as published",
    "project": "this project's",
    "reference": "reference",
    "other": "others",
}
"""The headings that a table has above the methods of each bench, in their order, see
`analysis.methods.registry.BuiltMethod`."""


@dataclass(frozen=True)
class Column:
    """A column's title, and what it means in a few words."""

    title: str
    meaning: str


@dataclass(frozen=True)
class Cell:
    """A figure as it is shown, and by what it is sorted, None where it is undefined. ``good``:
    whether to point it out as good or bad; None leaves it."""

    text: str
    value: float | str | None
    good: bool | None = None


_COLUMNS = (
    Column("method", "* tells no direction: scored on undirected links, the others on directed"),
    Column("prec", "precision: of the links blamed, the share that is faulty; – if none is blamed"),
    Column("rec", "recall: of the faulty links observed, the share that is blamed"),
    Column("F1", "harmonic mean of both; where none is blamed 1 if none is faulty, else 0"),
    Column("acc", "accuracy: of the links observed, the share judged rightly"),
    Column("miss", "faulty links not blamed"),
    Column("wrong", "healthy links blamed"),
    Column("F1u", "F1 on undirected links, for all"),
    Column("sec", "seconds of diagnosis"),
    Column("data", "bytes of telemetry collected"),
    Column("probes", "packets sent to measure"),
    Column("fed", "of what its measurements asked for, the share that they got; ! starved"),
)


_CLASSES = Column(
    "F1c",
    "F1 of classes of links that no observation separates: one is found if a faulty link is in it",
)
_AFTER_F1 = 4


def columns(summary: Mapping[str, Any]) -> list[Column]:
    """The columns for a run: ``F1c`` where a class of several links is blamed or missed, ``F1l``
    where the network tells which links really lost packets."""
    found = list(_COLUMNS)
    if _tied(summary):
        found.insert(_AFTER_F1, _CLASSES)
    if "lost_links" in summary:
        count = len(summary["lost_links"])
        meaning = (
            f"F1 against the {count} directed links that really lost packets, by faults or not"
        )
        found.append(Column("F1l", meaning))
    return found


def _tied(summary: Mapping[str, Any]) -> bool:
    """Whether a method blames or misses a class of several links, so that classes score otherwise
    than links."""
    for entry in summary.get("methods", {}).values():
        own = entry[entry["native"]]
        blamed = own["true_positives"] + own["false_positives"]
        if own.get("classes", blamed) < blamed or own.get("class_f1", own["f1"]) != own["f1"]:
            return True
    return False


def cells(summary: Mapping[str, Any]) -> dict[str, list[list[Cell]]]:
    """Return a row for each method of ``summary.json``, in the order of `columns`, by the heading
    of its block, see `in_blocks`."""
    lost, tied = "lost_links" in summary, _tied(summary)
    return in_blocks(
        (entry.get("bench"), _row(name, entry, lost, tied))
        for name, entry in summary["methods"].items()
    )


def in_blocks(rows: Iterable[tuple[str | None, T]]) -> dict[str, list[T]]:
    """Return what stands under each heading of `BENCHES`, without headings that have nothing.

    Args:
        rows: Of each row its bench, and what it is. None, which older records have, is ``other``.
    """
    found: dict[str, list[T]] = {bench: [] for bench in BENCHES}
    for bench, row in rows:
        found[bench or "other"].append(row)
    return {BENCHES[bench]: own for bench, own in found.items() if own}


def in_seconds(value: float) -> str:
    """Return a time in four characters, so that the table is as wide on a slow machine."""
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"


def _row(name: str, entry: Mapping[str, Any], lost: bool, tied: bool) -> list[Cell]:
    own = entry[entry["native"]]
    f1, missed, wrong = own["f1"], own["false_negatives"], own["false_positives"]
    star = " *" if entry["native"] == "undirected" else ""
    row = [
        Cell(plain(name) + star, plain(name)),
        Cell(*_defined(own["precision"])),
        Cell(*_defined(own["recall"])),
        Cell(*_defined(f1, 3), None if f1 is None else good_f1(f1)),
        Cell(*_defined(own["accuracy"], 3)),
        Cell(str(missed), missed, False if missed else None),
        Cell(str(wrong), wrong, False if wrong else None),
        Cell(*_defined(entry["undirected"]["f1"])),
        Cell(in_seconds(entry["seconds"]), entry["seconds"]),
        Cell(in_bytes(entry["telemetry_bytes"]), entry["telemetry_bytes"]),
        Cell(_packets(entry["probe_packets"]), entry["probe_packets"]),
        fed_cell(entry.get("fed", math.nan)),
    ]
    if tied:
        row.insert(_AFTER_F1, Cell(*_defined(own.get("class_f1", f1))))
    if lost:
        row.append(Cell(*_defined(entry["lost"][entry["native"]]["f1"])))
    return row


def good_f1(f1: float) -> bool | None:
    """Whether to point out an F1 as good or bad."""
    return True if f1 >= 0.9 else False if f1 < 0.6 else None


def fed_cell(share: float) -> Cell:
    """The share that a method got of what it asked for; – for nan, where it does not say."""
    if math.isnan(share):
        return Cell("–", None)
    starved = share < ENOUGH
    return Cell(f"{share:.2f}" + "!" * starved, share, False if starved else None)


def _defined(share: float | None, digits: int = 2) -> tuple[str, float | None]:
    return ("–", None) if share is None else (f"{share:.{digits}f}", share)


def _packets(n: int) -> str:
    """All digits of a number that is no wider than the column's title, else ``6.55M``."""
    return f"{n:,}" if n < 100_000 else in_bytes(n)


def in_bytes(n: float) -> str:
    """``56.4M``: three digits and a unit."""
    for unit in ("", "k", "M"):
        if n < 1000:
            return f"{n:.3g}{unit}"
        n /= 1000
    return f"{n:.3g}G"
