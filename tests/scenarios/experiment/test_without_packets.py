# SPDX-License-Identifier: Apache-2.0
"""BACKEND=flow from settings to summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from analysis.methods.registry import find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import Telemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.request import load_scenario
from scenarios.experiment.run import analyze, run_experiment
from scenarios.experiment.settings import Settings, make_settings
from scenarios.experiment.without_packets import simulate
from scenarios.many.calibrate import read_training
from testbed.fabric.pair_sets import PairSets
from testbed.faults.plan import FaultError
from testbed.measurements.without_packets import FlowRun
from testbed.record.manifest import seal
from testbed.record.run import RunDirectory, RunError
from testbed.traffic.generator import TrafficError
from tests.conftest import quiet
from tests.present import present

SMALL = make_settings(
    {
        "backend": "flow",
        "epochs": 4,
        "epoch_ms": 100,
        "load": 0.6,
        "seed": 2,
        "noise": "0..1e-5",
    }
)


def simulated(**changes) -> FlowRun:
    return simulate(layout_of(replace(SMALL, **changes)))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("flow") / "run"
    run_experiment(layout_of(SMALL), path)
    return path


def test_an_oversubscribed_clos_may_have_the_links_of_a_fat_tree(tmp_path: Path) -> None:
    """As that of `scenarios.library.silent_drops`; its record is read all the same."""
    settings = Settings(backend="flow", topology="clos:4:2:2:4:3", epochs=1, load=0.01)
    summary = run_experiment(layout_of(settings), tmp_path / "run", find_methods("007"))
    assert summary["topology"].startswith("a Clos of 4 pods")


def test_a_run_says_which_devices_failed(tmp_path: Path) -> None:
    settings = Settings(backend="flow", epochs=1, load=0.01, faults="device:agg0_1,2links:0.1")
    scenario, path = load_scenario("device_failure"), tmp_path / "run"
    summary = run_experiment(
        layout_of(settings, scenario, "device_failure"), path, find_methods("007")
    )
    ((name, (least, most)),) = summary.get("failed_devices", {}).items()
    run = RunDirectory(path)
    own = run.fabric.links_of(run.fabric.switch("agg0_1"))
    assert name == "agg0_1" and set(run.table("links")["rate"][own]) == {least} == {most}
    truth = (path / "truth.yaml").read_text()
    # The fourth is not UTF-8.
    wrong = ("- [x]", "- " + "[" * 10_000, "- nobody", "- \udcff", "!!bool maybe", "5")
    for each in wrong:
        text = truth.replace("- agg0_1", each)
        (path / "truth.yaml").write_text(text, errors="surrogateescape")
        with pytest.raises(RunError, match="failed_devices must be switches"):
            analyze(path, quiet, trust=True)
        seal(path)
        with pytest.raises(RunError, match="failed_devices must be switches"):
            read_training(path, quiet)


def test_packets_are_conserved(path: Path) -> None:
    run = RunDirectory(path)
    packets, links = run.network["conservation"], run.table("links")
    tables = [run.table(name) for name in ("flows", "probe_counts")]
    assert packets["sent"] == sum(table["sent"].sum() for table in tables)
    assert packets["sent"] == packets["delivered"] + packets["fault_drops"]
    assert links["fault_drops"].sum() == sum(table["lost"].sum() for table in tables)
    assert links["packets"].sum() == run.network["packet_hops"]
    rate = links["fault_drops"] / links["packets"]
    deviation = np.sqrt(links["rate"] / links["packets"])
    assert (np.abs(rate - links["rate"]) < 6 * deviation + 1e-3).all()


def test_a_run_is_analysed_again_with_the_same_result(path: Path) -> None:
    before = RunDirectory(path).summary
    again = analyze(path, quiet)
    for summary in (before, again):
        for method in summary["methods"].values():
            method.pop("seconds")
    assert again == before
    assert before["topology"] == "a K=4 fat-tree" and before["missing"] == []
    assert present(before["methods"]["canary-mle"]["directed"]["f1"]) > 0.8


def test_equal_seeds_give_equal_bytes(path: Path, tmp_path: Path) -> None:
    run_experiment(layout_of(SMALL), tmp_path / "run")
    files = [p.relative_to(path) for p in [*sorted(path.rglob("*.parquet")), path / "truth.yaml"]]
    assert len(files) > 10
    for file in files:
        assert (tmp_path / "run" / file).read_bytes() == (path / file).read_bytes()


def test_the_run_directory_holds_the_telemetry(path: Path) -> None:
    direct = read_telemetry(simulated())
    read = read_telemetry(RunDirectory(path))
    for part, columns in (
        ("segments", ("sent", "lost")),
        ("flows", ("path_set", "sent", "lost")),
        ("probes", ("sent", "lost")),
        ("connections", ("src_tor", "dst_tor", "lost", "complete")),
    ):
        for column in columns:
            a, b = (getattr(getattr(t, part), column) for t in (direct, read))
            assert np.array_equal(a, b)
    assert np.array_equal(
        direct.need("probes", "").paths.links, read.need("probes", "").paths.links
    )
    assert direct.canary_bytes == read.canary_bytes > 0


def test_a_run_that_lacks_a_table_is_refused(path: Path, tmp_path: Path) -> None:
    for file in path.iterdir():
        if file.is_file() and file.name != "segments.parquet":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    with pytest.raises(RunError, match=r"lacks segments\.parquet"):
        RunDirectory(tmp_path, trust=True)


# ---- Flock's kinds of telemetry --------------------------------------------------------------


@pytest.fixture(scope="module")
def run() -> FlowRun:
    return simulated()


def metered_of(run: FlowRun) -> tuple[np.ndarray, np.ndarray]:
    """The packets counted and lost on each segment in each epoch."""
    table, counts = run.table("segments"), np.zeros((2, run.epochs, len(run.segments)), np.int64)
    counts[:, table["epoch"], table["segment"]] = table["sent"], table["lost"]
    return counts[0], counts[1]


def paths_of(telemetry: Telemetry) -> tuple[np.ndarray, np.ndarray]:
    """How many paths each flow may have taken, and how many it lost."""
    flows = telemetry.need("flows", "the test")
    assert isinstance(flows.sets, PairSets)
    width = flows.sets.expanded().width
    return width[flows.path_set], flows.lost


def test_a1_is_probes_alone(run: FlowRun) -> None:
    telemetry = read_telemetry(run, "A1")
    assert telemetry.flows is None
    probes = telemetry.need("probes", "")
    # Each of two hosts of a rack sends 100 over each of its paths.
    assert probes.records == 16 * 4
    assert len(probes) == 8 * 4 and (probes.sent == 200).all()


def test_p_is_every_flow_with_its_possible_paths(run: FlowRun) -> None:
    telemetry = read_telemetry(run, "P")
    width, _ = paths_of(telemetry)
    assert telemetry.probes is None and telemetry.connections is not None
    assert len(width) == len(run.flows) and set(width.tolist()) == {2, 4}


def test_a2_is_traced_flows_with_loss(run: FlowRun) -> None:
    width, lost = paths_of(read_telemetry(run, "A2"))
    assert (width == 1).all() and (lost > 0).all()
    assert len(width) == run.table("connections")["complete"].sum() > 0


def test_a2_and_p_tell_each_flow_once(run: FlowRun) -> None:
    width, lost = paths_of(read_telemetry(run, "A1+A2+P"))
    assert len(width) == len(run.flows) and lost.sum() == run.carried.lost.sum()
    assert (width == 1).sum() == run.table("connections")["complete"].sum()


def test_int_knows_every_path(run: FlowRun) -> None:
    telemetry = read_telemetry(run, "INT")
    width, _ = paths_of(telemetry)
    assert len(width) == len(run.flows) and (width == 1).all()
    assert telemetry.probes is not None
    sets = telemetry.need("flows", "").sets
    assert isinstance(sets, PairSets)
    links = sets.expanded().paths.links
    packets = np.bincount(
        links,
        np.repeat(run.flows.sent, run.flows.paths.length),
        run.fabric.n_links,
    )
    assert (packets >= run.carried.packets).all() and packets.sum() > 0


def test_methods_without_their_telemetry_are_named(tmp_path: Path) -> None:
    settings = replace(SMALL, telemetry="A2")
    summary = run_experiment(layout_of(settings), tmp_path / "run")
    assert "netbouncer" not in summary["methods"] and "flock" in summary["methods"]
    assert any("netbouncer needs" in line for line in summary["missing"])


# ---- other fabrics, traffic, faults ----------------------------------------------------------


@pytest.mark.parametrize(
    "topology",
    ["leaf-spine:6:3:2", "clos:2:3:2:4:3", "fat-tree:irregular=10pct"],
)
def test_other_fabrics_run_whole(topology: str, tmp_path: Path) -> None:
    settings = replace(SMALL, topology=topology, faults="2links:0.3")
    summary = run_experiment(layout_of(settings), tmp_path / "run")
    assert len(summary["faulty_links"]) == 2
    assert summary["methods"]["canary-mle"]["directed"]["f1"] == 1
    assert analyze(tmp_path / "run", quiet)["faulty_links"] == summary["faulty_links"]


def test_skewed_traffic_is_half_among_few_racks() -> None:
    run = simulated(k=8, traffic="hadoop:skewed", load=0.05)
    pairs = np.bincount(run.flows.src_tor * 32 + run.flows.dst_tor, minlength=32 * 32)
    pairs = np.sort(pairs)[::-1]
    assert pairs[:2].sum() == pytest.approx(pairs.sum() / 2, rel=0.05)
    metered = metered_of(run)[0].sum(axis=0)
    assert metered.max() > 5 * metered.mean()


def test_flow_records_are_a_sample_of_large_traffic() -> None:
    layout = layout_of(replace(SMALL, epoch_ms=1000, faults="none"))
    every, some = (simulate(layout, flows=n) for n in (10**9, 2000))
    assert len(every.flows) > 10_000
    assert len(some.flows) == pytest.approx(2000, rel=0.1)
    assert (metered_of(every)[0] == metered_of(some)[0]).all()


def test_a_scheduled_fault_loses_in_its_epochs(tmp_path: Path) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(
        "faults:\n- {link: tor0_0->agg0_0, rate: 0.5, schedule: [[0.1, 0.2], [0.3, 0.4]]}\n"
    )
    run = simulated(faults=str(file), noise="0")
    link = run.fabric.link("tor0_0->agg0_0")
    paths = run.segments.paths
    crosses = np.isin(np.arange(len(run.segments)), paths.owner[paths.links == link])
    lost = metered_of(run)[1]
    assert lost[1, crosses].any() and lost[3, crosses].any()
    assert not lost[[0, 2]].any() and not lost[:, ~crosses].any()
    paths, counts = run.table("probe_paths")["path"], run.table("probe_counts")
    bounced = counts["src_host"] >= 0
    through = bounced & np.isin(counts["path"], paths.owner[paths.links == link])
    assert counts["lost"][through].mean() == pytest.approx(25, abs=8)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"telemetry": "INT"}, "TELEMETRY=INT needs BACKEND=flow"),
        ({"backend": "flow", "telemetry": "A3"}, "TELEMETRY=A3 is unknown"),
        ({"backend": "flow", "telemetry": "A1+A1"}, "is unknown"),
        ({"backend": "flow", "telemetry": ""}, "is unknown"),
        ({"backend": "flow", "injector": "p4"}, "INJECTOR=p4 needs packets"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        layout_of(make_settings(changes))


def test_what_needs_packets_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FaultError, match="no packet headers"):
        run_experiment(layout_of(SMALL, load_scenario("blackhole"), "blackhole"), tmp_path / "run")
    assert not list(tmp_path.iterdir())
    with pytest.raises(TrafficError, match="BACKEND=flow sends no packets"):
        simulated(traffic="capture.pcap")
    with pytest.raises(TrafficError, match="no two racks"):
        simulated(topology="leaf-spine:1:2", faults="none")
