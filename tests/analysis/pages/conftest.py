# SPDX-License-Identifier: Apache-2.0
"""Runs to look at: small ones without packets, and records that are made up."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser

from analysis.evaluation.report import diagnosis_columns, figures
from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import build, find_methods
from analysis.telemetry.observations import read_telemetry
from scenarios.command.show import make_page
from scenarios.experiment.inputs import layout_of
from scenarios.experiment.run import run_config, run_experiment
from scenarios.experiment.settings import make_settings
from testbed.fabric.clos import Fabric
from testbed.fabric.paths import Paths
from testbed.record.fabric_file import fabric_columns
from testbed.record.run import RunDirectory, RunWriter
from tests.browser import SCHEMES, Opened, opened

METHODS = "canary,netbouncer,007"
NONE = np.zeros(0, np.int64)
NO_PATHS = Paths(np.zeros(1, np.int64), np.zeros(0, np.int32))

FLOW_RUNS = {
    "K=4": {"k": 4, "faults": "10pct", "noise": "0", "load": 0.6, "epochs": 4},
    "K=8": {"k": 8, "faults": "10pct", "load": 0.6, "epochs": 3},
    "leaf-spine": {
        "topology": "leaf-spine:8:4:3:irregular=5pct",
        "faults": "devices:1@50pct",
        "noise": "0",
        "load": 0.6,
    },
}


@pytest.fixture(scope="session")
def flow_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A run of `FLOW_RUNS` with its page, made once."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            path = tmp_path_factory.mktemp("pages") / "run"
            settings = make_settings({"backend": "flow", **FLOW_RUNS[name]}, {})
            run_experiment(layout_of(settings), path, find_methods(METHODS))
            make_page(path)
            made[name] = path
        return made[name]

    return make


@pytest.fixture(scope="session")
def seen(chromium: Browser) -> Iterator[Callable[[Path, int], Opened]]:
    """A page at a width, in the colours of `SCHEMES`, for those who only look at it."""
    with ExitStack() as stack:

        @cache
        def at(page: Path, width: int) -> Opened:
            return stack.enter_context(opened(chromium, page, width, dict(SCHEMES)[width]))

        yield at


def made_up(path: Path, fabric: Fabric, scenario: str, seed: int = 0) -> Path:
    """A record that nothing was measured for: a fabric, some faults, and two verdicts on them."""
    rng = np.random.default_rng(seed)
    n = fabric.n_links
    faulty = np.sort(rng.choice(n, max(2, n // 100), replace=False))
    rate = np.zeros(n)
    rate[faulty] = 10 ** rng.uniform(-3, 0, len(faulty))
    writer = RunWriter(path)
    config = run_config(
        make_settings({"backend": "flow", "epochs": 2}, {}).as_dict() | {"scenario": "faulty_links"}
    )
    writer.config(config | {"scenario": scenario})
    writer.text("truth.yaml", "faults: []\n")
    writer.table("fabric", fabric_columns(fabric))
    zeros = np.zeros(n, np.int64)
    counts = {"packets": zeros + 10**6, "fault_drops": (rate * 10**6).astype(np.int64)}
    truth = {"name": fabric.link_names, "faulty": rate > 0, "rate": rate}
    writer.table("links", truth | counts | {"queue_drops": zeros})
    writer.table("flows", {name: NONE for name in ("src_tor", "dst_tor", "sent", "lost")})
    writer.table("probe_paths", {"plan": [], "path": NO_PATHS})
    probes = ("path", "src_host", "dst_host", "sent", "lost")
    writer.table("probe_counts", {name: NONE for name in probes})
    writer.table("connections", {"flow": NONE, "path": NO_PATHS, "complete": NONE > 0})
    writer.table("segments", {name: NONE for name in ("epoch", "segment", "sent", "lost")})
    kinds = ("sent", "delivered", "fault_drops", "queue_drops", "ttl_drops")
    network = {"fabric": fabric.title, "epochs": 2, "packet_hops": 0, "degraded": []}
    network |= {"conservation": dict.fromkeys(kinds, 0), "collection_seconds": []}
    writer.json("network.json", network | {"canary_bytes": 0, "traceroute_packets": 0})
    verdicts = {}
    for name, native in (("canary", "directed"), ("netbouncer", "undirected")):
        blamed = np.union1d(rng.permutation(faulty)[1:], rng.choice(n, 2, replace=False))
        if native == "undirected":
            blamed = np.union1d(blamed & ~1, blamed | 1)
        success = 1 - rate
        verdicts[name] = Diagnosis(name, native, blamed.astype(np.int32), success, rate, 0.5)  # type: ignore[arg-type]
        writer.table(f"diagnoses/{name}", diagnosis_columns(verdicts[name], fabric))
    telemetry = read_telemetry(RunDirectory(writer.partial, finished=False))
    summary = {name: config[name] for name in ("k", "seed", "backend")} | {"scenario": scenario}
    summary |= {"topology": fabric.title, "wall_seconds": 1.0, "degraded": [], "packet_hops": 0}
    summary |= {"faulty_links": [fabric.link_names[link] for link in faulty]}
    summary |= {"conservation": network["conservation"], "collection_seconds": [], "missing": []}
    summary["methods"] = figures(verdicts, map(build, verdicts), telemetry, faulty)
    writer.json("summary.json", summary)
    writer.finish()
    make_page(path)
    return path
