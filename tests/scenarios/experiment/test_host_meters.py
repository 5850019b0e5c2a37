# SPDX-License-Identifier: Apache-2.0
"""Canary's meters in hosts (MONITORS=...+host): what they count, and what is said of the links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from analysis.methods.registry import find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.views.segments import read_segments
from canary_softswitch import Program, Switch
from scenarios.command.show import page_text
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_experiment
from scenarios.experiment.settings import make_settings
from testbed.control.forwarding import install_adapter
from testbed.control.local import LocalSwitch
from testbed.dataplane import VERDICT
from testbed.errors import UserError
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.host_links import with_hosts
from testbed.measurements.programs import ADAPTER
from testbed.record.run import RunDirectory
from tests.p4.frames import Flow, frame, ip_of, shim_of
from tests.present import present

UP, DOWN = "h0_0_1->tor0_0", "tor3_1->h3_1_0"


def made(place: Path, methods: str = "canary,canary-mle,007", **changes: Any) -> RunDirectory:
    settings = make_settings(
        {"faults": f"{UP}:0.1,{DOWN}:0.3", "monitors": "tor+core+host", "epochs": 2, "noise": "0"}
        | changes
    )
    run_experiment(layout_of(settings), place, find_methods(methods))
    return RunDirectory(place)


@pytest.fixture(scope="module", params=["virtual", "flow"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return made(tmp_path_factory.mktemp(request.param) / "run", backend=request.param)


def test_the_links_of_hosts_are_segments_and_only_faulty_ones_lose(run: RunDirectory) -> None:
    fabric, parts = run.fabric, run.segments
    counts = read_segments(run)
    own = np.flatnonzero(parts.paths.links[parts.paths.ptr[:-1]] >= fabric.n_links)
    assert len(own) == 2 * fabric.n_hosts and own[-1] == len(parts) - 1
    sent, lost = counts.sent.sum(axis=0)[own], counts.lost.sum(axis=0)[own]
    names = with_hosts(fabric).link_names[fabric.n_links :]
    assert (sent > 100).all()
    faulty = {names.index(UP): 0.1, names.index(DOWN): 0.3}
    assert set(np.flatnonzero(lost).tolist()) == set(faulty)
    for link, rate in faulty.items():
        assert abs(lost[link] / sent[link] - rate) < 5 * np.sqrt(rate * (1 - rate) / sent[link])
    truth = run.table("links")["fault_drops"][fabric.n_links :]
    assert (lost <= truth).all()


def test_canary_names_the_links_of_hosts(run: RunDirectory) -> None:
    for name in ("canary", "canary-mle"):
        own = run.summary["methods"][name]["directed"]
        assert own["f1"] == 1 and not own.get("unobserved"), name
    assert read_telemetry(run).topology is run.whole is with_hosts(run.fabric)
    assert "h3_1_0" in page_text(run.path)


def test_meters_in_hosts_take_nothing_from_packets_and_traceroutes(run: RunDirectory) -> None:
    if run.config["backend"] == "virtual":
        counted = run.network["conservation"]
        assert present(counted.get("unaccounted")) == 0 and run.network.get("misdelivered") == 0
        assert run.table("links")["fault_drops"].sum() == counted["fault_drops"]
    assert run.summary["methods"]["007"]["directed"]["recall"] == 1


def test_without_a_fault_links_of_hosts_get_a_verdict_too(tmp_path: Path) -> None:
    run = made(tmp_path / "run", "canary", faults="none", backend="flow", epochs=1)
    verdict = run.table("diagnoses/canary")
    assert verdict["link"] == with_hosts(run.fabric).link_names
    assert set(verdict["state"]) == {"healthy"}


def test_any_number_of_threads_counts_the_same(tmp_path: Path) -> None:
    one, two = (
        made(tmp_path / f"{n}", "canary", epochs=1, load=0.1, threads=n, routing="spray")
        for n in (1, 2)
    )
    for name in ("registers/epoch-000", "rules", "flows", "drops"):
        for column, values in one.table(name).items():
            assert np.array_equal(values, two.table(name)[column]), (name, column)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"backend": "softswitch"}, "hosts have meters with BACKEND=virtual and flow alone"),
        ({"monitors": "tor+50%host"}, "a share needs a tier"),
        ({"measure": "int"}, "measure it in another run"),
    ],
)
def test_what_does_not_go_with_meters_in_hosts_is_one_line(
    changes: dict[str, str], words: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError, match=words) as error:
        made(tmp_path / "run", "canary", **changes)
    assert "\n" not in str(error.value)


def test_an_adapter_puts_the_shim_in_and_takes_it_out_and_leaves_the_rest() -> None:
    topology = FatTree(4)
    switch = Switch(Program.load(ADAPTER, observe=VERDICT.field))
    install_adapter(topology, 0, LocalSwitch(switch), mask=0x10040100)
    src, dst = (int(topology.host_ip[host]) for host in (0, 15))
    for ttl in (64, 1):
        sent = frame(Flow(src, dst, 1000, 80), ttl)
        [(port, data)] = switch.process(1, sent)
        shim = shim_of(data)
        assert port == 2 and shim is not None and shim.path_bf == 0x10040100
        assert ip_of(data) == ip_of(sent)
        assert switch.process(2, data) == [(1, sent)]
