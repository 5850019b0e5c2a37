# SPDX-License-Identifier: Apache-2.0
"""What a view of a measurement is: how it is read, and what the run's summary says of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from analysis.telemetry.identifiability import Identifiability, Observations
from analysis.telemetry.views.source import Source
from testbed.record.documents import Measured, Use
from testbed.record.run import Record, whole_fabric


def _advice(part: Any, advice: str) -> str:
    """Return the advice; the default of `View.unseen`."""
    del part
    return advice


@dataclass(frozen=True)
class View:
    """What methods read of a measurement.

    Attributes:
        read: Returns it from a record; None if the kinds of telemetry do not report it.
        used: Returns what the run asked for and got, from the record and the view; None if the
            summary does not say so.
        unseen: Returns why it has not observed some links, from the view and from what would
            observe more: that, or what happened if it has nothing at all.
    """

    read: Callable[[Source], Any]
    used: Callable[[Record, Any], Measured] | None = None
    unseen: Callable[[Any, str], str] = _advice


def unobserved(record: Record, *observations: Observations) -> int:
    """Return the number of directed links that none of the observations crosses."""
    tells = Identifiability.of(whole_fabric(record).n_links, observations)
    return int((~tells.observed).sum())


def share(use: Use) -> float:
    """Return the share of what was asked for that was granted; 1 if nothing was asked for."""
    return use["got"] / use["asked"] if use["asked"] else 1.0
