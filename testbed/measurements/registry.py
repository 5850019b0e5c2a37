# SPDX-License-Identifier: Apache-2.0
"""The available measurements: this project's, and those that installed packages register.

A package registers one as an entry point of the group ``canary.measurements``, whose name is the
name of the measurement and whose value is its class, a `Measurement`.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from testbed.errors import UserError
from testbed.fabric.names import nearest
from testbed.measurements.bounce.measurement import Bounce
from testbed.measurements.canary.measurement import Canary
from testbed.measurements.counters.measurement import Counters
from testbed.measurements.fermat.measurement import FermatMeters
from testbed.measurements.flow_radar.measurement import FlowRadarTables
from testbed.measurements.flows.measurement import Flows
from testbed.measurements.int.measurement import Int
from testbed.measurements.loss_radar.measurement import LossRadarMeters
from testbed.measurements.matrix.measurement import Matrix
from testbed.measurements.measurement import Budget, Measurement
from testbed.measurements.spray_check.measurement import SprayCheck
from testbed.measurements.traces.measurement import Traces
from testbed.record.run_tables import declare

GROUP = "canary.measurements"

STANDARD: tuple[Measurement, ...] = (Canary(), Bounce(), Matrix(), Traces(), Flows())
"""The measurements that the methods of the testbed read, in the order of the record."""

ON_REQUEST: tuple[Measurement, ...] = (
    Counters(),
    LossRadarMeters(),
    FermatMeters(),
    FlowRadarTables(),
    Int(),
    SprayCheck(),
)
"""The measurements that a run makes only where a method or the setting MEASURE names them."""

_OWN = STANDARD + ON_REQUEST

MEASUREMENTS: Mapping[str, str] = {each.view: each.help for each in STANDARD}
"""A description of each standard measurement, by the name that methods use."""

UNSEEN: Mapping[str, str] = {
    **{each.view: each.unseen for each in STANDARD},
    "roundtrips": "pings between more pairs of ToRs cross them",
}
"""What would measure the links that a measurement has not observed, by the name that methods use.
Round trips are measured elsewhere only."""

BUDGETS: tuple[Budget, ...] = tuple(each for one in STANDARD for each in one.budgets)
"""Every budget, in the order of `MEASUREMENTS`."""


def budget(name: str) -> Budget:
    """Return the budget called ``name``; raise KeyError if there is none."""
    return {each.name: each for each in BUDGETS}[name]


def view_of(name: str) -> str:
    """Return the view of the measurement that has the budget ``name``; KeyError if none has."""
    return {each.name: one.view for one in STANDARD for each in one.budgets}[name]


def measurement_names() -> list[str]:
    """Return the names of all measurements: this project's, then the registered ones in
    alphabetical order, without importing these."""
    return [*(each.name for each in _OWN), *sorted(_registered())]


def find_measurement(name: str) -> Measurement:
    """Return the measurement called ``name``.

    Raises:
        UserError: There is none, or a registered one cannot be loaded (one line).
    """
    for each in _OWN:
        if each.name == name:
            return each
    if name in _registered():
        return _load(name)
    known = measurement_names()
    raise UserError(f"there is no measurement {name!r}: {nearest(name, known)}")


def chosen(views: Iterable[str] | None, more: str = "none") -> tuple[Measurement, ...]:
    """Return the measurements that a run makes, in the order of the record.

    Args:
        views: The names of what its methods read; None for all standard measurements.
        more: The setting MEASURE: names of other measurements, joined by ``+``, of which ``all``
            stands for the standard ones; or ``none``.

    Raises:
        UserError: There is no such measurement or view (one line).
    """
    named = _named(more)
    wanted = set(views or ())
    whole = views is None or "all" in more.split("+")
    found = [
        each
        for each in _OWN
        if (whole and each in STANDARD) or each.always or each.view in wanted or each in named
    ]
    others = {each.name: each for each in named if each not in _OWN}
    missing = wanted - {each.view for each in _OWN}
    for name in sorted(_registered()) if missing else ():
        if (each := _load(name)).view in missing:
            others[name] = each
    return (*found, *(others[name] for name in sorted(others)))


def unseen_of(view: str) -> str:
    """Return what would measure the links that a measurement has not observed, by its view."""
    return UNSEEN.get(view) or find_measurement(measurement_of(view)).unseen


def measurement_of(view: str) -> str:
    """Return the name of the measurement that methods read as ``view``; "" if there is none."""
    found = next((each.name for each in _OWN if each.view == view), "")
    return found or next((name for name in _registered() if _load(name).view == view), "")


def check_names(more: str) -> None:
    """Raise UserError if the setting MEASURE names a measurement that there is not."""
    _named(more)


def _named(more: str) -> Collection[Measurement]:
    if more == "none":
        return ()
    return [find_measurement(name) for name in more.split("+") if name != "all"]


def _load(name: str) -> Measurement:
    point = _registered()[name]
    package = point.dist.name if point.dist else "a package"
    try:
        found = point.load()()
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise UserError(f"measurement {name!r} of {package} cannot be loaded: {reason}") from None
    if not isinstance(found, Measurement) or found.name != name:
        raise UserError(
            f"measurement {name!r} of {package} cannot be used: its class must be a Measurement "
            f"whose name is {name!r}"
        )
    for schema in found.tables:
        declare(schema)
    return found


def _registered() -> dict[str, EntryPoint]:
    return _registered_on(tuple(sys.path))


@cache  # each call would read the metadata of all packages
def _registered_on(path: tuple[str, ...]) -> dict[str, EntryPoint]:
    del path
    found = {point.name: point for point in entry_points(group=GROUP)}
    for each in _OWN:
        if each.name in found:
            raise UserError(
                f"the entry point {found[each.name].value} has the name of {each.name}: rename it"
            )
    return found
