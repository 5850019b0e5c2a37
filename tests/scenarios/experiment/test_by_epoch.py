# SPDX-License-Identifier: Apache-2.0
"""Methods that are asked after each epoch, for what it measured alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.methods.registry import find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment.backends import open_backend
from scenarios.experiment.by_epoch import EpochVerdicts
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.loop import Session
from scenarios.experiment.recording import HostCounts
from scenarios.experiment.run import analyze, run_config, run_experiment
from scenarios.experiment.settings import SettingsError, make_settings
from scenarios.experiment.setup import set_up
from testbed.fabric.fat_tree import FatTree
from testbed.record.run import RunDirectory, RunWriter
from tests.conftest import SMALL, inputs_for

K4 = FatTree(4)
FAULTS = """faults:
- {link: tor0_0->agg0_1, rate: 0.3, schedule: [[0.2, 0.4]]}
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Telemetry], Telemetry]:
    """The telemetry of each epoch of a run alone, and that of the whole."""
    return stepped(tmp_path_factory.mktemp("alone"), "epoch")


def stepped(folder: Path, diagnose: str) -> tuple[list[Telemetry], Telemetry]:
    """The telemetry after each epoch of a run, and that of the whole."""
    inputs = inputs_for(replace(SMALL, epochs=3, diagnose=diagnose))
    writer, config = RunWriter(folder / "run"), run_config(inputs.config)
    writer.config(config)
    with open_backend(inputs, folder) as backend:
        emulation = set_up(inputs, backend)
        session = Session(emulation, writer, EpochVerdicts([], config, inputs))
        session.start()
        found = []
        while (epoch := session.epoch()) is not None:
            assert epoch.number == len(found)
            found.append(read_telemetry(epoch.record(config)))
        session.end()
    return found, read_telemetry(RunDirectory(writer.partial, finished=False))


def total(every: list[Telemetry], part: str, column: str) -> int:
    return sum(int(getattr(each.need(part, "the test"), column).sum()) for each in every)


def test_the_epochs_of_a_session_add_up_to_its_run(
    alone: tuple[list[Telemetry], Telemetry],
) -> None:
    epochs, whole = alone
    assert len(epochs) == 3
    segments = [each.need("segments", "the test") for each in epochs]
    for column in ("sent", "lost"):
        found: Any = np.concatenate([getattr(each, column) for each in segments])
        assert (found == getattr(whole.need("segments", "the test"), column)).all()
    # A few packets are sent or lost after the last epoch's end.
    for part in ("flows", "probes", "detector"):
        for column in ("sent", "lost"):
            parts, run = total(epochs, part, column), total([whole], part, column)
            assert 0.97 * run <= parts <= run, (part, column)
    assert all(each.need("connections", "the test").lost.min() > 0 for each in epochs)


def test_a_window_is_the_last_epochs_together(
    alone: tuple[list[Telemetry], Telemetry], tmp_path: Path
) -> None:
    epochs, _ = alone
    first, *others = stepped(tmp_path, "epoch:2")[0]
    assert len(first.need("segments", "the test").sent) == 1
    for number, pooled in enumerate(others):
        parts, both = epochs[number : number + 2], pooled.need("segments", "the test")
        for column in ("sent", "lost"):
            single = [getattr(each.need("segments", "the test"), column) for each in parts]
            assert (np.concatenate(single) == getattr(both, column)).all()
            for part in ("flows", "probes", "detector"):
                assert total(parts, part, column) == total([pooled], part, column)
    whole = others[-1].need("flows", "the test").sent.sum()
    assert whole < total(epochs, "flows", "sent")


def test_time_to_detect_and_false_alarms_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(FAULTS)
    settings = replace(SMALL, faults=str(file), diagnose="epoch", epochs=4, noise="0")
    names = "canary,canary-mle,netbouncer"
    run_experiment(layout_of(settings), tmp_path / "run", find_methods(names))
    run = RunDirectory(tmp_path / "run")
    found = {name: entry.get("by_epoch") for name, entry in run.summary["methods"].items()}
    # SMALL has epochs of 100 ms: the fault is there in the third and the fourth.
    assert found["canary-mle"] == {
        "faults": 1,
        "found": 1,
        "seconds_to_detect": 0.1,
        "false_alarms": 0,
    }
    verdicts = run.table("verdicts")
    own = np.array([name == "canary-mle" for name in verdicts["method"]])
    assert set(verdicts["epoch"][own]) == {2, 3}
    assert set(verdicts["link"][own]) == {K4.link("tor0_0->agg0_1")}
    assert set(verdicts["method"]) <= {"canary", "canary-mle", "netbouncer"}

    again = analyze(tmp_path / "run", lambda what, share: None, methods=find_methods("canary-mle"))
    assert again["methods"]["canary-mle"].get("by_epoch") == found["canary-mle"]


def test_without_packets_it_is_refused() -> None:
    with pytest.raises(SettingsError, match="DIAGNOSE=epoch needs packets"):
        make_settings({"diagnose": "epoch", "backend": "flow"})


@pytest.mark.parametrize("wrong", ["epochs", "epoch:", "epoch:0", "epoch:-1", "end:3", ""])
def test_another_time_is_one_line(wrong: str) -> None:
    with pytest.raises(SettingsError, match="is unknown: use end, epoch, or epoch:N for the last"):
        make_settings({"diagnose": wrong})


def test_what_was_under_way_between_two_epochs_is_not_lost() -> None:
    """A flow has sent 9 packets, 2 of which were under way and came later; another lost 1 more."""
    before = HostCounts({0: np.array([9, 9])}, {0: np.array([2, 1])})
    now = HostCounts({0: np.array([9, 12])}, {0: np.array([0, 2])})
    found = now.since(before)
    assert found.sent[0].tolist() == [0, 3] and found.lost[0].tolist() == [0, 1]
