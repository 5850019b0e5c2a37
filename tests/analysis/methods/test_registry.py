# SPDX-License-Identifier: Apache-2.0
"""What holds of every method: one face, healthy networks, gaps, determinism."""

import inspect
import subprocess
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest

from analysis.methods import registry
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import METHODS, ON_REQUEST, build, make_method, method_names
from analysis.telemetry.telemetry import (
    Connections,
    Flows,
    MissingTelemetry,
    Probes,
    SegmentCounts,
    Telemetry,
)
from analysis.telemetry.views.spray_counts import SprayCounts
from testbed.fabric.clos import Fabric
from testbed.fabric.ecmp import Ecmp
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.paths import Paths, PathSets
from testbed.measurements.link_meters import LinkLosses
from tests.present import present

NEEDS = {
    "canary": "segments",
    "netbouncer": "probes",
    "netbouncer-stage": "probes",
    "flock": "flows",
    "007": "connections",
    "detector": "detector",
    "netscope": "probes",
    "canary+acquit": "segments",
    "flock+links": "flows",
    "flock+refine+conditional+severe": "flows",
    "canary-mle": "segments",
    "mle": "segments",
    "007-binary": "connections",
    "007-integer": "connections",
    "max-coverage": "connections",
    "sherlock": "flows",
    "kdd14": "probes",
    "any-loss": "segments",
    "per-link-loss": "loss_radar",
    "spray-check": "spray_check",
}
EVERY = METHODS | ON_REQUEST


def test_papers_and_this_project_stand_on_benches_of_their_own():
    published = {name for name in EVERY if build(name).bench == "published"}
    assert published == {
        *("canary", "netbouncer", "netbouncer-stage", "flock", "007", "detector", "netscope"),
        *("007-binary", "007-integer", "max-coverage", "sherlock"),  # kdd14 is reconstructed
    }
    benches = {name: build(name).bench for name in EVERY.keys() - published}
    assert benches.pop("any-loss") == "reference"
    assert set(benches.values()) == {"project"}
    assert build("vigil").bench == build("flock:p_bad=0.01").bench == "published"
    assert build("mle:A1+P").bench == "project"


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def check(result: Diagnosis, topology: Fabric):
    assert result.flagged.dtype == np.int32
    assert (np.diff(result.flagged) > 0).all()
    assert result.success.shape == result.score.shape == (topology.n_links,)
    assert np.isfinite(result.score).all()
    known = result.success[~np.isnan(result.success)]
    assert ((known >= 0) & (known <= 1)).all()
    if result.native == "undirected":
        assert (np.isin(result.flagged ^ 1, result.flagged)).all()


def test_names_and_order():
    assert list(EVERY) == list(NEEDS)
    for name, method in EVERY.items():
        assert method().name == name
        assert all(p.default is not p.empty for p in inspect.signature(method).parameters.values())


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("k", [4, 8])
def test_healthy_network(synthetic, name, k):
    world = synthetic.make_world(k=k, seed=1, share=0)
    result = EVERY[name]().localize(world.telemetry)
    check(result, world.topology)
    assert result.flagged.size == 0


@pytest.mark.parametrize("name", ["canary", "canary-mle", "mle"])
@pytest.mark.parametrize(("k", "packets"), [(4, 1000), (4, 20_000), (8, 1000)])
def test_noise_is_no_fault(synthetic, name, k, packets):
    for seed in range(4):
        world = synthetic.make_world(
            k=k, seed=seed, share=0, noise=1e-6, packets=packets, flows=10, probes=False
        )
        assert EVERY[name]().localize(world.telemetry).flagged.size == 0


@pytest.mark.parametrize("name", EVERY)
def test_repeatable_and_accounted(synthetic, name):
    world = synthetic.make_world(k=4, seed=2, partial=0.2)
    method = EVERY[name]()
    first, second = method.localize(world.telemetry), EVERY[name]().localize(world.telemetry)
    check(first, world.topology)
    assert np.array_equal(first.flagged, second.flagged) and first.flagged.size
    assert np.array_equal(first.score, second.score)
    assert method.telemetry_bytes(world.telemetry) > 0
    passive = name.startswith(("canary", "per-link", "spray"))
    assert (method.probe_packets(world.telemetry) == 0) == passive


@pytest.mark.parametrize("name", EVERY)
def test_missing_part_is_named(name):
    telemetry = Telemetry(FatTree(4), "tor+core")
    with pytest.raises(MissingTelemetry, match=NEEDS[name]):
        EVERY[name]().localize(telemetry)


def empty_telemetry(k=4):
    topology = FatTree(k)
    segments = topology.segments()
    i32, i64 = np.zeros(0, np.int32), np.zeros(0, np.int64)
    none = Paths(np.zeros(1, np.int64), i32)
    return Telemetry(
        topology,
        "tor+core",
        SegmentCounts(
            segments, np.zeros((0, len(segments)), np.int64), np.zeros((0, len(segments)), np.int64)
        ),
        Flows(PathSets.known(none), i32, i64, i64),
        Probes(none, i64, i64),
        Connections(i32, i32, i64, none, np.zeros(0, np.bool_), 0),
        Probes(none, i64, i64),
        views={
            "loss_radar": LinkLosses(dict.fromkeys(("link", "sent", "lost", "bytes"), i64), {}),
            "spray_check": SprayCounts(i32, i32, i32, i64.astype(np.float64), i64),
        },
    )


@pytest.mark.parametrize("name", EVERY)
def test_empty_telemetry(name):
    telemetry = empty_telemetry()
    result = EVERY[name]().localize(telemetry)
    check(result, telemetry.topology)
    assert result.flagged.size == 0


@pytest.mark.parametrize("name", EVERY)
def test_silence_is_no_evidence(name):
    """Nothing sent anywhere: rows there, counts all zero."""
    telemetry = empty_telemetry()
    topology, segments = telemetry.topology, present(telemetry.segments).segments
    zero = np.zeros((3, len(segments)), np.int64)
    n = np.zeros(2, np.int64)
    telemetry = replace(
        telemetry,
        segments=SegmentCounts(segments, zero, zero),
        flows=Flows(topology.path_sets(n, np.array([1, 5])), np.array([0, 1], np.int32), n, n),
        probes=Probes(Ecmp(topology).bounces().take(np.arange(2)), n, n),
        connections=Connections(
            n.astype(np.int32),
            np.array([1, 5], np.int32),
            n,
            Paths.from_padded(np.full((2, 1), -1)),
            np.zeros(2, np.bool_),
            0,
        ),
        detector=Probes(Ecmp(topology).bounces().take(np.arange(2)), n, n),
        views={
            "loss_radar": LinkLosses({"link": np.arange(2), "sent": n, "lost": n}, {}),
            "spray_check": SprayCounts(
                np.zeros(2, np.int32),
                np.ones(2, np.int32),
                np.array([8, 9], np.int32),
                np.full(2, 0.5),
                n,
            ),
        },
    )
    result = EVERY[name]().localize(telemetry)
    check(result, topology)
    assert result.flagged.size == 0


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("keep", [0.5, 0.1])
def test_gaps(synthetic, name, keep):
    """Most segments never observed, most probes lost with their records."""
    world = synthetic.make_world(k=4, seed=3)
    t, rng = world.telemetry, np.random.default_rng(0)
    seen = rng.random(len(t.segments.segments)) < keep
    probed = rng.random(len(t.probes)) < keep
    planned = rng.random(len(t.detector)) < keep
    t = replace(
        t,
        segments=SegmentCounts(t.segments.segments, t.segments.sent * seen, t.segments.lost * seen),
        probes=Probes(t.probes.paths, t.probes.sent * probed, t.probes.lost * probed),
        detector=Probes(t.detector.paths, t.detector.sent * planned, t.detector.lost * planned),
    )
    check(EVERY[name]().localize(t), world.topology)


@pytest.mark.parametrize("name", EVERY)
def test_everything_is_dead(synthetic, name):
    topology = FatTree(4)
    world = synthetic.make_world(k=4, loss=np.ones(topology.n_links), flows=200)
    result = EVERY[name]().localize(world.telemetry)
    check(result, topology)
    blind = ("007", "spray-check")  # no link has more votes, and no way brings more, than others
    assert result.flagged.size > 0 or name in blind


def test_dead_link_is_found_by_all(synthetic):
    topology = FatTree(4)
    loss = np.zeros(topology.n_links)
    link = topology.link("tor0_0->agg0_1")
    loss[link] = 1.0
    world = synthetic.make_world(k=4, loss=loss)
    for name, method in METHODS.items():
        result = method().localize(world.telemetry)
        assert link in result.flagged, name
        if name.startswith("canary"):
            assert result.flagged.tolist() == [link]
            assert result.success[link] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("name", ["canary", "canary-mle", "mle"])
def test_meters_on_tors_only(synthetic, name):
    world = synthetic.make_world(k=4, seed=4, monitors="tor", flows=10, probes=False)
    result = EVERY[name]().localize(world.telemetry)
    check(result, world.topology)
    assert np.isin(result.flagged, world.faulty).mean() > 0.7


def test_what_few_runs_need_is_not_loaded_before():
    code = "import sys, analysis.methods.registry; print('scipy.optimize' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_what_is_installed_is_read_once(monkeypatch, tmp_path):
    asked = []
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or ())
    for name in method_names():
        make_method(name)
    assert asked == ["canary.methods"]
