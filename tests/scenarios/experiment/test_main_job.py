# SPDX-License-Identifier: Apache-2.0
"""The main job end to end: exact losses, conservation, determinism, offline analysis."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from rich.console import Console

from analysis.evaluation.report import render
from analysis.methods.flock.flock import Flock
from analysis.methods.registry import METHODS, find_methods
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.views.segments import read_minus_meters
from scenarios.experiment.backends import open_backend
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.loop import make_agenda, steps
from scenarios.experiment.loop import run as run_epochs
from scenarios.experiment.observer import Observer
from scenarios.experiment.request import Scenario, load_scenario, scenario_names
from scenarios.experiment.run import analyze, run_config, run_experiment
from scenarios.experiment.settings import Settings
from scenarios.experiment.setup import Emulation, set_up
from testbed.dataplane import DSM, FLOW_ID, USM, Meter
from testbed.fabric.fat_tree import FatTree
from testbed.network.virtual import LinkModel
from testbed.record.run import RunDirectory, RunWriter
from testbed.record.run_tables import PLANS
from tests.conftest import SMALL, inputs_for, quiet
from tests.present import present


def flow_words(run: RunDirectory, topology: FatTree) -> dict[tuple[int, int], int]:
    """Flow index by (high, low) words of its flow ID."""
    flows = run.table("flows")
    ids = {}
    columns = (flows[name].tolist() for name in ("src_port", "dst_port", "protocol"))
    hosts = (topology.host_ip[flows[name]].tolist() for name in ("src_host", "dst_host"))
    for index, (src, dst, sport, dport, protocol) in enumerate(zip(*hosts, *columns, strict=True)):
        flow = FLOW_ID.of(src, dst, sport, dport, protocol)
        ids[flow >> 64, flow & (1 << 64) - 1] = index
    return ids


def assert_lost_is_exact(run: RunDirectory) -> int:
    """Every minus-meter entry against the network's own record; returns the losses compared."""
    topology = FatTree(run.config["k"])
    segments = topology.segments(run.config["monitors"], run.config["seed"])
    ids = flow_words(run, topology)
    drops = run.table("drops")
    counted = np.asarray(drops["counted"], bool)
    causes = np.array(drops["cause"])[counted]
    record: dict[tuple[int, int, int], int] = {}
    for cause, *where in zip(
        causes, drops["flow"][counted], drops["link"][counted], drops["epoch"][counted], strict=True
    ):
        assert cause in ("fault", "corrupt", "queue")
        flow, link, epoch = (int(x) for x in where)
        record[flow, link, epoch] = record.get((flow, link, epoch), 0) + 1
    losses = 0
    for epoch, meter in enumerate(read_minus_meters(run)):
        assert meter.negative == meter.inconsistent == 0
        words = zip(meter.flow_hi.tolist(), meter.flow_lo.tolist(), strict=True)
        for word, segment, lost in zip(words, meter.segment, meter.lost.tolist(), strict=True):
            links = segments.paths[int(segment)].tolist()
            truth = sum(record.get((ids[word], link, epoch), 0) for link in links)
            assert lost == truth, (epoch, segment)
            losses += lost
    return losses


def test_lost_equals_the_networks_own_count_on_every_flow_and_segment(
    finished_run: RunDirectory,
) -> None:
    assert assert_lost_is_exact(finished_run) > 100


def test_what_was_metered_is_told(finished_run: RunDirectory) -> None:
    segments = finished_run.table("segments")
    metered = present(finished_run.summary.get("metered"))
    assert metered["packets"] == segments["sent"].sum() > 10_000
    assert metered["lost"] == segments["lost"].sum() > 100
    assert metered["segments"] == len(np.unique(segments["segment"]))
    console = Console(file=io.StringIO(), width=120)
    render(finished_run.summary, console)
    screen = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"Canary's meters: {metered['packets']:,} packets on " in screen


@pytest.mark.parametrize(
    ("scenario", "changes"),
    [
        ("blackhole", {}),
        ("flap", {}),
        ("faulty_links", {"monitors": "tor"}),
        ("faulty_links", {"monitors": "tor+agg+core"}),
        ("faulty_links", {"monitors": "tor+50%core"}),
        ("faulty_links", {"k": 6, "epochs": 2, "noise": "0.001"}),
    ],
)
def test_lost_is_exact_in_other_scenarios_too(tmp_path: Path, scenario: str, changes) -> None:
    found = load_scenario(scenario)
    settings = replace(SMALL, **(dict(found.defaults) | changes))
    run_experiment(layout_of(settings, found, scenario), tmp_path / "run", find_methods("canary"))
    assert assert_lost_is_exact(RunDirectory(tmp_path / "run")) > 20


def test_corrupted_packets_are_lost_on_the_link_that_corrupts(tmp_path: Path) -> None:
    faults = tmp_path / "faults.yaml"
    faults.write_text("faults:\n- {link: agg0_0->core0, rate: 0.2, kind: corrupt}\n")
    settings = replace(SMALL, faults=str(faults))
    methods = find_methods("canary-mle")
    run_experiment(layout_of(settings), tmp_path / "run", methods)
    run = RunDirectory(tmp_path / "run")
    assert set(run.table("drops")["cause"]) == {"corrupt"}
    links, link = run.table("links"), run.fabric.link("agg0_0->core0")
    packets, lost = int(links["packets"][link]), int(links["fault_drops"][link])
    assert abs(lost - 0.2 * packets) < 4 * np.sqrt(packets * 0.2 * 0.8)
    assert assert_lost_is_exact(run) > 20
    flagged = run.summary["methods"]["canary-mle"]["directed"]
    assert (flagged["true_positives"], flagged["false_positives"]) == (1, 0)


def test_packets_are_conserved(finished_run: RunDirectory) -> None:
    network = finished_run.network
    parts = network["conservation"]
    assert network.get("other_drops") == 0
    assert network.get("misdelivered") == network.get("in_flight") == 0
    lost = parts["fault_drops"] + parts["queue_drops"] + parts["ttl_drops"]
    assert parts["sent"] == parts["delivered"] + lost
    flows, every = finished_run.table("flows"), finished_run.table("probe_counts")
    plan = np.array(finished_run.table("probe_paths")["plan"])[every["path"]]
    probes, matrix = (
        {name: every[name][plan == whose] for name in ("sent", "lost")} for whose in PLANS
    )
    drops = finished_run.table("drops")
    assert flows["lost"].sum() == len(drops["flow"])
    assert (np.bincount(drops["flow"], minlength=len(flows["lost"])) == flows["lost"]).all()
    links = finished_run.table("links")
    assert not links["fault_drops"][~np.asarray(links["faulty"], bool)].any()
    assert links["fault_drops"].sum() == parts["fault_drops"]
    # Every arrival at a switch is from a host or over a link, but for what a fault took before.
    from_hosts = flows["sent"].sum() + every["sent"].sum() + network["traceroute_packets"]
    arrived = network["packet_hops"] - from_hosts
    assert links["packets"].sum() == arrived + links["fault_drops"].sum()
    assert (links["packets"] >= links["fault_drops"]).all()
    assert probes["sent"].min() == probes["sent"].max() == 100
    assert matrix["sent"].min() == matrix["sent"].max() > 0
    assert 0 <= probes["sent"].sum() - matrix["sent"].sum() < len(matrix["sent"])
    lost = (flows["lost"].sum(), probes["lost"].sum(), matrix["lost"].sum())
    assert matrix["lost"].sum() > 0
    assert sum(lost) <= parts["fault_drops"] + parts["queue_drops"] + parts["ttl_drops"]


def test_congestion_at_a_monitor_switch_is_not_mistaken_for_silent_loss(tmp_path: Path) -> None:
    # The upstream counts a packet after its queue took it. A queue between two monitor switches
    # is another matter: what it drops is lost on the segment, and no fault.
    topology = FatTree(4)
    links = LinkModel(rate_bps=500_000_000, queue_bytes=60_000)
    inputs = inputs_for(replace(SMALL, epochs=2, faults="none"), Scenario(links=links))
    writer = RunWriter(tmp_path / "run")
    writer.config(run_config(inputs.config))
    with open_backend(inputs, tmp_path) as backend:
        emulation = set_up(inputs, backend)
        run_epochs(emulation, writer, Observer())
    run = RunDirectory(writer.partial, finished=False)
    parts = run.network["conservation"]
    drops = run.table("drops")
    assert set(drops["cause"]) == {"queue"}
    assert parts["fault_drops"] == 0
    at_agg = topology.tier[topology.link_src[drops["link"][drops["link"] < topology.n_links]]] == 1
    assert 0 < at_agg.sum() < parts["queue_drops"] - 100
    telemetry = read_telemetry(run)
    assert telemetry.segments is not None
    assert 0 < telemetry.segments.lost.sum() <= at_agg.sum()
    assert_lost_is_exact(run)
    assert telemetry.flows is not None
    assert telemetry.flows.lost.sum() == len(drops["flow"])  # the end hosts see them all


def files(path: Path) -> dict[str, bytes]:
    return {
        str(f.relative_to(path)): f.read_bytes()
        for f in sorted(path.rglob("*"))
        if f.is_file() and f.name not in ("summary.json", "manifest.json")
    }


def test_one_seed_gives_byte_identical_telemetry_and_diagnoses(
    run_path: Path, tmp_path: Path
) -> None:
    run_experiment(layout_of(SMALL), tmp_path / "run")
    assert files(tmp_path / "run") == files(run_path)


def test_another_seed_gives_another_run(run_path: Path, tmp_path: Path) -> None:
    other = replace(SMALL, seed=4, epochs=1)
    methods = find_methods("canary")
    run_experiment(layout_of(other), tmp_path / "run", methods)
    mine, theirs = files(tmp_path / "run"), files(run_path)
    for name in ("truth.yaml", "flows.parquet", "switches.parquet"):
        assert mine[name] != theirs[name]


def test_analysis_without_the_network_gives_the_same_figures(
    run_path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(run_path, copy)
    shutil.rmtree(copy / "diagnoses")
    (copy / "diagnoses").mkdir()
    (copy / "segments.parquet").unlink()
    before = json.loads((run_path / "summary.json").read_text())
    again = analyze(copy, quiet, trust=True)
    for name in METHODS:
        for figures in (before, again):
            figures["methods"][name].pop("seconds")
    assert again == before
    assert files(copy) == files(run_path)


def test_flows_have_the_paths_that_were_traced(run_path: Path) -> None:
    run = RunDirectory(run_path)
    flows, traces = read_telemetry(run).flows, run.table("connections")
    assert flows is not None
    traced = np.flatnonzero(flows.path_set >= len(flows.sets) - len(flows.listed))
    assert len(traced) == (traces["complete"] & (traces["path"].length > 0)).sum() > 0
    assert (flows.lost[traced] > 0).all() and (flows.listed.width == 1).all()
    assert Flock().probe_packets(read_telemetry(run)) > Flock(inputs="probes").probe_packets(
        read_telemetry(run)
    )


def test_the_summary_has_the_documented_form(run_path: Path) -> None:
    summary = json.loads((run_path / "summary.json").read_text())
    assert set(summary) == {
        "scenario",
        "k",
        "seed",
        "backend",
        "links",
        "faulty_links",
        "rates",
        "failed_devices",
        "epochs",
        "measured",
        "wall_seconds",
        "degraded",
        "collection_seconds",
        "packet_hops",
        "conservation",
        "flow_sizes",
        "metered",
        "topology",
        "missing",
        "methods",
    }
    assert list(summary["methods"]) == [
        "canary",
        "netbouncer",
        "netbouncer-stage",
        "flock",
        "007",
        "detector",
        "netscope",
        "canary+acquit",
        "flock+links",
        "flock+refine+conditional+severe",
        "canary-mle",
        "mle",
    ]
    for entry in summary["methods"].values():
        for terms in ("directed", "undirected"):
            score = entry[terms]
            found = score["true_positives"]
            faulty = {
                name if terms == "directed" else frozenset(name.split("->"))
                for name in summary["faulty_links"]
            }
            assert found + score["false_negatives"] == len(faulty)
            if found:
                assert score["precision"] == found / (found + score["false_positives"])
        assert entry["telemetry_bytes"] >= 0
        assert entry["probe_packets"] >= 0
    assert summary["methods"]["netbouncer"]["probe_packets"] == 16 * 4 * 100


def test_nothing_is_flagged_in_a_healthy_network(tmp_path: Path) -> None:
    settings = replace(SMALL, faults="none")
    summary = run_experiment(
        layout_of(settings, load_scenario("healthy"), "healthy"), tmp_path / "r"
    )
    assert {name: m["directed"]["false_positives"] for name, m in summary["methods"].items()} == {
        name: 0 for name in METHODS
    }


def test_rare_losses_of_healthy_links_accuse_nobody(tmp_path: Path) -> None:
    settings = replace(SMALL, faults="none", noise="1e-5")
    scenario, methods = load_scenario("healthy"), find_methods("canary,canary-mle")
    summary = run_experiment(layout_of(settings, scenario, "healthy"), tmp_path / "r", methods)
    assert summary["conservation"]["fault_drops"] > 0
    for name in ("canary", "canary-mle"):
        assert summary["methods"][name]["directed"]["false_positives"] == 0


def test_canary_finds_most_links_and_mle_nearly_all(tmp_path: Path) -> None:
    found = {"canary": 0, "canary-mle": 0}
    methods = find_methods(",".join(found))
    for seed in (1, 2):
        settings = Settings(seed=seed, epochs=6, epoch_ms=100, load=0.6, noise="0")
        path = tmp_path / str(seed)
        summary = run_experiment(layout_of(settings), path, methods)
        for name in found:
            score = summary["methods"][name]["directed"]
            assert score["false_positives"] == 0
            found[name] += score["true_positives"]
    assert found["canary"] >= 8
    assert found["canary-mle"] >= 11


@pytest.mark.parametrize("name", scenario_names())
def test_every_shipped_scenario_runs_and_says_what_it_shows(name: str, tmp_path: Path) -> None:
    scenario = load_scenario(name)
    settings = replace(SMALL, **{"epochs": 2, **scenario.defaults, "load": 0.1})
    summary = run_experiment(layout_of(settings, scenario, name), tmp_path / "run")
    assert summary["scenario"] == name
    assert bool(summary["faulty_links"]) == (name != "healthy")


def counted(emulation: Emulation, switch: int, meter: Meter) -> npt.NDArray[np.int64]:
    """Packets that a meter of a switch has counted so far, by parity: int64[2]."""
    name = meter.rows[0]["count"]
    counts = emulation.run.controls[switch].read_registers([name])[name]
    return counts.astype(np.int64).reshape(2, -1).sum(axis=1)


def test_packets_under_way_really_cross_the_epoch_boundary(tmp_path: Path) -> None:
    """Many a packet meets a downstream that is in another epoch than the upstream that counted it,
    and is counted in its own at both ends.
    """
    inputs = inputs_for(replace(SMALL, faults="none", epochs=2))
    with open_backend(inputs, tmp_path) as backend:
        emulation = set_up(inputs, backend)
        monitors = list(emulation.run.monitors)
        emulation.measured["canary"].begin()
        flips = dict((switch, at) for at, switch in emulation.run.clock.flips(0, monitors))
        at_flip: dict[int, npt.NDArray[np.int64]] = {}

        def note(switch: int) -> None:
            at_flip[switch] = counted(emulation, switch, DSM)

        agenda = make_agenda(emulation, drained=lambda _: None)
        agenda += [(at, 0, lambda switch=switch: note(switch)) for switch, at in flips.items()]
        drained = inputs.epochs.length_ns + backend.drain_ns
        due = sorted((item for item in agenda if item[0] <= drained), key=lambda item: item[0])
        for _ in steps(emulation.network, due, lambda _: None, lambda _: None):
            pass

        at_end = {switch: counted(emulation, switch, DSM) for switch in monitors}
        early = sum(int(before[1]) for before in at_flip.values())
        late = sum(int(at_end[switch][0] - before[0]) for switch, before in at_flip.items())
        sent = sum(counted(emulation, switch, USM)[0] for switch in monitors)
    assert early > 20  # of the new epoch, at a switch still in the old one
    assert late > 20  # of the old epoch, at a switch already in the new one
    assert sum(arrived[0] for arrived in at_end.values()) == sent
