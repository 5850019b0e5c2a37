# SPDX-License-Identifier: Apache-2.0
"""Published methods against their plain references: `python -m tests.studies published`.

It counts what the tests named ``test_published`` assert: random small cases, and those in which the
method and its reference (`tests.analysis.references`), written from the text of the paper, differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from rich.console import Console

from analysis.methods.netbouncer import NetBouncer, NetBouncerStage
from tests.analysis.methods import test_canary_published as canary
from tests.analysis.methods import test_detector_published as detector
from tests.analysis.methods import test_netbouncer_published as netbouncer
from tests.analysis.methods.flock import test_published as flock
from tests.analysis.methods.vigil import test_published as vigil
from tests.analysis.solvers import test_coordinate_descent as descent

Compared = Callable[..., Iterator[tuple[Any, Any]]]

REFERENCES: Mapping[str, tuple[Compared, Sequence[tuple[Any, ...]]]] = {
    "coordinate descent (NetBouncer, algorithm 1)": (descent.compared, descent.EVERY),
    "`netbouncer`": (partial(netbouncer.compared, NetBouncer), netbouncer.EVERY),
    "`netbouncer-stage`": (partial(netbouncer.compared, NetBouncerStage), netbouncer.EVERY),
    "`canary`": (canary.compared, canary.EVERY),
    "`flock`": (flock.compared, flock.EVERY),
    "`007`": (vigil.compared, vigil.EVERY),
    "`detector`": (detector.compared, detector.EVERY),
}
"""What yields the verdicts of a method and of its reference, and all that it is called with."""


def print_published(console: Console) -> None:
    console.print("| method | cases | differences |\n| --- | --- | --- |")
    for name, (compared, every) in REFERENCES.items():
        cases = [case for given in every for case in compared(*given)]
        differ = sum(found != expected for found, expected in cases)
        console.print(f"| {name} | {len(cases)} | {differ} |")
