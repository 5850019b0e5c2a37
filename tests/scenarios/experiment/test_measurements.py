# SPDX-License-Identifier: Apache-2.0
"""A run makes what its methods need, and what MEASURE= asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from analysis.methods.base import views_of
from analysis.methods.registry import METHODS, find_methods, make_method
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.telemetry import MissingTelemetry
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import analyze, run_experiment
from scenarios.experiment.settings import SettingsError, make_settings
from testbed.errors import UserError
from testbed.measurements.registry import MEASUREMENTS
from testbed.record.run import RunDirectory
from tests.conftest import SMALL

BACKENDS = pytest.mark.parametrize("backend", ["virtual", "flow"])


def recorded(
    path: Path, methods: str, backend: str = "virtual", measure: str = "none", **changes: Any
) -> RunDirectory:
    telemetry = "A1+P" if backend == "flow" else SMALL.telemetry
    settings = replace(
        SMALL, backend=cast(Any, backend), telemetry=telemetry, epochs=2, measure=measure, **changes
    )
    run_experiment(layout_of(settings), path, find_methods(methods))
    return RunDirectory(path)


def analyzed(run: RunDirectory, methods: str) -> tuple[list[str], str]:
    """The methods that could diagnose a run again, and why others could not."""
    found = analyze(run.path, lambda what, share: None, methods=find_methods(methods))
    return list(found["methods"]), "; ".join(found["missing"])


@BACKENDS
def test_canary_alone_sends_no_probe_and_traces_nothing(backend: str, tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "canary,canary-mle", backend)
    assert run.config.get("measurements") == ["canary", "flows"]
    assert not any(run.has(name) for name in ("probe_paths", "probe_counts", "connections"))
    assert run.network["traceroute_packets"] == run.network.get("icmp_messages", 0) == 0
    assert run.network["conservation"]["sent"] == run.table("flows")["sent"].sum()
    assert set(run.summary.get("measured", ())) == {"segments", "flows"}
    assert run.summary["missing"] == []


@BACKENDS
def test_probes_alone_install_no_rule_and_read_no_meter(backend: str, tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "netbouncer", backend)
    assert not any(run.has(name) for name in ("registers/epoch-000", "segments", "rules"))
    assert run.network["canary_bytes"] == 0 and "rules_installed" not in run.network
    assert set(run.table("probe_paths")["plan"]) == {"netbouncer"}
    telemetry = read_telemetry(run)
    assert telemetry.segments is telemetry.detector is telemetry.connections is None
    assert telemetry.need("probes", "the test").sent.sum() > 0


def test_what_is_missing_names_its_measurement_and_the_option(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "canary")
    names, why = analyzed(run, "canary,007,detector")
    assert names == ["canary"]
    assert "007 needs the telemetry part 'connections': MEASURE=traces measures it" in why
    assert "detector needs the telemetry part 'detector': MEASURE=matrix measures it" in why
    with pytest.raises(MissingTelemetry, match="MEASURE=bounce"):
        make_method("netbouncer").localize(read_telemetry(run))


@BACKENDS
def test_measure_keeps_more_for_later(backend: str, tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "canary", backend, "bounce+traces")
    assert run.config.get("measurements") == ["canary", "bounce", "traces", "flows"]
    assert analyzed(run, "netbouncer,007") == (["netbouncer", "007"], "")


def test_measure_all_makes_the_same_network_as_all_methods(tmp_path: Path) -> None:
    one = recorded(tmp_path / "one", "canary", measure="all")
    all_ = recorded(tmp_path / "all", ",".join(METHODS))
    for name in ("links", "flows", "registers/epoch-001", "probe_counts", "connections"):
        files = [run.path / f"{name}.parquet" for run in (one, all_)]
        assert files[0].read_bytes() == files[1].read_bytes(), name


def test_interfaces_count_what_they_send_and_see_no_silent_drop(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "canary", measure="counters")
    links, found = run.table("links"), read_telemetry(run).need("counters", "the test")
    assert found.packets.shape == found.queue_drops.shape == (2, run.fabric.n_links)
    sent, dropped = found.packets.sum(axis=0), links["fault_drops"]
    assert (sent <= links["packets"] - dropped).all()  # a few were sent after the last epoch
    assert sent.sum() > 0.9 * (links["packets"] - dropped).sum() and not found.queue_drops.any()


def test_interfaces_know_how_deep_their_queues_were(tmp_path: Path) -> None:
    run = recorded(tmp_path / "run", "canary", measure="counters", rate=60.0, queue=20)
    found = read_telemetry(run).need("counters", "the test")
    largest, mean = found.queue_largest, found.queue_mean
    dropping = found.queue_drops > 0
    assert dropping.any() and not dropping.all()
    limit, frame = 20 * 1514, 1521  # with the shim
    assert largest.max() <= limit
    assert (largest[dropping] > limit - 2 * frame).all()  # one that was dropped found more
    assert (mean[found.packets > 0] <= largest[found.packets > 0]).all()
    assert np.isnan(mean[found.packets == 0]).all()
    assert mean[dropping].mean() > 2 * np.nanmean(mean[~dropping])
    unlimited = recorded(tmp_path / "other", "canary", measure="counters")
    assert "queue_largest" not in unlimited.table("counters")


def test_probes_know_how_long_they_travelled(tmp_path: Path) -> None:
    """Over links with a delay of 500 us NetBouncer's probes take 3 ms at least:
    that of the host, two of the fabric, and the same back. Full queues add to that."""
    slow = {"rate": 60.0, "delay": 500, "queue": 20, "epoch_ms": 500}
    run = recorded(tmp_path / "run", "netbouncer,detector", load=0.001, **slow)
    probes = run.table("probe_counts")
    back = probes["src_host"] == probes["dst_host"]
    for which, links in ((back, 6), (~back, 4)):  # deTector's in a pod go one way over four
        assert 500 * links < probes["travel_us"][which].min() < 500 * links + 100
    busy = recorded(tmp_path / "busy", "netbouncer", load=0.06, **slow).table("probe_counts")
    arrived = busy["travel_us"][busy["sent"] > busy["lost"]]
    assert 3000 < arrived.min() < arrived.mean() / 2
    unlimited = recorded(tmp_path / "other", "netbouncer")
    assert "travel_us" not in unlimited.table("probe_counts")


def test_what_needs_packets_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the measurement counters needs packets"):
        recorded(tmp_path / "run", "canary", "flow", "counters")
    assert not list(tmp_path.iterdir())


def test_methods_say_what_they_may_read() -> None:
    views = {name: views_of([make_method(name)]) for name in METHODS}
    assert views["canary"] == views["canary-mle"] == {"segments"}
    assert views["netbouncer"] == views["netscope"] == {"probes"}
    assert views["007"] == {"connections"} and views["detector"] == {"detector"}
    assert views["flock"] == {"probes", "connections", "flows"}
    assert views["mle"] == {"segments", "probes", "detector", "flows"}
    assert views_of([make_method("mle:kinds=A2")]) == {"connections", "flows"}
    assert views_of([]) is None and views_of([cast(Any, object())]) is None
    assert views_of([make_method(name) for name in METHODS]) == set(MEASUREMENTS)


@pytest.mark.parametrize("wrong", ["probes", "bounce,traces", ""])
def test_a_wrong_measure_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsError, match="there is no measurement"):
        make_settings({"measure": wrong})
