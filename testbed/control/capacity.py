"""Whether the switches' tables have room for what a fat-tree's controller installs.

Their sizes are compiled into the P4 program. Those of a meter's rules need no check, as
`testbed.control.selection` turns flows away that find them full.
"""

from __future__ import annotations

from testbed.dataplane import HEAVY_HITTER, ROUTING
from testbed.fabric.segments import Monitors

__all__ = ["CapacityError", "check_tables", "most_entries"]

_CAPACITY = {HEAVY_HITTER.segments: HEAVY_HITTER.capacity, ROUTING.routes: ROUTING.capacity}


class CapacityError(ValueError):
    """A fabric's rules do not fit into the tables. One line that says what does."""


def check_tables(k: int, monitors: Monitors, *, selects: bool) -> None:
    """See that the fat-tree of ``k`` fits.

    Args:
        k: Ports of a switch.
        monitors: Which switches are monitors.
        selects: Whether flows are selected (``alpha`` or ``beta`` is above 0).

    Raises:
        CapacityError: A table is too small.
    """
    if not (full := _too_small(k, monitors, selects)):
        return
    table, entries = full
    others = [f"K up to {_largest(monitors, selects)}"]
    if monitors == "tor" and k <= (most := _largest("tor+core", selects)):
        others.append(f"MONITORS=tor+core (K up to {most})")
    raise CapacityError(
        f"K={k} with MONITORS={monitors} needs {entries:,} entries in the table {table} of a "
        f"switch, which has {_CAPACITY[table]:,}: use {', '.join(others)} or BACKEND=flow"
    )


def most_entries(k: int, monitors: Monitors, *, selects: bool) -> dict[str, int]:
    """The most entries that a switch of a fat-tree ever has in each table that may be too small.

    Every segment into a monitor switch may want flows at once, as before the first epoch all do;
    the most routes are a ToR's: itself, its rack and its hosts, each core switch, each aggregation
    switch of its pod, and the way up (`testbed.control.forwarding`).
    """
    half = k // 2
    cores, tors = half**2, k * half
    within = (half - 1) * half  # segments that turn in the ToR's pod
    segments = within + (tors - half) * cores  # into a ToR
    if monitors == "tor+core":
        segments = max(within + cores, tors)  # into a ToR, into a core switch
    return {
        HEAVY_HITTER.segments: segments if selects else 0,
        ROUTING.routes: 2 + half + cores + half + 1,
    }


def _too_small(k: int, monitors: Monitors, selects: bool) -> tuple[str, int] | None:
    needed = most_entries(k, monitors, selects=selects)
    return next((item for item in needed.items() if item[1] > _CAPACITY[item[0]]), None)


def _largest(monitors: Monitors, selects: bool) -> int:
    k = 4
    while not _too_small(k + 2, monitors, selects):
        k += 2
    return k
