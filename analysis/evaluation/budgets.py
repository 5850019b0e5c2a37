# SPDX-License-Identifier: Apache-2.0
"""What each measurement of a run asked for and what it got, computed from the record."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from analysis.methods.base import Localizer
from analysis.telemetry.telemetry import Telemetry
from analysis.telemetry.views.registry import VIEWS
from analysis.telemetry.views.view import share
from testbed.measurements.measurement import ENOUGH
from testbed.measurements.registry import BUDGETS, MEASUREMENTS, budget, view_of
from testbed.record.documents import Measured
from testbed.record.run import Record


def measured(record: Record, telemetry: Telemetry) -> dict[str, Measured]:
    """Return the use of every measurement of a run, in the order of `MEASUREMENTS`."""
    return {
        name: view.used(record, part)
        for name, view in VIEWS.items()
        if view.used is not None and (part := telemetry.part(name)) is not None
    }


def fed(
    method: Localizer, telemetry: Telemetry, use: Mapping[str, Measured]
) -> tuple[Sequence[str], float, str] | None:
    """Return the measurements that a method reads, the least share that one of them got of a budget
    that it asked for, and the name of that budget.

    None for a method that does not say what it reads. A target such as α is not a budget: a run
    that misses it has still measured everything there was.
    """
    reads = getattr(method, "measurements", None)
    if reads is None:
        return None
    names: Sequence[str] = [name for name in reads(telemetry) if name in use]
    shares = [
        (each["got"] / each["asked"], name)
        for measurement in names
        for name, each in use[measurement]["budgets"].items()
        if each["asked"] and budget(name).does != "wants"
    ]
    share, least = min(shares, default=(1.0, ""))
    return names, min(share, 1.0), least


def starving(name: str, use: Mapping[str, Measured]) -> str:
    """Return a sentence on a starved method: what it got of a budget, and which setting raises
    it."""
    what = budget(name)
    each = use[view_of(name)]["budgets"][name]
    return (
        f"starved: {each['got']:,} of the {each['asked']:,} {what.what} that it asked for "
        f"({each['got'] / each['asked']:.0%}, less than {ENOUGH:.0%}); it needs {what.feeds}"
    )


def measured_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each measurement of a run's summary: what it asked for, got and took."""
    use: Mapping[str, Any] = summary.get("measured", {})
    epochs = max(summary.get("epochs", 1), 1)
    return [
        f"{name}, {MEASUREMENTS[name]}: " + "; ".join(_parts(name, use[name], epochs))
        for name in MEASUREMENTS
        if name in use
    ]


def missed_lines(summary: Mapping[str, Any]) -> list[str]:
    """Return a line for each measurement whose targets the run's settings cannot reach."""
    use: Mapping[str, Any] = summary.get("measured", {})
    return [
        f"{name}: {line}" for name, measured in use.items() for line in measured.get("remarks", ())
    ]


def _parts(name: str, measured: Measured, epochs: int) -> Iterator[str]:
    budgets = measured["budgets"]
    for each in BUDGETS:
        if each.name in budgets and view_of(each.name) == name:
            asked, got = budgets[each.name]["asked"], budgets[each.name]["got"]
            if each.does == "wants":
                reached = share(budgets[each.name])
                yield f"{each.option.upper()} reached in {reached:.0%} of segments and epochs"
            else:
                yield f"{got:,} of {asked:,} {each.counted or each.what}"
    if "digests" in measured:
        changes = measured.get("installed", 0) + measured.get("removed", 0)
        counters = measured.get("counters_read", 0)
        size = (
            f", {measured['control_bytes'] / epochs:,.0f} bytes"
            if "control_bytes" in measured
            else ""
        )
        yield (
            f"an epoch {measured['digests'] / epochs:,.0f} digests, "
            f"{changes / epochs:,.0f} changes of rules and {counters / epochs:,.0f} readings of "
            f"their counters{size}"
        )
    if "unchanged" in measured and epochs > 1:
        later = measured.get("installed_later", 0) / (epochs - 1)
        yield (
            f"after the first epoch {later:,.0f} new rules an epoch, "
            f"in {share(measured['unchanged']):.0%} of segments and epochs none"
        )
    for key, what in (("links_unobserved", "links"), ("segments_unobserved", "segments")):
        if key in measured:
            yield f"{what} never observed: {measured[key]:,}"
