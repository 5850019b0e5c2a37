# SPDX-License-Identifier: Apache-2.0
"""What is written is read back, and every method says the same of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analysis.methods.registry import METHODS
from analysis.telemetry.observations import read_telemetry
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Connections, Flows, MissingTelemetry, Probes, Telemetry
from analysis.telemetry.writing import write_observations
from testbed.fabric.clos import Fabric, clos, leaf_spine
from testbed.fabric.fat_tree import FatTree
from testbed.fabric.pair_sets import PairSets
from testbed.fabric.paths import Paths, PathSets
from testbed.record.exchange import OBSERVATIONS
from testbed.record.fabric_file import read_fabric, write_fabric
from testbed.record.run import RunDirectory
from testbed.record.schema import TableError

SUFFIXES = [".parquet", ".csv"]
once = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def there_and_back(telemetry: Telemetry, folder: Path, suffix: str) -> Telemetry:
    fabric, observations = folder / f"fabric{suffix}", folder / f"observations{suffix}"
    write_fabric(fabric, telemetry.topology)
    write_observations(observations, telemetry)
    return read_observations(observations, read_fabric(fabric))


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_method_says_the_same_of_a_run(
    finished_run: RunDirectory, tmp_path: Path, suffix: str
) -> None:
    here = read_telemetry(finished_run)
    there = there_and_back(here, tmp_path, suffix)
    assert isinstance(there.topology, FatTree)
    for name, method in METHODS.items():
        try:
            first, second = method().localize(here), method().localize(there)
        except MissingTelemetry:  # the run has nothing that the method reads
            with pytest.raises(MissingTelemetry):
                method().localize(there)
            continue
        assert np.array_equal(first.flagged, second.flagged), name
        assert np.array_equal(first.devices, second.devices), name
        assert first.score == pytest.approx(second.score), name
        assert first.success == pytest.approx(second.success, nan_ok=True), name


def synthetic_telemetry(fabric: Fabric, rng: np.random.Generator) -> Telemetry:
    """Probes up and back, flows by pair, by path and by sets that are neither, traces."""
    n_tors = fabric.n_tors
    src = rng.integers(0, n_tors, 30).astype(np.int32)
    dst = ((src + rng.integers(1, n_tors, 30)) % n_tors).astype(np.int32)
    sets = fabric.path_sets(src, dst)
    usable = np.flatnonzero(sets.width > 0)
    src, dst, sets = src[usable], dst[usable], sets.take(usable)
    first = Paths(np.arange(len(sets) + 1), sets.paths.links[sets.paths.ptr[sets.ptr[:-1]]])
    chosen = sets.paths.take(sets.ptr[:-1] + rng.integers(0, sets.width))
    fewer = np.flatnonzero(sets.width > 2)
    cut = PathSets.join(
        [PathSets(np.array([0, 2]), sets[int(s)].take(np.array([0, 1]))) for s in fewer]
    )
    every = PathSets.join(
        [sets, PathSets.known(chosen), cut, PathSets.known(first.take(np.zeros(1, int)))]
    )
    path_set = rng.integers(0, len(every), 80).astype(np.int32)
    sent = rng.integers(0, 1000, 80)
    bounce = np.stack((first.links, first.links ^ 1), axis=1)
    traced = rng.integers(0, 2, len(src)) == 1
    rows = np.where(traced[:, None], chosen.padded(), -1)
    return Telemetry(
        fabric,
        "given",
        flows=Flows(every, path_set, sent, rng.binomial(sent, 0.1)),
        probes=Probes(Paths.from_padded(bounce), sent[: len(src)], sent[: len(src)] // 7),
        detector=Probes(chosen, sent[: len(src)], sent[: len(src)] // 9),
        connections=Connections(
            src, dst, rng.integers(0, 9, len(src)), Paths.from_padded(rows), traced, 0
        ),
    )


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    """Regular ones, and such with a link left out that do not fall apart."""
    fabric = draw(
        st.sampled_from(
            [leaf_spine(3, 3), clos(2, 2, 2, 4), clos(2, 2, 2, 3, wiring="complete"), FatTree(4)]
        )
    )
    gone = draw(st.sets(st.integers(0, fabric.n_edges - 1), max_size=1))
    return fabric.without(sorted(gone)) if gone else fabric


def as_lists(sets: PathSets, rows: np.ndarray) -> list[list[tuple[int, ...]]]:
    picked = [sets[int(s)] for s in rows]
    return [sorted(tuple(paths[p].tolist()) for p in range(len(paths))) for paths in picked]


@once
@given(fabric=fabrics(), seed=st.integers(0, 2**32), suffix=st.sampled_from(SUFFIXES))
def test_everything_comes_back(fabric: Fabric, seed: int, suffix: str, tmp_path: Path) -> None:
    here = synthetic_telemetry(fabric, np.random.default_rng(seed))
    there = there_and_back(here, tmp_path, suffix)
    read = there.topology
    assert read.link_names == fabric.link_names and read.switch_names == fabric.switch_names
    assert np.array_equal(read.tier, fabric.tier)
    assert here.detector and there.detector
    assert np.array_equal(here.detector.paths.links, there.detector.paths.links)
    assert np.array_equal(here.detector.lost, there.detector.lost)
    assert here.probes and there.probes and here.connections and there.connections
    assert here.flows and there.flows
    for a, b in (
        (here.probes.paths, there.probes.paths),
        (here.connections.paths, there.connections.paths),
    ):
        assert np.array_equal(a.ptr, b.ptr) and np.array_equal(a.links, b.links)
    assert np.array_equal(here.probes.sent, there.probes.sent)
    assert np.array_equal(here.probes.lost, there.probes.lost)
    assert np.array_equal(here.connections.complete, there.connections.complete)
    assert np.array_equal(here.connections.lost, there.connections.lost)

    def told(flows: Flows) -> list[tuple]:
        every = flows.sets.expanded() if isinstance(flows.sets, PairSets) else flows.sets
        sets = as_lists(every, flows.path_set)
        return sorted(zip(sets, flows.sent.tolist(), flows.lost.tolist(), strict=True))

    assert told(here.flows) == told(there.flows)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("backend", ["numpy", "numpy_nullable", "pyarrow"])
def test_what_pandas_reads_and_writes_again_says_the_same(
    finished_run: RunDirectory, tmp_path: Path, suffix: str, backend: str
) -> None:
    """A column of counts in which some are missing is one of floats for pandas."""
    here = read_telemetry(finished_run)
    there_and_back(here, tmp_path, suffix)
    path = tmp_path / f"observations{suffix}"
    options: dict[str, Any] = {} if backend == "numpy" else {"dtype_backend": backend}
    if suffix == ".csv":
        rows = pd.read_csv(path, skiprows=1, **options)
        path.write_text(f"{OBSERVATIONS.header}\n" + rows.to_csv(index=False))
    else:
        table = pa.Table.from_pandas(pd.read_parquet(path, **options), preserve_index=False)
        pq.write_table(table.replace_schema_metadata(OBSERVATIONS.metadata), path)
    there = read_observations(path, read_fabric(tmp_path / f"fabric{suffix}"))
    for name in ("canary", "netbouncer", "flock", "007", "detector"):
        method = METHODS[name]()
        first, second = method.localize(here), method.localize(there)
        assert np.array_equal(first.flagged, second.flagged), name
        assert first.score == pytest.approx(second.score), name


def test_flows_of_all_equal_cost_paths_are_written_by_their_tors(tmp_path: Path) -> None:
    topology = FatTree(8)
    src, dst = np.full(5000, 0), np.full(5000, 31)
    sets = topology.path_sets(src[:1], dst[:1])
    zeros = np.zeros(5000, np.int64)
    flows = Flows(sets, zeros.astype(np.int32), zeros + 9, zeros)
    there = there_and_back(Telemetry(topology, "given", flows=flows), tmp_path, ".parquet")
    assert (tmp_path / "observations.parquet").stat().st_size < 40_000
    assert there.flows and len(there.flows) == 5000 and len(there.flows.sets) == 1
    assert isinstance(there.flows.sets, PairSets)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_round_trip_times_come_back(tmp_path: Path, suffix: str) -> None:
    fabric = leaf_spine(3, 2)
    nothing = PathSets.known(Paths(np.zeros(1, np.int64), np.zeros(0, np.int32)))
    sets = PairSets(fabric, np.array([0, 1, 2], np.int32), np.array([1, 2, 2], np.int32), nothing)
    sent, times = np.array([5, 6, 7]), np.array([0.1, 1e-9, 12.5])
    flows = Flows(sets, np.array([1, 0, 2], np.int32), sent, sent - 5, times)
    there = there_and_back(Telemetry(fabric, "given", flows=flows), tmp_path, suffix).flows
    assert there and there.sent.tolist() == [5, 6]  # the flow within a rack is left out
    assert there.rtt_ms is not None and there.rtt_ms.tolist() == [0.1, 1e-9]


def test_a_spine_without_links_is_left_out(tmp_path: Path) -> None:
    fabric = leaf_spine(2, 2).without([0, 2])  # all links of spine0
    write_fabric(tmp_path / "fabric.parquet", fabric)
    read = read_fabric(tmp_path / "fabric.parquet").fabric
    assert read.switch_names == ["leaf0", "leaf1", "spine1"]
    assert read.link_names == fabric.link_names


def test_a_tor_without_links_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="switch leaf1 has no link"):
        write_fabric(tmp_path / "fabric.csv", leaf_spine(2, 1).without([1]))
    with pytest.raises(TableError, match="cannot write /proc/nowhere"):
        write_fabric(Path("/proc/nowhere/fabric.csv"), leaf_spine(2, 1))
    assert not list(tmp_path.iterdir())


def test_nothing_measured_is_a_file_without_rows(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no rows"):
        there_and_back(Telemetry(leaf_spine(2, 2), "given"), tmp_path, ".parquet")
