# SPDX-License-Identifier: Apache-2.0
"""The cells of the table of a run's methods, which the terminal and the pages show alike."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from testbed.fabric.names import plain
from testbed.measurements.measurement import ENOUGH

T = TypeVar("T")

BENCHES: Mapping[str, str] = {
    "published": "as published",
    "project": "this project's",
    "reference": "reference",
    "other": "others",
}
"""The heading of a table's block for each bench, in the order of the blocks, see
`analysis.methods.registry.BuiltMethod`."""


@dataclass(frozen=True)
class Column:
    """The title of a column, and a short explanation of its figures."""

    title: str
    meaning: str


@dataclass(frozen=True)
class Cell:
    """One figure of a table: its ``text``, the ``value`` by which rows are sorted (None if it is
    undefined), and whether it is highlighted as ``good`` or bad (None: neither)."""

    text: str
    value: float | str | None
    good: bool | None = None


_COLUMNS = (
    Column(
        "method",
        "* cannot tell directions: it is scored on undirected links, the others on directed ones",
    ),
    Column("prec", "precision: the share of the blamed links that are faulty; – if none is blamed"),
    Column("rec", "recall: the share of the observed faulty links that are blamed"),
    Column("F1", "harmonic mean of both; if none is blamed, 1 if none is faulty, else 0"),
    Column("best", "F1 at the best cut of the method's own ranking: what a better threshold gives"),
    Column("miss", "faulty links not blamed"),
    Column("wrong", "healthy links blamed"),
    Column("F1u", "F1 on undirected links, for all methods"),
    Column("sec", "processor seconds of the diagnosis"),
    Column("data", "bytes of telemetry collected"),
    Column("probes", "packets sent to measure"),
    Column("fed", "the share that its measurements got of their requests; ! starved"),
)


_CLASSES = Column(
    "F1c",
    "F1 of classes of links that no observation separates: a class is found if it has a faulty "
    "link",
)
_FABRIC = Column("F1f", "F1 on the links between switches alone; F1 is on those of hosts, too")
_AFTER_F1 = 4


def shown_name(name: str, own_name: str | None = None) -> str:
    """Return a method's name as tables show it: that of a file or a package with the name that its
    class has, as in ``worst.py (worst-segments)``."""
    return plain(f"{name} ({own_name})" if own_name else name)


def columns(summary: Mapping[str, Any]) -> list[Column]:
    """Return the columns for a run: with ``F1c`` if a class of several links is blamed or missed,
    and with ``F1l``, beside ``F1`` in a degraded run, if it is known which links really lost
    packets."""
    found = list(_COLUMNS)
    if _tied(summary):
        found.insert(_AFTER_F1, _CLASSES)
    if has_hosts(summary):
        found.insert(_AFTER_F1, _FABRIC)
    if "lost_links" in summary:
        count = len(summary["lost_links"])
        meaning = (
            f"F1 against the {count} directed links that really lost packets, whatever the cause"
        )
        found.insert(_place_of_lost(summary), Column("F1l", meaning))
    return found


def _place_of_lost(summary: Mapping[str, Any]) -> int:
    """Return where ``F1l`` stands in a row: directly behind F1 of a degraded run, else last."""
    others = _tied(summary) + has_hosts(summary)
    return _AFTER_F1 if summary.get("degraded") else len(_COLUMNS) + others


def has_hosts(summary: Mapping[str, Any]) -> bool:
    """Return whether links of hosts have a verdict, too, so that there are scores without them."""
    return any("fabric" in entry for entry in summary.get("methods", {}).values())


def _tied(summary: Mapping[str, Any]) -> bool:
    """Return whether a method blames or misses a class of several links, so that the scores over
    classes differ from those over links."""
    return any(is_tied(entry) for entry in summary.get("methods", {}).values())


def is_tied(entry: Mapping[str, Any]) -> bool:
    """Return whether a method, by its entry of ``summary.json``, blames or misses a class of
    several links."""
    own = entry[entry["native"]]
    blamed = own["true_positives"] + own["false_positives"]
    return own.get("classes", blamed) < blamed or own.get("class_f1", own["f1"]) != own["f1"]


def cells(summary: Mapping[str, Any]) -> dict[str, list[list[Cell]]]:
    """Return a row for each method of ``summary.json``, with its cells in the order of `columns`,
    under the heading of its block (`in_blocks`), which says if the run is degraded."""
    place = _place_of_lost(summary) if "lost_links" in summary else None
    degraded, tied = bool(summary.get("degraded")), _tied(summary)
    found = in_blocks(
        (entry.get("bench"), _row(name, entry, place, tied, degraded))
        for name, entry in summary["methods"].items()
    )
    return {heading + ", degraded run" * degraded: rows for heading, rows in found.items()}


def in_blocks(rows: Iterable[tuple[str | None, T]]) -> dict[str, list[T]]:
    """Return the rows under each heading of `BENCHES`; headings without rows are left out.

    Args:
        rows: Pairs of a bench and a row. None, which older records have, counts as ``other``.
    """
    found: dict[str, list[T]] = {bench: [] for bench in BENCHES}
    for bench, row in rows:
        found[bench or "other"].append(row)
    return {BENCHES[bench]: own for bench, own in found.items() if own}


def in_seconds(value: float) -> str:
    """Return a time in seconds as text of four characters, so that the table is equally wide on a
    slow machine."""
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{decimals}f}"


def _row(
    name: str, entry: Mapping[str, Any], lost: int | None, tied: bool, degraded: bool
) -> list[Cell]:
    """Return the cells of a method; ``lost`` is the place of ``F1l``, None for no such cell. In a
    degraded run no F1 is highlighted, because the emulator's own losses are not its faults."""
    own = entry[entry["native"]]
    f1, missed, wrong = own["f1"], own["false_negatives"], own["false_positives"]
    star = " *" if entry["native"] == "undirected" else ""
    row = [
        Cell(shown_name(name, entry.get("own_name")) + star, plain(name)),
        Cell(*_defined(own["precision"])),
        Cell(*_defined(own["recall"])),
        Cell(*_defined(f1, 3), None if f1 is None or degraded else good_f1(f1)),
        Cell(*_defined(own.get("best_f1"))),
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
    if "fabric" in entry:
        row.insert(_AFTER_F1, Cell(*_defined(entry["fabric"][entry["native"]]["f1"], 3)))
    if lost is not None:
        row.insert(lost, Cell(*_defined(entry["lost"][entry["native"]]["f1"])))
    return row


def good_f1(f1: float) -> bool | None:
    """Return whether an F1, 0 to 1, is highlighted as good (True) or bad (False); None for
    neither."""
    return True if f1 >= 0.9 else False if f1 < 0.6 else None


def fed_cell(share: float) -> Cell:
    """Return the cell of the least share, 0 to 1, that a method's measurements got of what they
    asked for; – for nan, if the method does not say what it reads."""
    if math.isnan(share):
        return Cell("–", None)
    starved = share < ENOUGH
    return Cell(f"{share:.2f}" + "!" * starved, share, False if starved else None)


def _defined(share: float | None, digits: int = 2) -> tuple[str, float | None]:
    return ("–", None) if share is None else (f"{share:.{digits}f}", share)


def _packets(n: int) -> str:
    """Return a number with all digits if it is below 100,000, otherwise shortened: ``6.55M``."""
    return f"{n:,}" if n < 100_000 else in_bytes(n)


def in_bytes(n: float) -> str:
    """Return a number with three digits and a decimal unit: ``56.4M``."""
    for unit in ("", "k", "M"):
        if n < 1000:
            return f"{n:.3g}{unit}"
        n /= 1000
    return f"{n:.3g}G"
