# SPDX-License-Identifier: Apache-2.0
"""What a run will take, said beforehand: counts, memory, refusals and the line that says it.

Seconds depend on the machine and are not tested.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.methods.registry import find_methods
from scenarios.experiment import estimate
from scenarios.experiment.estimate import LONG_S, Estimate, announce, available_bytes, need_memory
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.observer import ProgressObserver
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import expected_of, run_experiment
from scenarios.experiment.settings import Settings, SettingsError, make_settings
from scenarios.experiment.without_packets import simulate
from scenarios.many import compare
from testbed.record.run import RunDirectory
from tests.conftest import SMALL
from tests.scenarios.conftest import Canary, refused


def expected(settings: Settings) -> Estimate:
    return expected_of(layout_of(settings))


def test_counts_of_a_run_with_packets(finished_run: RunDirectory) -> None:
    before, network = expected(SMALL), finished_run.network
    assert before.packets == pytest.approx(network["conservation"]["sent"], rel=0.3)
    assert before.packet_hops == pytest.approx(network["packet_hops"], rel=0.3)
    fabric = finished_run.fabric
    assert (before.links, before.pairs) == (fabric.n_links, fabric.n_tors * (fabric.n_tors - 1))


@pytest.mark.parametrize(
    "given",
    [
        {"k": 8, "load": 0.05},
        {"k": 6, "load": 0.02, "traffic": "storage:skewed", "monitors": "tor"},
        {"topology": "leaf-spine:16:4:3", "load": 0.1},
        {"topology": "clos:4:6:2:4:2", "load": 0.1, "traffic": "websearch"},
    ],
)
def test_counts_of_a_run_without(given: dict) -> None:
    settings = make_settings(given | {"backend": "flow", "epochs": 3, "faults": "none"})
    before, run = expected(settings), simulate(layout_of(settings))
    assert before.packets == pytest.approx(run.network["conservation"]["sent"], rel=0.3)
    assert before.packet_hops == pytest.approx(run.network["packet_hops"], rel=0.3)
    assert before.flows == pytest.approx(len(run.flows), rel=0.3)
    assert before.links == run.fabric.n_links


# Not getrusage's ru_maxrss: that of the process that began it, these tests', is in it.
PEAK = """
import json, re, sys
from canary import run
run(path="run", **json.loads(sys.argv[1]))
print(int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024)
"""


@pytest.mark.parametrize(
    "given",
    [
        {"epochs": 6},
        pytest.param({"backend": "flow", "k": 8, "epochs": 2}, marks=pytest.mark.nightly),
    ],
)
def test_memory_is_within_a_factor_of_two(given: dict, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PEAK, json.dumps(given)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    peak = int(done.stdout)
    assert peak / 2 < expected(make_settings(given)).memory < 2 * peak


def test_a_run_that_does_not_fit_is_refused_at_once(
    canary: Canary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(estimate, "available_bytes", lambda: 2_000_000_000)
    refused(canary("run", "BACKEND=flow", "K=64"), "GB of memory", "2.0 GB is free", "smaller K")
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.setattr(estimate, "available_bytes", lambda: 1_000_000)
    with pytest.raises(SettingsError, match="of memory, and 1 MB is free"):
        compare._parallel_runs(layout_of(SMALL))


def test_seeds_at_once_share_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = expected(SMALL).memory
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    for times, most in ((1.5, 1), (3.5, 3), (99.0, 8)):
        monkeypatch.setattr(compare, "available_bytes", lambda times=times: int(times * needed))
        assert compare._parallel_runs(layout_of(SMALL)) == most
    assert compare._parallel_runs(layout_of(make_settings({"backend": "softswitch"}))) == 1


def test_only_long_runs_are_announced(capsys: pytest.CaptureFixture[str]) -> None:
    short = replace(expected(SMALL), seconds=LONG_S / 2)
    assert "GB" not in str(short)
    announce(short)
    assert "packet-hops" not in capsys.readouterr().err
    long = replace(short, seconds=42.0, memory=3_210_000_000, packet_hops=1_234_000_000)
    announce(long)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line == "about 40 s and 3.2 GB: 1.23 billion packet-hops, 64 links"
    with pytest.raises(SettingsError, match=r"about 3\.2 GB .* 1\.0 GB is free"):
        need_memory(long, available=1_000_000_000)
    need_memory(short, available_bytes())


def test_more_costs_more() -> None:
    small = make_settings({"backend": "flow", "k": 8})
    for given in ({"k": 16}, {"k": 8, "epochs": 30}, {"k": 8, "monitors": "tor"}):
        assert (
            expected(make_settings(given | {"backend": "flow"})).seconds > expected(small).seconds
        )
    few, many = (replace(small, faults=f"{links}links") for links in (5, 50))
    assert expected(many).seconds > expected(few).seconds
    real = make_settings({"backend": "bmv2"})
    assert expected(real).seconds > real.duration_s


def test_progress_tells_each_part_of_the_set_up(tmp_path: Path) -> None:
    heard: list[str] = []
    run_experiment(
        layout_of(replace(SMALL, epochs=1, load=0.02), load_scenario("healthy"), "healthy"),
        tmp_path / "run",
        find_methods("canary"),
        observer=ProgressObserver(lambda what, share: heard.append(what)),
    )
    parts = list(dict.fromkeys(heard))
    assert parts[:-1] == [
        "traffic",
        "switch program",
        "switch IDs",
        "forwarding rules",
        "probes",
        "emulation",
    ]
