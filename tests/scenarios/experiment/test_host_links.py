# SPDX-License-Identifier: Apache-2.0
"""Faults of the links of hosts: truth, record, telemetry, verdicts and scores, with packets and
without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from analysis.methods.registry import find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.api import localize
from scenarios.command.localize import export
from scenarios.command.show import page_text
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import analyze, run_experiment
from scenarios.experiment.settings import make_settings
from testbed.fabric.host_links import with_hosts
from testbed.network.requirements import missing
from testbed.record.manifest import seal
from testbed.record.run import RunDirectory
from tests.conftest import quiet
from tests.present import present
from tests.real_packets import paced

METHODS = "canary,netbouncer,flock+links,007,detector,mle"
UP, DOWN = "h0_0_1->tor0_0", "tor3_1->h3_1_0"


def made(place: Path, **changes) -> RunDirectory:
    settings = make_settings(
        {"faults": f"{UP}:0.1,{DOWN}:0.05", "epochs": 2, "seed": 3, "noise": "0"} | changes
    )
    run_experiment(layout_of(settings), place, find_methods(METHODS))
    return RunDirectory(place)


@pytest.fixture(scope="module", params=["virtual", "flow"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    return made(tmp_path_factory.mktemp(request.param) / "run", backend=request.param)


def test_the_truth_has_the_links_of_hosts_with_what_they_lost(run: RunDirectory) -> None:
    links = run.table("links")
    assert links["name"] == with_hosts(run.fabric).link_names and len(links["name"]) == 96
    faulty = np.flatnonzero(links["faulty"]).tolist()
    assert [links["name"][link] for link in faulty] == [UP, DOWN]
    for link, rate in zip(faulty, (0.1, 0.05), strict=True):
        packets, lost = int(links["packets"][link]), int(links["fault_drops"][link])
        assert packets > 1000
        assert abs(lost - rate * packets) < 5 * np.sqrt(rate * packets)
    others = np.delete(links["fault_drops"], faulty)
    assert others.sum() == 0
    assert links["fault_drops"].sum() == run.network["conservation"]["fault_drops"]
    assert f"link: {UP}" in (run.path / "truth.yaml").read_text()
    assert run.summary["faulty_links"] == [UP, DOWN] and run.summary.get("links") == 96


def test_packets_of_hosts_are_conserved(run: RunDirectory) -> None:
    """What a host sends crosses its link up, what it receives that down."""
    counted, links = run.network["conservation"], run.table("links")
    n = run.fabric.n_links
    up, down = links["packets"][n::2], links["packets"][n + 1 :: 2]
    if run.config["backend"] == "virtual":
        assert present(counted.get("unaccounted")) == 0
        # What switches answer to traceroutes is sent, too, but by no host.
        assert up.sum() == counted["sent"] - present(run.network.get("icmp_messages"))
        assert (down - links["fault_drops"][n + 1 :: 2]).sum() == counted["delivered"]
        return
    flows = run.table("flows")
    of_host = np.bincount(flows["src_host"], flows["sent"], run.fabric.n_hosts)
    counts = run.table("probe_counts")
    of_host += np.bincount(counts["src_host"], counts["sent"], run.fabric.n_hosts)
    assert up.tolist() == of_host.astype(int).tolist()


def test_each_method_sees_what_its_paper_lets_it_see(run: RunDirectory) -> None:
    for name, entry in run.summary["methods"].items():
        own = entry[entry["native"]]
        verdict = run.table(f"diagnoses/{name}")
        assert verdict["link"] == run.table("links")["name"]
        of_hosts = {*verdict["state"][run.fabric.n_links :]}
        if name == "canary":  # its meters are in switches
            assert of_hosts == {"not observed"} and own["f1"] is None
            assert sorted(present(own.get("unobserved"))) == sorted([UP, DOWN])
            assert any("all links of hosts" in each for each in present(entry.get("remarks")))
        else:
            assert of_hosts == {"healthy", "faulty"}, name
            assert own["recall"] == 1, name
        assert not present(entry.get("fabric"))[entry["native"]].get("unobserved")
    exact = ("flock+links", "mle")
    assert [run.summary["methods"][name]["directed"]["f1"] for name in exact] == [1, 1]


def test_scores_of_the_fabric_are_those_without_links_of_hosts(tmp_path: Path) -> None:
    faults = f"{UP}:0.1,agg0_0->core1:0.2"
    run = made(tmp_path / "run", backend="flow", faults=faults)
    entry = run.summary["methods"]["mle"]
    assert entry["directed"]["true_positives"] == 2
    assert present(entry.get("fabric"))["directed"]["true_positives"] == 1
    canary = run.summary["methods"]["canary"]
    assert canary["directed"]["f1"] == present(canary.get("fabric"))["directed"]["f1"] == 1


def test_without_a_fault_of_a_host_nothing_is_said_of_their_links(tmp_path: Path) -> None:
    run = made(tmp_path / "run", backend="flow", faults="2links")
    assert len(run.table("links")["name"]) == run.fabric.n_links
    assert run.whole is run.fabric and "host_links" not in run.network
    assert not any("fabric" in entry for entry in run.summary["methods"].values())
    assert read_telemetry(run).topology is run.fabric


def test_a_run_is_diagnosed_again_and_drawn(run: RunDirectory) -> None:
    before = run.summary["methods"]["007"]["directed"]
    assert (
        analyze(run.path, quiet, methods=find_methods(METHODS))["methods"]["007"]["directed"]
        == before
    )
    page = page_text(run.path)
    assert "h3_1_0" in page and "F1f" in page


def test_an_export_says_the_same(run: RunDirectory, tmp_path: Path) -> None:
    files = export(run.path, tmp_path / "out", ".parquet")
    for name in METHODS.split(","):
        blamed = run.table(f"diagnoses/{name}")
        found = {blamed["link"][link] for link in np.flatnonzero(blamed["flagged"])}
        assert set(localize(*files, name).blamed) == found, name


@pytest.mark.parametrize(
    ("topology", "faults"),
    [
        ("two-switch", "h0->tor0:0.1"),
        ("leaf-spine:4:2:2", "host-links:2:0.1"),
        ("clos:2:2:2:4:2", "h0_1_1-tor0_1:0.1"),
    ],
)
def test_hosts_of_other_fabrics(topology: str, faults: str, tmp_path: Path) -> None:
    changes = {"backend": "virtual", "topology": topology, "faults": faults, "load": 0.05}
    run = made(tmp_path / "run", **changes, epochs=1)
    blamed = run.table("diagnoses/mle")
    found = {blamed["link"][i] for i in np.flatnonzero(blamed["flagged"])}
    assert found >= set(run.summary["faulty_links"]) and run.summary["faulty_links"]


def test_verdicts_of_each_epoch_have_links_of_hosts(tmp_path: Path) -> None:
    run = made(tmp_path / "run", backend="virtual", diagnose="epoch")
    assert present(run.summary["methods"]["007"].get("by_epoch"))["found"] == 2
    assert {run.whole.link_names[link] for link in run.table("verdicts")["link"]} >= {UP, DOWN}


@pytest.mark.root
@pytest.mark.real_time
@pytest.mark.parametrize("backend", ["softswitch", "bmv2"])
def test_real_packets_are_lost_on_them(backend: Literal["softswitch", "bmv2"], tmp_path) -> None:
    """Where the P4 program drops them: at the ToR, as they arrive and as they leave."""
    if reason := missing(backend):
        pytest.skip(reason)
    pace = paced(2, 3000, 0.2)
    run = made(tmp_path / "run", backend=backend, faults=f"{UP}:0.3,{DOWN}:0.2", tcp=0, **pace)
    links = run.table("links")
    assert links["name"] == with_hosts(run.fabric).link_names
    for name, rate in ((UP, 0.3), (DOWN, 0.2)):
        link = links["name"].index(name)
        assert links["rate"][link] == rate and links["packets"][link] > 300
        assert links["fault_drops"][link] / links["packets"][link] == pytest.approx(rate, abs=0.1)
    assert links["fault_drops"].sum() == run.network["conservation"]["fault_drops"]
    assert run.network["conservation"].get("unaccounted") == 0 and not run.network["degraded"]
    assert run.summary["faulty_links"] == [UP, DOWN]
    blamed = run.table("diagnoses/mle")
    found = {blamed["link"][i] for i in np.flatnonzero(blamed["flagged"])}
    assert found == {UP, DOWN}


def test_a_record_without_hosts_is_one_line(tmp_path: Path) -> None:
    run = made(tmp_path / "run", backend="flow", faults="2links")
    file = run.path / "network.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"host_links": True}))
    seal(run.path)
    with pytest.raises(MissingTelemetry, match="name no hosts"):
        read_telemetry(RunDirectory(run.path))
