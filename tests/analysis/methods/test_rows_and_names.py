# SPDX-License-Identifier: Apache-2.0
"""A verdict is of what was observed, not of how it was written down.

Counts of a path may stand in one row or in many, rows in any order, links have any numbers and
switches any names: every method blames the same links and gives each the same score. Rows of one
path and kind are cut into parts of random sizes, some of no packet, of which some are put together
again; segments only within an epoch, which `canary` reads. A flow or a connection is one row and
stays so: which of its paths it took, and that it was reported at all, is said of it as a whole.

Scores are equal to `SAME`, and those of `mle`, a likelihood that is searched until it hardly rises,
to `NEAR`. The two programs of 007's paper find *one* cover of fewest links, of which there may be
several: they must agree in how many links that are. `sherlock` names at most two links; where a
second is as likely as another, those it names must have the same scores.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis.methods.diagnosis import Diagnosis
from analysis.methods.registry import METHODS, ON_REQUEST, make_method
from analysis.telemetry.reading import read_observations
from analysis.telemetry.telemetry import Probes, Telemetry
from analysis.telemetry.writing import write_observations
from testbed.fabric.clos import leaf_spine
from testbed.fabric.ecmp import Ecmp
from testbed.record.fabric_file import read_fabric, write_fabric
from tests.analysis.conftest import make_world

Rows = list[dict[str, Any]]
OWN = ("per-link-loss", "spray-check")
EVERY = (*(name for name in METHODS | ON_REQUEST if name not in OWN), "mle:A1")
"""Without the methods whose meters no file of observations has."""
SAME, NEAR = 1e-9, 1e-2
COVERS = ("007-binary", "007-integer")


@dataclass(frozen=True)
class Written:
    """A fabric and observations as their files have them, and what links and switches were called
    at first: ``link`` and ``switch`` lead from today's number or name to that one."""

    fabric: Rows
    observations: Rows
    link: Mapping[int, int]
    switch: Mapping[str, str]


@dataclass(frozen=True)
class Verdict:
    """Blamed links and switches, and the score of each link, by their first numbers and names."""

    links: set[int]
    devices: set[str]
    score: np.ndarray


def write(telemetry: Telemetry, folder: Path) -> Written:
    write_fabric(folder / "fabric.parquet", telemetry.topology)
    write_observations(folder / "observations.parquet", telemetry)
    fabric, rows = (pq.read_table(folder / f"{name}.parquet").to_pylist() for name in TABLES)
    links = {row["link"]: row["link"] for row in fabric}
    return Written(fabric, rows, links, {n: n for n in telemetry.topology.switch_names})


TABLES = ("fabric", "observations")


def cut(written: Written, rng: np.random.Generator) -> Written:
    rows: Rows = []
    for row in written.observations:
        if row["kind"] not in ("active", "segment"):
            rows.append(row)
            continue
        parts = rng.integers(1, 5)
        where = np.sort(rng.integers(0, row["sent"] + 1, parts - 1))
        sent = np.diff([0, *where, row["sent"]])
        lost = rng.multivariate_hypergeometric(sent, row["lost"])
        while len(sent) > 1 and rng.random() < 0.3:  # the first two together again
            sent, lost = (np.concatenate(([a[0] + a[1]], a[2:])) for a in (sent, lost))
        rows += [row | {"sent": int(n), "lost": int(k)} for n, k in zip(sent, lost, strict=True)]
    return replace(written, observations=rows)


def shuffled(written: Written, rng: np.random.Generator) -> Written:
    tables = ((getattr(written, name)) for name in TABLES)
    fabric, rows = ([table[i] for i in rng.permutation(len(table))] for table in tables)
    return replace(written, fabric=fabric, observations=rows)


def renumbered(written: Written, rng: np.random.Generator) -> Written:
    old = [row["link"] for row in written.fabric]
    new = dict(zip(old, rng.choice(10**6, len(old), replace=False).tolist(), strict=True))
    fabric = [row | {"link": new[row["link"]]} for row in written.fabric]
    rows = [
        row | {"paths": row["paths"] and [[new[i] for i in path] for path in row["paths"]]}
        for row in written.observations
    ]
    return replace(
        written, fabric=fabric, observations=rows, link={new[i]: written.link[i] for i in old}
    )


def renamed(written: Written, rng: np.random.Generator) -> Written:
    """Which puts links into another order, too: files are read by names."""
    old = list(written.switch)
    new = {None: None} | {n: f"s{i}" for n, i in zip(old, rng.permutation(len(old)), strict=True)}

    def ends(table: Rows) -> Rows:
        return [row | {end: new[row[end]] for end in ("src", "dst")} for row in table]

    names = {new[name]: written.switch[name] for name in old}
    fabric, rows = ends(written.fabric), ends(written.observations)
    return replace(written, fabric=fabric, observations=rows, switch=names)


def everything(written: Written, rng: np.random.Generator) -> Written:
    for change in (cut, renumbered, renamed, shuffled):
        written = change(written, rng)
    return written


CHANGES: Mapping[str, Callable[[Written, np.random.Generator], Written]] = {
    change.__name__: change for change in (cut, shuffled, renumbered, renamed, everything)
}


def read(written: Written, folder: Path) -> Telemetry:
    """What the files say, in the types that those in the folder have."""
    files = [folder / f"{name}.parquet" for name in TABLES]
    rows = [row | {"id": i} for i, row in enumerate(written.observations)]
    for file, table in zip(files, (written.fabric, rows), strict=True):
        pq.write_table(pa.Table.from_pylist(table, pq.read_schema(file)), file)
    return read_observations(files[1], read_fabric(files[0]))


@functools.cache
def observed(seed: int, change: str | None) -> tuple[Telemetry, Written, list[int]]:
    """Telemetry as it was written at first, or after a change; with it the tables and the number
    that each link has there."""
    world = make_world(k=4, seed=seed, share=0.08, flows=400, epochs=2, noise=1e-5)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        written = write(world.telemetry, folder)
        if change is not None:
            written = CHANGES[change](written, np.random.default_rng([seed, 7]))
        telemetry = read(written, folder)
        numbers = read_fabric(folder / "fabric.parquet").link_ids.tolist()
    return telemetry, written, numbers


def verdict(method: str, seed: int, change: str | None) -> Verdict:
    telemetry, written, numbers = observed(seed, change)
    found: Diagnosis = make_method(method).localize(telemetry)
    first = [written.link[number] for number in numbers]
    score = np.empty(len(first))
    score[first] = found.score
    names = telemetry.topology.switch_names
    return Verdict(
        {first[i] for i in found.flagged},
        {written.switch[names[i]] for i in found.devices},
        score,
    )


def compare(method: str, change: str, seed: int) -> None:
    before, after = verdict(method, seed, None), verdict(method, seed, change)
    assert before.links
    if method in COVERS:
        assert len(after.links) == len(before.links)
        return
    if method == "sherlock" and after.links != before.links:
        assert len(after.links) == len(before.links)
        blamed = [np.sort(each.score[sorted(each.links)]) for each in (before, after)]
        assert np.allclose(*blamed, rtol=SAME, atol=SAME)
        return
    assert after.links == before.links and after.devices == before.devices
    tolerance = NEAR if "mle" in method else SAME
    assert np.allclose(after.score, before.score, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", EVERY)
def test_how_it_is_written_does_not_matter(method: str, change: str) -> None:
    compare(method, change, 0)


@pytest.mark.nightly
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("method", EVERY)
def test_how_it_is_written_does_not_matter_of_many(method: str, change: str) -> None:
    for seed in range(1, 12):
        compare(method, change, seed)


@pytest.mark.parametrize("loss", [0.005, 0.02, 0.05, 0.2])
@pytest.mark.parametrize("method", ["netbouncer", "netbouncer-stage", "netscope", "detector"])
def test_a_path_of_5000_probes_in_up_to_a_hundred_rows(method: str, loss: float) -> None:
    """One of the bounces of a leaf-spine loses packets: its one link is found in any case."""
    fabric = leaf_spine(8, 6)
    paths = Ecmp(fabric).bounces()
    verdicts = []
    for parts in (1, 5, 20, 100):
        cuts = [np.round(np.linspace(0, n, parts + 1)).astype(int) for n in (5000, 5000 * loss)]
        sent, lost = (np.tile(np.diff(each), (len(paths), 1)) for each in cuts)
        lost[np.arange(len(paths)) != 19] = 0
        rows = paths.take(np.repeat(np.arange(len(paths)), parts))
        probes = Probes(rows, sent.reshape(-1), lost.reshape(-1))
        found = make_method(method).localize(
            Telemetry(fabric, "none", probes=probes, detector=probes)
        )
        verdicts.append(found)
    first = verdicts[0]
    assert set(first.flagged.tolist()) & set(paths[19].tolist())
    for other in verdicts[1:]:
        assert np.array_equal(first.flagged, other.flagged)
        assert np.array_equal(first.score, other.score)
