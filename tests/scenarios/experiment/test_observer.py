# SPDX-License-Identifier: Apache-2.0
"""What a run tells its observer, and in which order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.methods.registry import find_methods
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import Observer, Observers
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import Settings, make_settings
from tests.conftest import SMALL

EVENTS = [name for name in vars(Observer) if not name.startswith("_") and name != "window"]


class Noting(Observer):
    """Notes the name and the arguments of each event."""

    def __init__(self, noted: list[tuple[str, Any]] | None = None) -> None:
        self.noted: list[tuple[str, Any]] = [] if noted is None else noted
        for name in EVENTS:
            setattr(self, name, self._noting(name))

    def _noting(self, name: str) -> Any:
        return lambda *arguments: self.noted.append((name, arguments))

    def without_progress(self) -> list[str]:
        return [name for name, _ in self.noted if name != "progressed"]


def observed(settings: Settings, path: Path) -> Noting:
    seen = Noting()
    run_experiment(layout_of(settings), path, find_methods("canary"), observer=seen)
    return seen


def test_a_run_with_packets_tells_its_events_in_order(tmp_path: Path) -> None:
    seen = observed(replace(SMALL, epochs=3), tmp_path / "run")
    assert seen.without_progress() == [
        "estimated",
        "planned",
        "network_up",
        *["epoch_ended"] * 3,
        "network_ended",
    ]
    noted = dict(seen.noted)
    (layout,) = noted["planned"]
    fabric = layout.fabric
    assert layout.title == f"faulty_links: {fabric.title} on virtual, seed {SMALL.seed}"
    assert layout.epochs.number == 3 and len(layout.plan.links)
    assert len(layout.monitor) == fabric.n_switches
    assert noted["network_up"][0].topology is fabric, "the fabric is built once"
    epochs = [arguments[0].number for what, arguments in seen.noted if what == "epoch_ended"]
    assert epochs == [0, 1, 2]
    names = [what for what, _ in seen.noted]
    shares = [a[1] for what, a in seen.noted if what == "progressed" and a[0] == "emulation"]
    assert shares == sorted(shares) and shares[-1] == pytest.approx(1.0)
    assert names[-1] == "progressed", "the diagnosis comes after the network"


def test_a_run_without_packets_tells_what_it_takes_and_how_far_it_is(tmp_path: Path) -> None:
    seen = observed(make_settings({"backend": "flow", "epochs": 1, "load": 0.01}), tmp_path / "run")
    assert seen.without_progress() == ["estimated"]
    steps = {arguments[0] for what, arguments in seen.noted if what == "progressed"}
    assert {"flows", "measurements: canary", "diagnosis: canary"} <= steps


def test_several_observers_hear_each_event_in_their_order() -> None:
    both: list[tuple[str, Any]] = []
    first, second = Noting(both), Noting(both)
    every = Observers(first, second)
    sent = {
        "estimated": ("expected",),
        "planned": ("layout",),
        "progressed": ("what", 0.5),
        "network_up": ("emulation",),
        "epoch_ended": ("epoch",),
        "network_ended": (),
    }
    assert list(sent) == EVENTS, "each event is passed on"
    for name, arguments in sent.items():
        getattr(every, name)(*arguments)
    assert both == [pair for pair in sent.items() for _ in (first, second)]
